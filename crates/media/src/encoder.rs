//! A model of an encoder. It delivers coded frames over time, and chooses the quantizer of each GOP or frame.

use crate::FrameKind;
use crate::{
    BUILT_IN_SWITCHING, Feed, Ladder, RungChooser, RungContext, RungHistory, RungNeed, Scale, SwitchingRule,
    abandons_group,
};
use std::ops::Range;
use std::sync::Arc;
use steadycast_settings::{Kind, Within, kinds, settings};
use steadycast_units::{Bytes, Rate, Span};

kinds! {
    /// How the encoder chooses a quantizer for a rate.
    Vbr for (), by "vbr", default "bucket" {
        /// for each group of pictures (GOP), by the leaky bucket of Evalvid-RA (SVBR, Hamdi and Roberts).
        "bucket" => Bucket(Bucket), "vbr = \"bucket\"";
        /// for each GOP, by the rule of Evalvid-RA's published program. A leaky bucket in bytes gives the GOP's target
        /// size, and the quantizer follows from the GOP's size at the quantizer "nominal".
        "evalvid" => Evalvid(Evalvid), "vbr = \"evalvid\"";
        /// for each GOP, the best quantizer with which the next GOP fits the rate.
        "ladder" => Ladder, "vbr = \"ladder\"";
        /// for each frame, the best quantizer that meets two conditions: the rest of the GOP fits the rate, and each of
        /// its frames is sent within "wait". Within a GOP the quantizer never becomes finer.
        "frame" => Frame(PerFrame), "vbr = \"frame\"";
        /// for each GOP, one of a few quantizers, which changes rarely; this models a source that is encoded once for
        /// all viewers.
        "rungs" => Rungs(Rungs), "vbr = \"rungs\"";
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
        /// The nominal quantizer. The next GOP's quantizer is computed from the size that the GOP has at the nominal
        /// quantizer. The first GOP is encoded with twice the nominal quantizer.
        nominal: f64 where (Within { least: 1.0, most: 255.0, remedy: "from 1 to 255" }) = 2.0,
    }
    /// Bounds on how fast each frame is sent, with a quantizer per frame.
    #[derive(Copy)]
    PerFrame {
        /// The maximum time from a frame's readiness until its last byte is sent.
        wait: Span where (WAIT) = Span::millis(100),
        /// The highest rate at which a large frame is sent, as a multiple of the target rate. The mean rate stays at
        /// the target.
        room: f64 where (Within { least: 1.0, most: 10.0, remedy: "from 1 to 10" }) = 2.5,
    }
}

settings! {
    /// A few of the quantizers.
    Rungs {
        /// The number of quantizers to choose from. The logarithms of their rates are evenly spaced.
        rungs: u64 where (Within { least: 1, most: 255, remedy: "from 1 to 255" }) = 4,
        /// The rule that chooses one of them at each key frame: "hysteresis", a Python class as "file.py:Class", or
        /// another program as "exec:PROGRAM ARGUMENTS".
        switching: String = BUILT_IN_SWITCHING.to_owned(),
    }
}

const WAIT: Within<Span> = Within { least: Span::millis(10), most: Span::secs(10), remedy: "from \"10ms\" to \"10s\"" };

impl Kind<()> for Bucket {}
impl Kind<()> for Evalvid {}
impl Kind<()> for PerFrame {}
impl Kind<()> for Rungs {}

/// How the encoder takes account of bytes that wait in the pacer at the start of a GOP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BacklogRule {
    /// The waiting bytes are subtracted from the GOP's byte budget. At least half of the budget remains.
    #[default]
    Drained,
    /// The rate is multiplied by e^(−k/1000), where k is the number of waiting packets, as in Evalvid-RA. Because 20
    /// waiting packets reduce the rate by only 2 %, the backlog persists.
    Damped,
}

