//! Parity over blocks of packets (docs/wire.md). If a block has k media packets and r parity packets, the arrival of
//! any k of them is enough to recover the block.
//!
//! This module processes sequence numbers and no payloads. At the sender, [`Blocks`] decides which media packets a
//! parity packet protects. At a receiver, [`Solver`] decides which lost packets can be recovered.

use crate::Fragment;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use steadycast_sender::{DEFAULT_USEFUL_TIME, RepairBudget};
use steadycast_units::{Bytes, Rate, Span, Time};
use steadycast_wire::parity::{HEADER, MAX_PACKETS, MAX_PARITIES, ParityHeader, SYMBOL_HEAD};
use steadycast_wire::rtcp::BlockRequest;

/// Parity settings of a session. All members need the same settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParitySettings {
    /// The SSRC of the parity stream.
    pub ssrc: u32,
    /// The RTP payload type of the parity stream.
    pub payload_type: u8,
    /// The time from a frame's readiness at the sender to its display. With `None`, one second is assumed.
    pub playout: Option<Span>,
}

impl ParitySettings {
    /// Returns the planned duration of a block: two fifths of the play-out delay. A block that has reached it ends with
    /// the current frame.
    pub(crate) fn block(&self) -> Span {
        self.useful() * 2 / 5
    }

    /// Returns the time for which a packet is useful, starting when its frame was ready.
    pub(crate) fn useful(&self) -> Span {
        self.playout.unwrap_or(DEFAULT_USEFUL_TIME)
    }
}

/// A parity payload is larger by this than the longest payload in its block. It contains a parity header, a length
/// field and an RTP header in addition.
pub const PARITY_MORE: Bytes = Bytes::new((HEADER + SYMBOL_HEAD) as u64);

/// A block that has reached this size ends with the current frame.
const FULL_BLOCK_PACKETS: usize = 20;
const MAX_BLOCK_PACKETS: usize = 40;
/// Minimum number of media packets per parity packet. It limits parity to a third of all packets.
const MIN_PACKETS_PER_PARITY: usize = 2;
/// A lower measurement replaces the present loss rate only if the present one is at least this old.
const LOSS_HOLD_TIME: Span = Span::secs(10);
const DEFAULT_LOSS: f64 = 0.01;
/// Maximum number of blocks that a receiver tracks. The newest blocks are tracked.
const MAX_OPEN_BLOCKS: usize = 16;
/// Maximum number of sent blocks for which receivers can request more parity.
const MAX_RECENT_BLOCKS: usize = 64;
/// Number of sequence numbers for which a receiver stores whether the packet has arrived.
const ARRIVAL_WINDOW: u64 = 2_048;

/// A media packet that parity protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protected {
    /// The packet's extended sequence number at the sender.
    pub seq: u64,
    /// The part of a frame that the packet contains.
    pub fragment: Fragment,
    /// Whether the packet is the last packet of its frame.
    pub marker: bool,
}

/// The packets that a parity packet protects.
#[derive(Clone, Debug, PartialEq)]
pub struct Protection {
    /// The parity header: the parity packet's index in the block, and the range of protected packets.
    pub header: ParityHeader,
    /// The media packets of the block in order. At a receiver this is empty, because the receiver reads their headers
    /// from the recovered bytes.
    pub packets: Arc<[Protected]>,
}

/// A lost packet that was recovered from parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The packet's sequence number.
    pub number: u16,
    /// The extended sequence number of the packet in the session ([`crate::Received::New`]).
    pub seq: u64,
    /// The fields of the packet's header, if [`Protection`] contains them.
    pub packet: Option<Protected>,
}

#[derive(Clone, Debug)]
pub(crate) struct Parity {
    pub(crate) protection: Protection,
    /// The length of the payload in bytes.
    pub(crate) payload: u16,
}

/// A complete block that has been sent. Receivers can request more parity for it.
#[derive(Clone, Debug)]
struct SentBlock {
    packets: Arc<[Protected]>,
    /// The length of the longest payload in the block, in bytes.
    longest: u16,
    began: Time,
    /// Number of the block's parity packets that have been sent or are queued.
    sent: u8,
}

/// The circumstances of a parity request, which decide whether more parity is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParityRequestContext {
    pub(crate) now: Time,
    pub(crate) target: Rate,
    /// The IP size of a full packet.
    pub(crate) packet: Bytes,
    /// The IP size of a parity packet's headers, without its payload.
    pub(crate) head: Bytes,
}

