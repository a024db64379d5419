//! The synthetic codec of RFC 8593. It models how a live encoder follows its target rate.

use crate::{Coded, Feed, FrameKind, Ladder};
use std::sync::Arc;
use steadycast_settings::tree::Item;
use steadycast_settings::{Findings, Within, positive, settings, words};
use steadycast_units::{Bytes, Chance, Rate, Span};

/// The size of the smallest frame in bytes (RFC 8593, section 6.2.1).
const MIN_FRAME: f64 = 10.0;
/// The size of the largest frame in bytes (RFC 8593, section 6.2.1).
const MAX_FRAME: f64 = 1e6;
/// The shortest interval between frames, as a share of the reference interval. The limit is needed because the Laplace
/// distribution has no lower bound.
const MIN_INTERVAL_SHARE: f64 = 0.1;

words! {
    /// The model of RFC 8593 that determines the sizes of frames and the intervals between them.
    #[derive(Default)]
    pub enum CodecModel {
        /// Frame sizes and intervals are drawn at random. An abrupt change of the rate causes a burst (section 5).
        #[default]
        Statistical = "statistical",
        /// Frame sizes are those of an encoded sequence. They are interpolated between two encodings of different rates
        /// (section 6).
        Trace = "trace",
        /// Bursts and intervals are as in `Statistical`. Frame sizes outside of bursts are as in `Trace` (section 7).
        Hybrid = "hybrid",
    }
}

settings! {
    /// RFC 8593's synthetic codec, by the RFC's names (figure 2 and section 6.2). Its rates are those of IP packets, as
    /// all rates here.
    CodecSettings checked by rates {
        /// The model of frame sizes: statistical (RFC 8593, section 5), trace (section 6) or hybrid (section 7). The
        /// last two use the frame sizes of "trace", of "clip", or of the synthetic film.
        model: CodecModel = RFC8593.model,
        /// The reference interval between frames t0, which is 1/FPS.
        [inner] t0: Span = RFC8593.t0,
        /// The codec's lowest rate.
        r_min: Rate where (positive) = RFC8593.r_min,
        /// The codec's highest rate.
        r_max: Rate where (positive) = RFC8593.r_max,
        /// The time after a rate request during which the codec ignores further requests.
        tau_v: Span = RFC8593.tau_v,
        /// The relative change between two successive rate requests from which the codec answers with a burst of large
        /// frames; 0.1 is a change of 10 %.
        abrupt: f64 where (ABRUPT) = RFC8593.abrupt,
        /// The number of frames in a burst.
        k_d: u32 where (BURST) = RFC8593.k_d,
        /// The size of a burst's first frame.
        k_b: Bytes where (FIRST) = RFC8593.k_b,
        /// The scale of the Laplace distribution of the intervals between frames, as a share of the mean interval.
        scale_t: f64 where (SCALE) = RFC8593.scale_t,
        /// The scale of the Laplace distribution of frame sizes, as a share of the mean size.
        scale_b: f64 where (SCALE) = RFC8593.scale_b,
        /// The number of frames at the beginning of the sequence that are skipped each time the sequence repeats.
        skip_frames: u32 where (SKIPPED) = RFC8593.skip_frames,
    }
}

const ABRUPT: Within<f64> = Within { least: 0.0, most: 100.0, remedy: "from 0 to 100" };
const BURST: Within<u32> = Within { least: 2, most: 1_000, remedy: "from 2 to 1000 frames" };
const FIRST: Within<Bytes> =
    Within { least: Bytes::new(10), most: Bytes::new(1_000_000), remedy: "from \"10B\" to \"1MB\"" };
const SCALE: Within<f64> = Within { least: 0.0, most: 1.0, remedy: "from 0 to 1" };
const SKIPPED: Within<u32> = Within { least: 0, most: 1_000_000, remedy: "from 0 to 1000000 frames" };

fn rates(codec: &CodecSettings, item: &Item, out: &mut Findings) {
    let (low, high) = (codec.r_min, codec.r_max);
    if high < low
        && let Some(said) = item.get("r_max").or_else(|| item.get("r_min"))
    {
        let what = format!("the highest rate {high} is below the lowest {low}");
        out.problem(&said.at, what, "make r_max the larger one");
    }
}

/// The RFC's defaults, at 30 frames per second.
pub const RFC8593: CodecSettings = CodecSettings {
    model: CodecModel::Statistical,
    t0: Span::nanos(1_000_000_000 / 30),
    r_min: Rate::kbps(150),
    r_max: Rate::kbps(1_500),
    tau_v: Span::millis(200),
    abrupt: 0.1,
    k_d: 8,
    k_b: Bytes::new(13_500),
    scale_t: 0.15,
    scale_b: 0.15,
    skip_frames: 20,
};

