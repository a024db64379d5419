//! The quantities of Steadycast.
//!
//! A [`Time`] is a point in time on one clock, a [`Span`] a length of time, a [`Rate`] a number of bits per second on
//! the wire, and [`Bytes`] an amount of data. They combine with `Bytes::per(Span)` (a rate), `Bytes::at(Rate)` (a span)
//! and `Rate::over(Span)` (an amount). Other combinations do not compile, which prevents errors by a factor of 8 or
//! 1000.
//!
//! Each clock has its own type: [`Time`] is on the local clock, [`PeerTime`] on the remote clock. The difference
//! between them is a [`OneWay`]. It includes the unknown offset between the clocks, so only its variation is
//! meaningful.

#[macro_use]
mod sums;

mod amount;
mod bucket;
mod chance;
mod clock;
mod ecn;
mod spread;
mod text;

pub use amount::{Bytes, Rate};
pub use bucket::TokenBucket;
pub use chance::{Chance, Seed};
pub use clock::{Offset, OneWay, PeerTime, Span, Stamp, Time};
pub use ecn::Ecn;
pub use spread::Spread;
pub use text::{QuantityError, counted};
