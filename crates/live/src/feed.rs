//! Frames with their bytes: from an encoder in another thread, or from a ladder that was made before.

use crate::{Clock, Payloads, Waker};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use steadycast_media::{Coded, Encoder, Feed, Scale, bucket};
use steadycast_session::{FrameKind, Media, Part};
use steadycast_units::{Bytes, Rate, Span, Time};
use steadycast_wire::payload::{PayloadFormat, payloads};

/// Payloads of frames that wait in the pacer.
#[derive(Clone, Debug)]
pub struct Store {
    format: PayloadFormat,
    max_payload: usize,
    frames: Arc<Mutex<BTreeMap<u32, Cut>>>,
}

/// A frame's payloads, one after the other, and by the place in the frame at which each begins.
#[derive(Debug, Default)]
struct Cut {
    bytes: Vec<u8>,
    places: Vec<(u32, Range<usize>)>,
}

impl Store {
    /// For frames that are cut by `format` into payloads of up to `max_payload` bytes.
    pub fn new(format: PayloadFormat, max_payload: usize) -> Self {
        Self { format, max_payload, frames: Arc::default() }
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<u32, Cut>> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts frame number `index`, and keeps its payloads until they have been sent.
    fn put(&self, index: u32, frame: &[u8]) -> VecDeque<Part> {
        let (mut cut, mut parts) = (Cut::default(), VecDeque::new());
        for payload in payloads(self.format, frame, index, self.max_payload) {
            let (offset, from) = (payload.fragment.offset as u32, cut.bytes.len());
            payload.write(&mut cut.bytes);
            cut.places.push((offset, from..cut.bytes.len()));
            parts.push_back(Part { len: payload.fragment.len as u16, payload: (cut.bytes.len() - from) as u16 });
        }
        self.locked().insert(index, cut);
        parts
    }
}

impl Payloads for Store {
    fn write(&mut self, media: &Media, out: &mut Vec<u8>) {
        let fragment = media.fragment;
        let mut frames = self.locked();
        let place = frames.get(&fragment.frame).and_then(|cut| {
            let at = cut.places.binary_search_by_key(&fragment.offset, |(offset, _)| *offset).ok()?;
            cut.bytes.get(cut.places[at].1.clone())
        });
        debug_assert!(place.is_some_and(|p| p.len() == usize::from(media.header.payload_len)));
        out.extend_from_slice(place.unwrap_or_default());
        if media.header.marker {
            // Those before it that are still here were skipped.
            *frames = frames.split_off(&(fragment.frame + 1));
        }
    }
}

/// What an encoder is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Which of the source's pictures; those between it and the last one are left out.
    pub picture: u32,
    /// It begins a group of pictures, in an encoder context of its own at this quantizer.
    pub first: bool,
    /// The group's quantizer.
    pub quantizer: u8,
}

/// A coded frame with its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Which of the source's pictures.
    pub picture: u32,
    /// How it is coded.
    pub kind: FrameKind,
    /// At which quantizer.
    pub quantizer: u8,
    /// The access unit.
    pub bytes: Vec<u8>,
}

/// What an encoder that asks for work is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Do this.
    Job(Job),
    /// There is none yet.
    Nothing,
    /// There will be none any more.
    Closed,
}

#[derive(Debug, Default)]
struct Desk {
    job: Option<Job>,
    ready: VecDeque<Unit>,
    ended: bool,
    closed: bool,
    /// Pictures left out since the encoder was too slow, of all.
    left_out: u64,
    /// Pictures left out since the rate had no room for them.
    no_room: u64,
    waker: Option<Waker>,
}

/// The desk between a session and the encoder in another thread: one job at a time lies there, and what has become of it.
#[derive(Clone, Debug, Default)]
pub struct EncoderDesk(Arc<(Mutex<Desk>, Condvar)>);