impl CodecSettings {
    /// Returns the RFC's defaults for `fps` frames per second.
    pub fn at(fps: f64) -> Self {
        Self { t0: Span::from_secs_f64(1.0 / fps), ..RFC8593 }
    }
}

/// The frame sizes of one sequence at several rates. RFC 8593 calls this map `Traces`.
#[derive(Clone, Debug)]
struct Traces {
    /// The rates in bit/s, including packet headers, in ascending order. Each has the index of its row in the ladder.
    rungs: Vec<(f64, usize)>,
    ladder: Arc<Ladder>,
}

impl Traces {
    fn new(ladder: Arc<Ladder>, payload: u64, overhead: u64) -> Self {
        let rate = |row| ladder.rates(row, payload, overhead).0.as_bps_f64();
        let mut rungs: Vec<_> = (0..ladder.quantizers.len()).map(|row| (rate(row), row)).collect();
        rungs.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Remove rates that do not increase, because the interpolation would divide by zero.
        rungs.dedup_by(|a, b| a.0 <= b.0);
        Self { rungs, ladder }
    }

    /// Returns the size of frame `at` at the target `rate`, in bytes (RFC 8593, section 6.2.1, a to c). Interpolates
    /// between the two nearest rates. Beyond the lowest and the highest rate, the size is proportional to the rate.
    fn size(&self, at: u64, rate: f64) -> f64 {
        let size = |row: usize| f64::from(self.ladder.sizes[row][at as usize]);
        let above = self.rungs.partition_point(|rung| rung.0 <= rate);
        match (above.checked_sub(1).map(|below| self.rungs[below]), self.rungs.get(above)) {
            (Some((low, row)), Some((high, other))) => {
                let part = (rate - low) / (high - low);
                size(*other) * part + size(row) * (1.0 - part)
            }
            (Some((edge, row)), None) | (None, Some(&(edge, row))) => size(row) * rate / edge.max(1.0),
            (None, None) => MIN_FRAME,
        }
    }

    /// Returns the position after `at` (RFC 8593, section 6.2.1). When the sequence repeats, its first `skip` frames
    /// are skipped.
    fn after(&self, at: u64, skip: u32) -> u64 {
        let (frames, skip) = (self.ladder.frames(), u64::from(skip));
        if skip >= frames {
            return (at + 1) % frames;
        }
        if at < skip { at + 1 } else { (at + 1 - skip) % (frames - skip) + skip }
    }
}

/// The time in seconds within which the pacer's backlog is to drain. For this purpose, frames are reduced, by at most
/// half. This is an addition, because RFC 8593 has no pacer.
const BACKLOG_DRAIN_S: f64 = 0.4;

/// A source of frames that have sizes but no content. The frames do not depend on each other.
#[derive(Clone, Debug)]
pub struct SyntheticCodec {
    settings: CodecSettings,
    traces: Option<Traces>,
    payload: f64,
    overhead: f64,
    chance: Chance,
    /// When each frame was due, as the time since the start of the flow.
    times: Vec<Span>,
    /// When the next frame is due, as the time since the start of the flow.
    due: Span,
    /// The target rate R_v in bit/s, and the time until which the codec ignores other targets.
    target: Option<(f64, Span)>,
    /// The number of frames that the current burst still has.
    burst: u32,
    /// The position in the sequence. RFC 8593 calls it t_current.
    place: u64,
    limited: bool,
}

impl SyntheticCodec {
    /// Creates a codec. Its frames are sent in packets with up to `payload` bytes of content and `overhead` bytes of
    /// headers. The ladder contains the frame sizes of the sequence, in one row per encoding.
    /// [`CodecModel::Statistical`] needs no ladder.
    pub fn new(
        settings: CodecSettings,
        ladder: Option<Arc<Ladder>>,
        payload: u64,
        overhead: u64,
        chance: Chance,
    ) -> Self {
        let ladder = ladder.filter(|_| settings.model != CodecModel::Statistical);
        Self {
            settings,
            traces: ladder.map(|ladder| Traces::new(ladder, payload, overhead)),
            payload: payload.max(1) as f64,
            overhead: overhead as f64,
            chance,
            times: Vec::new(),
            due: Span::ZERO,
            target: None,
            burst: 0,
            place: 0,
            limited: false,
        }
    }

