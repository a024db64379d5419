//! Forward error correction. A symbol contains the bytes of a packet. A sender makes parity from the symbols of the
//! packets that it has sent. A receiver recovers lost packets from the symbols that have arrived. The session decides
//! which packets form a block.

use std::collections::{BTreeMap, VecDeque};
use steadycast_session::{Protection, Recovered};
use steadycast_wire::parity::{MAX_PACKETS, ParityHeader, SYMBOL_HEAD, packet, parity, recover, symbol};

/// Symbols of the packets that were sent last. Their sequence numbers are consecutive.
#[derive(Debug, Default)]
pub struct SentSymbols {
    first: u64,
    symbols: VecDeque<Vec<u8>>,
}

impl SentSymbols {
    /// Stores the symbol of a media packet that was sent.
    pub fn keep(&mut self, seq: u64, packet: &[u8]) {
        let Ok(symbol) = symbol(packet) else {
            debug_assert!(false, "a session made a packet that is none");
            return;
        };
        // Start a new list after a gap, because symbols are found by their position.
        if self.first + self.symbols.len() as u64 != seq {
            (self.first, self.symbols) = (seq, VecDeque::new());
        }
        self.symbols.push_back(symbol);
    }

    fn get(&self, seq: u64) -> Option<&[u8]> {
        Some(self.symbols.get(seq.checked_sub(self.first)? as usize)?)
    }

    /// Returns the payload of a packet as it was sent. Returns an empty slice if the packet is not stored.
    pub fn payload(&self, seq: u64) -> &[u8] {
        self.get(seq).and_then(|symbol| symbol.get(SYMBOL_HEAD..)).unwrap_or_default()
    }

    /// Appends a parity payload to `out`. Returns false if a packet that it protects is not stored.
    pub fn write(&self, protection: &Protection, out: &mut Vec<u8>) -> bool {
        let symbols: Option<Vec<&[u8]>> = protection.packets.iter().map(|packet| self.get(packet.seq)).collect();
        let Some(symbols) = symbols else { return false };
        protection.header.write(&parity(protection.header.index, &symbols), out);
        true
    }

    /// Removes the symbols of all packets before `seq`.
    pub fn forget_before(&mut self, seq: u64) {
        let old = seq.saturating_sub(self.first).min(self.symbols.len() as u64);
        self.symbols.drain(..old as usize);
        self.first += old;
    }
}

/// Range of sequence numbers whose symbols are stored.
const SEQUENCE_RANGE: u64 = 1_024;
const MAX_BLOCKS: usize = 16;
/// Maximum size of a symbol in bytes. It is the size of a jumbo frame. Longer packets are ignored, which bounds the
/// memory.
const MAX_SYMBOL: usize = 9_216;

/// Symbols of the media and parity packets that were received last.
#[derive(Debug, Default)]
pub struct ReceivedSymbols {
    /// SSRC of the media.
    ssrc: u32,
    newest: Option<u64>,
    symbols: BTreeMap<u64, Vec<u8>>,
    blocks: BTreeMap<u64, Parities>,
}

#[derive(Debug)]
struct Parities {
    packets: u8,
    symbols: BTreeMap<u8, Vec<u8>>,
}

impl ReceivedSymbols {
    /// Stores a packet or its retransmission. Discards all symbols if the SSRC is new.
    pub fn on_packet(&mut self, ssrc: u32, number: u16, packet: &[u8]) {
        // Discard the symbols, because sequence numbers of different sources are unrelated.
        if self.ssrc != ssrc {
            *self = Self { ssrc, ..Self::default() };
        }
        let Some(symbol) = symbol(packet).ok().filter(|symbol| symbol.len() <= MAX_SYMBOL) else { return };
        self.keep(number, symbol);
    }