impl EncoderDesk {
    fn locked(&self) -> MutexGuard<'_, Desk> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Work, as soon as there is some, or nothing after `patience`.
    pub fn next_job(&self, patience: Duration) -> Next {
        let waits = |desk: &mut Desk| desk.job.is_none() && !desk.closed;
        let waited = self.0.1.wait_timeout_while(self.locked(), patience, waits);
        let (mut desk, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match desk.job.take() {
            _ if desk.closed => Next::Closed,
            Some(job) => Next::Job(job),
            None => Next::Nothing,
        }
    }

    /// A frame is done.
    pub fn push(&self, unit: Unit) {
        let mut desk = self.locked();
        desk.ready.push_back(unit);
        if let Some(waker) = &desk.waker {
            waker.wake();
        }
    }

    /// The source has no more pictures.
    pub fn end(&self) {
        let mut desk = self.locked();
        desk.ended = true;
        if let Some(waker) = &desk.waker {
            waker.wake();
        }
    }

    /// Whether the source has ended and all that it gave was taken.
    pub fn over(&self) -> bool {
        let desk = self.locked();
        desk.ended && desk.ready.is_empty()
    }

    /// Pictures that were left out since the encoder was too slow.
    pub fn left_out(&self) -> u64 {
        self.locked().left_out
    }

    /// Pictures that were left out since the rate had no room for them, not even at the coarsest quantizer.
    pub fn no_room(&self) -> u64 {
        self.locked().no_room
    }

    /// The session is over: the encoder is told so.
    pub fn close(&self) {
        self.locked().closed = true;
        self.0.1.notify_all();
    }

    /// Has the loop woken when a frame is done.
    pub fn wake_by(&self, waker: Waker) {
        self.locked().waker = Some(waker);
    }

    /// The job that lies there begins a group of pictures; false when the encoder has it already, or there is none.
    fn begin_group(&self) -> bool {
        let mut desk = self.locked();
        let Some(job) = &mut desk.job else { return false };
        job.first = true;
        true
    }

    fn ask(&self, job: Job) {
        self.locked().job = Some(job);
        self.0.1.notify_all();
    }
}

/// How a live encoder is steered.
#[derive(Clone, Copy, Debug)]
pub struct Steering {
    /// Pictures per second, as a fraction.
    pub fps: (u32, u32),
    /// Pictures from one I frame to the next.
    pub gop: u32,
    /// Best and coarsest quantizer.
    pub quantizers: (u8, u8),
    /// What a step of the quantizer means.
    pub scale: Scale,
    /// Luma samples of a picture.
    pub samples: u32,
    /// The source has a clock of its own, as a camera has: frames are sent as they come.
    pub own_pace: bool,
    /// Bytes that a packet costs beside its payload.
    pub overhead: u64,
}

/// Frames that wait take no longer than this when the next picture is taken. The pacer skips frames when they take a second, so that
/// the rate may be halved before that.
const ROOM: Span = Span::millis(300);

/// The next picture is coded after this, whatever waits.
const LONGEST_GAP: Span = Span::secs(1);

/// The size of Evalvid-RA's bucket, in groups of pictures.
const BUCKET: f64 = 1.5;

/// Frames from an encoder that works beside the session.
pub struct LiveFeed {
    desk: EncoderDesk,
    store: Store,
    steering: Steering,
    clock: Clock,
    start: Option<Time>,
    /// Number of the next frame, in coding order: without B frames also in display order, but for pictures left out.
    index: u32,
    /// Pictures since the last I frame.
    since_intra: u32,
    /// The present group is to end before its time, and is no measure.
    cut: bool,
    told: (f64, u32),
    rate: Rate,
    quantizer: f64,
    fill: f64,
    /// Bytes of the present group of pictures, with packet headers, and of the last whole one.
    sent: Bytes,
    limited: bool,
    parts: VecDeque<Part>,
    /// Pictures left out before the next one: since the encoder was too slow, and since the rate has no room.
    gap: (u32, u32),
}

impl LiveFeed {
    /// Of the encoder at this desk; payloads go through `store`.
    pub fn new(desk: EncoderDesk, store: Store, steering: Steering, clock: Clock) -> Self {
        Self {
            desk,
            store,
            steering,
            clock,
            start: None,
            index: 0,
            since_intra: 0,
            cut: false,
            told: (0.0, 0),
            rate: Rate::ZERO,
            quantizer: 0.0,
            fill: 0.5,
            sent: Bytes::ZERO,
            limited: false,
            parts: VecDeque::new(),
            gap: (0, 0),
        }
    }

    fn time(&self, picture: u32) -> Span {
        let (per, of) = self.steering.fps;
        Span::nanos((u128::from(picture) * 1_000_000_000 * u128::from(of) / u128::from(per.max(1))) as u64)
    }

