//! Parity over blocks of packets: any k of a block's k + r packets give all k back (docs/wire.md has the code and its
//! bytes).
//!
//! Bytes do not matter here: [`Blocks`] at the sender says which packets each parity covers, and [`Solver`] at a
//! receiver knows that a block is whole again when as many of its packets have come as it had without parity. Whoever
//! has the bytes computes them then.

use super::{Budget, KEPT};
use crate::Fragment;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use steadycast_units::{Bytes, Rate, Span, Time};
use steadycast_wire::parity::{HEADER, MAX_PACKETS, MAX_PARITIES, ParityHeader, SYMBOL_HEAD};
use steadycast_wire::rtcp::BlockRequest;

/// How a session protects its packets. All members have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParitySettings {
    /// Synchronisation source of the stream of parity.
    pub ssrc: u32,
    /// Its RTP payload type.
    pub payload_type: u8,
    /// The longest time between a frame being ready and its being shown; `None`: a packet is of use for one second.
    pub playout: Option<Span>,
}

impl ParitySettings {
    /// A block ends with the first frame after this time: two fifths of the play-out delay.
    pub(crate) fn block(&self) -> Span {
        self.useful() * 2 / 5
    }

    /// How long after its frame was ready a packet is of use.
    pub(crate) fn useful(&self) -> Span {
        self.playout.unwrap_or(KEPT)
    }
}

/// What the payload of a parity packet is longer by than the longest payload of its block: the parity's own header, and
/// the symbol's length and RTP header.
pub const PARITY_MORE: Bytes = Bytes::new((HEADER + SYMBOL_HEAD) as u64);

/// A block ends with a frame when it has this many packets.
const ENOUGH: usize = 20;
/// A block has at most this many packets.
const MOST: usize = 40;
/// Parity takes at most a third of what is sent: half as many parities as a block has packets.
const HALF: usize = 2;
/// Loss that is measured counts for this time, also when less is measured then.
const HELD: Span = Span::secs(10);
/// Loss before any is reported.
const UNKNOWN: f64 = 0.01;
/// Blocks that a receiver looks at: the newest.
const OPEN: usize = 16;
/// Blocks of which a sender sends more parity on request: the newest.
const RECENT: usize = 64;
/// Sequence numbers of which a receiver knows whether they came: the newest.
const KNOWN: u64 = 2_048;

/// A packet of a block, as a receiver gets it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protected {
    /// Its extended number at the sender.
    pub seq: u64,
    /// What it carries.
    pub fragment: Fragment,
    /// Whether it is the last packet of its frame.
    pub marker: bool,
}

/// A parity packet of a block.
#[derive(Clone, Debug, PartialEq)]
pub struct Protection {
    /// Its place among the parity packets of its block, and the packets that it covers.
    pub header: ParityHeader,
    /// The block's packets, in order: what its symbols give. Empty at a receiver to which their bytes tell it.
    pub packets: Arc<[Protected]>,
}

/// A lost packet that parity gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Its sequence number.
    pub number: u16,
    /// The same, extended, as the session counts the packets of the media ([`crate::Received::New`]).
    pub seq: u64,
    /// What it carried, where the parity's [`Protection`] said so.
    pub packet: Option<Protected>,
}

/// A parity that waits to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Parity {
    pub(crate) protection: Protection,
    /// The length of its payload.
    pub(crate) payload: u16,
}

/// A block that is complete, of which more parity may be asked for.
#[derive(Clone, Debug)]
struct Complete {
    packets: Arc<[Protected]>,
    /// The longest payload in it.
    longest: u16,
    began: Time,
    /// Parities that were sent so far, or wait.
    sent: u8,
}

/// The circumstances of a request for parity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedParity {
    /// When it came.
    pub(crate) now: Time,
    /// The rate that the controller wants.
    pub(crate) target: Rate,
    /// IP size of a full packet.
    pub(crate) packet: Bytes,
    /// IP size of a packet of parity without its payload.
    pub(crate) head: Bytes,
}

impl Complete {
    fn parity(&mut self) -> Option<Parity> {
        let first = self.packets.first()?;
        let (packets, base, index) = (self.packets.len() as u8, first.seq as u16, self.sent);
        self.sent += 1;
        let header = ParityHeader { packets, base, index, sent: self.sent };
        let protection = Protection { header, packets: Arc::clone(&self.packets) };
        Some(Parity { protection, payload: self.longest.saturating_add(PARITY_MORE.get() as u16) })
    }
}

/// The largest share of packets that is lost, of those of late.
#[derive(Debug, Default)]
struct Loss {
    share: Option<f64>,
    since: Time,
}

