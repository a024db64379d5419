use steadycast_units::{Bytes, Time};
use steadycast_words::words;

words! {
    /// How a frame is coded.
    #[derive(Default, PartialOrd, Ord)]
    pub enum FrameKind {
        /// Intra: needs no other frame.
        #[default]
        I = "I",
        /// Predicted from the I or P frame before.
        P = "P",
        /// Predicted from both sides; nothing depends on it.
        B = "B",
    }
    /// How packets of a frame leave.
    pub enum Emit {
        /// Spread at the pacing rate.
        Paced = "paced",
        /// All of them at once, as Evalvid-RA does.
        Burst = "burst",
    }
}

/// A coded frame that is ready to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its number in the flow, in coding order.
    pub index: u32,
    /// How it is coded.
    pub kind: FrameKind,
    /// Its size, without any header.
    pub size: Bytes,
    /// When it is to be shown, relative to other frames: the media clock, on the sender's clock.
    pub sampled: Time,
}

/// How much of a frame goes into one packet, where the payload format says so: codecs' units are not divided at will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Bytes of the frame that it stands for.
    pub len: u16,
    /// Bytes of payload, the payload format's header included.
    pub payload: u16,
}

/// The part of a frame that a packet carries. It does not travel: an evaluation has it from the sender's record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragment {
    /// The frame's number in the flow.
    pub frame: u32,
    /// Where in the frame it begins.
    pub offset: u32,
    /// How much of the frame it holds.
    pub len: u16,
}