    /// The quantizer to begin with: nothing has been coded yet, so it goes by what pictures of this size usually need (a tenth of
    /// a bit per sample at quantizer 9), on the coarse side.
    fn first_quantizer(&self) -> f64 {
        let per_second =
            f64::from(self.steering.samples) * f64::from(self.steering.fps.0) / f64::from(self.steering.fps.1);
        let share = per_second / self.rate.as_bps_f64().max(1.0);
        match self.steering.scale {
            Scale::Linear => 0.9 * share * 1.5,
            // QP 28 is about quantizer 9; of the scales from 0 to 63 it is 36 or less.
            Scale::Logarithmic(steps) => {
                let alike = if steps == 6 { 28.0 } else { 36.0 };
                alike + f64::from(steps) * (libm::log2(0.1 * share) + 0.5)
            }
        }
    }

    fn limits(&self) -> (f64, f64) {
        (f64::from(self.steering.quantizers.0), f64::from(self.steering.quantizers.1))
    }

    /// One step of the leaky bucket, by what the last group of pictures came to.
    fn steer(&mut self, backlog: Bytes) {
        let mean = if self.told.1 == 0 { self.rate.as_bps_f64() } else { self.told.0 / f64::from(self.told.1) };
        self.told = (0.0, 0);
        let whole = Rate::from_bps_f64(mean).over(self.time(self.steering.gop));
        let budget = whole.saturating_sub(backlog).max(Bytes::new(whole.get() / 2)).as_f64().max(1.0);
        let (low, high) = self.limits();
        if self.index == 0 {
            self.quantizer = self.first_quantizer();
        } else if !std::mem::take(&mut self.cut) {
            let open = self.sent.as_f64().max(1.0);
            let (fill, wanted) = bucket(self.fill, BUCKET, budget, open, open);
            self.fill = fill;
            if (open / budget - 1.0).abs() > 0.05 {
                self.quantizer = match self.steering.scale {
                    Scale::Linear => self.quantizer * open / wanted,
                    Scale::Logarithmic(steps) => self.quantizer + f64::from(steps) * libm::log2(open / wanted),
                };
            }
            self.limited = self.quantizer <= low && open < 0.95 * budget;
        }
        self.quantizer = self.quantizer.clamp(low, high);
        self.sent = Bytes::ZERO;
    }

    fn ask(&mut self, picture: u32, backlog: Bytes) {
        let first = self.index == 0 || self.since_intra >= self.steering.gop;
        if first {
            self.steer(backlog);
            self.since_intra = 0;
        }
        self.desk.ask(Job { picture, first, quantizer: libm::round(self.quantizer) as u8 });
    }
}

impl Feed for LiveFeed {
    fn due(&self) -> Span {
        match self.desk.locked().ready.front() {
            Some(_) if self.steering.own_pace => Span::ZERO,
            Some(unit) => self.time(unit.picture),
            None => Span::MAX,
        }
    }

    fn next(&mut self, rate: Rate, backlog: Bytes) -> Option<Coded> {
        self.rate = rate;
        let unit = {
            let mut desk = self.desk.locked();
            let unit = desk.ready.pop_front()?;
            let (left_out, no_room) = std::mem::take(&mut self.gap);
            desk.left_out += u64::from(left_out);
            desk.no_room += u64::from(no_room);
            unit
        };
        self.parts = self.store.put(self.index, &unit.bytes);
        let size = Bytes::new(unit.bytes.len() as u64);
        self.sent += size + Bytes::new(self.parts.len() as u64 * self.steering.overhead);
        let coded = Coded {
            index: self.index,
            clip: unit.picture,
            display: unit.picture,
            kind: unit.kind,
            quantizer: unit.quantizer,
            size,
        };
        self.index += 1;
        self.since_intra += 1;
        // An encoder that is behind by more than a picture catches up by leaving some out.
        let age = self.start.map_or(Span::ZERO, |start| self.clock.now().since(start));
        let behind = age.saturating_sub(self.time(unit.picture + 1)).ratio(self.time(1)).floor();
        let left_out = if self.steering.own_pace { 0 } else { behind.clamp(0.0, 1e6) as u32 };
        // A frame rate that the rate has room for, even at the coarsest quantizer: nothing that is coded has to be skipped.
        let waits = backlog + size + Bytes::new(self.parts.len() as u64 * self.steering.overhead);
        let wait = waits.at(rate).saturating_sub(ROOM).min(LONGEST_GAP);
        let spare = if self.steering.own_pace { 0.0 } else { (wait.ratio(self.time(1)).ceil() - 1.0).clamp(0.0, 1e6) };
        let no_room = (spare as u32).saturating_sub(left_out);
        self.gap = (left_out, no_room);
        self.ask(unit.picture + 1 + left_out + no_room, backlog);
        Some(coded)
    }

