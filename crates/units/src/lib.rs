//! The quantities that Steadycast uses: times, rates and amounts of data.
//!
//! A [`Time`] is a point in time, and a [`Span`] is a length of time. A [`Rate`] is in bits per second on the wire, and
//! [`Bytes`] is an amount of data. They are combined with `Bytes::per(Span)`, `Bytes::at(Rate)` and `Rate::over(Span)`.
//! Other combinations do not compile.
//!
//! A [`Time`] is on the local clock, and a [`PeerTime`] is on the remote clock. Their difference is a [`OneWay`]. It
//! contains the unknown offset between the clocks, so only its variation is meaningful.

#[macro_use]
mod sums;

mod amount;
mod bucket;
mod chance;
mod clock;
mod ecn;
mod spread;
mod steps;
mod text;

pub use amount::{Bytes, Rate};
pub use bucket::TokenBucket;
pub use chance::{Chance, Seed};
pub use clock::{Offset, OneWay, PeerTime, Span, Stamp, Time};
pub use ecn::Ecn;
pub use spread::Spread;
pub use steps::Steps;
pub use text::{QuantityError, counted};
