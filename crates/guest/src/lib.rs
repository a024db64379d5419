//! Controllers from outside: what a class, or another program, decides becomes a pair of halves.
//!
//! A [`Law`] is told of reports, timers and packets, and answers with what it wants; [`Half`] makes a sender half of
//! it. A [`Program`] is a law in any language: a process that reads a line of JSON and writes one
//! (`docs/controllers-in-any-language.md`).
//!
//! A mistake in a law stops the run: it is kept as a [`Fault`] that names place, time and remedy. From then on the law
//! is not asked any more, and until the run notices, the half goes on with its last good rate.

mod answer;
mod fault;
mod half;
mod message;
#[cfg(unix)]
mod process;
#[cfg(unix)]
mod program;

pub use answer::{Hello, Wrong, decision, hello};
pub use fault::{Fault, FaultSlot, moment, one_line};
pub use half::{Decided, Event, Half, Heard, Law};
#[cfg(unix)]
pub use program::{LOG_BYTES, Patience, Program};