    fn parts(&mut self) -> VecDeque<Part> {
        std::mem::take(&mut self.parts)
    }

    fn shown_at(&self, display: u32) -> Span {
        self.time(display)
    }

    fn resume(&mut self) -> u32 {
        self.since_intra = self.steering.gop;
        self.index
    }

    fn key_frame(&mut self) {
        // One that begins a group and waits to be coded is a key frame already.
        if self.start.is_none() || self.since_intra == 0 {
            return;
        }
        // What a part of a group took says little of what a whole one takes.
        self.cut = true;
        if self.desk.begin_group() {
            (self.since_intra, self.sent) = (0, Bytes::ZERO);
            self.cut = false;
        } else {
            self.since_intra = self.steering.gop;
        }
    }

    fn on_rate(&mut self, rate: Rate) {
        self.told = (self.told.0 + rate.as_bps_f64(), self.told.1 + 1);
        self.rate = rate;
        if self.start.is_none() {
            self.start = Some(self.clock.now());
            self.ask(0, Bytes::ZERO);
        }
    }

    fn limited(&self) -> bool {
        self.limited
    }
}

/// The access units of one rung of a ladder.
#[derive(Clone, Debug)]
pub struct RungData {
    /// All access units, in coding order.
    pub data: Arc<[u8]>,
    /// Where each begins, and where the last one ends.
    pub offsets: Vec<u64>,
    /// What a decoder must be told first: it is sent again before every I frame, so that whoever joins can begin there.
    pub head: Vec<u8>,
}

/// Frames of a ladder that was made before, as a simulation plays it.
pub struct LadderFeed {
    encoder: Encoder,
    store: Store,
    rungs: BTreeMap<u8, RungData>,
    parts: VecDeque<Part>,
    /// Frames to play; the ladder over and over when there is no end.
    frames: Option<u32>,
    over: Arc<std::sync::atomic::AtomicBool>,
}

impl LadderFeed {
    /// Of an encoder's stand-in and the bytes of its quantizers. `frames` is after how many it ends.
    pub fn new(encoder: Encoder, store: Store, rungs: BTreeMap<u8, RungData>, frames: Option<u32>) -> Self {
        Self { encoder, store, rungs, parts: VecDeque::new(), frames, over: Arc::default() }
    }

    /// Becomes true when its last frame was taken.
    pub fn over(&self) -> Arc<std::sync::atomic::AtomicBool> {
        Arc::clone(&self.over)
    }
}

impl Feed for LadderFeed {
    fn due(&self) -> Span {
        if self.over.load(std::sync::atomic::Ordering::Relaxed) { Span::MAX } else { self.encoder.due() }
    }

