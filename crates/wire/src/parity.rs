//! Parity packets: a Reed–Solomon code over the packets of a block, so that any k of its k + r packets give all k back.
//!
//! Media is sent unchanged. Parity is a stream of its own, with its own source, numbers and payload type, whose payload
//! is ours (a receiver of FlexFEC, RFC 8627, ignores it, since it begins with the reserved bits 11):
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! |1 1| version 0 |    packets    |             base              |
//! |     index     |     sent      |               0               |
//! :                         parity symbol                         :
//! ```
//!
//! A block is `packets` packets of one source with the numbers from `base` on. A packet's symbol is, most significant
//! byte first,
//!
//! ```text
//! | length of the rest (16) | header bytes 0 and 1, V and X cleared (16) | time stamp (32) | rest |
//! ```
//!
//! where the rest is all behind the 12th byte but the header extension. So it says all of the packet that a decoder
//! needs, but for its number, which its place in the block gives, and its source; and the retransmission of a packet
//! (RFC 4588), whose extension is its own, has the same symbol. Symbols are filled up with zeros to the longest of
//! their block. With 8 bits of each symbol as an element of GF(2⁸), polynomial x⁸ + x⁴ + x³ + x² + 1 (0x11D), parity i
//! (0…63) of the symbols s of the packets j (0…63) is
//!
//! ```text
//! p_i = Σ_j c_ij · s_j,    c_ij = (0x80 ⊕ j) / (0x80 ⊕ i ⊕ j)
//! ```
//!
//! The c_ij are a Cauchy matrix, 1 / (x_i ⊕ y_j) with x_i = 0x80 ⊕ i and y_j = j, with column j scaled by x_0 ⊕ y_j.
//! Every square part of such a matrix can be inverted, hence any k symbols suffice; and parity 0 is the plain XOR.
//!
//! The code is our own: the crates for this field fix another matrix (Vandermonde, or Cauchy without a row of ones), or
//! are many times as long as this is.

use crate::ParseError;
use crate::bytes::Reader;

/// A block has no more packets.
pub const MAX_PACKETS: u8 = 64;
/// A block has no more parities: their indices are 0…63.
pub const MAX_PARITIES: u8 = 64;
/// Bytes of the payload header.
pub const HEADER: usize = 8;
/// Bytes of a symbol before those of a packet's contributing sources and payload.
pub const SYMBOL_HEAD: usize = 8;
const FIXED: usize = 12;
const EXTENSION: u8 = 0x10;

/// The payload header of a parity packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParityHeader {
    /// Packets of the block, 1…64.
    pub packets: u8,
    /// The number of its first packet.
    pub base: u16,
    /// The number of this parity in its block, 0…63.
    pub index: u8,
    /// Parities of the block that have been sent so far, this one included: more than `index`, at most 64.
    pub sent: u8,
}

impl ParityHeader {
    /// Appends the payload to `out`.
    pub fn write(&self, symbol: &[u8], out: &mut Vec<u8>) {
        let [high, low] = self.base.to_be_bytes();
        out.extend_from_slice(&[0xc0, self.packets, high, low, self.index, self.sent, 0, 0]);
        out.extend_from_slice(symbol);
    }

    /// A payload: its header and its symbol.
    ///
    /// # Errors
    /// It is too short, of another kind or version, or its counts are beyond their limits.
    pub fn parse(payload: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let malformed = |what| Err(ParseError::Malformed { what });
        let mut reader = Reader::new(payload);
        let [kind, packets] = reader.array("parity header")?;
        let base = reader.u16("parity header")?;
        let [index, sent, _, _] = reader.array("parity header")?;
        if kind >> 6 != 3 {
            return malformed("a payload that isn't parity");
        }
        if kind != 0xc0 {
            return malformed("parity of a version that this program doesn't know");
        }
        if packets == 0 {
            return malformed("parity of no packets");
        }
        if packets > MAX_PACKETS {
            return Err(ParseError::TooMany { what: "packets in a block", limit: MAX_PACKETS.into() });
        }
        if sent > MAX_PARITIES || index >= MAX_PARITIES {
            return Err(ParseError::TooMany { what: "parities of a block", limit: MAX_PARITIES.into() });
        }
        if sent <= index {
            return malformed("a parity that hasn't been sent, by its own count");
        }
        let symbol = reader.rest;
        reader.take(SYMBOL_HEAD, "parity symbol")?;
        Ok((Self { packets, base, index, sent }, symbol))
    }
}