impl SentBlock {
    fn parity(&mut self) -> Option<Parity> {
        let first = self.packets.first()?;
        let (packets, base, index) = (self.packets.len() as u8, first.seq as u16, self.sent);
        self.sent += 1;
        let header = ParityHeader { packets, base, index, sent: self.sent };
        let protection = Protection { header, packets: Arc::clone(&self.packets) };
        Some(Parity { protection, payload: self.longest.saturating_add(PARITY_MORE.get() as u16) })
    }
}

#[derive(Debug, Default)]
struct Loss {
    share: Option<f64>,
    since: Time,
}

/// Groups sent packets into blocks and decides how much parity each block gets.
#[derive(Debug)]
pub(crate) struct Blocks {
    pub(crate) settings: ParitySettings,
    /// Whether a block can end after any packet. If not, a block ends at the end of a frame, or when it has
    /// [`MAX_BLOCK_PACKETS`] packets.
    pub(crate) anywhere: bool,
    open: Vec<Protected>,
    longest: u16,
    began: Time,
    loss: Loss,
    waiting: VecDeque<Parity>,
    recent: VecDeque<SentBlock>,
    budget: RepairBudget,
    /// Number of requests that were refused because the budget was used up.
    pub(crate) refused: u64,
}

impl Blocks {
    pub(crate) fn new(settings: ParitySettings) -> Self {
        let (open, longest, began, budget) = (Vec::new(), 0, Time::ZERO, RepairBudget::default());
        let (waiting, recent) = (VecDeque::new(), VecDeque::new());
        let (anywhere, loss) = (false, Loss::default());
        Self { settings, anywhere, open, longest, began, loss, waiting, recent, budget, refused: 0 }
    }

    /// Updates the loss rate, which is a fraction. A lower loss rate replaces a higher one only after
    /// [`LOSS_HOLD_TIME`].
    pub(crate) fn on_loss(&mut self, now: Time, share: f64) {
        let held = self.loss.share.filter(|held| *held > share && now.since(self.loss.since) < LOSS_HOLD_TIME);
        if held.is_none() {
            self.loss = Loss { share: Some(share), since: now };
        }
    }

    pub(crate) fn loss(&self) -> f64 {
        self.loss.share.unwrap_or(DEFAULT_LOSS)
    }

    /// Adds a sent packet with a payload of `payload` bytes. If a block ends with this packet, queues the block's
    /// parity.
    ///
    /// The number of parity packets is the smallest for which at most a share `residual` of the packets stays missing.
    /// It is at most half the number of media packets.
    pub(crate) fn on_sent(&mut self, now: Time, packet: Protected, payload: u16, residual: f64) {
        // Discard an incomplete block at a gap, because a parity header can describe only a contiguous range.
        if self.open.last().is_some_and(|last| last.seq + 1 != packet.seq) {
            self.open.clear();
        }
        if self.open.is_empty() {
            (self.began, self.longest) = (now, 0);
        }
        self.open.push(packet);
        self.longest = self.longest.max(payload);
        let long = now.since(self.began) >= self.settings.block();
        if self.open.len() >= MAX_BLOCK_PACKETS
            || (packet.marker || self.anywhere) && (long || self.open.len() >= FULL_BLOCK_PACKETS)
        {
            self.close(now, residual);
        }
    }

    fn close(&mut self, now: Time, residual: f64) {
        let packets: Arc<[Protected]> = std::mem::take(&mut self.open).into();
        let count = packets.len() as u8;
        let mut block = SentBlock { packets, longest: self.longest, began: self.began, sent: 0 };
        let parities = (0..parities(count, self.loss(), residual)).map_while(|_| block.parity());
        self.waiting.extend(parities);
        self.recent.push_back(block);
        let (useful, most) = (self.settings.useful(), MAX_RECENT_BLOCKS);
        // Drop blocks for which requested parity would arrive too late.
        while self.recent.len() > most || self.recent.front().is_some_and(|block| now.since(block.began) > useful) {
            self.recent.pop_front();
        }
    }

