//! What is known of a packet's departure, arrival and fate, by which evidence; or why it is unknown.

use steadycast_units::{PeerTime, Time};

/// When a packet left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// The packet carries its send time: abs-send-time, or the stamp of our sessions.
    Stamped(Time),
    /// The record was made where packets left, and this is its time.
    Recorded(Time),
    /// Nothing shows it: the packet is not in the record, or carries no send time. Those around it left near this time.
    Unknown(Time),
}

impl Departure {
    /// Returns the time, or the one that the packets around it give.
    pub fn near(self) -> Time {
        match self {
            Self::Stamped(at) | Self::Recorded(at) | Self::Unknown(at) => at,
        }
    }

    /// Returns the time, where it is known.
    pub fn known(self) -> Option<Time> {
        match self {
            Self::Stamped(at) | Self::Recorded(at) => Some(at),
            Self::Unknown(_) => None,
        }
    }
}

/// When a packet arrived, on the receiver's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The record was made where packets arrived, and this is its time.
    Recorded(PeerTime),
    /// The receiver reported it: transport-wide feedback or RFC 8888.
    Reported(PeerTime),
    /// Nothing shows it.
    Unknown(Unknown),
}

impl Arrival {
    /// Returns the time, where it is known.
    pub fn known(self) -> Option<PeerTime> {
        match self {
            Self::Recorded(at) | Self::Reported(at) => Some(at),
            Self::Unknown(_) => None,
        }
    }
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrived.
    Arrived(Evidence),
    /// It was lost on its way.
    Lost(Evidence),
    /// Nothing shows whether it arrived.
    Unknown(Unknown),
}

/// What shows a packet's fate. The receiver's reports outrank a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Reports on single packets: transport-wide feedback or RFC 8888.
    Feedback,
    /// The cumulative loss of receiver reports (RFC 3550, section 6.4.1).
    ReceiverReport,
    /// The record where packets arrived has it.
    Record,
    /// The record where packets arrived has those around it, by their numbers.
    Gap,
}

/// Why something about a packet is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// The packet did not arrive.
    Lost,
    /// No report that is in the record speaks of the packet.
    NotReported,
    /// The reports say that it arrived, and not when.
    TimeNotReported,
    /// The packet is not in the record, and nothing else shows it.
    Unrecorded,
    /// The record has the packet, without a time.
    Untimed,
    /// Its time is not that of any network, beside those of the other packets.
    Contradictory,
    /// The packet was lost, or the record lacks it for another reason: a part of it can't be read or was not made.
    LostOrUnread,
    /// As [`Unknown::LostOrUnread`], where nothing shows which packets the record lacks: it may be any.
    LostOrDropped,
}
