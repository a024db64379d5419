use steadycast_settings::words;

words! {
    /// A session feature that a controller may require.
    #[non_exhaustive]
    #[derive(PartialOrd, Ord)]
    pub enum Need {
        /// Per-packet feedback: [`crate::Report::packets`].
        PacketReports = "packet reports",
        /// Probes and padding: [`crate::SenderHalf::probe`].
        Probes = "probes",
    }
}

impl Need {
    /// Returns the need's description, as a sentence.
    pub const fn about(self) -> &'static str {
        match self {
            Self::PacketReports => "Its receivers' reports tell which packets arrived, and when (RFC 8888).",
            Self::Probes => "Its sender can send bursts at a rate of their own, and padding.",
        }
    }
}
