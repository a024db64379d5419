//! Controllers and switching rules outside this program: a class or another program decides.
//!
//! A [`Law`] receives reports, timers and packets, and returns decisions; [`Half`] turns it into a controller's sender
//! half. A [`Program`] is a law in any language (`docs/controllers-in-any-language.md`).
//!
//! A fault in a law stops the run and is stored as a [`Fault`]. The law is no longer called, and its last valid rate
//! applies until the run stops.

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
