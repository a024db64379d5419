//! A shaper: a token bucket between queue and transmitter, as a cable modem has one for its service class. A burst
//! leaves at the link's rate, the peak rate, until the bucket is empty; then packets wait in the queue and leave at the
//! sustained rate.

use crate::policer::{BURST, RATE};
use steadycast_units::{Bytes, Rate};
use steadycast_words::settings;

settings! {
    /// A token bucket behind the queue: packets wait for their tokens (DOCSIS 3.1 MULPI, C.2.2.7: maximum sustained
    /// traffic rate, and maximum traffic burst; the link's rate is the peak traffic rate).
    #[derive(Copy, Eq)]
    Shaper {
        /// The sustained rate, at which the bucket fills.
        rate: Rate where (RATE) => "write for example rate = \"20Mbps\"",
        /// What the bucket holds; it is full at the start.
        burst: Bytes where (BURST) => "write for example burst = \"1MB\"",
    }
}