/// A coded frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coded {
    /// The frame's number in the flow, in coding order.
    pub index: u32,
    /// The frame's number in the clip, in coding order.
    pub clip: u32,
    /// The frame's number in the flow, in display order.
    pub display: u32,
    /// The frame's coding type.
    pub kind: FrameKind,
    /// The quantizer with which the frame is coded.
    pub quantizer: u8,
    /// The frame's size in bytes.
    pub size: Bytes,
}

/// The state of Evalvid-RA's rule at the start of the GOP that was coded last.
#[derive(Clone, Copy, Debug)]
struct LastGop {
    /// The mean target rate that determined the byte budget of the GOP, in bit/s.
    mean: f64,
    /// The byte budget of the GOP.
    allowed: f64,
    /// The bucket's level at the start of the GOP, in bytes.
    level: f64,
}

/// An encoder that repeats a clip in a loop. It chooses quantizers that follow the target rate, and takes frame sizes
/// from a ladder.
pub struct Encoder {
    ladder: Arc<Ladder>,
    vbr: Vbr,
    waiting: BacklogRule,
    payload: u64,
    overhead: u64,
    next: u64,
    /// The number of frames that were skipped because the rest of their GOP was abandoned.
    left_out: u64,
    rung: usize,
    /// The sum of the rates that the controller set during the current GOP, in bit/s, and their number.
    rate_sum: (f64, u32),
    /// The quantizer that the bucket controls. It may lie between two quantizers of the ladder.
    quantizer: f64,
    fill: Option<f64>,
    last_gop: Option<LastGop>,
    /// The indices of the ladder's quantizers from which [`Vbr::Rungs`] chooses.
    rungs: Vec<usize>,
    /// The rates that the rungs have needed so far.
    history: RungHistory,
    /// The rule that chooses a rung.
    switching: Box<dyn SwitchingRule>,
    /// The present rung, as an index into `rungs`. `None` at the start and after a pause.
    chosen: Option<usize>,
    sent: Bytes,
    /// The bytes that the rate allowed so far, minus the bytes that were coded.
    credit: f64,
    limited: bool,
}

impl Encoder {
    /// Creates an encoder. Its frames are sent in packets with up to `payload` bytes of content and `overhead` bytes of
    /// headers.
    pub fn new(ladder: Arc<Ladder>, vbr: Vbr, waiting: BacklogRule, payload: u64, overhead: u64) -> Self {
        let rungs =
            if let Vbr::Rungs(Rungs { rungs, .. }) = vbr { spaced(&ladder, rungs, payload, overhead) } else { vec![] };
        Self {
            rungs,
            switching: Box::new(RungChooser::default()),
            chosen: None,
            history: RungHistory::default(),
            ladder,
            vbr,
            waiting,
            payload,
            overhead,
            next: 0,
            left_out: 0,
            rung: 0,
            rate_sum: (0.0, 0),
            quantizer: 0.0,
            fill: None,
            last_gop: None,
            sent: Bytes::ZERO,
            credit: 0.0,
            limited: false,
        }
    }

    /// Replaces the built-in switching rule of [`Vbr::Rungs`].
    #[must_use]
    pub fn switched_by(self, switching: Box<dyn SwitchingRule>) -> Self {
        Self { switching, ..self }
    }

    /// With [`Vbr::Rungs`], skips the rest of a GOP if `rate` is too far below the rate that the present rung needs.
    /// The function `abandons_group` in `rungs.rs` decides this. Returns whether frames were skipped.
    fn abandons_group(&mut self, rate: Rate) -> bool {
        let (frames, gop) = (self.ladder.frames(), u64::from(self.ladder.gop));
        let within = self.next % frames;
        let rest = within.next_multiple_of(gop).min(frames) - within;
        if rest == 0 || self.rungs.is_empty() || !abandons_group(self.chosen, &self.history.needs(), rate) {
            return false;
        }
        (self.next, self.left_out) = (self.next + rest, self.left_out + rest);
        true
    }

