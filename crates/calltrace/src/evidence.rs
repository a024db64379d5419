//! A packet's departure, arrival and fate: known by stated evidence, or unknown for a stated reason.

use steadycast_units::{PeerTime, Time};

/// When a packet left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// The packet carries its send time: abs-send-time, or the time stamp of this project's own sessions.
    Stamped(Time),
    /// The recording was made where packets left.
    Recorded(Time),
    /// The packet is not in the recording, or has no send time; those before and after it left near this time.
    Unknown(Time),
}

impl Departure {
    /// Returns the time, or the time of neighbouring packets if it is unknown.
    pub fn near(self) -> Time {
        match self {
            Self::Stamped(at) | Self::Recorded(at) | Self::Unknown(at) => at,
        }
    }

    /// Returns the time if it is known.
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
    /// The recording was made where packets arrived.
    Recorded(PeerTime),
    /// The time that transport-wide feedback or RFC 8888 reports.
    Reported(PeerTime),
    /// The arrival time is unknown.
    Unknown(Unknown),
}

impl Arrival {
    /// Returns the time if it is known.
    pub fn known(self) -> Option<PeerTime> {
        match self {
            Self::Recorded(at) | Self::Reported(at) => Some(at),
            Self::Unknown(_) => None,
        }
    }
}

/// Whether a packet arrived or was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrived.
    Arrived(Evidence),
    /// It was lost on its way.
    Lost(Evidence),
    /// It is unknown whether the packet arrived.
    Unknown(Unknown),
}

/// The receiver's reports take precedence over a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Reports on single packets: transport-wide feedback or RFC 8888.
    Feedback,
    /// The cumulative loss of receiver reports (RFC 3550, section 6.4.1).
    ReceiverReport,
    /// The recording, which was made at the receiver.
    Record,
    /// The packet is missing in the receiver's recording, which has sequence numbers before and after it.
    Gap,
}

/// The reason why something about a packet is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// The packet did not arrive.
    Lost,
    /// No report in the recording is about the packet.
    NotReported,
    /// The packet was reported as arrived, but without a time.
    TimeNotReported,
    /// The packet is not in the recording, and there is no other evidence.
    Unrecorded,
    /// The packet is in the recording, without a time.
    Untimed,
    /// Its delay would be impossible.
    Contradictory,
    /// The packet was lost, or its part of the recording is unreadable or absent.
    LostOrUnread,
    /// The packet was lost on the path or dropped by the capturing program. The recording does not show when packets
    /// were dropped.
    LostOrDropped,
}
