//! A policer drops packets beyond a rate on arrival and queues none.

use steadycast_settings::{Within, settings};
use steadycast_units::{Bytes, Rate};

settings! {
    /// A token bucket before the queue, which drops excess packets (RFC 2697, with one bucket).
    #[derive(Copy, Eq)]
    Policer {
        /// The rate at which the token bucket fills: the highest mean rate that passes.
        rate: Rate where (RATE) => "write for example rate = \"4Mbps\"",
        /// The size of the token bucket, which is full at the start: the largest burst that passes.
        burst: Bytes where (BURST) => "write for example burst = \"30kB\"",
    }
}

pub(crate) const RATE: Within<Rate> =
    Within { least: Rate::bps(1_000), most: Rate::bps(1_000_000_000_000), remedy: "from \"1kbps\" to \"1Tbps\"" };
pub(crate) const BURST: Within<Bytes> =
    Within { least: Bytes::new(64), most: Bytes::new(1_000_000_000), remedy: "from \"64B\" to \"1GB\"" };
