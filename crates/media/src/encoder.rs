//! The encoder's stand-in: it delivers coded frames in time and chooses the quantizer of each GoP, or of each frame.

use crate::FrameKind;
use crate::{Ladder, Scale};
use std::sync::Arc;
use steadycast_units::{Bytes, Rate, Span};
use steadycast_words::{Kind, Within, kinds, settings};

kinds! {
    /// How a rate becomes a quantizer.
    #[derive(Copy)]
    Vbr for (), by "vbr", default "bucket" {
        /// a quantizer once per group of pictures, by the leaky bucket of Evalvid-RA (SVBR, Hamdi and Roberts).
        "bucket" => Bucket(Bucket), "vbr = \"bucket\"";
        /// a quantizer once per group of pictures, by the rule of Evalvid-RA's published program: a leaky bucket kept
        /// in bytes, and a nominal quantizer that the next group's size is told at.
        "evalvid" => Evalvid(Evalvid), "vbr = \"evalvid\"";
        /// a quantizer once per group of pictures, the best one whose next group fits the rate.
        "ladder" => Ladder, "vbr = \"ladder\"";
        /// a quantizer per frame, the best one with which the rest of the group fits the rate and each frame of it
        /// leaves within "wait"; within a group it only becomes coarser.
        "frame" => Frame(PerFrame), "vbr = \"frame\"";
    }
}

settings! {
    /// The leaky bucket of Evalvid-RA.
    #[derive(Copy)]
    Bucket {
        /// The bucket's size, in groups of pictures at the target rate.
        bucket: f64 where (Within { least: 0.1, most: 100.0, remedy: "from 0.1 to 100 GoPs" }) = 1.5,
    }
    /// The rule of Evalvid-RA's program.
    #[derive(Copy)]
    Evalvid {
        /// The bucket's size, in groups of pictures at the target rate.
        bucket: f64 where (Within { least: 0.1, most: 100.0, remedy: "from 0.1 to 100 GoPs" }) = 1.5,
        /// The quantizer that the stream would have were it not controlled; the first group has twice this.
        nominal: f64 where (Within { least: 1.0, most: 255.0, remedy: "from 1 to 255" }) = 2.0,
    }
    /// How fast the frames have to leave that are chosen one by one.
    #[derive(Copy)]
    PerFrame {
        /// The time from a frame's being ready to its last byte's leaving.
        wait: Span where (WAIT) = Span::millis(100),
        /// How many times as fast as the target packets may leave, for a frame that is larger than others; the mean
        /// stays the target's.
        room: f64 where (Within { least: 1.0, most: 10.0, remedy: "from 1 to 10" }) = 2.5,
    }
}

const WAIT: Within<Span> = Within { least: Span::millis(10), most: Span::secs(10), remedy: "from \"10ms\" to \"10s\"" };

impl Kind<()> for Bucket {}
impl Kind<()> for Evalvid {}
impl Kind<()> for PerFrame {}

/// What becomes of bytes that still wait in the pacer when a GoP begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// The next GoP makes room for them, as far as half of what it may have: they have left when it ends.
    #[default]
    Drained,
    /// The rate is scaled by e^(−k/1000) for k packets, as in Evalvid-RA: at 20 packets per second a second of backlog
    /// takes 2 % off it, and stays.
    Damped,
}

/// A coded frame as it leaves the encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coded {
    /// Its number in the flow, in coding order.
    pub index: u32,
    /// Its number in the clip, in coding order.
    pub clip: u32,
    /// Its number in the flow, in the order in which frames are shown.
    pub display: u32,
    /// How it is coded.
    pub kind: FrameKind,
    /// At which quantizer.
    pub quantizer: u8,
    /// Its size.
    pub size: Bytes,
}

/// What Evalvid-RA's program keeps from one group of pictures to the next.
#[derive(Clone, Copy, Debug)]
struct Before {
    /// The mean rate that the group was given, in bit/s.
    mean: f64,
    /// The bytes that it might have.
    allowed: f64,
    /// What the bucket held when it began, in bytes.
    level: f64,
}

/// Delivers the frames of a ladder, looped, at quantizers that follow the rate it is told.
#[derive(Clone, Debug)]
pub struct Encoder {
    ladder: Arc<Ladder>,
    vbr: Vbr,
    waiting: Waiting,
    payload: u64,
    overhead: u64,
    next: u64,
    rung: usize,
    /// Rates reported during the present GoP: their sum and number.
    told: (f64, u32),
    /// The quantizer that the bucket steers, between the rungs.
    quantizer: f64,
    fill: Option<f64>,
    before: Option<Before>,
    sent: Bytes,
    /// What the rate allowed beyond what was made, in bytes; negative: what was made beyond it.
    saved: f64,
    limited: bool,
}

