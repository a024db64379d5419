//! The quantities of Steadycast.
//!
//! A [`Time`] is a point on one clock, a [`Span`] a length of time, a [`Rate`] bits per second on the wire, [`Bytes`]
//! an amount. Their algebra is closed: `Bytes / Span = Rate`, `Bytes / Rate = Span`, `Rate * Span = Bytes`. Nothing
//! else compiles, which prevents errors by a factor of 8 or 1000.
//!
//! Two clocks are two types: [`Time`] is the local clock, [`PeerTime`] the remote one. Their difference is an
//! [`OneWay`], of which only the variation is meaningful.

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
