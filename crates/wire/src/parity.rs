//! Parity packets, which recover lost packets. A Reed–Solomon code is computed over the packets of a block. If a block
//! has k packets and r parity packets, any k of these k + r packets recover the whole block.
//!
//! Media packets are sent unchanged. The parity packets are a separate stream with its own SSRC, sequence numbers and
//! payload type. The payload format is private. A payload starts with the bits 11, which FlexFEC reserves (RFC 8627),
//! so that a FlexFEC receiver ignores it:
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! |1 1| version 0 |    packets    |             base              |
//! |     index     |     sent      |               0               |
//! :                         parity symbol                         :
//! ```
//!
//! A block consists of `packets` consecutive packets of one source. The first packet has the sequence number `base`.
//! The symbol of a packet consists of these parts, most significant byte first:
//!
//! ```text
//! | length of the rest (16) | header bytes 0 and 1, V and X cleared (16) | time stamp (32) | rest |
//! ```
//!
//! The rest is everything after the 12th byte, except the header extension. A symbol contains all parts of a packet
//! that a decoder needs. It contains neither the sequence number nor the SSRC. The sequence number follows from the
//! position in the block, and the SSRC is the SSRC of the media. The retransmission of a packet (RFC 4588) has the same
//! symbol, because it differs only in its extension. Symbols are padded with zeros to the length of the longest symbol
//! in their block. Each byte of a symbol is an element of GF(2⁸) with the polynomial x⁸ + x⁴ + x³ + x² + 1 (0x11D). s_j
//! is the symbol of packet j (0…63). Parity i (0…63) is
//!
//! ```text
//! p_i = Σ_j c_ij · s_j,    c_ij = (0x80 ⊕ j) / (0x80 ⊕ i ⊕ j)
//! ```
//!
//! The coefficients c_ij are a Cauchy matrix, 1 / (x_i ⊕ y_j) with x_i = 0x80 ⊕ i and y_j = j. Each column j is scaled
//! by x_0 ⊕ y_j. Every square submatrix is invertible, so any k symbols suffice. Parity 0 is the plain XOR.
//!
//! This module has its own implementation for two reasons. Some available crates use another matrix (Vandermonde, or
//! Cauchy without a row of ones). The others have many times as much code.

use crate::ParseError;
use crate::bytes::Reader;

/// Maximum number of packets in a block.
pub const MAX_PACKETS: u8 = 64;
/// Maximum number of parity packets of a block. Their indices are 0…63.
pub const MAX_PARITIES: u8 = 64;
/// Length of the payload header in bytes.
pub const HEADER: usize = 8;
/// Length of a symbol's fixed part in bytes. The contributing sources and the payload follow.
pub const SYMBOL_HEAD: usize = 8;
const FIXED: usize = 12;
const EXTENSION: u8 = 0x10;

/// The payload header of a parity packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParityHeader {
    /// Number of packets in the block, 1…64.
    pub packets: u8,
    /// Sequence number of the first packet in the block.
    pub base: u16,
    /// Index of this parity packet in its block, 0…63.
    pub index: u8,
    /// Number of the block's parity packets that have been sent so far, including this packet. It is above `index` and
    /// at most 64.
    pub sent: u8,
}

impl ParityHeader {
    /// Appends the payload, which consists of this header and `symbol`, to `out`.
    pub fn write(&self, symbol: &[u8], out: &mut Vec<u8>) {
        let [high, low] = self.base.to_be_bytes();
        out.extend_from_slice(&[0xc0, self.packets, high, low, self.index, self.sent, 0, 0]);
        out.extend_from_slice(symbol);
    }

    /// Parses a payload into its header and its symbol.
    ///
    /// # Errors
    /// Returns an error if the payload is too short or has another kind or version, or if a count exceeds its limit.
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
        // `sent` includes this packet, so it must be above `index`.
        if sent <= index {
            return malformed("a parity that hasn't been sent, by its own count");
        }
        let symbol = reader.rest;
        reader.take(SYMBOL_HEAD, "parity symbol")?;
        Ok((Self { packets, base, index, sent }, symbol))
    }
}

