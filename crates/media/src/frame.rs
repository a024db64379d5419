use steadycast_settings::words;
use steadycast_units::{Bytes, Time};

words! {
    /// How a frame is coded.
    #[derive(Default, PartialOrd, Ord)]
    pub enum FrameKind {
        /// Intra: needs no other frame.
        #[default]
        I = "I",
        /// Predicted from the I or P frame before.
        P = "P",
        /// Predicted from frames before and after it. No frame depends on it.
        B = "B",
    }
    /// How the packets of a frame are sent.
    pub enum Emit {
        /// Spread at the pacing rate.
        Paced = "paced",
        /// All packets of the frame in one burst, as Evalvid-RA does.
        Burst = "burst",
    }
}

/// A coded frame that is ready to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The frame's number in the flow, in coding order.
    pub index: u32,
    /// The frame's coding type.
    pub kind: FrameKind,
    /// The frame's size in bytes, without packet headers.
    pub size: Bytes,
    /// When the picture was sampled, on the sender's clock. Frames are displayed in the order of this time.
    pub sampled: Time,
}

/// The part of a frame that is sent in one packet. Needed for payload formats that can split a frame only at certain
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The number of bytes of the frame in this packet.
    pub len: u16,
    /// The length of the RTP payload in bytes, including the payload format's header.
    pub payload: u16,
}

/// The part of a frame that is sent in one packet, according to the sender's record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragment {
    /// The frame's number in the flow.
    pub frame: u32,
    /// The offset of the part from the start of the frame, in bytes.
    pub offset: u32,
    /// The length of the part in bytes.
    pub len: u16,
}
