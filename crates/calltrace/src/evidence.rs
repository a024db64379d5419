//! Departure, arrival and fate of a packet. A known value comes with the evidence for it, an unknown value with the
//! reason.

use steadycast_units::{PeerTime, Time};

/// When a packet left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// The packet carries its send time. The time is in abs-send-time, or in the time stamp of this project's own
    /// sessions.
    Stamped(Time),
    /// The recording was made where packets left, so the recorded time is the departure.
    Recorded(Time),
    /// The packet is not in the recording, or has no send time. The packets before and after it left near this time.
    Unknown(Time),
}

impl Departure {
    /// Returns the departure. If it is unknown, returns a time near the departures of neighbouring packets.
    pub fn near(self) -> Time {
        match self {
            Self::Stamped(at) | Self::Recorded(at) | Self::Unknown(at) => at,
        }
    }

    /// Returns the departure if it is known.
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
    /// The recording was made where packets arrived, so the recorded time is the arrival.
    Recorded(PeerTime),
    /// Transport-wide feedback or RFC 8888 feedback reports this time.
    Reported(PeerTime),
    /// The arrival time is unknown.
    Unknown(Unknown),
}

impl Arrival {
    /// Returns the arrival if it is known.
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
    /// The packet arrived.
    Arrived(Evidence),
    /// The packet was lost on its way.
    Lost(Evidence),
    /// It is unknown whether the packet arrived.
    Unknown(Unknown),
}

/// How it is known whether a packet arrived. If a recording at the receiver contains the packet with its time, this is
/// the evidence. Otherwise, the receiver's reports take precedence over the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// A report on individual packets: transport-wide feedback or RFC 8888.
    Feedback,
    /// The cumulative loss count in receiver reports (RFC 3550, section 6.4.1).
    ReceiverReport,
    /// The recording, which was made at the receiver, contains the packet.
    Record,
    /// The receiver's recording does not contain the packet, but contains sequence numbers before and after it.
    Gap,
}

/// Why a packet's arrival or fate is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// The packet did not arrive.
    Lost,
    /// The recording has no report on the packet.
    NotReported,
    /// A report lists the packet as received, but without an arrival time.
    TimeNotReported,
    /// The packet is not in the recording, and there is no other evidence.
    Unrecorded,
    /// The recording has the packet, but without a time.
    Untimed,
    /// The delay would be impossible, so the arrival time is not trusted.
    Contradictory,
    /// The packet was lost, or the recording is unreadable or has a gap there.
    LostOrUnread,
    /// The packet was lost on the path, or dropped by the capturing program. The recording does not show when the
    /// program dropped packets.
    LostOrDropped,
}