    /// Encodes the next frame. Never skips frames, unlike [`Feed::next`]. `rate` is the current target rate, and
    /// `backlog` is the number of bytes in the pacer.
    pub fn next_frame(&mut self, rate: Rate, backlog: Bytes) -> Coded {
        let frames = self.ladder.frames();
        let (round, clip) = (self.next / frames, self.next % frames);
        let begins = clip.is_multiple_of(u64::from(self.ladder.gop));
        match self.vbr {
            Vbr::Frame(PerFrame { wait, room }) => self.choose_frame_quantizer(clip, rate, backlog, wait, room),
            _ if begins => self.choose_gop_quantizer(clip, rate, backlog),
            _ => {}
        }
        let (at, size) = (clip as usize, self.ladder.sizes[self.rung][clip as usize]);
        let coded = Coded {
            index: (self.next - self.left_out) as u32,
            clip: clip as u32,
            display: (round * frames) as u32 + self.ladder.display[at],
            kind: self.ladder.kinds[at],
            quantizer: self.ladder.quantizers[self.rung],
            // Give each frame at least one byte, because a frame without bytes would have no packet.
            size: Bytes::new(u64::from(size.max(1))),
        };
        let bytes = self.ladder.bytes(self.rung, at..at + 1, self.payload, self.overhead);
        self.sent += bytes;
        self.credit -= bytes.as_f64();
        self.next += 1;
        coded
    }

    fn choose_gop_quantizer(&mut self, clip: u64, rate: Rate, backlog: Bytes) {
        let range = self.ladder.gop_at(clip);
        let mean = self.mean(rate);
        let span = self.ladder.time(range.len() as u64);
        // The byte budget: what the target rate sends during the GOP, reduced by the backlog.
        let budget = match self.waiting {
            BacklogRule::Drained => {
                let whole = Rate::from_bps_f64(mean).over(span);
                whole.saturating_sub(backlog).max(Bytes::new(whole.get() / 2))
            }
            BacklogRule::Damped => {
                let packets = backlog.get().div_ceil(1000) as f64;
                Rate::from_bps_f64(mean * libm::exp(-packets / 1000.0)).over(span)
            }
        };
        let ladder = Arc::clone(&self.ladder);
        let (payload, overhead) = (self.payload, self.overhead);
        let size = |rung: usize| ladder.bytes(rung, range.clone(), payload, overhead);
        let rungs = self.ladder.quantizers.len();
        // Look for both the first quantizer that fits and the cheapest one. A coarser quantizer does not always give
        // smaller frames (table 2 of Multi-Evalvid-RA).
        let fitting = (0..rungs).find(|r| size(*r) <= budget);
        let cheapest = (0..rungs).min_by_key(|r| size(*r)).unwrap_or(0);
        self.rung = match (&self.vbr, self.fill) {
            (Vbr::Ladder | Vbr::Frame(_), _) => fitting.unwrap_or(cheapest),
            // Use the current rate if it is lower than the mean, because the mean is too high after a fall of the rate.
            (Vbr::Rungs(_), _) => self.chosen_rung(range.clone(), Rate::from_bps_f64(mean).min(rate), backlog),
            (Vbr::Evalvid(rule), _) => {
                let rule = *rule;
                self.evalvid_rung(rule, mean, budget.as_f64().max(1.0), |r| size(r).as_f64())
            }
            (Vbr::Bucket(_), None) => {
                self.fill = Some(0.5);
                // The bucket has no history before the first GOP. As in Evalvid-RA, code this GOP coarser by a factor
                // of two.
                let first = f64::from(self.ladder.quantizers[fitting.unwrap_or(cheapest)]);
                self.quantizer = match self.ladder.scale {
                    Scale::Linear => first * 2.0,
                    Scale::Logarithmic(steps) => first + f64::from(steps),
                };
                self.nearest_rung()
            }
            (Vbr::Bucket(Bucket { bucket: factor }), Some(share)) => {
                let r = budget.as_f64().max(1.0);
                let (share, target_bytes) = bucket(share, *factor, r, self.sent.as_f64(), size(self.rung).as_f64());
                self.fill = Some(share);
                let open = size(self.rung).as_f64();
                // As in Evalvid-RA, keep the quantizer if the GOP is within 5 % of its budget.
                if (open / r - 1.0).abs() > 0.05 {
                    self.quantizer = match self.ladder.scale {
                        Scale::Linear => self.quantizer * open / target_bytes,
                        Scale::Logarithmic(steps) => {
                            self.quantizer + f64::from(steps) * libm::log2(open / target_bytes)
                        }
                    };
                }
                self.nearest_rung()
            }
        };
        self.sent = Bytes::ZERO;
        // Require a margin of 5 %, because GOPs differ in size.
        self.limited = self.rung == 0 && size(0).as_f64() < 0.95 * budget.as_f64();
    }