/// The symbol of an RTP packet, from its header's first byte to its payload's last.
///
/// # Errors
/// It isn't an RTP packet, or is longer than a datagram can be.
pub fn symbol(packet: &[u8]) -> Result<Vec<u8>, ParseError> {
    let mut reader = Reader::new(packet);
    let head: [u8; FIXED] = reader.array("RTP header")?;
    if head[0] >> 6 != 2 {
        return Err(ParseError::Version { got: head[0] >> 6 });
    }
    let sources = reader.take(usize::from(head[0] & 0x0f) * 4, "contributing sources")?;
    if head[0] & EXTENSION != 0 {
        reader.u16("extension header")?;
        let words = reader.u16("extension header")?;
        reader.take(usize::from(words) * 4, "extension")?;
    }
    let rest = reader.rest;
    let limit = usize::from(u16::MAX);
    let len = u16::try_from(sources.len() + rest.len())
        .map_err(|_| ParseError::TooMany { what: "bytes in a packet", limit })?;
    let mut symbol = Vec::with_capacity(SYMBOL_HEAD + usize::from(len));
    symbol.extend_from_slice(&len.to_be_bytes());
    symbol.extend_from_slice(&[head[0] & 0x3f & !EXTENSION, head[1]]);
    symbol.extend_from_slice(&head[4..8]);
    symbol.extend_from_slice(sources);
    symbol.extend_from_slice(rest);
    Ok(symbol)
}

/// The RTP packet of a symbol: the inverse of [`symbol`], with the number and the source that it doesn't hold, and
/// without a header extension.
///
/// # Errors
/// The symbol announces more than it has, or has more than zeros behind what it announces: it is no packet's.
pub fn packet(symbol: &[u8], seq: u16, ssrc: u32) -> Result<Vec<u8>, ParseError> {
    let mut reader = Reader::new(symbol);
    let len = reader.u16("symbol")?;
    let [flags, kind] = reader.array("symbol")?;
    let timestamp: [u8; 4] = reader.array("symbol")?;
    let rest = reader.take(len.into(), "recovered packet")?;
    if flags & (0xc0 | EXTENSION) != 0 || reader.rest.iter().any(|byte| *byte != 0) {
        return Err(ParseError::Malformed { what: "a recovered symbol that is no packet's" });
    }
    let mut packet = Vec::with_capacity(FIXED + rest.len());
    packet.extend_from_slice(&[0x80 | flags, kind]);
    packet.extend_from_slice(&seq.to_be_bytes());
    packet.extend_from_slice(&timestamp);
    packet.extend_from_slice(&ssrc.to_be_bytes());
    packet.extend_from_slice(rest);
    Ok(packet)
}

/// Parity `index` (0…63) of a block's symbols (at most 64, in the order of their numbers): as long as the longest.
pub fn parity(index: u8, symbols: &[impl AsRef<[u8]>]) -> Vec<u8> {
    debug_assert!(index < MAX_PARITIES && symbols.len() <= MAX_PACKETS.into());
    let len = symbols.iter().map(|symbol| symbol.as_ref().len()).max().unwrap_or(0);
    let mut parity = vec![0; len];
    for (place, symbol) in (0..).zip(symbols) {
        add(&mut parity, coefficient(index, place), symbol.as_ref());
    }
    parity
}

