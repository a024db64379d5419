use crate::feedback::TRANSPORT_NUMBER_ID;
use steadycast_control::{Notice, Stream};
use steadycast_media::Fragment;
use steadycast_units::{Bytes, Ecn};
use steadycast_wire::rtp::{Element, RtpHeader, absolute};
use steadycast_wire::rtx::{self, RtxStream};

/// How the time at which a packet left travels with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendTime {
    /// As our receivers read it: [`steadycast_wire::rtp::SEND_TIME_ID`].
    #[default]
    Ours,
    /// In 24 bits, as abs-send-time, in the element of this id.
    Absolute(u8),
    /// Not at all.
    Omitted,
}

/// In which elements of the header extension a packet carries what is not its controller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderIds {
    /// The id of the transport-wide number.
    pub transport: u8,
    /// The send time's.
    pub send_time: SendTime,
}

impl Default for HeaderIds {
    fn default() -> Self {
        Self { transport: TRANSPORT_NUMBER_ID, send_time: SendTime::Ours }
    }
}

impl HeaderIds {
    /// Hands `write` a header without its payload's length, as it is to be written, and the elements beside what it
    /// writes itself: the controller's notice, the transport-wide number and abs-send-time.
    fn laid_out<T>(
        self,
        header: &RtpHeader,
        notice: &Notice,
        number: Option<u16>,
        write: impl FnOnce(&RtpHeader, &[Element<'_>]) -> T,
    ) -> T {
        let (ours, stamp) = match self.send_time {
            SendTime::Ours => (header.send_time, None),
            SendTime::Absolute(id) => (None, header.send_time.map(|stamp| (id, absolute(stamp)))),
            SendTime::Omitted => (None, None),
        };
        let number = number.map(u16::to_be_bytes);
        // Only a receiver of ours reads notices. To another one their ids are what it has agreed on, or nothing.
        let notice = (self.send_time == SendTime::Ours && !notice.is_empty()).then(|| (notice.id(), notice.bytes()));
        let number = number.as_ref().map(|number| (self.transport, &number[..]));
        let stamp = stamp.as_ref().map(|(id, stamp)| (*id, &stamp[..]));
        let elements: Vec<Element<'_>> = notice.into_iter().chain(number).chain(stamp).collect();
        write(&RtpHeader { payload_len: 0, send_time: ours, ..*header }, &elements)
    }
}

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
    /// The number's low 16 bits, where they travel along for transport-wide feedback.
    pub transport: Option<u16>,
    /// In which elements of the header extension that and the send time travel.
    pub ids: HeaderIds,
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
    /// Bytes of the payload, without the number of the original that stands before it in a retransmission.
    pub fn payload_len(&self) -> usize {
        let number = if self.repairs.is_some() { rtx::OSN } else { 0 };
        usize::from(self.header.payload_len).saturating_sub(number)
    }

    /// All of the datagram but its payload, which is to follow, appended to `out`.
    pub fn encode_header(&self, out: &mut Vec<u8>) {
        let Self { header, notice, transport, .. } = self;
        self.ids.laid_out(header, notice, *transport, |bare, elements| bare.encode(elements, &[], out));
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

/// IP size of a packet with this header and notice, without its payload; `numbered`: it carries a transport-wide
/// number.
pub(crate) fn overhead(header: &RtpHeader, notice: &Notice, ids: HeaderIds, numbered: bool) -> Bytes {
    ids.laid_out(header, notice, numbered.then_some(0), RtpHeader::packet_size)
}
