use crate::feedback::TRANSPORT_NUMBER_ID;
use steadycast_control::{Notice, Stream};
use steadycast_media::Fragment;
use steadycast_units::{Bytes, Ecn};
use steadycast_wire::rtp::{Element, RtpHeader, absolute};
use steadycast_wire::rtx::{self, RtxStream};

/// The form in which packets carry their send time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendTime {
    /// Steadycast's header extension ([`steadycast_wire::rtp::SEND_TIME_ID`]).
    #[default]
    Ours,
    /// A 24-bit abs-send-time extension with this id.
    Absolute(u8),
    /// None.
    Omitted,
}

/// The ids of the header extensions that do not belong to a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderIds {
    /// The id of the transport-wide sequence number.
    pub transport: u8,
    /// The form of the send time.
    pub send_time: SendTime,
}

impl Default for HeaderIds {
    fn default() -> Self {
        Self { transport: TRANSPORT_NUMBER_ID, send_time: SendTime::Ours }
    }
}

impl HeaderIds {
    /// Calls `write` with the RTP header and its extension elements. The payload's length in it is zero.
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
        // Other receivers may use these extension ids for something else.
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
    /// The range of a frame that the packet carries.
    pub fragment: Fragment,
    /// The packet's number among all streams' packets, starting at 0.
    pub number: u64,
    /// The low 16 bits of `number`, for transport-wide feedback.
    pub transport: Option<u16>,
    /// The ids of the header extensions.
    pub ids: HeaderIds,
    /// The packet's stream.
    pub stream: Stream,
    /// The extended sequence number in the packet's stream.
    pub seq: u64,
    /// A retransmission's original, as an extended sequence number.
    pub repairs: Option<u64>,
    /// The packet's IP size.
    pub size: Bytes,
    /// The ECN field as sent or, at a receiver, as received.
    pub ecn: Ecn,
}

impl Media {
    /// Returns whether the packet is original video, not audio, repair or padding.
    pub fn is_video(&self) -> bool {
        self.stream == Stream::Media
    }

    /// Returns the payload's length without a retransmission's original sequence number.
    pub fn payload_len(&self) -> usize {
        let number = if self.repairs.is_some() { rtx::OSN } else { 0 };
        usize::from(self.header.payload_len).saturating_sub(number)
    }

    /// Appends the datagram up to its payload to `out`.
    pub fn encode_header(&self, out: &mut Vec<u8>) {
        let Self { header, notice, transport, .. } = self;
        self.ids.laid_out(header, notice, *transport, |bare, elements| bare.encode(elements, &[], out));
        if let Some(original) = self.repairs {
            RtxStream::write_payload(original as u16, &[], out);
        }
    }

    /// Appends the datagram with this payload to `out`.
    pub fn encode(&self, payload: &[u8], out: &mut Vec<u8>) {
        self.encode_header(out);
        out.extend_from_slice(payload);
    }
}

/// Returns the IP size without payload. `numbered` is whether there is a transport-wide sequence number.
pub(crate) fn overhead(header: &RtpHeader, notice: &Notice, ids: HeaderIds, numbered: bool) -> Bytes {
    ids.laid_out(header, notice, numbered.then_some(0), RtpHeader::packet_size)
}