    /// Queues more parity for a block, up to the total number that is requested. Queues none if it would arrive too
    /// late, and stops when the budget is used up.
    pub(crate) fn on_request(&mut self, context: &ParityRequestContext, wanted: &BlockRequest) {
        let ParityRequestContext { now, target, packet, head } = *context;
        let same = |block: &&mut SentBlock| {
            let base = block.packets.first().is_some_and(|first| first.seq as u16 == wanted.base);
            base && block.packets.len() == usize::from(wanted.packets)
        };
        let useful = self.settings.useful();
        let in_time = |block: &&mut SentBlock| now.since(block.began) < useful;
        let Some(block) = self.recent.iter_mut().find(same).filter(in_time) else { return };
        // Compare with the number sent so far: a request contains a total, so a repeated request adds no parity.
        while block.sent < wanted.parities.min(MAX_PARITIES).min(wanted.packets) {
            let size = head + Bytes::new(u64::from(block.longest)) + PARITY_MORE;
            if !self.budget.take(now, target, packet, size) {
                self.refused += 1;
                return;
            }
            let Some(parity) = block.parity() else { return };
            self.waiting.push_back(parity);
        }
    }

    pub(crate) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn next(&mut self) -> Option<Parity> {
        self.waiting.pop_front()
    }

    /// Returns the sequence number of the oldest media packet that is needed for parity.
    pub(crate) fn first(&self) -> Option<u64> {
        let waiting = self.waiting.front().and_then(|parity| parity.protection.packets.first());
        let recent = self.recent.front().and_then(|block| block.packets.first());
        [waiting, recent, self.open.first()].into_iter().flatten().map(|packet| packet.seq).min()
    }

    pub(crate) fn clear(&mut self) {
        self.open.clear();
        self.waiting.clear();
        self.recent.clear();
    }
}

/// Returns the smallest number of parity packets for which at most a share `residual` of `packets` stays missing.
/// `loss` is the random loss rate. The result is at most half of `packets`.
fn parities(packets: u8, loss: f64, residual: f64) -> u8 {
    let most = packets.min(MAX_PACKETS) / MIN_PACKETS_PER_PARITY as u8;
    (0..most).find(|r| left(packets, *r, loss) <= residual).unwrap_or(most)
}

/// Returns the share of packets that stays missing. It is `loss` times the probability that at least `parities` of the
/// other packets in the block are lost.
fn left(packets: u8, parities: u8, loss: f64) -> f64 {
    let others = u32::from(packets) + u32::from(parities) - 1;
    // `one` is the binomial probability of `lost` losses, and `fewer` is the sum of these probabilities so far. `powi`
    // is not used, because its result differs between machines.
    let mut one = (0..others).fold(1.0, |p, _| p * (1.0 - loss));
    let mut fewer = 0.0;
    for lost in 0..u32::from(parities) {
        fewer += one;
        one *= loss / (1.0 - loss) * f64::from(others - lost) / f64::from(lost + 1);
    }
    loss * (1.0 - fewer).max(0.0)
}

/// Which of the newest sequence numbers have arrived, as a ring buffer of bits.
#[derive(Debug)]
struct ArrivalWindow {
    newest: Option<u64>,
    bits: [u64; (ARRIVAL_WINDOW / 64) as usize],
}

impl ArrivalWindow {
    fn add(&mut self, seq: u64) {
        let newest = *self.newest.get_or_insert(seq);
        if seq > newest {
            if seq - newest >= ARRIVAL_WINDOW {
                self.bits = [0; (ARRIVAL_WINDOW / 64) as usize];
            } else {
                // Clear the bits of skipped numbers, because they are left over from the previous pass of the ring
                // buffer.
                (newest + 1..=seq).for_each(|n| self.bits[(n % ARRIVAL_WINDOW / 64) as usize] &= !(1 << (n % 64)));
            }
            self.newest = Some(seq);
        }
        if newest.saturating_sub(seq) < ARRIVAL_WINDOW {
            self.bits[(seq % ARRIVAL_WINDOW / 64) as usize] |= 1 << (seq % 64);
        }
    }

    fn has(&self, seq: u64) -> bool {
        self.newest.is_some_and(|newest| seq <= newest && newest - seq < ARRIVAL_WINDOW)
            && self.bits[(seq % ARRIVAL_WINDOW / 64) as usize] & 1 << (seq % 64) != 0
    }
}

#[derive(Debug)]
struct Block {
    count: u8,
    /// The media packets of the block. It is empty if they are not known.
    packets: Arc<[Protected]>,
    /// Bit mask with the indexes of the parity packets that have arrived.
    parities: u64,
    /// Number of parity packets that have been sent, as the newest parity packet states.
    sent: u8,
}

/// The state of a block at a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// The extended sequence number of the block's first media packet.
    pub(crate) base: u64,
    /// Number of media packets in the block.
    pub(crate) packets: u8,
    /// Number of parity packets that have been sent.
    pub(crate) sent: u8,
    /// Number of further parity packets that are needed to recover all media packets.
    pub(crate) lacks: u8,
}

