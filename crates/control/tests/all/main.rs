//! The tests of the controllers in one program, so that their harness is compiled once.

mod asmp;
mod bye;
mod fixed;
mod gcc;
mod group;
mod harness;
mod lda_plus;
mod multfrc;
mod nada;
mod pgmcc;
mod rbuf;
mod scream;
mod steady;
mod tfmcc;
mod tfrc;
mod tfrcp;
