use std::fmt;

/// What a controller cannot do without and a session may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Need {
    /// Reports that tell of single packets: [`crate::Report::packets`].
    PacketReports,
    /// Probes and padding: [`crate::SenderHalf::probe`].
    Probes,
}

impl Need {
    /// Its name in lists.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PacketReports => "packet reports",
            Self::Probes => "probes",
        }
    }

    /// What it is, in a sentence.
    pub const fn about(self) -> &'static str {
        match self {
            Self::PacketReports => "Its receivers' reports tell which packets arrived, and when (RFC 8888).",
            Self::Probes => "Its sender can send bursts at a rate of their own, and padding.",
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
