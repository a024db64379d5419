use steadycast_control::Notice;
use steadycast_units::{Bytes, Time};
use steadycast_wire::rtp::{Element, RtpHeader};

/// How a frame is coded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrameKind {
    /// Intra: needs no other frame.
    #[default]
    I,
    /// Predicted from the I or P frame before.
    P,
    /// Predicted from both sides; nothing depends on it.
    B,
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

/// Which part of which frame a packet carries. It does not travel: who evaluates a run knows it from the sender's record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragment {
    /// The frame's number in the flow.
    pub frame: u32,
    /// Where in the frame it begins.
    pub offset: u32,
    /// How much of the frame it holds.
    pub len: u16,
}

/// An RTP packet: its header, the controller's notice and what it carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Media {
    /// The header, with the send time.
    pub header: RtpHeader,
    /// What the sender half sends along.
    pub notice: Notice,
    /// Which bytes it carries.
    pub fragment: Fragment,
    /// Extended sequence number.
    pub seq: u64,
    /// Its IP size.
    pub size: Bytes,
}

impl Media {
    /// All of the datagram but its payload, which is to follow, appended to `out`.
    pub fn encode_header(&self, out: &mut Vec<u8>) {
        let bare = RtpHeader { payload_len: 0, ..self.header };
        bare.encode(elements(&self.notice).as_slice(), &[], out);
    }

    /// The datagram, with `payload` in it, appended to `out`.
    pub fn encode(&self, payload: &[u8], out: &mut Vec<u8>) {
        self.header.encode(elements(&self.notice).as_slice(), payload, out);
    }
}

/// The notice as header extension elements: one, or none.
pub(crate) fn elements(notice: &Notice) -> Vec<Element<'_>> {
    if notice.is_empty() { Vec::new() } else { vec![(notice.id(), notice.bytes())] }
}

/// IP size of a packet with this header and notice, without its payload.
pub(crate) fn overhead(header: &RtpHeader, notice: &Notice) -> Bytes {
    let bare = RtpHeader { payload_len: 0, ..*header };
    if notice.is_empty() { bare.packet_size(&[]) } else { bare.packet_size(&[(notice.id(), notice.bytes())]) }
}
