//! A token bucket between queue and transmitter (DOCSIS). A burst leaves at the link's rate until the bucket is
//! empty, then packets leave at the sustained rate.

use crate::policer::{BURST, RATE};
use steadycast_settings::settings;
use steadycast_units::{Bytes, Rate};

settings! {
    /// A token bucket behind the queue. A packet waits until the bucket contains enough tokens (DOCSIS 3.1 MULPI, annex
    /// C.2.2.7).
    #[derive(Copy, Eq)]
    Shaper {
        /// The rate at which the token bucket fills: the sustained rate of the link.
        rate: Rate where (RATE) => "write for example rate = \"20Mbps\"",
        /// The size of the token bucket: the largest burst at the link's own rate. The bucket is full at the start.
        burst: Bytes where (BURST) => "write for example burst = \"1MB\"",
    }
}