/// Decides at a receiver which lost packets can be recovered.
#[derive(Debug)]
pub(crate) struct Solver {
    arrived: ArrivalWindow,
    /// The newest sequence number that has arrived. It does not depend on parity headers, because they are not
    /// verified.
    heard: Option<u64>,
    blocks: BTreeMap<u64, Block>,
    recovered: Vec<(u64, Option<Protected>)>,
}

impl Solver {
    pub(crate) fn new() -> Self {
        let arrived = ArrivalWindow { newest: None, bits: [0; (ARRIVAL_WINDOW / 64) as usize] };
        Self { arrived, heard: None, blocks: BTreeMap::new(), recovered: Vec::new() }
    }

    pub(crate) fn restart(&mut self) {
        *self = Self::new();
    }

    /// Adds a media packet or its retransmission. Returns the state of its block, or `None` if no parity of that block
    /// has arrived.
    pub(crate) fn on_packet(&mut self, seq: u64) -> Option<Need> {
        self.arrived.add(seq);
        self.heard = self.heard.max(Some(seq));
        let (base, block) = self.blocks.range(..=seq).next_back()?;
        if seq - base >= u64::from(block.count) {
            return None;
        }
        self.solve(*base)
    }

    /// Adds a parity packet and returns the state of its block. Ignores the packet if its header contradicts itself or
    /// earlier packets.
    pub(crate) fn on_parity(&mut self, protection: &Protection) -> Option<Need> {
        let ParityHeader { packets, base, index, sent } = protection.header;
        let told = protection.packets.len();
        if told != 0 && usize::from(packets) != told || packets == 0 || packets > MAX_PACKETS || index >= MAX_PARITIES {
            return None;
        }
        // Refuse a `base` far above the newest arrival as forged, because parity is sent after the packets of its
        // block.
        let ahead = self.heard? + u64::from(MAX_PACKETS / 2);
        let base = self.extended(base).filter(|base| *base <= ahead && ahead - base < ARRIVAL_WINDOW / 2)?;
        let fresh = || Block { count: packets, packets: Arc::clone(&protection.packets), parities: 0, sent: 0 };
        let block = self.blocks.entry(base).or_insert_with(fresh);
        if block.count == packets {
            block.parities |= 1 << index;
            block.sent = block.sent.max(sent);
        }
        // Limit the number of blocks, so that forged parity cannot exhaust the memory.
        while self.blocks.len() > MAX_OPEN_BLOCKS {
            self.blocks.pop_first();
        }
        self.solve(base)
    }

    /// Returns the extended sequence number whose low 16 bits are `number`. If there are several, returns the one that
    /// is nearest to the newest arrival. Returns `None` before the first arrival.
    pub(crate) fn extended(&self, number: u16) -> Option<u64> {
        let newest = self.heard?;
        newest.checked_add_signed(i64::from(number.wrapping_sub(newest as u16) as i16))
    }

    fn solve(&mut self, base: u64) -> Option<Need> {
        let block = self.blocks.get(&base)?;
        let all = base..base + u64::from(block.count);
        let missing: Vec<u64> = all.filter(|seq| !self.arrived.has(*seq)).collect();
        // Each parity packet replaces any one of the lost packets, because the code is MDS (maximum distance
        // separable).
        let lacks = (missing.len() as u32).saturating_sub(block.parities.count_ones()) as u8;
        if lacks == 0 {
            let packet = |seq: u64| block.packets.get((seq - base) as usize).copied();
            self.recovered.extend(missing.iter().map(|seq| (*seq, packet(*seq))));
            // Mark these packets as arrived, so that a later packet of the block does not recover them again.
            missing.iter().for_each(|seq| self.arrived.add(*seq));
        }
        Some(Need { base, packets: block.count, sent: block.sent, lacks })
    }

