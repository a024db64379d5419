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
    /// Returns the need's description, as a sentence.
    pub const fn about(self) -> &'static str {
        match self {
            Self::PacketReports => "Its receivers' reports tell which packets arrived, and when (RFC 8888).",
            Self::ArrivalTimes => {
                "Its feedback has the time at which each packet arrived, not that of an acknowledgement."
            }
            Self::Probes => "Its sender can send bursts at a rate of their own, and padding.",
        }
    }
}
