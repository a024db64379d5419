use crate::feedback::TRANSPORT_NUMBER_ID;
use steadycast_control::{Notice, Stream};
use steadycast_media::Fragment;
use steadycast_units::{Bytes, Ecn};
use steadycast_wire::rtp::{Element, RtpHeader};
use steadycast_wire::rtx::{self, RtxStream};

/// An RTP packet of one of a session's streams: its header, the controller's notice and what it carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Media {
    /// The header, with the send time.
    pub header: RtpHeader,
    /// What the sender half sends along.
    pub notice: Notice,
    /// The bytes of the frame that it carries.
    pub fragment: Fragment,
    /// Its place among all packets that the session has sent, of all its streams, from 0 on.
    pub number: u64,
    /// The number's low 16 bits, where they travel in a header extension for transport-wide feedback.
    pub transport: Option<u16>,
    /// Its stream.
    pub stream: Stream,
    /// Extended sequence number in its stream.
    pub seq: u64,
    /// The extended number of the original that it sends again; `None` in the media.
    pub repairs: Option<u64>,
    /// Its IP size.
    pub size: Bytes,
    /// The ECN field of its IP header: as it leaves, at a receiver as it arrived.
    pub ecn: Ecn,
}

impl Media {
    /// The transport-wide number as its header extension element holds it.
    fn transport_number(&self) -> Option<[u8; 2]> {
        self.transport.map(u16::to_be_bytes)
    }

    /// Bytes of the payload, without the number of the original that stands before it in a retransmission.
    pub fn payload_len(&self) -> usize {
        let number = if self.repairs.is_some() { rtx::OSN } else { 0 };
        usize::from(self.header.payload_len).saturating_sub(number)
    }

    /// All of the datagram but its payload, which is to follow, appended to `out`.
    pub fn encode_header(&self, out: &mut Vec<u8>) {
        let bare = RtpHeader { payload_len: 0, ..self.header };
        bare.encode(&elements(&self.notice, self.transport_number().as_ref()), &[], out);
        if let Some(original) = self.repairs {
            RtxStream::write_payload(original as u16, &[], out);
        }
    }

    /// The datagram, with `payload` in it, appended to `out`.
    pub fn encode(&self, payload: &[u8], out: &mut Vec<u8>) {
        self.encode_header(out);
        out.extend_from_slice(payload);
    }
}

/// The elements of a packet's header extension, besides the send time: the controller's notice, and the transport-wide
/// number.
pub(crate) fn elements<'a>(notice: &'a Notice, number: Option<&'a [u8; 2]>) -> Vec<Element<'a>> {
    let notice = (!notice.is_empty()).then(|| (notice.id(), notice.bytes()));
    notice.into_iter().chain(number.map(|number| (TRANSPORT_NUMBER_ID, &number[..]))).collect()
}

/// IP size of a packet with this header and notice, without its payload; `numbered`: it carries a transport-wide
/// number.
pub(crate) fn overhead(header: &RtpHeader, notice: &Notice, numbered: bool) -> Bytes {
    let bare = RtpHeader { payload_len: 0, ..*header };
    if notice.is_empty() && !numbered {
        return bare.packet_size(&[]);
    }
    bare.packet_size(&elements(notice, numbered.then_some(&[0; 2])))
}