    /// Takes the packets that have been recovered since the last call, with their extended sequence numbers.
    pub(crate) fn take(&mut self) -> Vec<(u64, Option<Protected>)> {
        std::mem::take(&mut self.recovered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_units::Seed;

    const SETTINGS: ParitySettings = ParitySettings { ssrc: 9, payload_type: 98, playout: Some(Span::millis(300)) };

    fn packet(seq: u64, marker: bool) -> Protected {
        Protected { seq, fragment: Fragment { frame: 0, offset: 0, len: 1 }, marker }
    }

    #[test]
    fn what_is_left_is_what_the_formula_says() {
        // Residual losses of (n, k) codes with independent losses, from a table.
        let table = [(10, 1, 0.01, 9.56e-4), (10, 2, 0.01, 5.18e-5), (20, 4, 0.01, 7.61e-7), (20, 5, 0.05, 2.99e-4)];
        for (k, r, p, expected) in table {
            let got = left(k, r, p);
            assert!((got / expected - 1.0).abs() < 0.01, "({}, {k}) at {p}: {got}", k + r);
        }
        assert_eq!((parities(20, 0.0, 2e-5), parities(20, 0.01, 2e-5), parities(20, 0.9, 2e-5)), (0, 3, 10));
        assert_eq!(parities(1, 0.5, 1e-5), 0);
    }

    #[test]
    fn any_loss_of_as_many_packets_as_there_are_parities_is_recovered_and_no_more() {
        let mut blocks = Blocks::new(SETTINGS);
        blocks.on_loss(Time::ZERO, 0.05);
        (65_530..65_550).for_each(|n| blocks.on_sent(Time::ZERO, packet(n, true), 1_000, 1e-4));
        let parities: Vec<Parity> = std::iter::from_fn(|| blocks.next()).collect();
        assert!((3..=8).contains(&parities.len()), "{}", parities.len());
        let mut chance = Seed(3).part("losses");
        for round in 0..500 {
            let mut solver = Solver::new();
            let all = 20 + parities.len();
            let lost = round % 10;
            let mut order: Vec<usize> = (0..all).collect();
            (0..all).for_each(|n| order.swap(n, n + (chance.unit() * (all - n) as f64) as usize));
            let (gone, come) = order.split_at(lost);
            solver.on_packet(65_529);
            for n in come {
                match parities.get(n.wrapping_sub(20)) {
                    Some(parity) => solver.on_parity(&parity.protection),
                    None => solver.on_packet(65_530 + *n as u64),
                };
            }
            let mut got: Vec<u64> = solver.take().iter().map(|(seq, _)| *seq).collect();
            got.sort_unstable();
            got.dedup();
            let media: Vec<u64> = gone.iter().filter(|n| **n < 20).map(|n| 65_530 + *n as u64).collect();
            let solvable = lost <= parities.len();
            // Check only the lost packets, because `got` also contains packets that arrived after they had been
            // recovered.
            assert!(media.iter().all(|n| got.contains(n) == solvable), "{lost} lost: {media:?} {got:?}");
        }
    }

    #[test]
    fn blocks_end_with_a_frame_after_twenty_packets_or_two_fifths_of_the_play_out_delay_and_at_forty() {
        let sizes = |step: u64, frame: u64| {
            let mut blocks = Blocks::new(SETTINGS);
            blocks.on_loss(Time::ZERO, 0.2);
            let at = |n: u64| Time::ZERO + Span::millis(step * n);
            (0..100).for_each(|n| blocks.on_sent(at(n), packet(n, n % frame == frame - 1), 500, 1e-5));
            let all: Vec<u8> = std::iter::from_fn(|| blocks.next()).map(|p| p.protection.header.packets).collect();
            (all.iter().min().copied(), all.iter().max().copied())
        };
        assert_eq!(sizes(1, 5), (Some(20), Some(20)));
        assert_eq!(sizes(20, 2), (Some(8), Some(8)), "120 ms");
        assert_eq!(sizes(1, 90), (Some(40), Some(40)));
    }

    #[test]
    fn parity_that_cannot_be_true_is_ignored() {
        let mut solver = Solver::new();
        let header = ParityHeader { packets: 4, base: 1, index: 0, sent: 1 };
        let packets: Arc<[Protected]> = (1..4).map(|n| packet(n, false)).collect();
        solver.on_parity(&Protection { header, packets: Arc::clone(&packets) });
        solver.on_packet(0);
        let absurd = [(0, 0), (3, 200), (255, 0), (4, 0)];
        for (count, index) in absurd {
            let header = ParityHeader { packets: count, base: 60_000, index, sent: 255 };
            solver.on_parity(&Protection { header, packets: Arc::clone(&packets) });
        }
        assert!(solver.take().is_empty() && solver.blocks.is_empty());
        for base in 0..1_000u16 {
            let header = ParityHeader { packets: 3, base: base.wrapping_mul(67), index: 0, sent: 1 };
            solver.on_parity(&Protection { header, packets: Arc::clone(&packets) });
        }
        assert!(solver.blocks.len() <= MAX_OPEN_BLOCKS);
    }
}
