//! The quantities of Steadycast.
//!
//! A [`Time`] is a point in time, a [`Span`] a length of time, a [`Rate`] in bits per second on the wire, and
//! [`Bytes`] an amount of data. They combine by `Bytes::per(Span)`, `Bytes::at(Rate)` and `Rate::over(Span)`; other
//! combinations do not compile.
//!
//! [`Time`] is on the local clock, [`PeerTime`] on the remote one. Their difference, [`OneWay`], has an unknown
//! offset, so only its variation is meaningful.

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