impl Encoder {
    /// Frames go into packets of up to `payload` bytes that cost `overhead` bytes each.
    pub fn new(ladder: Arc<Ladder>, vbr: Vbr, waiting: Waiting, payload: u64, overhead: u64) -> Self {
        Self {
            ladder,
            vbr,
            waiting,
            payload,
            overhead,
            next: 0,
            rung: 0,
            told: (0.0, 0),
            quantizer: 0.0,
            fill: None,
            before: None,
            sent: Bytes::ZERO,
            saved: 0.0,
            limited: false,
        }
    }

    /// When the next frame is ready, from the flow's start.
    pub fn due(&self) -> Span {
        self.ladder.time(self.next)
    }

    /// When the frame that is shown in place `display` is sampled, from the flow's start.
    pub fn shown_at(&self, display: u32) -> Span {
        self.ladder.time(u64::from(display))
    }

    /// Starts again after a pause, at the next group of pictures and with an empty memory; returns the number of its
    /// first frame.
    pub fn resume(&mut self) -> u32 {
        let (frames, gop) = (self.ladder.frames(), u64::from(self.ladder.gop));
        let within = self.next % frames;
        self.next += within.next_multiple_of(gop).min(frames) - within;
        (self.told, self.fill, self.sent, self.limited) = ((0.0, 0), None, Bytes::ZERO, false);
        (self.saved, self.before) = (0.0, None);
        self.next as u32
    }

    /// The controller has decided on a new rate, as a rate of IP packets.
    pub fn on_rate(&mut self, rate: Rate) {
        self.told.0 += rate.as_bps_f64();
        self.told.1 += 1;
    }

    /// Whether the best quantizer's GoP is smaller than the rate allows: the clip, not the network, limits the rate.
    pub const fn limited(&self) -> bool {
        self.limited
    }

    /// The mean rate over the clip that the best quantizer needs, with packet overhead.
    pub fn best(&self) -> Rate {
        self.ladder.rates(0, self.payload, self.overhead).0
    }

    /// The next frame. `rate` is the present target, `backlog` what waits in the pacer.
    pub fn next(&mut self, rate: Rate, backlog: Bytes) -> Coded {
        let frames = self.ladder.frames();
        let (round, clip) = (self.next / frames, self.next % frames);
        let begins = clip.is_multiple_of(u64::from(self.ladder.gop));
        match self.vbr {
            Vbr::Frame(PerFrame { wait, room }) => self.choose_frame(clip, rate, backlog, wait, room),
            _ if begins => self.choose(clip, rate, backlog),
            _ => {}
        }
        let (at, size) = (clip as usize, self.ladder.sizes[self.rung][clip as usize]);
        let coded = Coded {
            index: self.next as u32,
            clip: clip as u32,
            display: (round * frames) as u32 + self.ladder.display[at],
            kind: self.ladder.kinds[at],
            quantizer: self.ladder.quantizers[self.rung],
            size: Bytes::new(u64::from(size.max(1))),
        };
        let bytes = self.ladder.bytes(self.rung, at..at + 1, self.payload, self.overhead);
        self.sent += bytes;
        self.saved -= bytes.as_f64();
        self.next += 1;
        coded
    }

    fn choose(&mut self, clip: u64, rate: Rate, backlog: Bytes) {
        let range = self.ladder.gop_at(clip);
        let mean = self.mean(rate);
        let span = self.ladder.span(range.len() as u64);
        let budget = match self.waiting {
            Waiting::Drained => {
                let whole = Rate::from_bps_f64(mean).over(span);
                whole.saturating_sub(backlog).max(Bytes::new(whole.get() / 2))
            }
            Waiting::Damped => {
                let packets = backlog.get().div_ceil(1000) as f64;
                Rate::from_bps_f64(mean * libm::exp(-packets / 1000.0)).over(span)
            }
        };
        let ladder = Arc::clone(&self.ladder);
        let (payload, overhead) = (self.payload, self.overhead);
        let size = |rung: usize| ladder.bytes(rung, range.clone(), payload, overhead);
        let rungs = self.ladder.quantizers.len();
        // Ladders are not always monotone (Table 2 of paper 000): every rung is looked at.
        let fitting = (0..rungs).find(|r| size(*r) <= budget);
        let cheapest = (0..rungs).min_by_key(|r| size(*r)).unwrap_or(0);
        self.rung = match (self.vbr, self.fill) {
            (Vbr::Ladder | Vbr::Frame(_), _) => fitting.unwrap_or(cheapest),
            (Vbr::Evalvid(rule), _) => self.by_nominal(rule, mean, budget.as_f64().max(1.0), |r| size(r).as_f64()),
            (Vbr::Bucket(_), None) => {
                self.fill = Some(0.5);
                let first = f64::from(self.ladder.quantizers[fitting.unwrap_or(cheapest)]);
                self.quantizer = match self.ladder.scale {
                    Scale::Linear => first * 2.0,
                    Scale::Logarithmic(steps) => first + f64::from(steps),
                };
                self.nearest()
            }
            (Vbr::Bucket(Bucket { bucket: factor }), Some(share)) => {
                let r = budget.as_f64().max(1.0);
                let (share, wanted) = bucket(share, factor, r, self.sent.as_f64(), size(self.rung).as_f64());
                self.fill = Some(share);
                let open = size(self.rung).as_f64();
                if (open / r - 1.0).abs() > 0.05 {
                    self.quantizer = match self.ladder.scale {
                        Scale::Linear => self.quantizer * open / wanted,
                        Scale::Logarithmic(steps) => self.quantizer + f64::from(steps) * libm::log2(open / wanted),
                    };
                }
                self.nearest()
            }
        };
        self.sent = Bytes::ZERO;
        self.limited = self.rung == 0 && size(0).as_f64() < 0.95 * budget.as_f64();
    }

