//! A policer: packets beyond a rate are dropped as they come, and none waits. A packet passes if the bucket holds as
//! many tokens as the packet has bytes.

use steadycast_units::{Bytes, Rate, Span, Time};
use steadycast_words::{Within, settings};

settings! {
    /// A token bucket before the queue, which drops what does not conform (RFC 2697, with one bucket).
    #[derive(Copy, Eq)]
    Policer {
        /// The rate at which the bucket fills.
        rate: Rate where (RATE) => "write for example rate = \"4Mbps\"",
        /// What the bucket holds; it is full at the start.
        burst: Bytes where (BURST) => "write for example burst = \"30kB\"",
    }
}

const RATE: Within<Rate> =
    Within { least: Rate::bps(1_000), most: Rate::bps(1_000_000_000_000), remedy: "from \"1kbps\" to \"1Tbps\"" };
const BURST: Within<Bytes> =
    Within { least: Bytes::new(64), most: Bytes::new(1_000_000_000), remedy: "from \"64B\" to \"1GB\"" };

/// The bucket, as the time at which it will be full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    policer: Policer,
    /// How long it takes to fill.
    depth: Span,
    full: Time,
}

impl Bucket {
    pub(crate) fn new(policer: Policer) -> Self {
        Self { policer, depth: policer.burst.at(policer.rate), full: Time::ZERO }
    }

    pub(crate) const fn rate(&self) -> Rate {
        self.policer.rate
    }

    /// Whether a packet conforms; one that does takes its tokens.
    pub(crate) fn conforms(&mut self, now: Time, size: Bytes) -> bool {
        let full = self.full.max(now) + size.at(self.policer.rate);
        let conforms = full.since(now) <= self.depth;
        if conforms {
            self.full = full;
        }
        conforms
    }
}
