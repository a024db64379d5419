//! The RTP header and its header extension (RFC 3550, section 5.1; RFC 8285).

use crate::bytes::{Reader, to_words};
use crate::{IP_UDP_OVERHEAD, ParseError, is_rtcp};
use steadycast_units::{Bytes, Stamp};

/// ID of the extension element that carries the send time: 32 bits in units of 2⁻¹⁸ s.
pub const SEND_TIME_ID: u8 = 1;

const FIXED: usize = 12;
const ONE_BYTE_PROFILE: u16 = 0xBEDE;
const TWO_BYTE_PROFILE: u16 = 0x1000;

/// Returns the low 24 bits of a send time, as in libwebrtc's abs-send-time extension.
pub fn absolute(Stamp(stamp): Stamp) -> [u8; 3] {
    let [_, low @ ..] = stamp.to_be_bytes();
    low
}

/// An extension element to be written. It has an ID, which is not 0, and up to 255 bytes of data.
pub type Element<'a> = (u8, &'a [u8]);

/// The header extension for transport-wide feedback (draft-holmer-rmcat-transport-wide-cc-extensions-01, section 2).
/// Version 2 (libwebrtc's `transport-wide-cc-02`) adds a request for a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportNumber {
    /// The transport-wide sequence number, modulo 2¹⁶.
    pub seq: u16,
    /// A request for an immediate report. Only version 2 has it.
    pub request: Option<ReportRequest>,
}

/// The packets and the details that a requested report must contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportRequest {
    /// Whether the report includes arrival times.
    pub timed: bool,
    /// Number of packets that the report describes, 0…32767. The last of them is the packet with this request. With 0,
    /// no report is requested.
    pub packets: u16,
}

impl TransportNumber {
    /// Appends the element's 2 or 4 bytes of data to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.seq.to_be_bytes());
        if let Some(ReportRequest { timed, packets }) = self.request {
            out.extend_from_slice(&(u16::from(timed) << 15 | packets & 0x7fff).to_be_bytes());
        }
    }

    /// Parses an element's data. Returns `None` if the length is neither 2 nor 4 bytes.
    pub fn read(data: &[u8]) -> Option<Self> {
        let word = |at: usize| data.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]));
        let request = |word: u16| ReportRequest { timed: word & 0x8000 != 0, packets: word & 0x7fff };
        matches!(data.len(), 2 | 4).then_some(Self { seq: word(0)?, request: word(2).map(request) })
    }
}

/// Writes a transport-wide sequence number into the header extension element `id` of an RTP packet.
///
/// A missing element is added at the end. The packet grows by at most 8 bytes.
///
/// # Errors
/// The packet is not RTP, its extension has a form that RFC 8285 does not define, `id` is 0 or does not fit into the
/// extension's form, or the extension is full. The packet is unchanged after an error.
pub fn set_transport_number(packet: &mut Vec<u8>, id: u8, seq: u16) -> Result<(), ParseError> {
    let (_, extensions, payload) = RtpHeader::padded(packet)?;
    let payload_at = packet.len() - payload.len();
    let extended = packet[0] & 0x10 != 0;
    let needed = if (1..=14).contains(&id) { Form::OneByte } else { Form::TwoByte };
    let form = if extended { extensions.form } else { Some(needed) };
    let form = form.filter(|form| id != 0 && (*form == Form::TwoByte || needed == Form::OneByte));
    let unfit = ParseError::Unsupported { what: "a header extension that can't carry the element" };
    let Some(form) = form else { return Err(unfit) };
    if let Some(at) = extensions.place(id, payload_at) {
        packet[at..at + 2].copy_from_slice(&seq.to_be_bytes());
        return Ok(());
    }
    let mut elements = extensions.rest.to_vec();
    form.write((id, &seq.to_be_bytes()), &mut elements);
    elements.resize(to_words(elements.len()), 0);
    // Check that the new element can be read back. An element with ID 15, for example, ends the list and hides the
    // elements after it.
    let readable = Extensions { form: Some(form), rest: &elements }.place(id, elements.len()).is_some();
    let words = u16::try_from(elements.len() / 4).ok().filter(|_| readable);
    let Some(words) = words else { return Err(unfit) };
    let profile_at = FIXED + usize::from(packet[0] & 0x0f) * 4;
    // Keep the profile of an existing extension, because its low four bits belong to the application.
    let profile = if extended { [packet[profile_at], packet[profile_at + 1]] } else { form.profile().to_be_bytes() };
    packet[0] |= 0x10;
    packet.splice(profile_at..payload_at, [&profile[..], &words.to_be_bytes(), &elements].concat());
    Ok(())
}

/// A set of RTP payload types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PayloadTypes(u128);

impl PayloadTypes {
    /// Returns whether the payload type is in the set.
    pub const fn contains(self, payload_type: u8) -> bool {
        payload_type < 128 && self.0 >> payload_type & 1 == 1
    }
}