    /// Returns the rung of the next GOP, for [`Vbr::Rungs`]. The rule knows only the sizes of earlier GOPs, as with a
    /// live source. The first GOP of the flow is an exception.
    fn chosen_rung(&mut self, range: Range<usize>, rate: Rate, backlog: Bytes) -> usize {
        let (at, lasts) = (self.due(), self.ladder.time(range.len() as u64));
        let of = |rung: &usize| self.ladder.bytes(*rung, range.clone(), self.payload, self.overhead).per(lasts);
        let rates: Vec<Rate> = self.rungs.iter().map(of).collect();
        let mut needs = self.history.needs();
        if needs.is_empty() {
            needs = rates.iter().map(|rate| RungNeed { recent: *rate, worst: *rate }).collect();
        }
        let context = RungContext { at, rung: self.chosen, needs: &needs, lasts, rate, backlog };
        let chosen = *self.chosen.insert(self.switching.choose(&context));
        self.history.push(at + lasts, rates);
        self.rungs.get(chosen).copied().unwrap_or(0)
    }

    /// Returns the mean target rate of the GOP that has just ended, in bit/s. With [`Vbr::Evalvid`], the mean of the
    /// previous GOP counts as one additional rate, as in Evalvid-RA's program.
    fn mean(&mut self, rate: Rate) -> f64 {
        let (sum, count) = std::mem::take(&mut self.rate_sum);
        let (sum, count) = self.last_gop.map_or((sum, count), |last_gop| (sum + last_gop.mean, count + 1));
        if count == 0 { rate.as_bps_f64() } else { sum / f64::from(count) }
    }

    /// Returns the rung of the next GOP, by the rule of Evalvid-RA's program. The quantizer is q · R_o / R'. Here q is
    /// the nominal quantizer, R_o is the GOP's size at q, and R' is the target size from [`target_bytes`].
    fn evalvid_rung(&mut self, rule: Evalvid, mean: f64, allowed: f64, size: impl Fn(usize) -> f64) -> usize {
        let coarser = |factor: f64| match self.ladder.scale {
            Scale::Linear => rule.nominal * factor,
            Scale::Logarithmic(steps) => rule.nominal + f64::from(steps) * libm::log2(factor),
        };
        let Some(last_gop) = self.last_gop else {
            self.quantizer = coarser(2.0);
            self.last_gop = Some(LastGop { mean, allowed, level: rule.bucket * allowed / 2.0 });
            return self.nearest_rung();
        };
        let whole = rule.bucket * last_gop.allowed;
        let level = bucket_level(last_gop.level, whole, last_gop.allowed, self.sent.as_f64());
        self.last_gop = Some(LastGop { mean, allowed, level });
        // As in Evalvid-RA, keep the quantizer if the GOP is within 5 % of its budget.
        let open = size(self.rung_nearest_to(rule.nominal));
        if (open / allowed - 1.0).abs() > 0.05 {
            self.quantizer = libm::floor(coarser(open / target_bytes(level / whole, allowed, open)) + 0.5);
        }
        self.nearest_rung()
    }

