use steadycast_settings::words;

words! {
    /// A session feature that a controller may require.
    #[non_exhaustive]
    #[derive(PartialOrd, Ord)]
    pub enum Need {
        /// Per-packet feedback: [`crate::Report::packets`].
        PacketReports = "packet reports",
        /// Arrival times of single packets, measured at the receiver: [`crate::PacketArrival::at`].
        ArrivalTimes = "arrival times",
        /// Probes and padding: [`crate::SenderHalf::probe`].
        Probes = "probes",
    }
}

impl Need {
    /// Returns a description that fits into a sentence.
    pub const fn about(self) -> &'static str {
        match self {
            Self::PacketReports => "reports that list which packets arrived, and when: RFC 8888",
            Self::ArrivalTimes => {
                "feedback with the time at which each packet arrived at the receiver, not only that of an \
                 acknowledgment"
            }
            Self::Probes => "a sender that can send short bursts above the target rate, and padding",
        }
    }
}
