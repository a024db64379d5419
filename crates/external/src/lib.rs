//! Controllers outside this program: a class or another program decides, and this crate provides the controller's
//! halves.
//!
//! A [`Law`] receives reports, timers and packets, and returns decisions. [`Half`] turns a law into a
//! controller's sender half. A [`Program`] is a law in any language: a process that reads and writes lines of JSON
//! (`docs/controllers-in-any-language.md`).
//!
//! The rule that switches between the rungs of a stream can be a class or a program, too. Its input is declared in
//! [`switching_input`].
//!
//! A fault in a law stops the run. It is stored as a [`Fault`] with place, time and remedy. After that, the law is no
//! longer called. The half keeps its last valid rate until the run stops.

mod answer;
mod fault;
mod half;
mod message;
#[cfg(unix)]
mod process;
#[cfg(unix)]
mod program;
mod switching;

pub use answer::{Hello, Wrong, decision, hello, rung};
pub use fault::{Fault, FaultSlot, Moment, one_line};
pub use half::{Decided, Event, Half, Law, LawReport};
#[cfg(unix)]
pub use program::{LOG_BYTES, Program, Timeouts};
pub use switching::{InputField, InputValue, SWITCHING_INPUT};