    /// Applies the target `rate`, unless the previous target changed too recently. Returns the target in force, in
    /// bit/s.
    fn request(&mut self, now: Span, rate: Rate) -> f64 {
        let of = &self.settings;
        self.limited = rate > of.r_max;
        let wanted = rate.as_bps_f64().min(of.r_max.as_bps_f64()).max(of.r_min.as_bps_f64());
        // Return the target immediately, because the trace model follows its target without delay (RFC 8593, section
        // 6).
        if of.model == CodecModel::Trace {
            return wanted;
        }
        // Start a burst if the change is abrupt (RFC 8593, section 5.2), or if this is the first target.
        match self.target {
            Some((held, until)) if now < until || held == wanted => return held,
            Some((held, _)) if (wanted / held - 1.0).abs() <= of.abrupt => {}
            _ => self.burst = of.k_d,
        }
        self.target = Some((wanted, now + of.tau_v));
        wanted
    }

    /// Returns the size of a frame that takes `bytes` bytes on the wire, including packet headers.
    fn frame_size(&self, bytes: f64) -> f64 {
        (bytes - libm::ceil(bytes / (self.payload + self.overhead)) * self.overhead).max(MIN_FRAME)
    }

    /// Returns the number of bytes on the wire, including packet headers, of a frame of `size` bytes.
    fn wire_size(&self, size: f64) -> f64 {
        size + libm::ceil(size / self.payload) * self.overhead
    }

    /// Returns the size of the next frame of a burst (RFC 8593, section 5.2). The whole burst has `k_d · mean` bytes.
    /// Its first frame has `k_b` bytes, and the rest is divided evenly among the other frames.
    fn burst_size(&self, mean: f64) -> f64 {
        let frames = f64::from(self.settings.k_d);
        let others = (frames - 1.0) * self.wire_size(MIN_FRAME);
        // Limit the first frame, so that at least `MIN_FRAME` bytes are left for each of the other frames.
        let first = self.wire_size(self.settings.k_b.as_f64()).min(frames * mean - others);
        if self.burst == self.settings.k_d {
            self.frame_size(first)
        } else {
            self.frame_size((frames * mean - first) / (frames - 1.0))
        }
    }

    /// Draws a random number from the Laplace distribution with mean zero.
    fn laplace(&mut self, scale: f64) -> f64 {
        // Use inverse transform sampling.
        let u = self.chance.unit_open() - 0.5;
        -scale * u.signum() * libm::log(1.0 - 2.0 * u.abs())
    }
}

impl Feed for SyntheticCodec {
    fn due(&self) -> Span {
        self.due
    }

    fn next(&mut self, rate: Rate, backlog: Bytes) -> Option<Coded> {
        let now = self.due;
        let rate = self.request(now, rate);
        // The mean size of a frame on the wire, in bytes.
        let mean = rate / 8.0 * self.settings.t0.as_secs_f64();
        let room = (1.0 - backlog.as_f64() * 8.0 / (rate * BACKLOG_DRAIN_S)).max(0.5);
        let by_trace = self.traces.as_ref().map(|traces| traces.size(self.place, rate * room));
        let (t, b) = match self.settings.model {
            CodecModel::Trace => (0.0, 0.0),
            CodecModel::Statistical | CodecModel::Hybrid => {
                // Draw both numbers for every frame, so that a burst does not shift later random numbers.
                let t = self.laplace(self.settings.scale_t);
                (t, self.laplace(self.settings.scale_b))
            }
        };
        let size = match by_trace {
            _ if self.burst > 0 => self.burst_size(mean),
            Some(size) => size,
            None => self.frame_size(mean * room * (1.0 + b)),
        };
        let index = self.times.len() as u32;
        let coded = Coded {
            index,
            clip: self.traces.as_ref().map_or(index, |_| self.place as u32),
            display: index,
            kind: FrameKind::I,
            quantizer: 0,
            size: Bytes::new(libm::round(size.clamp(MIN_FRAME, MAX_FRAME)) as u64),
        };
        self.burst = self.burst.saturating_sub(1);
        if let Some(traces) = &self.traces {
            self.place = traces.after(self.place, self.settings.skip_frames);
        }
        self.times.push(now);
        self.due = now + self.settings.t0.scale((1.0 + t).max(MIN_INTERVAL_SHARE));
        Some(coded)
    }

    fn shown_at(&self, display: u32) -> Span {
        self.times.get(display as usize).copied().unwrap_or(self.due)
    }

    fn period(&self) -> Span {
        self.settings.t0
    }

    fn resume(&mut self) -> u32 {
        (self.target, self.burst, self.place, self.limited) = (None, 0, 0, false);
        self.times.len() as u32
    }

    /// Does nothing, because the target is applied when the next frame is created.
    fn on_rate(&mut self, _rate: Rate) {}

    fn limited(&self) -> bool {
        self.limited
    }
}
