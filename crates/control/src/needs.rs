use std::fmt;

/// What a controller cannot do without and a session may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Need {
    /// Reports that tell of single packets: [`crate::Report::packets`].
    PacketReports,
    /// ECN-capable packets on a path whose marks the receiver sees.
    Ecn,
    /// The pacer's queue: [`crate::SenderHalf::on_queue`].
    Queue,
    /// Probes and padding: [`crate::SenderHalf::probe`].
    Probes,
}

impl Need {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::PacketReports, Self::Ecn, Self::Queue, Self::Probes];

    /// Its name in lists.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PacketReports => "packet reports",
            Self::Ecn => "ecn",
            Self::Queue => "queue",
            Self::Probes => "probes",
        }
    }

    /// What it is, in a sentence.
    pub const fn about(self) -> &'static str {
        match self {
            Self::PacketReports => "Its receivers' reports tell which packets arrived, and when (RFC 8888).",
            Self::Ecn => "Its packets are ECN-capable, and its receivers see the marks.",
            Self::Queue => "Its sender is told of the frames that wait; a source without frames has none.",
            Self::Probes => "Its sender can send bursts at a rate of their own, and padding.",
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
