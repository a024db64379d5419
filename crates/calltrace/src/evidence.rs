//! A packet's departure, arrival and fate: known by stated evidence, or unknown for a stated reason.

use steadycast_units::{PeerTime, Time};

/// When a packet left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// The packet carries its send time: abs-send-time, or the stamp of our sessions.
    Stamped(Time),
    /// The record was made where packets left, and this is its time.
    Recorded(Time),
    /// Unknown: the packet is not in the record, or carries no send time. The packets around it left near this time.
    Unknown(Time),
}

impl Departure {
    /// Returns the time, or that of the packets around it if it is unknown.
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
    /// The record was made where packets arrived, and this is its time.
    Recorded(PeerTime),
    /// The receiver reported it: transport-wide feedback or RFC 8888.
    Reported(PeerTime),
    /// It is unknown.
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
    /// It is unknown whether it arrived.
    Unknown(Unknown),
}

/// The evidence of a packet's fate. The receiver's reports take precedence over a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Reports on single packets: transport-wide feedback or RFC 8888.
    Feedback,
    /// The cumulative loss of receiver reports (RFC 3550, section 6.4.1).
    ReceiverReport,
    /// It is in the record that was made at the receiver.
    Record,
    /// The record that was made at the receiver has its neighbours by number, but not the packet.
    Gap,
}

/// Why something about a packet is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// The packet did not arrive.
    Lost,
    /// No report in the record is about the packet.
    NotReported,
    /// It is reported as arrived, without a time.
    TimeNotReported,
    /// The packet is not in the record, and there is no other evidence of it.
    Unrecorded,
    /// The packet is in the record, without a time.
    Untimed,
    /// Beside the other packets' times, its time would be an impossible delay.
    Contradictory,
    /// The packet was lost, or it is missing in the record because a part of that can't be read or was not recorded.
    LostOrUnread,
    /// As [`Unknown::LostOrUnread`], but the record may lack any packet: it is unknown which ones it dropped.
    LostOrDropped,
}
