use crate::feedback::TRANSPORT_NUMBER_ID;
use steadycast_control::{Notice, Stream};
use steadycast_media::Fragment;
use steadycast_units::{Bytes, Ecn};
use steadycast_wire::rtp::{Element, RtpHeader, absolute};
use steadycast_wire::rtx::{self, RtxStream};

/// The header extension in which packets contain their send time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendTime {
    /// The header extension that Steadycast defines ([`steadycast_wire::rtp::SEND_TIME_ID`]).
    #[default]
    Ours,
    /// The abs-send-time header extension with this id. Its send time has 24 bits.
    Absolute(u8),
    /// Packets do not contain their send time.
    Omitted,
}

/// The ids of the header extensions that are independent of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderIds {
    /// The id of the extension that contains the transport-wide sequence number.
    pub transport: u8,
    /// The extension that contains the send time.
    pub send_time: SendTime,
}

impl Default for HeaderIds {
    fn default() -> Self {
        Self { transport: TRANSPORT_NUMBER_ID, send_time: SendTime::Ours }
    }
}

impl HeaderIds {
    /// Calls `write` with the RTP header and the elements of its extension. The header's payload length is zero.
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
        // Add the controller's extension only together with Steadycast's own form of the send time. Receivers that
        // expect another form may use the extension's id for another purpose.
        let notice = (self.send_time == SendTime::Ours && !notice.is_empty()).then(|| (notice.id(), notice.bytes()));
        let number = number.as_ref().map(|number| (self.transport, &number[..]));
        let stamp = stamp.as_ref().map(|(id, stamp)| (*id, &stamp[..]));
        let elements: Vec<Element<'_>> = notice.into_iter().chain(number).chain(stamp).collect();
        write(&RtpHeader { payload_len: 0, send_time: ours, ..*header }, &elements)
    }
}

/// An RTP packet of one of a session's streams.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Media {
    /// The RTP header, with the send time.
    pub header: RtpHeader,
    /// The controller's header extension.
    pub notice: Notice,
    /// The part of a frame that the packet contains.
    pub fragment: Fragment,
    /// The packet's number, starting at 0. All streams of the session share these numbers.
    pub number: u64,
    /// The low 16 bits of `number`, for transport-wide feedback.
    pub transport: Option<u16>,
    /// The ids of the header extensions.
    pub ids: HeaderIds,
    /// The packet's stream.
    pub stream: Stream,
    /// The extended sequence number of the packet in its stream.
    pub seq: u64,
    /// For a retransmission, the extended sequence number of the original packet.
    pub repairs: Option<u64>,
    /// The packet's IP size.
    pub size: Bytes,
    /// The ECN field with which the packet is sent. At a receiver, the ECN field with which it arrived.
    pub ecn: Ecn,
}

impl Media {
    /// Returns whether the packet is an original video packet. Audio, repair packets and padding are not.
    pub fn is_video(&self) -> bool {
        self.stream == Stream::Media
    }

    /// Returns the length of the payload. For a retransmission, the original sequence number is not included.
    pub fn payload_len(&self) -> usize {
        let number = if self.repairs.is_some() { rtx::OSN } else { 0 };
        usize::from(self.header.payload_len).saturating_sub(number)
    }

    /// Appends the part of the datagram that precedes its payload to `out`.
    pub fn encode_header(&self, out: &mut Vec<u8>) {
        let Self { header, notice, transport, .. } = self;
        self.ids.laid_out(header, notice, *transport, |bare, elements| bare.encode(elements, &[], out));
        if let Some(original) = self.repairs {
            RtxStream::write_payload(original as u16, &[], out);
        }
    }

    /// Appends the whole datagram, with the payload `payload`, to `out`.
    pub fn encode(&self, payload: &[u8], out: &mut Vec<u8>) {
        self.encode_header(out);
        out.extend_from_slice(payload);
    }
}

/// Returns the IP size of a packet without payload. `numbered` is whether the packet contains a transport-wide sequence
/// number.
pub(crate) fn overhead(header: &RtpHeader, notice: &Notice, ids: HeaderIds, numbered: bool) -> Bytes {
    ids.laid_out(header, notice, numbered.then_some(0), RtpHeader::packet_size)
}