    /// Chooses the quantizer of the next frame. `clip` is the frame's number in the clip. The frame starts or continues
    /// a GOP.
    fn choose_frame_quantizer(&mut self, clip: u64, rate: Rate, backlog: Bytes, wait: Span, room: f64) {
        let ladder = Arc::clone(&self.ladder);
        let (at, place) = (clip as usize, clip % u64::from(ladder.gop));
        let (begins, rest) = (place == 0, at..ladder.gop_at(clip - place).end);
        let period = ladder.time(1);
        let (each, span) = (rate.over(period).as_f64(), rate.over(ladder.time(rest.len() as u64)).as_f64());
        // Limit the credit. Saved bytes are positive, and count up to the bytes of one frame. Excess bytes are
        // negative, and count up to half the bytes of a GOP.
        let owes = rate.over(ladder.time(u64::from(ladder.gop))).as_f64() / 2.0;
        self.credit = self.credit.clamp(-owes, each);
        let waiting = backlog.as_f64();
        // A GOP that has started may exceed its share by a quarter. Otherwise, the quantizer would become coarser for
        // the rest of the GOP, because it never becomes finer within a GOP.
        let spare = if begins { 0.0 } else { owes / 2.0 };
        // Leave at least half of the rate to the rest of the GOP. The next GOP compensates for the excess that remains.
        let budget = (span + self.credit.min(self.credit.max(0.0) - waiting)).max(span / 2.0) + spare;
        self.credit += each;
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

    /// Returns the ladder's quantizer that is nearest to the controlled quantizer, as an index.
    fn nearest_rung(&mut self) -> usize {
        let quantizers = &self.ladder.quantizers;
        let (low, high) = (quantizers[0], quantizers[quantizers.len() - 1]);
        self.quantizer = self.quantizer.clamp(f64::from(low), f64::from(high));
        self.rung_nearest_to(self.quantizer)
    }

    fn rung_nearest_to(&self, quantizer: f64) -> usize {
        let quantizers = &self.ladder.quantizers;
        let off = |q: u8| (f64::from(q) - quantizer).abs();
        (0..quantizers.len()).min_by(|a, b| off(quantizers[*a]).total_cmp(&off(quantizers[*b]))).unwrap_or(0)
    }
}

impl Feed for Encoder {
    fn due(&self) -> Span {
        self.ladder.time(self.next)
    }

    fn next(&mut self, rate: Rate, backlog: Bytes) -> Option<Coded> {
        (!self.abandons_group(rate)).then(|| self.next_frame(rate, backlog))
    }

    fn shown_at(&self, display: u32) -> Span {
        self.ladder.time(u64::from(display))
    }

    fn resume(&mut self) -> u32 {
        let (frames, gop) = (self.ladder.frames(), u64::from(self.ladder.gop));
        // Advance to the next GOP. The last GOP of the clip may be shorter than `gop`.
        let within = self.next % frames;
        self.next += within.next_multiple_of(gop).min(frames) - within;
        (self.rate_sum, self.fill, self.sent, self.limited) = ((0.0, 0), None, Bytes::ZERO, false);
        (self.credit, self.last_gop, self.chosen) = (0.0, None, None);
        (self.next - self.left_out) as u32
    }

    fn on_rate(&mut self, rate: Rate) {
        self.rate_sum.0 += rate.as_bps_f64();
        self.rate_sum.1 += 1;
    }

    fn limited(&self) -> bool {
        self.limited
    }