    fn keep(&mut self, number: u16, symbol: Vec<u8>) {
        // Extend the first packet's number to at least 65,536, so that earlier packets that arrive later can get lower
        // numbers.
        let seq = self.extended(number).unwrap_or(u64::from(number) + (1 << 16));
        let newest = self.newest.map_or(seq, |newest| newest.max(seq));
        self.newest = Some(newest);
        self.symbols.insert(seq, symbol);
        while self.symbols.first_key_value().is_some_and(|(first, _)| first + SEQUENCE_RANGE <= newest) {
            self.symbols.pop_first();
        }
        while self.blocks.first_key_value().is_some_and(|(first, _)| first + SEQUENCE_RANGE <= newest) {
            self.blocks.pop_first();
        }
    }

    /// Stores a parity symbol that has arrived.
    pub fn on_parity(&mut self, header: &ParityHeader, symbol: &[u8]) {
        // Ignore a base that is far away. It may be forged, and must not displace blocks that are needed.
        let near = |base: &u64| self.newest.is_some_and(|newest| base.abs_diff(newest) < SEQUENCE_RANGE);
        let Some(base) = self.extended(header.base).filter(near).filter(|_| symbol.len() <= MAX_SYMBOL) else { return };
        let fresh = || Parities { packets: header.packets, symbols: BTreeMap::new() };
        let block = self.blocks.entry(base).or_insert_with(fresh);
        // Ignore further symbols after 64, because they add no information.
        if block.packets == header.packets && block.symbols.len() < usize::from(MAX_PACKETS) {
            block.symbols.entry(header.index).or_insert_with(|| symbol.to_vec());
        }
        while self.blocks.len() > MAX_BLOCKS {
            self.blocks.pop_first();
        }
    }

    /// Returns the lost packets that can be recovered, each with the session's sequence number. Forged parity may
    /// produce an invalid packet, which is left out.
    pub fn recover_packets(&mut self, recovered: &[Recovered]) -> Vec<(u64, Vec<u8>)> {
        let mut all = Vec::new();
        for wanted in recovered {
            let Some(seq) = self.extended(wanted.number) else { continue };
            if !self.symbols.contains_key(&seq) {
                self.solve(seq);
            }
            let bytes = self.symbols.get(&seq).and_then(|symbol| packet(symbol, wanted.number, self.ssrc).ok());
            all.extend(bytes.map(|bytes| (wanted.seq, bytes)));
        }
        all
    }

    /// Recovers the missing packets in the block of packet `seq`.
    fn solve(&mut self, seq: u64) {
        let Some((base, block)) = self.blocks.range(..=seq).next_back() else { return };
        let all = *base..*base + u64::from(block.packets);
        if !all.contains(&seq) {
            return;
        }
        let sources: Vec<(u8, &[u8])> =
            self.symbols.range(all).map(|(seq, symbol)| ((seq - base) as u8, &symbol[..])).collect();
        let parities: Vec<(u8, &[u8])> = block.symbols.iter().map(|(index, symbol)| (*index, &symbol[..])).collect();
        // Give up if too many symbols are missing, or if the symbols contradict each other.
        let Ok(solved) = recover(block.packets, &sources, &parities) else { return };
        let base = *base;
        self.symbols.extend(solved.into_iter().map(|(place, symbol)| (base + u64::from(place), symbol)));
    }

