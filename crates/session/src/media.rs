use steadycast_control::Notice;
use steadycast_media::Fragment;
use steadycast_units::Bytes;
use steadycast_wire::rtp::{Element, RtpHeader};

/// An RTP packet: its header, the controller's notice and what it carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Media {
    /// The header, with the send time.
    pub header: RtpHeader,
    /// What the sender half sends along.
    pub notice: Notice,
    /// Which bytes it carries.
    pub fragment: Fragment,
    /// Its place among all packets that the session has sent, of all its streams, from 0 on.
    pub number: u64,
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
