//! The quantities that everything in Steadycast is said in.
//!
//! A [`Time`] is a point on one clock, a [`Span`] a length of time, a [`Rate`] bits per second on the wire,
//! [`Bytes`] an amount. Their algebra is closed: `Bytes / Span = Rate`, `Bytes / Rate = Span`,
//! `Rate * Span = Bytes`; nothing else compiles, so that a factor of 8 or 1000 has nowhere to hide.
//!
//! Two clocks are two types: [`Time`] is the clock of the party that is told it, [`PeerTime`] the other end's. Their
//! difference is an [`OneWay`], of which only the variation may be used.

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