    fn best(&self) -> Option<Rate> {
        Some(self.ladder.rates(0, self.payload, self.overhead).0)
    }
}

/// Returns the indices of up to `count` quantizers of a ladder, from the finest to the coarsest. The logarithms of
/// their rates are as evenly spaced as the ladder allows.
fn spaced(ladder: &Ladder, count: u64, payload: u64, overhead: u64) -> Vec<usize> {
    let log = |rung: usize| libm::log(ladder.rates(rung, payload, overhead).0.as_bps_f64().max(1.0));
    let logs: Vec<f64> = (0..ladder.quantizers.len()).map(log).collect();
    let (Some(finest), Some(coarsest)) = (logs.first(), logs.last()) else { return Vec::new() };
    let nearest = |n: u64| {
        let wanted = finest + (coarsest - finest) * n as f64 / count.saturating_sub(1).max(1) as f64;
        (0..logs.len()).min_by(|a, b| (logs[*a] - wanted).abs().total_cmp(&(logs[*b] - wanted).abs()))
    };
    let mut rungs: Vec<usize> = (0..count).filter_map(nearest).collect();
    rungs.sort_unstable();
    rungs.dedup();
    rungs
}

/// Performs one step of the leaky bucket. Returns two values: the bucket's new filling x, from 0 to 1, and the target
/// size R' of the next GOP in bytes.
///
/// - `share` is the bucket's old filling X / b.
/// - `factor` is the bucket's size b in GOPs of `r` bytes.
/// - `r` is the byte budget of a GOP.
/// - `sent` is the size R of the last GOP in bytes.
/// - `open` is the size R_o of the next GOP at the current quantizer, in bytes.
///
/// ```text
///   X ← min(b, max(0, X − r) + R),  x = X/b        e₁ = 1 − (1−x)⁵,  e₂ = x⁵
///   R' = (1−e₁)·R_o + e₁·r   if R_o > r,   otherwise   R' = e₂·R_o + (1−e₂)·r
/// ```
pub fn bucket(share: f64, factor: f64, r: f64, sent: f64, open: f64) -> (f64, f64) {
    let b = factor * r;
    let x = bucket_level(share * b, b, r, sent) / b;
    (x, target_bytes(x, r, open))
}

/// Returns the new level X of a bucket of `whole` bytes, after `r` bytes have leaked out and `sent` bytes have come in.
fn bucket_level(level: f64, whole: f64, r: f64, sent: f64) -> f64 {
    ((level - r).max(0.0) + sent).min(whole)
}

/// Returns the target size R' of the next GOP in bytes. `x` is the filling of the bucket from 0 to 1. `r` is the size
/// at the target rate, and `open` is the size at the current quantizer.
fn target_bytes(x: f64, r: f64, open: f64) -> f64 {
    let fifth = |v: f64| v * v * v * v * v;
    let target_bytes = if open > r {
        let e1 = 1.0 - fifth(1.0 - x);
        (1.0 - e1) * open + e1 * r
    } else {
        let e2 = fifth(x);
        e2 * open + (1.0 - e2) * r
    };
    target_bytes.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FrameKind;

    /// Returns the size of the second GOP if `backlog` waits at its start and nothing waited before. The rate is 80
    /// kb/s, which gives a thousand bytes per frame of 0.1 s.
    fn next_gop(waiting: BacklogRule, backlog: Bytes) -> u64 {
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
        let frame = |encoder: &mut Encoder, backlog| encoder.next_frame(Rate::kbps(80), backlog).size.get();
        let steady: u64 = (0..10).map(|_| frame(&mut encoder, Bytes::ZERO)).sum();
        assert_eq!(steady, 10_000);
        (0..10).map(|_| frame(&mut encoder, backlog)).sum()
    }

    #[test]
    fn a_gop_makes_room_for_what_waits_up_to_half_of_itself() {
        assert_eq!(next_gop(BacklogRule::Drained, Bytes::ZERO), 10_000);
        assert!((7_000..=8_000).contains(&next_gop(BacklogRule::Drained, Bytes::new(2_000))));
        assert!((4_500..=5_000).contains(&next_gop(BacklogRule::Drained, Bytes::new(50_000))));
    }

    #[test]
    fn damped_as_in_evalvid_ra_twenty_packets_take_a_fiftieth() {
        assert!((8_500..10_000).contains(&next_gop(BacklogRule::Damped, Bytes::new(20_000))));
    }
}