    fn next(&mut self, rate: Rate, backlog: Bytes) -> Option<Coded> {
        let mut coded = self.encoder.next(rate, backlog);
        let rung = self.rungs.get(&coded.quantizer)?;
        let at = |n: u32| rung.offsets.get(n as usize).map_or(0, |o| *o as usize);
        let unit = rung.data.get(at(coded.clip)..at(coded.clip + 1)).unwrap_or_default();
        let whole;
        let unit = if coded.kind == FrameKind::I && !rung.head.is_empty() && !unit.starts_with(&rung.head) {
            whole = [&rung.head, unit].concat();
            &whole
        } else {
            unit
        };
        self.parts = self.store.put(coded.index, unit);
        coded.size = Bytes::new(unit.len() as u64);
        if self.frames.is_some_and(|frames| coded.index + 1 >= frames) {
            self.over.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        Some(coded)
    }

    fn parts(&mut self) -> VecDeque<Part> {
        std::mem::take(&mut self.parts)
    }

    fn shown_at(&self, display: u32) -> Span {
        self.encoder.shown_at(display)
    }

    fn resume(&mut self) -> u32 {
        self.encoder.resume()
    }

    fn on_rate(&mut self, rate: Rate) {
        self.encoder.on_rate(rate);
    }

    fn limited(&self) -> bool {
        self.encoder.limited()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steering() -> Steering {
        Steering {
            fps: (25, 1),
            gop: 250,
            quantizers: (2, 31),
            scale: Scale::Linear,
            samples: 352 * 288,
            own_pace: false,
            overhead: 52,
        }
    }

    /// What becomes of an encoder's pictures at a rate: which are coded, how long what waits takes at the most, and how many the rate had
    /// no room for. A group of 12 begins with 3000 bytes, and the others have 800: what CIF takes at the coarsest quantizer.
    fn coded_at(rate: Rate) -> (Vec<u32>, Span, u64) {
        let desk = EncoderDesk::default();
        let steering = Steering { gop: 12, ..steering() };
        let mut feed = LiveFeed::new(desk.clone(), Store::new(PayloadFormat::Mpeg4, 900), steering, Clock::start());
        feed.on_rate(rate);
        let (mut pictures, mut waits, mut longest) = (Vec::new(), Bytes::ZERO, Span::ZERO);
        loop {
            let Next::Job(job) = desk.next_job(Duration::ZERO) else { panic!("there is work") };
            if job.picture >= 250 {
                return (pictures, longest, desk.no_room());
            }
            let since = job.picture - pictures.last().copied().unwrap_or(0);
            waits = waits.saturating_sub(rate.over(Span::millis(40) * u64::from(since)));
            let (kind, size) = if job.first { (FrameKind::I, 3_000) } else { (FrameKind::P, 800) };
            desk.push(Unit { picture: job.picture, kind, quantizer: job.quantizer, bytes: vec![0; size] });
            pictures.push(job.picture);
            assert!(feed.next(rate, waits).is_some());
            waits += Bytes::new(size as u64 + 52 * feed.parts().len() as u64);
            longest = longest.max(waits.at(rate));
        }
    }

    #[test]
    fn pictures_that_the_rate_has_no_room_for_are_left_out_before_they_are_coded() {
        let (pictures, longest, no_room) = coded_at(Rate::kbps(50));
        // The pacer skips frames when what waits takes a second.
        assert!(longest < Span::secs(1), "{longest:?}");
        // 10 s of 50 kb/s have room for 57 frames of 1100 bytes, headers included.
        assert!((50..=62).contains(&pictures.len()), "{}", pictures.len());
        assert_eq!(no_room, pictures.windows(2).map(|pair| u64::from(pair[1] - pair[0] - 1)).sum::<u64>());
        assert!(pictures.windows(2).all(|pair| pair[1] - pair[0] <= 25), "{pictures:?}");
        let (pictures, longest, no_room) = coded_at(Rate::mbps(1));
        assert_eq!((pictures.len(), no_room), (250, 0));
        assert!(longest < Span::millis(100), "{longest:?}");
    }

    #[test]
    fn the_next_picture_that_is_not_coded_yet_becomes_a_key_frame_on_request() {
        let desk = EncoderDesk::default();
        let mut feed = LiveFeed::new(desk.clone(), Store::new(PayloadFormat::Mpeg4, 900), steering(), Clock::start());
        feed.on_rate(Rate::mbps(1));
        let mut kinds = Vec::new();
        for picture in 0..12 {
            // The third picture is with the encoder when the first request comes; the ninth is not yet.
            if picture == 8 {
                feed.key_frame();
                feed.key_frame();
            }
            let Next::Job(job) = desk.next_job(Duration::ZERO) else { panic!("there is work") };
            if picture == 2 {
                feed.key_frame();
            }
            let kind = if job.first { FrameKind::I } else { FrameKind::P };
            desk.push(Unit { picture: job.picture, kind, quantizer: job.quantizer, bytes: vec![0, 0, 1, 0xb6, 0] });
            kinds.push(feed.next(Rate::mbps(1), Bytes::ZERO).map(|coded| coded.kind));
        }
        let keys: Vec<_> = (0..12).filter(|n| kinds[*n] == Some(FrameKind::I)).collect();
        assert_eq!(keys, [0, 3, 8]);
    }
}