/// Returns the symbol of an RTP packet. The symbol contains the bytes that parity packets can recover.
///
/// # Errors
/// Returns an error if `packet` is not an RTP packet, or if it is longer than a datagram can be.
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
    // Clear the version, which is known, and the extension bit, because the extension is left out.
    symbol.extend_from_slice(&[head[0] & 0x3f & !EXTENSION, head[1]]);
    symbol.extend_from_slice(&head[4..8]);
    symbol.extend_from_slice(sources);
    symbol.extend_from_slice(rest);
    Ok(symbol)
}

/// Converts a symbol back to its RTP packet, but without the header extension. This is the inverse of [`symbol`].
///
/// # Errors
/// Returns an error if the symbol is shorter than the length that it announces, or if nonzero bytes follow.
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

/// Computes the parity symbol with the index `index` (0…63). `symbols` contains the symbols of the block in sequence,
/// at most 64.
///
/// The parity has the length of the longest symbol.
pub fn parity(index: u8, symbols: &[impl AsRef<[u8]>]) -> Vec<u8> {
    debug_assert!(index < MAX_PARITIES && symbols.len() <= MAX_PACKETS.into());
    let len = symbols.iter().map(|symbol| symbol.as_ref().len()).max().unwrap_or(0);
    let mut parity = vec![0; len];
    for (place, symbol) in (0..).zip(symbols) {
        add(&mut parity, coefficient(index, place), symbol.as_ref());
    }
    parity
}

/// Recovers the missing symbols of a block with `packets` packets. Returns their positions in the block and the
/// symbols, in ascending order.
///
/// `sources` contains the positions and symbols of the received packets. `parities` contains the indices and symbols of
/// the received parity packets. If there are duplicates, the first is used. A recovered symbol may end with zeros,
/// which [`packet`] removes.
///
/// # Errors
/// Returns an error in these cases: there are fewer than `packets` symbols, a position or index exceeds its limit, or a
/// packet is longer than its parity.
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
        // Use only as many rows as there are unknowns. Skip duplicates, because they would make the matrix singular.
        if rows.len() < missing.len() && rows.iter().all(|(other, _)| other != index) {
            rows.push((*index, symbol.to_vec()));
        }
    }
    if rows.len() < missing.len() {
        return malformed("fewer symbols of a block than it has packets");
    }
    // Subtract the received packets from each parity. Then each parity combines only missing packets.
    let len = rows.iter().map(|(_, symbol)| symbol.len()).max().unwrap_or(0);
    for (index, row) in &mut rows {
        // Pad the row with zeros, because symbols are padded to the longest symbol of their block.
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

/// Solves `matrix` · x = `right` by Gauss–Jordan elimination. No pivot is zero, because every square submatrix is
/// invertible.
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

/// Adds `factor` · `symbol` to `sum`. In GF(2⁸), addition and subtraction are the same.
fn add(sum: &mut [u8], factor: u8, symbol: &[u8]) {
    // Compute a table of products once, so that each byte needs only a lookup.
    let product: [u8; 256] = std::array::from_fn(|byte| mul(byte as u8, factor));
    for (sum, byte) in sum.iter_mut().zip(symbol) {
        *sum ^= product[usize::from(*byte)];
    }
}

fn coefficient(index: u8, place: u8) -> u8 {
    div(0x80 ^ place, 0x80 ^ index ^ place)
}

const POLYNOMIAL: u16 = 0x11d;

/// The powers of 2 and the logarithms to base 2 in GF(2⁸). The powers are stored twice, so that a sum of two logarithms
/// can be used as an index without a modulo operation.
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

/// Divides `a` by `b`. `b` must not be 0.
fn div(a: u8, b: u8) -> u8 {
    let log = |byte: u8| usize::from(TABLES.1[usize::from(byte)]);
    // Add 255 to keep the difference positive. The powers repeat after 255.
    if a == 0 { 0 } else { TABLES.0[log(a) + 255 - log(b)] }
}