/// Makes blocks of what a sender sends.
#[derive(Debug)]
pub(crate) struct Blocks {
    pub(crate) settings: ParitySettings,
    /// Whether a block may end behind any packet, as in a stream without frames.
    pub(crate) anywhere: bool,
    open: Vec<Protected>,
    longest: u16,
    began: Time,
    loss: Loss,
    waiting: VecDeque<Parity>,
    recent: VecDeque<Complete>,
    /// What parity on request may take.
    budget: Budget,
    /// Parities that were asked for and not sent since the budget was spent.
    pub(crate) refused: u64,
}

impl Blocks {
    pub(crate) fn new(settings: ParitySettings) -> Self {
        let (open, longest, began, budget) = (Vec::new(), 0, Time::ZERO, Budget::default());
        let (waiting, recent) = (VecDeque::new(), VecDeque::new());
        let (anywhere, loss) = (false, Loss::default());
        Self { settings, anywhere, open, longest, began, loss, waiting, recent, budget, refused: 0 }
    }

    /// This share of packets is lost on the way to the receivers that are to be served.
    pub(crate) fn on_loss(&mut self, now: Time, share: f64) {
        let held = self.loss.share.filter(|held| *held > share && now.since(self.loss.since) < HELD);
        if held.is_none() {
            self.loss = Loss { share: Some(share), since: now };
        }
    }

    /// The share of packets that is taken to be lost.
    pub(crate) fn loss(&self) -> f64 {
        self.loss.share.unwrap_or(UNKNOWN)
    }

    /// A packet of the media with so much payload has left; parity is to leave a share of at most `residual` of the
    /// packets missing.
    pub(crate) fn on_sent(&mut self, now: Time, packet: Protected, payload: u16, residual: f64) {
        if self.open.last().is_some_and(|last| last.seq + 1 != packet.seq) {
            self.open.clear();
        }
        if self.open.is_empty() {
            (self.began, self.longest) = (now, 0);
        }
        self.open.push(packet);
        self.longest = self.longest.max(payload);
        let long = now.since(self.began) >= self.settings.block();
        if self.open.len() >= MOST || (packet.marker || self.anywhere) && (long || self.open.len() >= ENOUGH) {
            self.close(now, residual);
        }
    }

    fn close(&mut self, now: Time, residual: f64) {
        let packets: Arc<[Protected]> = std::mem::take(&mut self.open).into();
        let count = packets.len() as u8;
        let mut block = Complete { packets, longest: self.longest, began: self.began, sent: 0 };
        let parities = (0..parities(count, self.loss(), residual)).map_while(|_| block.parity());
        self.waiting.extend(parities);
        self.recent.push_back(block);
        let (useful, most) = (self.settings.useful(), RECENT);
        while self.recent.len() > most || self.recent.front().is_some_and(|block| now.since(block.began) > useful) {
            self.recent.pop_front();
        }
    }

    /// A receiver lacks packets of a block: it has what it needs when as many parities as it says have been sent in
    /// all. More are sent while they can come in time and repair's share of the rate allows it.
    pub(crate) fn on_request(&mut self, asked: &AskedParity, wanted: &BlockRequest) {
        let AskedParity { now, target, packet, head } = *asked;
        let same = |block: &&mut Complete| {
            let base = block.packets.first().is_some_and(|first| first.seq as u16 == wanted.base);
            base && block.packets.len() == usize::from(wanted.packets)
        };
        let useful = self.settings.useful();
        let in_time = |block: &&mut Complete| now.since(block.began) < useful;
        let Some(block) = self.recent.iter_mut().find(same).filter(in_time) else { return };
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

    /// The extended number of the first packet that a parity may still be computed from.
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

/// The fewest parities of a block of `packets` with which at most a share `residual` of them stays missing, when a
/// share `loss` of all packets is lost, each on its own; at most half as many as packets.
fn parities(packets: u8, loss: f64, residual: f64) -> u8 {
    let most = packets.min(MAX_PACKETS) / HALF as u8;
    (0..most).find(|r| left(packets, *r, loss) <= residual).unwrap_or(most)
}

/// The share of a block's packets that is missing after parity: loss · P(at least `parities` of the others are lost).
fn left(packets: u8, parities: u8, loss: f64) -> f64 {
    let others = u32::from(packets) + u32::from(parities) - 1;
    // Probabilities of 0, 1, 2 … losses among the others.
    let mut one = (0..others).fold(1.0, |p, _| p * (1.0 - loss));
    let mut fewer = 0.0;
    for lost in 0..u32::from(parities) {
        fewer += one;
        one *= loss / (1.0 - loss) * f64::from(others - lost) / f64::from(lost + 1);
    }
    loss * (1.0 - fewer).max(0.0)
}

/// Which of the newest numbers have come.
#[derive(Debug)]
struct Came {
    newest: Option<u64>,
    bits: [u64; (KNOWN / 64) as usize],
}

impl Came {
    fn add(&mut self, seq: u64) {
        let newest = *self.newest.get_or_insert(seq);
        if seq > newest {
            if seq - newest >= KNOWN {
                self.bits = [0; (KNOWN / 64) as usize];
            } else {
                (newest + 1..=seq).for_each(|n| self.bits[(n % KNOWN / 64) as usize] &= !(1 << (n % 64)));
            }
            self.newest = Some(seq);
        }
        if newest.saturating_sub(seq) < KNOWN {
            self.bits[(seq % KNOWN / 64) as usize] |= 1 << (seq % 64);
        }
    }

    fn has(&self, seq: u64) -> bool {
        self.newest.is_some_and(|newest| seq <= newest && newest - seq < KNOWN)
            && self.bits[(seq % KNOWN / 64) as usize] & 1 << (seq % 64) != 0
    }
}

/// A block of which a parity has come.
#[derive(Debug)]
struct Block {
    count: u8,
    /// What its packets carry; empty when nobody has said so.
    packets: Arc<[Protected]>,
    /// The parities that have come, by their indices.
    parities: u64,
    /// Parities that have been sent, as the newest one says.
    sent: u8,
}

/// What a receiver still needs of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// The extended number of its first packet.
    pub(crate) base: u64,
    /// Its packets.
    pub(crate) packets: u8,
    /// Parities of it that have been sent.
    pub(crate) sent: u8,
    /// Parities that are missing to give all packets back.
    pub(crate) lacks: u8,
}

/// Knows at a receiver which lost packets the parity gives back.
#[derive(Debug)]
pub(crate) struct Solver {
    came: Came,
    /// The newest number that has come itself: what parity says of others moves nothing.
    heard: Option<u64>,
    blocks: BTreeMap<u64, Block>,
    recovered: Vec<(u64, Option<Protected>)>,
}

impl Solver {
    pub(crate) fn new() -> Self {
        let came = Came { newest: None, bits: [0; (KNOWN / 64) as usize] };
        Self { came, heard: None, blocks: BTreeMap::new(), recovered: Vec::new() }
    }