    /// Extends a 16-bit sequence number. Of all possible values, takes the one nearest to the newest packet.
    fn extended(&self, number: u16) -> Option<u64> {
        let newest = self.newest?;
        newest.checked_add_signed(i64::from(number.wrapping_sub(newest as u16) as i16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use steadycast_session::{Fragment, Protected};
    use steadycast_wire::rtp::RtpHeader;

    const SSRC: u32 = 7;

    fn rtp(seq: u64) -> Vec<u8> {
        let payload = vec![seq as u8; 20 + (seq % 7) as usize];
        let header = RtpHeader {
            payload_type: 96,
            marker: seq.is_multiple_of(5),
            seq: seq as u16,
            timestamp: 3_600 * (seq / 5) as u32,
            ssrc: SSRC,
            send_time: None,
            payload_len: payload.len() as u16,
        };
        let mut bytes = Vec::new();
        header.encode(&[], &payload, &mut bytes);
        bytes
    }

    /// Returns the payload of the parity packet `index`. Its block has `packets` packets from `base` on.
    fn protect(sent: &SentSymbols, base: u64, packets: u8, index: u8) -> Vec<u8> {
        let fragment = Fragment::default();
        let covered: Arc<[Protected]> =
            (base..base + u64::from(packets)).map(|seq| Protected { seq, fragment, marker: false }).collect();
        let header = ParityHeader { packets, base: base as u16, index, sent: index + 1 };
        let mut payload = Vec::new();
        assert!(sent.write(&Protection { header, packets: covered }, &mut payload));
        payload
    }

    fn add_parity(came: &mut ReceivedSymbols, payload: &[u8]) {
        let (header, symbol) = ParityHeader::parse(payload).unwrap_or_else(|e| panic!("{e}"));
        came.on_parity(&header, symbol);
    }

    fn missing(seqs: &[u64]) -> Vec<Recovered> {
        seqs.iter().map(|seq| Recovered { number: *seq as u16, seq: *seq, packet: None }).collect()
    }

    #[test]
    fn lost_packets_are_recovered_exactly_across_a_wrap() {
        let (mut sent, mut came) = (SentSymbols::default(), ReceivedSymbols::default());
        let (first, lost) = (65_530u64, [65_533, 65_536, 65_549]);
        for seq in first..first + 20 {
            sent.keep(seq, &rtp(seq));
            if !lost.contains(&seq) {
                came.on_packet(SSRC, seq as u16, &rtp(seq));
            }
        }
        for index in [1, 3] {
            add_parity(&mut came, &protect(&sent, first, 20, index));
        }
        assert_eq!(came.recover_packets(&missing(&lost)), [], "two parities for three packets");
        add_parity(&mut came, &protect(&sent, first, 20, 0));
        let all: Vec<(u64, Vec<u8>)> = lost.iter().map(|seq| (*seq, rtp(*seq))).collect();
        assert_eq!(came.recover_packets(&missing(&lost)), all);
        assert_eq!(sent.payload(65_536), &rtp(65_536)[12..]);
        sent.forget_before(65_540);
        assert_eq!((sent.payload(65_536), sent.symbols.len()), (&[][..], 10));
    }

    #[test]
    fn forged_parity_recovers_nothing_and_takes_bounded_memory() {
        let mut came = ReceivedSymbols::default();
        let mut sent = SentSymbols::default();
        for seq in 100..120 {
            sent.keep(seq, &rtp(seq));
        }
        // Add parity before any media packet has been received.
        add_parity(&mut came, &protect(&sent, 100, 20, 0));
        assert!(came.blocks.is_empty());
        (100..119).for_each(|seq| came.on_packet(SSRC, seq as u16, &rtp(seq)));
        // The first symbol belongs to no packet. The second symbol is shorter than the packets that were received.
        let header = ParityHeader { packets: 20, base: 100, index: 0, sent: 1 };
        came.on_parity(&header, &[0xff; 60]);
        assert_eq!(came.recover_packets(&missing(&[119])), []);
        came.on_parity(&ParityHeader { base: 99, ..header }, &[1; 8]);
        assert_eq!(came.recover_packets(&missing(&[99])), []);
        for n in 0..40_000u32 {
            let (packets, base, index) = ((n % 64 + 1) as u8, (n * 7) as u16, (n % 64) as u8);
            came.on_parity(&ParityHeader { packets, base, index, sent: 64 }, &[9; 1_400]);
            came.on_parity(&ParityHeader { packets, base, index, sent: 64 }, &[9; 60_000]);
        }
        let kept: usize = came.blocks.values().map(|block| block.symbols.values().map(Vec::len).sum::<usize>()).sum();
        assert!(came.blocks.len() <= MAX_BLOCKS && kept <= MAX_BLOCKS * 64 * 1_400, "{kept}");
        // Let the media's sequence numbers advance, so that old symbols and blocks are dropped.
        (0..2_200u64).for_each(|seq| came.on_packet(SSRC, (120 + seq) as u16, &rtp(120 + seq)));
        assert!(came.symbols.len() <= SEQUENCE_RANGE as usize && came.blocks.is_empty());
        came.on_packet(SSRC + 1, 5, &rtp(5));
        assert_eq!(came.symbols.len(), 1, "another source's");
    }
}