impl FromIterator<u8> for PayloadTypes {
    /// Creates the set of the given payload types. Values above 127 are ignored.
    fn from_iter<T: IntoIterator<Item = u8>>(types: T) -> Self {
        Self(types.into_iter().filter(|each| *each < 128).fold(0, |set, each| set | 1 << each))
    }
}

/// An RTP header and its send time. It does not include the payload and the other extension elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtpHeader {
    /// The payload type, 0…127.
    pub payload_type: u8,
    /// The marker bit. In video it marks the last packet of a frame.
    pub marker: bool,
    /// The sequence number.
    pub seq: u16,
    /// The RTP timestamp, in ticks of the payload's clock.
    pub timestamp: u32,
    /// The SSRC of the source.
    pub ssrc: u32,
    /// The send time on the sender's clock, from the extension element [`SEND_TIME_ID`].
    pub send_time: Option<Stamp>,
    /// The payload's length in bytes.
    pub payload_len: u16,
}

impl RtpHeader {
    /// Returns the length of the RTP header and its extension in bytes.
    pub fn wire_size(&self, extensions: &[Element<'_>]) -> usize {
        let form = Form::of(extensions);
        let elements = self.send_time.map_or(0, |_| form.element_size(4))
            + extensions.iter().map(|(_, data)| form.element_size(data.len())).sum::<usize>();
        FIXED + if elements == 0 { 0 } else { 4 + to_words(elements) }
    }

    /// Returns the size of the IP packet: IP, UDP, header, extension and payload.
    pub fn packet_size(&self, extensions: &[Element<'_>]) -> Bytes {
        Bytes::new((IP_UDP_OVERHEAD + self.wire_size(extensions) + usize::from(self.payload_len)) as u64)
    }

    /// Appends the packet to `out`. The extension has the one-byte form (RFC 8285) unless an element needs the two-byte
    /// form. An element needs it if its ID is above 14, if it is empty, or if it has more than 16 bytes.
    ///
    /// Each element must have at most 255 bytes. Its ID must be neither 0 nor [`SEND_TIME_ID`].
    pub fn encode(&self, extensions: &[Element<'_>], payload: &[u8], out: &mut Vec<u8>) {
        debug_assert_eq!(payload.len(), usize::from(self.payload_len), "the header was made for another payload");
        debug_assert!(self.payload_type < 128);
        let size = self.wire_size(extensions);
        out.reserve(size + payload.len());
        let start = out.len();
        let extended = size > FIXED;
        // The version is 2. The X bit is set if there is an extension (RFC 3550, section 5.1).
        out.push(0x80 | if extended { 0x10 } else { 0 });
        out.push(u8::from(self.marker) << 7 | self.payload_type & 0x7f);
        out.extend_from_slice(&self.seq.to_be_bytes());
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&self.ssrc.to_be_bytes());
        if extended {
            let form = Form::of(extensions);
            out.extend_from_slice(&form.profile().to_be_bytes());
            out.extend_from_slice(&(((size - FIXED - 4) / 4) as u16).to_be_bytes());
            if let Some(Stamp(stamp)) = self.send_time {
                form.write((SEND_TIME_ID, &stamp.to_be_bytes()), out);
            }
            for &element in extensions {
                form.write(element, out);
            }
            out.resize(start + size, 0);
        }
        out.extend_from_slice(payload);
    }

    /// Parses a datagram. Returns the header, the extension elements other than the send time, and the payload without
    /// padding. Skips contributing sources and extensions with an unknown profile.
    pub fn parse(datagram: &[u8]) -> Result<(Self, Extensions<'_>, &[u8]), ParseError> {
        let (mut header, extensions, mut payload) = Self::padded(datagram)?;
        if datagram.first().is_some_and(|flags| flags & 0x20 != 0) {
            let count = usize::from(payload.last().copied().unwrap_or(0));
            // The padding length counts its own byte (RFC 3550, section 5.1).
            if count == 0 || count > payload.len() {
                return Err(ParseError::Padding { count, len: payload.len() });
            }
            payload = &payload[..payload.len() - count];
            header.payload_len -= count as u16;
        }
        Ok((header, extensions, payload))
    }

    /// Parses a datagram that may belong to another protocol. Returns `None` if it is RTCP, if its version bits are not
    /// those of RTP (RFC 7983, section 7), or if its header is malformed. The payload includes padding, because SRTP
    /// encrypts the length of the padding.
    pub fn recognise(datagram: &[u8]) -> Option<(Self, &[u8])> {
        let read = (!is_rtcp(datagram)).then(|| Self::padded(datagram).ok())?;
        read.map(|(header, _, payload)| (header, payload))
    }

    /// Like [`RtpHeader::parse`], but the payload includes the padding.
    fn padded(datagram: &[u8]) -> Result<(Self, Extensions<'_>, &[u8]), ParseError> {
        let mut reader = Reader::new(datagram);
        let [flags, kind] = reader.array("RTP header")?;
        if flags >> 6 != 2 {
            return Err(ParseError::Version { got: flags >> 6 });
        }
        let seq = reader.u16("RTP header")?;
        let timestamp = reader.u32("RTP header")?;
        let ssrc = reader.u32("RTP header")?;
        reader.take(usize::from(flags & 0x0f) * 4, "contributing sources")?;
        let mut extensions = Extensions::NONE;
        if flags & 0x10 != 0 {
            let profile = reader.u16("extension header")?;
            let words = reader.u16("extension header")?;
            let data = reader.take(usize::from(words) * 4, "extension")?;
            extensions = Extensions::new(profile, data);
        }
        let payload = reader.rest;
        let payload_len = u16::try_from(payload.len())
            .map_err(|_| ParseError::TooMany { what: "bytes of payload", limit: usize::from(u16::MAX) })?;
        let header = Self {
            payload_type: kind & 0x7f,
            marker: kind & 0x80 != 0,
            seq,
            timestamp,
            ssrc,
            send_time: extensions.send_time(),
            payload_len,
        };
        Ok((header, extensions, payload))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    OneByte,
    TwoByte,
}

impl Form {
    fn of(extensions: &[Element<'_>]) -> Self {
        let fits = |(id, data): &Element<'_>| (1..=14).contains(id) && (1..=16).contains(&data.len());
        // Choose the form for all elements together, because the elements of a packet must have the same form.
        if extensions.iter().all(fits) { Self::OneByte } else { Self::TwoByte }
    }
    fn profile(self) -> u16 {
        match self {
            Self::OneByte => ONE_BYTE_PROFILE,
            Self::TwoByte => TWO_BYTE_PROFILE,
        }
    }
    fn element_size(self, len: usize) -> usize {
        len.min(255)
            + match self {
                Self::OneByte => 1,
                Self::TwoByte => 2,
            }
    }
    fn write(self, (id, data): Element<'_>, out: &mut Vec<u8>) {
        debug_assert!(id != 0 && data.len() <= 255, "element {id} of {} bytes", data.len());
        let data = &data[..data.len().min(255)];
        match self {
            // The one-byte form writes the length minus one (RFC 8285, section 4.2).
            Self::OneByte => out.push(id << 4 | (data.len() - 1) as u8),
            Self::TwoByte => out.extend_from_slice(&[id, data.len() as u8]),
        }
        out.extend_from_slice(data);
    }
}

/// The elements of a received header extension, except the send time. A truncated element ends the iteration (RFC
/// 8285).
#[derive(Clone, Copy, Debug)]
pub struct Extensions<'a> {
    form: Option<Form>,
    rest: &'a [u8],
}

impl<'a> Extensions<'a> {
    /// An extension without elements.
    pub const NONE: Self = Self { form: None, rest: &[] };

    fn new(profile: u16, rest: &'a [u8]) -> Self {
        let form = match profile {
            ONE_BYTE_PROFILE => Some(Form::OneByte),
            // The low four bits of the profile belong to the application, so all their values are accepted.
            0x1000..=0x100f => Some(Form::TwoByte),
            _ => None,
        };
        Self { form, rest }
    }

    /// Returns the index in the packet where the data of element `id` begins. `end` is the index where the extension
    /// ends. Elements with fewer than two bytes are skipped.
    fn place(mut self, id: u8, end: usize) -> Option<usize> {
        while let Some((found, data)) = self.any() {
            if found == id && data.len() >= 2 {
                return Some(end - self.rest.len() - data.len());
            }
        }
        None
    }

    fn send_time(mut self) -> Option<Stamp> {
        while let Some(element) = self.any() {
            if let Some(stamp) = as_send_time(element) {
                return Some(stamp);
            }
        }
        None
    }

    fn any(&mut self) -> Option<Element<'a>> {
        let form = self.form?;
        loop {
            let (&first, rest) = self.rest.split_first()?;
            self.rest = rest;
            if first == 0 {
                continue; // padding, allowed between elements too
            }
            let (id, len) = match form {
                Form::OneByte => (first >> 4, usize::from(first & 0x0f) + 1),
                Form::TwoByte => {
                    let (&len, rest) = self.rest.split_first()?;
                    self.rest = rest;
                    (first, usize::from(len))
                }
            };
            // ID 15 ends the list of the one-byte form. So does ID 0 with a length (RFC 8285, section 4.2).
            let ends = form == Form::OneByte && matches!(id, 0 | 15);
            let Some((data, rest)) = self.rest.split_at_checked(len).filter(|_| !ends) else {
                self.rest = &[];
                return None;
            };
            self.rest = rest;
            return Some((id, data));
        }
    }
}

fn as_send_time((id, data): Element<'_>) -> Option<Stamp> {
    let stamp = data.try_into().ok().filter(|_| id == SEND_TIME_ID)?;
    Some(Stamp(u32::from_be_bytes(stamp)))
}

impl<'a> Iterator for Extensions<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        loop {
            let element = self.any()?;
            if as_send_time(element).is_none() {
                return Some(element);
            }
        }
    }
}
