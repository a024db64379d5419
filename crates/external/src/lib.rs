//! Controllers and switching rules that are not part of this program. A Python class or another program decides.
//!
//! A [`Law`] receives reports, timers and packets, and returns decisions. [`Half`] turns a law into the sender part of
//! a controller. A [`Program`] is a law that can be written in any language (`docs/controllers-in-any-language.md`).
//!
//! A fault in a law stops the run and is stored as a [`Fault`]. The law is not called again. Its last valid rate
//! applies until the run has stopped.

mod answer;
mod fault;
mod half;
mod message;
#[cfg(unix)]
mod process;
#[cfg(unix)]
mod program;

pub use answer::{Hello, Wrong, decision, hello, rung};
pub use fault::{Fault, FaultSlot, Moment, one_line};
pub use half::{Decided, Event, Half, Law, LawReport};
#[cfg(unix)]
pub use program::{LOG_BYTES, Program, Timeouts};
