//! Parity packets: a Reed–Solomon code over the packets of a block. Any k of its k + r packets recover all k.
//!
//! Media packets are sent unchanged. Parity is a separate stream with its own SSRC, sequence numbers and payload type.
//! Its payload format is private. It starts with the reserved bits 11, so that a receiver of FlexFEC (RFC 8627) ignores
//! it:
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! |1 1| version 0 |    packets    |             base              |
//! |     index     |     sent      |               0               |
//! :                         parity symbol                         :
//! ```
//!
//! A block consists of `packets` consecutive packets of one source, starting with the number `base`. The symbol of a
//! packet is, most significant byte first,
//!
//! ```text
//! | length of the rest (16) | header bytes 0 and 1, V and X cleared (16) | time stamp (32) | rest |
//! ```
//!
//! where the rest is everything after the 12th byte except the header extension. A symbol contains all parts of a
//! packet that a decoder needs. The sequence number follows from the position in the block, and the SSRC is that of the
//! media. The retransmission of a packet (RFC 4588) has the same symbol, because it differs only in its extension.
//! Symbols are padded with zeros to the longest one of their block. Each byte of a symbol is an element of GF(2⁸) with
//! the polynomial x⁸ + x⁴ + x³ + x² + 1 (0x11D). Parity i (0…63) of the symbols s of the packets j (0…63) is
//!
//! ```text
//! p_i = Σ_j c_ij · s_j,    c_ij = (0x80 ⊕ j) / (0x80 ⊕ i ⊕ j)
//! ```
//!
//! The c_ij are a Cauchy matrix, 1 / (x_i ⊕ y_j) with x_i = 0x80 ⊕ i and y_j = j, with column j scaled by x_0 ⊕ y_j.
//! Every square submatrix is invertible, so that any k symbols suffice. Parity 0 is the plain XOR.
//!
//! The code is implemented here because the available crates use another matrix (Vandermonde, or Cauchy without a row
//! of ones) or are many times as long.

use crate::ParseError;
use crate::bytes::Reader;

/// Maximum number of packets in a block.
pub const MAX_PACKETS: u8 = 64;
/// Maximum number of a block's parity packets, with indices 0…63.
pub const MAX_PARITIES: u8 = 64;
/// Length of the payload header in bytes.
pub const HEADER: usize = 8;
/// Bytes of a symbol before the contributing sources and the payload.
pub const SYMBOL_HEAD: usize = 8;
const FIXED: usize = 12;
const EXTENSION: u8 = 0x10;

/// The payload header of a parity packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParityHeader {
    /// Packets in the block, 1…64.
    pub packets: u8,
    /// The sequence number of the block's first packet.
    pub base: u16,
    /// This parity packet's index in its block, 0…63.
    pub index: u8,
    /// The number of the block's parity packets sent so far, including this packet: more than `index`, at most 64.
    pub sent: u8,
}

impl ParityHeader {
    /// Appends the payload to `out`.
    pub fn write(&self, symbol: &[u8], out: &mut Vec<u8>) {
        let [high, low] = self.base.to_be_bytes();
        out.extend_from_slice(&[0xc0, self.packets, high, low, self.index, self.sent, 0, 0]);
        out.extend_from_slice(symbol);
    }

    /// Parses a payload into its header and its symbol.
    ///
    /// # Errors
    /// The payload is too short, has another kind or version, or its counts exceed their limits.
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
        // `sent` includes this packet.
        if sent <= index {
            return malformed("a parity that hasn't been sent, by its own count");
        }
        let symbol = reader.rest;
        reader.take(SYMBOL_HEAD, "parity symbol")?;
        Ok((Self { packets, base, index, sent }, symbol))
    }
}

/// Returns the symbol of an RTP packet: the bytes that parity packets can recover.
///
/// # Errors
/// `packet` is not an RTP packet, or is longer than a datagram can be.
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
    // The version is implied, and the extension left out.
    symbol.extend_from_slice(&[head[0] & 0x3f & !EXTENSION, head[1]]);
    symbol.extend_from_slice(&head[4..8]);
    symbol.extend_from_slice(sources);
    symbol.extend_from_slice(rest);
    Ok(symbol)
}

/// Returns the RTP packet of a symbol, without header extension. This is the inverse of [`symbol`].
///
/// # Errors
/// The symbol announces more bytes than it has, or has nonzero bytes after them.
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

/// Returns parity `index` (0…63) of a block of at most 64 symbols in sequence.
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

/// Recovers the missing symbols of a block of `packets`. Returns their positions and symbols, in order.
///
/// `sources` has the positions and symbols of the received packets, `parities` the indices and symbols of the received
/// parity packets. Only the first of duplicates is used. A recovered symbol may have trailing zeros, which [`packet`]
/// removes.
///
/// # Errors
/// There are fewer than `packets` symbols; a position or index exceeds its limit; a packet is longer than its parity.
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
        // As many rows as unknowns. Duplicates would make the matrix singular.
        if rows.len() < missing.len() && rows.iter().all(|(other, _)| other != index) {
            rows.push((*index, symbol.to_vec()));
        }
    }
    if rows.len() < missing.len() {
        return malformed("fewer symbols of a block than it has packets");
    }
    // The received packets are subtracted, so that each parity combines only missing packets.
    let len = rows.iter().map(|(_, symbol)| symbol.len()).max().unwrap_or(0);
    for (index, row) in &mut rows {
        // Symbols are padded to the longest one of their block.
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

/// Solves `matrix` · x = `right` by Gauss–Jordan elimination. Pivots are not zero, as every square submatrix is
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

/// Adds `factor` · `symbol` to `sum`, which in GF(2⁸) also subtracts.
fn add(sum: &mut [u8], factor: u8, symbol: &[u8]) {
    // One table per call replaces a multiplication per byte.
    let product: [u8; 256] = std::array::from_fn(|byte| mul(byte as u8, factor));
    for (sum, byte) in sum.iter_mut().zip(symbol) {
        *sum ^= product[usize::from(*byte)];
    }
}

fn coefficient(index: u8, place: u8) -> u8 {
    div(0x80 ^ place, 0x80 ^ index ^ place)
}

const POLYNOMIAL: u16 = 0x11d;

/// The powers of 2 and the logarithms to base 2 in GF(2⁸). The powers are stored twice, so that a sum of logarithms
/// needs no modulo.
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

/// Divides by `b`, which is not 0.
fn div(a: u8, b: u8) -> u8 {
    let log = |byte: u8| usize::from(TABLES.1[usize::from(byte)]);
    // Keeps the difference positive, as powers repeat after 255.
    if a == 0 { 0 } else { TABLES.0[log(a) + 255 - log(b)] }
}