    /// The mean of the rates told during the last GoP; Evalvid-RA's program counts the mean before them as one more.
    fn mean(&mut self, rate: Rate) -> f64 {
        let (sum, count) = std::mem::take(&mut self.told);
        let (sum, count) = self.before.map_or((sum, count), |before| (sum + before.mean, count + 1));
        if count == 0 { rate.as_bps_f64() } else { sum / f64::from(count) }
    }

    /// The rung of the next GoP by Evalvid-RA's program. The bucket's level is in bytes, so that a new rate makes the
    /// same level a larger or smaller share of it; R_o is the GoP's size at the nominal quantizer q, and
    /// Q = q R_o / R'.
    fn by_nominal(&mut self, rule: Evalvid, mean: f64, allowed: f64, size: impl Fn(usize) -> f64) -> usize {
        let coarser = |factor: f64| match self.ladder.scale {
            Scale::Linear => rule.nominal * factor,
            Scale::Logarithmic(steps) => rule.nominal + f64::from(steps) * libm::log2(factor),
        };
        let Some(before) = self.before else {
            self.quantizer = coarser(2.0);
            self.before = Some(Before { mean, allowed, level: rule.bucket * allowed / 2.0 });
            return self.nearest();
        };
        let whole = rule.bucket * before.allowed;
        let level = filled(before.level, whole, before.allowed, self.sent.as_f64());
        self.before = Some(Before { mean, allowed, level });
        let open = size(self.rung_of(rule.nominal));
        if (open / allowed - 1.0).abs() > 0.05 {
            self.quantizer = libm::floor(coarser(open / wanted(level / whole, allowed, open)) + 0.5);
        }
        self.nearest()
    }

    /// Chooses the quantizer of the frame in place `clip`, which begins a GoP or goes on with one.
    fn choose_frame(&mut self, clip: u64, rate: Rate, backlog: Bytes, wait: Span, room: f64) {
        let ladder = Arc::clone(&self.ladder);
        let (at, place) = (clip as usize, clip % u64::from(ladder.gop));
        let (begins, rest) = (place == 0, at..ladder.gop_at(clip - place).end);
        let period = ladder.span(1);
        let (each, span) = (rate.over(period).as_f64(), rate.over(ladder.span(rest.len() as u64)).as_f64());
        // What was saved serves what waits or one more frame; debt is paid within a GoP or two, and what waits is one.
        // A begun group may owe a quarter of its share before it becomes coarser: the step costs pictures to its end.
        let owes = rate.over(ladder.span(u64::from(ladder.gop))).as_f64() / 2.0;
        self.saved = self.saved.clamp(-owes, each);
        let waiting = backlog.as_f64();
        let spare = if begins { 0.0 } else { owes / 2.0 };
        let budget = (span + self.saved.min(self.saved.max(0.0) - waiting)).max(span / 2.0) + spare;
        self.saved += each;
        let (drained, most) = (each * room, rate.scale(room).over(wait).as_f64());
        let size =
            |rung: usize, frame: usize| ladder.bytes(rung, frame..frame + 1, self.payload, self.overhead).as_f64();
        let fits = |rung: &usize| {
            let (mut sum, mut level) = (0.0, waiting);
            rest.clone().all(|frame| {
                let bytes = size(*rung, frame);
                (sum, level) = (sum + bytes, level + bytes);
                let fits = level <= most;
                level = (level - drained).max(0.0);
                fits && sum <= budget
            })
        };
        let rungs = ladder.quantizers.len();
        let finest = if begins { 0 } else { self.rung };
        let cheapest = |from: usize| (from..rungs).min_by(|a, b| size(*a, at).total_cmp(&size(*b, at))).unwrap_or(from);
        self.rung = (finest..rungs).find(fits).unwrap_or_else(|| cheapest(finest));
        if begins {
            let whole: f64 = rest.clone().map(|frame| size(0, frame)).sum();
            self.limited = self.rung == 0 && whole < 0.95 * budget;
        }
    }