/// The symbols that are missing of a block of `packets`, each with its place in the block, in order. `sources` are
/// places and symbols of packets that arrived, `parities` indices and symbols of parities; of those that are given
/// twice the first counts. A symbol may come out with zeros behind it, as in [`packet`].
///
/// # Errors
/// There are fewer than `packets` symbols; a place or index is beyond its limit; a packet is longer than its parity.
pub fn recover(
    packets: u8,
    sources: &[(u8, &[u8])],
    parities: &[(u8, &[u8])],
) -> Result<Vec<(u8, Vec<u8>)>, ParseError> {
    let malformed = |what| Err(ParseError::Malformed { what });
    if packets > MAX_PACKETS {
        return Err(ParseError::TooMany { what: "packets in a block", limit: MAX_PACKETS.into() });
    }
    let mut known: [Option<&[u8]>; MAX_PACKETS as usize] = [None; MAX_PACKETS as usize];
    for (place, symbol) in sources {
        match known[..packets.into()].get_mut(usize::from(*place)) {
            Some(known) => *known = known.or(Some(symbol)),
            None => return malformed("a packet that isn't of its block"),
        }
    }
    let missing: Vec<u8> = (0..packets).filter(|place| known[usize::from(*place)].is_none()).collect();
    let mut rows: Vec<(u8, Vec<u8>)> = Vec::new();
    for (index, symbol) in parities {
        if *index >= MAX_PARITIES {
            return Err(ParseError::TooMany { what: "parities of a block", limit: MAX_PARITIES.into() });
        }
        if rows.len() < missing.len() && rows.iter().all(|(other, _)| other != index) {
            rows.push((*index, symbol.to_vec()));
        }
    }
    if rows.len() < missing.len() {
        return malformed("fewer symbols of a block than it has packets");
    }
    // What is left of each parity is of the missing packets alone.
    let len = rows.iter().map(|(_, symbol)| symbol.len()).max().unwrap_or(0);
    for (index, row) in &mut rows {
        row.resize(len, 0);
        for (place, symbol) in (0..).zip(known).filter_map(|(place, known)| Some((place, known?))) {
            if symbol.len() > len {
                return malformed("a packet that is longer than its parity");
            }
            add(row, coefficient(*index, place), symbol);
        }
    }
    let matrix =
        rows.iter().map(|(index, _)| missing.iter().map(|place| coefficient(*index, *place)).collect()).collect();
    let solved = solve(matrix, rows.into_iter().map(|(_, row)| row).collect());
    Ok(missing.into_iter().zip(solved).collect())
}

/// Solves `matrix` · x = `right` by Gauss–Jordan elimination. All square parts of the matrix can be inverted, so that
/// no pivot is zero.
fn solve(mut matrix: Vec<Vec<u8>>, mut right: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    for at in 0..matrix.len() {
        let inverse = div(1, matrix[at][at]);
        for row in [&mut matrix[at], &mut right[at]] {
            row.iter_mut().for_each(|byte| *byte = mul(*byte, inverse));
        }
        let (pivot, value) = (matrix[at].clone(), right[at].clone());
        for other in (0..matrix.len()).filter(|other| *other != at) {
            let factor = matrix[other][at];
            add(&mut matrix[other], factor, &pivot);
            add(&mut right[other], factor, &value);
        }
    }
    right
}

/// `sum` += `factor` · `symbol`, byte by byte; both signs are the same in this field.
fn add(sum: &mut [u8], factor: u8, symbol: &[u8]) {
    let product: [u8; 256] = std::array::from_fn(|byte| mul(byte as u8, factor));
    for (sum, byte) in sum.iter_mut().zip(symbol) {
        *sum ^= product[usize::from(*byte)];
    }
}

fn coefficient(index: u8, place: u8) -> u8 {
    div(0x80 ^ place, 0x80 ^ index ^ place)
}

const POLYNOMIAL: u16 = 0x11d;

/// Powers of 2, twice over, and their logarithms.
static TABLES: ([u8; 510], [u8; 256]) = {
    let (mut powers, mut logs) = ([0; 510], [0; 256]);
    let (mut power, mut n) = (1u16, 0);
    while n < 255 {
        powers[n] = power as u8;
        powers[n + 255] = power as u8;
        logs[power as usize] = n as u8;
        power <<= 1;
        if power > 0xff {
            power ^= POLYNOMIAL;
        }
        n += 1;
    }
    (powers, logs)
};

fn mul(a: u8, b: u8) -> u8 {
    let log = |byte: u8| usize::from(TABLES.1[usize::from(byte)]);
    if a == 0 || b == 0 { 0 } else { TABLES.0[log(a) + log(b)] }
}

/// `b` isn't 0.
fn div(a: u8, b: u8) -> u8 {
    let log = |byte: u8| usize::from(TABLES.1[usize::from(byte)]);
    if a == 0 { 0 } else { TABLES.0[log(a) + 255 - log(b)] }
}
