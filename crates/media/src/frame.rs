use steadycast_settings::words;
use steadycast_units::{Bytes, Time};

words! {
    /// How a frame is coded.
    #[derive(Default, PartialOrd, Ord)]
    pub enum FrameKind {
        /// An intra-coded frame. It depends on no other frame.
        #[default]
        I = "I",
        /// A frame that is predicted from the previous I or P frame.
        P = "P",
        /// A frame that is predicted from frames before and after it. No frame depends on a B frame.
        B = "B",
    }
    /// How the packets of a frame are sent.
    pub enum Emit {
        /// The packets are spread in time, at the pacing rate.
        Paced = "paced",
        /// All packets of the frame are sent in one burst, as in Evalvid-RA.
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