    /// The rung nearest to the steered quantizer, which is kept within the ladder.
    fn nearest(&mut self) -> usize {
        let quantizers = &self.ladder.quantizers;
        let (low, high) = (quantizers[0], quantizers[quantizers.len() - 1]);
        self.quantizer = self.quantizer.clamp(f64::from(low), f64::from(high));
        self.rung_of(self.quantizer)
    }

    /// The rung whose quantizer is nearest.
    fn rung_of(&self, quantizer: f64) -> usize {
        let quantizers = &self.ladder.quantizers;
        let off = |q: u8| (f64::from(q) - quantizer).abs();
        (0..quantizers.len()).min_by(|a, b| off(quantizers[*a]).total_cmp(&off(quantizers[*b]))).unwrap_or(0)
    }
}

/// One step of the leaky bucket: from its fill as a share of the bucket (`share`), the bucket's size in GoPs
/// (`factor`), the bytes that a GoP may have (`r`), had (`sent`) and would have at the present quantizer (`open`), the
/// new fill and the bytes that the next GoP should have.
///
/// ```text
///   X ← min(b, max(0, X − r) + R),  x = X/b        e₁ = 1 − (1−x)⁵,  e₂ = x⁵
///   R' = (1−e₁)·R_o + e₁·r   if R_o > r,   otherwise   R' = e₂·R_o + (1−e₂)·r
/// ```
pub fn bucket(share: f64, factor: f64, r: f64, sent: f64, open: f64) -> (f64, f64) {
    let b = factor * r;
    let x = filled(share * b, b, r, sent) / b;
    (x, wanted(x, r, open))
}

/// X: the level of a bucket of `whole` bytes out of which `r` leak while `sent` come in.
fn filled(level: f64, whole: f64, r: f64, sent: f64) -> f64 {
    ((level - r).max(0.0) + sent).min(whole)
}

/// R': the bytes that the next GoP should have where the bucket is filled to the share `x`.
fn wanted(x: f64, r: f64, open: f64) -> f64 {
    let fifth = |v: f64| v * v * v * v * v;
    let wanted = if open > r {
        let e1 = 1.0 - fifth(1.0 - x);
        (1.0 - e1) * open + e1 * r
    } else {
        let e2 = fifth(x);
        e2 * open + (1.0 - e2) * r
    };
    wanted.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FrameKind;

    /// The bytes of the GoP that follows a steady one, while `backlog` waits, at 80 kb/s: a thousand bytes per frame of
    /// 0.1 s.
    fn next_gop(waiting: Waiting, backlog: Bytes) -> u64 {
        let quantizers: Vec<u8> = (2..=31).collect();
        let ladder = Ladder {
            fps: (10, 1),
            gop: 10,
            scale: Scale::Linear,
            sizes: quantizers.iter().map(|q| vec![8_000 / u32::from(*q); 20].into()).collect(),
            quantizers,
            kinds: vec![FrameKind::P; 20],
            display: (0..20).collect(),
        };
        let mut encoder = Encoder::new(Arc::new(ladder), Vbr::Ladder, waiting, 1_000, 0);
        let frame = |encoder: &mut Encoder, backlog| encoder.next(Rate::kbps(80), backlog).size.get();
        let steady: u64 = (0..10).map(|_| frame(&mut encoder, Bytes::ZERO)).sum();
        assert_eq!(steady, 10_000);
        (0..10).map(|_| frame(&mut encoder, backlog)).sum()
    }

    #[test]
    fn a_gop_makes_room_for_what_waits_up_to_half_of_itself() {
        assert_eq!(next_gop(Waiting::Drained, Bytes::ZERO), 10_000);
        assert!((7_000..=8_000).contains(&next_gop(Waiting::Drained, Bytes::new(2_000))));
        assert!((4_500..=5_000).contains(&next_gop(Waiting::Drained, Bytes::new(50_000))));
    }

    #[test]
    fn damped_as_in_evalvid_ra_twenty_packets_take_a_fiftieth() {
        assert!((8_500..10_000).contains(&next_gop(Waiting::Damped, Bytes::new(20_000))));
    }
}