    /// The stream begins anew.
    pub(crate) fn restart(&mut self) {
        *self = Self::new();
    }

    /// A packet of the media has come, or its retransmission. Returns what is needed of its block, if parity of that
    /// has come.
    pub(crate) fn on_packet(&mut self, seq: u64) -> Option<Need> {
        self.came.add(seq);
        self.heard = self.heard.max(Some(seq));
        let (base, block) = self.blocks.range(..=seq).next_back()?;
        if seq - base >= u64::from(block.count) {
            return None;
        }
        self.solve(*base)
    }

    /// A parity has come. What contradicts itself or a block's other parities is not used. Returns what is needed of
    /// its block.
    pub(crate) fn on_parity(&mut self, protection: &Protection) -> Option<Need> {
        let ParityHeader { packets, base, index, sent } = protection.header;
        let told = protection.packets.len();
        if told != 0 && usize::from(packets) != told || packets == 0 || packets > MAX_PACKETS || index >= MAX_PARITIES {
            return None;
        }
        // More than half of a block's packets have come before its parity, or it could not give the others back.
        let ahead = self.heard? + u64::from(MAX_PACKETS / 2);
        let base = self.extended(base).filter(|base| *base <= ahead && ahead - base < KNOWN / 2)?;
        let fresh = || Block { count: packets, packets: Arc::clone(&protection.packets), parities: 0, sent: 0 };
        let block = self.blocks.entry(base).or_insert_with(fresh);
        if block.count == packets {
            block.parities |= 1 << index;
            block.sent = block.sent.max(sent);
        }
        while self.blocks.len() > OPEN {
            self.blocks.pop_first();
        }
        self.solve(base)
    }

    /// The extended number that is nearest to the newest one.
    pub(crate) fn extended(&self, number: u16) -> Option<u64> {
        let newest = self.heard?;
        newest.checked_add_signed(i64::from(number.wrapping_sub(newest as u16) as i16))
    }

    fn solve(&mut self, base: u64) -> Option<Need> {
        let block = self.blocks.get(&base)?;
        let all = base..base + u64::from(block.count);
        let missing: Vec<u64> = all.filter(|seq| !self.came.has(*seq)).collect();
        let lacks = (missing.len() as u32).saturating_sub(block.parities.count_ones()) as u8;
        if lacks == 0 {
            let packet = |seq: u64| block.packets.get((seq - base) as usize).copied();
            self.recovered.extend(missing.iter().map(|seq| (*seq, packet(*seq))));
            missing.iter().for_each(|seq| self.came.add(*seq));
        }
        Some(Need { base, packets: block.count, sent: block.sent, lacks })
    }

    /// What has been recovered since this was last asked, with the receiver's own extended numbers.
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
        // Table of residual losses of (n, k) codes at independent loss.
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
            // Some came after they had been recovered.
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
        assert!(solver.blocks.len() <= OPEN);
    }
}
