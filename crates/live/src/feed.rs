//! Feeds of encoded frames. The frames come from a live encoder in another thread, or from a ladder that was encoded in
//! advance.

use crate::group_control::{DOWNSIZE_MARGIN, GroupControl, LastGroup, room};
use crate::{Clock, Payloads, Steering, Waker};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use steadycast_media::{Coded, Encoder, Feed};
use steadycast_session::{FrameKind, Media, Part};
use steadycast_units::{Bytes, Rate, Span, Time};
use steadycast_wire::payload::{PayloadFormat, payloads};

/// The payloads of the frames that wait in the pacer.
#[derive(Clone, Debug)]
pub struct PayloadStore {
    format: PayloadFormat,
    max_payload: usize,
    frames: Arc<Mutex<BTreeMap<u32, PacketisedFrame>>>,
}

/// A frame that was cut into payloads. `places` contains the offset of each payload in the frame, and the payload's
/// range in `bytes`.
#[derive(Debug, Default)]
struct PacketisedFrame {
    bytes: Vec<u8>,
    places: Vec<(u32, Range<usize>)>,
}

impl PayloadStore {
    /// Creates a store. Each payload will have at most `max_payload` bytes.
    pub fn new(format: PayloadFormat, max_payload: usize) -> Self {
        Self { format, max_payload, frames: Arc::default() }
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<u32, PacketisedFrame>> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts frame `index` into payloads and stores them until they have been sent. Returns the sizes of the payloads.
    pub(crate) fn put(&self, index: u32, frame: &[u8]) -> VecDeque<Part> {
        let (mut cut, mut parts) = (PacketisedFrame::default(), VecDeque::new());
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

impl Payloads for PayloadStore {
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
            // Remove this frame and all earlier frames. The pacer has sent or skipped all of their packets.
            *frames = frames.split_off(&(fragment.frame + 1));
        }
    }
}

/// A picture that the encoder is to encode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncoderJob {
    /// Number of the picture. If numbers are skipped between two jobs, the skipped pictures are not encoded.
    pub picture: u32,
    /// Whether the picture starts a group of pictures. The group needs a new encoder context.
    pub first: bool,
    /// Quantizer of the group.
    pub quantizer: u8,
    /// Picture size of the group, as an index of [`Steering::sizes`].
    pub size: u8,
}

/// An encoded frame that the encoder returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedFrame {
    /// Number of the picture.
    pub picture: u32,
    /// Kind of the frame.
    pub kind: FrameKind,
    /// Quantizer with which the frame was encoded.
    pub quantizer: u8,
    /// The encoded bytes, which are one access unit.
    pub bytes: Vec<u8>,
}

/// The answer to an encoder that asks for its next job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextJob {
    /// A picture that is to be encoded.
    Job(EncoderJob),
    /// No job is available yet.
    Nothing,
    /// The session has ended.
    Closed,
}

#[derive(Debug, Default)]
struct EncoderQueueState {
    job: Option<EncoderJob>,
    ready: VecDeque<EncodedFrame>,
    ended: bool,
    closed: bool,
    /// Number of pictures that were not encoded because the encoder was too slow.
    left_out: u64,
    /// Number of pictures that were not encoded because the rate had no room for them.
    no_room: u64,
    /// Number of pictures to leave out before the job. The first value is for the slow encoder, the second value for
    /// the low rate.
    gap: (u32, u32),
    sizes: SizeStats,
    waker: Option<Waker>,
}

/// Statistics of the sizes of encoded pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeStats {
    /// Size of the last frame, as an index of [`Steering::sizes`].
    pub now: u8,
    /// Number of frames that were smaller than the source's pictures.
    pub smaller: u64,
    /// How often the size was changed.
    pub changes: u64,
}

/// The queue between a session and the encoder's thread. It contains up to one job for the encoder, and the encoded
/// frames.
#[derive(Clone, Debug, Default)]
pub struct EncoderQueue(Arc<(Mutex<EncoderQueueState>, Condvar)>);

impl EncoderQueue {
    fn locked(&self) -> MutexGuard<'_, EncoderQueueState> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits up to `patience` for a job, and returns it.
    pub fn next_job(&self, patience: Duration) -> NextJob {
        let waits = |encoder_queue: &mut EncoderQueueState| encoder_queue.job.is_none() && !encoder_queue.closed;
        let waited = self.0.1.wait_timeout_while(self.locked(), patience, waits);
        let (mut encoder_queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match encoder_queue.job.take() {
            _ if encoder_queue.closed => NextJob::Closed,
            Some(job) => NextJob::Job(job),
            None => NextJob::Nothing,
        }
    }

    /// Adds an encoded frame.
    pub fn push(&self, unit: EncodedFrame) {
        let mut encoder_queue = self.locked();
        encoder_queue.ready.push_back(unit);
        if let Some(waker) = &encoder_queue.waker {
            waker.wake();
        }
    }

    /// Counts pictures that the source has skipped.
    pub fn passed(&self, pictures: u32) {
        let mut encoder_queue = self.locked();
        let (late, no_room) = std::mem::take(&mut encoder_queue.gap);
        // Attribute skipped pictures to the slow encoder first, and to the low rate second. There can be fewer pictures
        // than `gap` requires, because the source may have ended.
        let no_room = pictures.saturating_sub(late).min(no_room);
        encoder_queue.no_room += u64::from(no_room);
        encoder_queue.left_out += u64::from(pictures - no_room);
    }

    /// Announces that the source has no further pictures.
    pub fn end(&self) {
        let mut encoder_queue = self.locked();
        encoder_queue.ended = true;
        if let Some(waker) = &encoder_queue.waker {
            waker.wake();
        }
    }

    /// Returns whether the source has ended and all its frames have been taken.
    pub fn over(&self) -> bool {
        let encoder_queue = self.locked();
        encoder_queue.ended && encoder_queue.ready.is_empty()
    }

    /// Returns how many pictures were not encoded because the encoder was too slow.
    pub fn left_out(&self) -> u64 {
        self.locked().left_out
    }

    /// Returns how many pictures were not encoded because they exceeded the rate even at the coarsest quantizer.
    pub fn no_room(&self) -> u64 {
        self.locked().no_room
    }

    /// Returns the statistics of picture sizes.
    pub fn sizes(&self) -> SizeStats {
        self.locked().sizes
    }

    /// Informs the encoder that the session has ended.
    pub fn close(&self) {
        self.locked().closed = true;
        self.0.1.notify_all();
    }

    /// Sets a waker, which is called when a frame is ready.
    pub fn wake_by(&self, waker: Waker) {
        self.locked().waker = Some(waker);
    }

    /// Changes the waiting job so that it starts a group of pictures. Returns false if the encoder has taken the job
    /// already.
    fn begin_group(&self) -> bool {
        let mut encoder_queue = self.locked();
        let Some(job) = &mut encoder_queue.job else { return false };
        job.first = true;
        true
    }

    fn ask(&self, job: EncoderJob) {
        self.locked().job = Some(job);
        self.0.1.notify_all();
    }
}

/// Maximum backlog in the pacer, expressed as the time that the rate needs to send it. If the rate falls by half, the
/// backlog becomes 800 ms, which is still below the pacer's limit of 1 s.
const MAX_BACKLOG: Span = Span::millis(400);

/// Maximum backlog after a group was aborted, when the backlog already drains. It replaces [`MAX_BACKLOG`].
const MAX_BACKLOG_AFTER_ABORT: Span = Span::millis(600);

/// A group of pictures is aborted if it is predicted to end with a larger backlog than this. The backlog is expressed
/// as the time that the rate needs to send it.
const ABORT_BACKLOG: Span = Span::millis(250);

/// Maximum time between two encoded pictures, however large the backlog is.
const MAX_PICTURE_GAP: Span = Span::secs(1);

/// A feed of frames from a live encoder.
pub struct LiveFeed {
    encoder_queue: EncoderQueue,
    store: PayloadStore,
    control: GroupControl,
    clock: Clock,
    start: Option<Time>,
    /// Number of the next frame in coding order. Coding order and display order are the same.
    index: u32,
    since_intra: u32,
    /// Number of pictures that were left out in the present group because the encoder is slow.
    late: u32,
    /// Factor by which the previous group became longer because the encoder is slow.
    slow: f64,
    /// Whether the present group ends early. Its size is then not used for the rate control.
    cut: bool,
    rate_sum: (f64, u32),
    rate: Rate,
    /// Size of the first frame of the group in bytes, including packet headers.
    intra: Bytes,
    /// The quantizer that the present group should have had, if it was aborted.
    aborted_quantizer: Option<f64>,
    /// Whether the previous group was aborted because it exceeded the rate.
    follows_aborted: bool,
    parts: VecDeque<Part>,
}

impl LiveFeed {
    /// Creates a feed of the encoder that uses `encoder_queue`.
    pub fn new(encoder_queue: EncoderQueue, store: PayloadStore, steering: Steering, clock: Clock) -> Self {
        Self {
            encoder_queue,
            store,
            control: GroupControl::new(steering),
            clock,
            start: None,
            index: 0,
            since_intra: 0,
            late: 0,
            slow: 1.0,
            cut: false,
            rate_sum: (0.0, 0),
            rate: Rate::ZERO,
            intra: Bytes::ZERO,
            aborted_quantizer: None,
            follows_aborted: false,
            parts: VecDeque::new(),
        }
    }

    fn time(&self, picture: u32) -> Span {
        self.control.time(picture)
    }

    /// Returns the factor by which the present group is longer because pictures were left out.
    fn longer(&self) -> f64 {
        1.0 + f64::from(self.late) / f64::from(self.since_intra.max(1))
    }

    /// Sets the quantizer and the picture size of the next group.
    fn steer(&mut self, picture: u32, backlog: Bytes) {
        let mean =
            if self.rate_sum.1 == 0 { self.rate.as_bps_f64() } else { self.rate_sum.0 / f64::from(self.rate_sum.1) };
        self.rate_sum = (0.0, 0);
        // Use the smaller factor of the last two groups, because a stall of the encoder affects only one group.
        let longer = self.longer();
        let lasts = self.time(self.control.steering.gop).scale(longer.min(self.slow));
        let whole = Rate::from_bps_f64(mean).over(lasts);
        (self.late, self.slow) = (0, longer);
        let cut = std::mem::take(&mut self.cut);
        self.follows_aborted = self.aborted_quantizer.is_some();
        let last = match self.aborted_quantizer.take() {
            Some(needed) => LastGroup::Outgrown(needed),
            None if cut => LastGroup::Cut,
            None => LastGroup::Whole,
        };
        self.control.steer(self.time(picture), room(whole, backlog), self.rate, last);
    }

    /// Returns the quantizer that the present group needs, if the group has to be aborted. This is the case if its
    /// backlog would soon exceed [`ABORT_BACKLOG`], and if a coarser quantizer or smaller pictures can reduce the
    /// backlog.
    fn quantizer_if_outgrown(&self, backlog: Bytes, last_frame: Bytes, frame_headers: Bytes) -> Option<f64> {
        let gop = self.control.steering.gop;
        let ahead = gop.saturating_sub(self.since_intra).min(self.max_gap_pictures());
        // Wait for a second frame, because the I frame alone does not predict the frames after it.
        if self.since_intra < 2 || ahead == 0 {
            return None;
        }
        let times = |bytes: Bytes, pictures: u32| Bytes::new(bytes.get().saturating_mul(u64::from(pictures)));
        let lasts = |pictures: u32| self.time(pictures).scale(self.longer());
        // Assume that all further frames are as large as the last frame.
        let left = (backlog + times(last_frame, ahead)).saturating_sub(self.rate.over(lasts(ahead)));
        if left.at(self.rate) <= ABORT_BACKLOG {
            return None;
        }
        // `open` is the predicted size of the first `pictures` pictures of a new group. The I frame counts only in the
        // proportion `pictures / gop`, because its bytes are spread over the whole group.
        let pictures = gop.min(self.max_gap_pictures());
        let intra = self.intra.as_f64() * f64::from(pictures) / f64::from(gop.max(1));
        let open = intra + times(last_frame, pictures - 1).as_f64();
        let budget = room(self.rate.over(lasts(pictures)), backlog);
        let needed = self.control.needed(open, budget, times(frame_headers, pictures).as_f64());
        let high = self.control.limits().1;
        let smaller = self.control.size + 1 < self.control.steering.sizes.len()
            && needed > self.control.scaled(high, DOWNSIZE_MARGIN);
        let coarser = ahead == self.max_gap_pictures()
            && self.control.quantizer < high
            && needed > self.control.scaled(self.control.quantizer, DOWNSIZE_MARGIN);
        (smaller || coarser).then_some(needed)
    }

    fn max_gap_pictures(&self) -> u32 {
        (MAX_PICTURE_GAP.ratio(self.time(1)).ceil() as u32).max(1)
    }

    fn ask(&mut self, picture: u32, backlog: Bytes) {
        let first = self.index == 0 || self.since_intra >= self.control.steering.gop;
        if first {
            self.steer(picture, backlog);
            self.since_intra = 0;
        }
        let (quantizer, size) = (self.control.rounded(), self.control.size as u8);
        self.encoder_queue.ask(EncoderJob { picture, first, quantizer, size });
    }
}

impl Feed for LiveFeed {
    fn due(&self) -> Span {
        match self.encoder_queue.locked().ready.front() {
            // The frame is due immediately, because the source sets the pace itself, like a camera.
            Some(_) if self.control.steering.own_pace => Span::ZERO,
            Some(unit) => self.time(unit.picture),
            None => Span::MAX,
        }
    }

    fn next(&mut self, rate: Rate, backlog: Bytes) -> Option<Coded> {
        self.rate = rate;
        let unit = {
            let mut encoder_queue = self.encoder_queue.locked();
            let unit = encoder_queue.ready.pop_front()?;
            let size = self.control.size as u8;
            encoder_queue.sizes.changes += u64::from(self.index > 0 && encoder_queue.sizes.now != size);
            encoder_queue.sizes.smaller += u64::from(size > 0);
            encoder_queue.sizes.now = size;
            unit
        };
        self.parts = self.store.put(self.index, &unit.bytes);
        let size = Bytes::new(unit.bytes.len() as u64);
        let headers = Bytes::new(self.parts.len() as u64 * self.control.steering.overhead);
        self.control.add(size + headers, headers);
        if self.since_intra == 0 {
            self.intra = size + headers;
        }
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
        // If the encoder is late by at least a picture, leave out pictures until it has caught up.
        let age = self.start.map_or(Span::ZERO, |start| self.clock.now().since(start));
        let behind = age.saturating_sub(self.time(unit.picture + 1)).ratio(self.time(1)).floor();
        // A source that sets the pace itself also skips pictures itself.
        let left_out = if self.control.steering.own_pace { 0 } else { behind.clamp(0.0, 1e6) as u32 };
        self.late = self.late.saturating_add(left_out);
        // Count this frame as backlog. It must be sent, because later frames are predicted from it.
        let waits = backlog + size + headers;
        self.aborted_quantizer = self.quantizer_if_outgrown(waits, size + headers, headers);
        let most = if self.follows_aborted || self.aborted_quantizer.is_some() {
            MAX_BACKLOG_AFTER_ABORT
        } else {
            MAX_BACKLOG
        };
        let wait = waits.at(rate).saturating_sub(most).min(MAX_PICTURE_GAP);
        let spare =
            if self.control.steering.own_pace { 0.0 } else { (wait.ratio(self.time(1)).ceil() - 1.0).clamp(0.0, 1e6) };
        // The backlog requires that `spare` pictures are left out. Pictures that are left out for the slow encoder
        // count towards them.
        let no_room = (spare as u32).saturating_sub(left_out);
        self.encoder_queue.locked().gap = (left_out, no_room);
        if self.aborted_quantizer.is_some() {
            // Let the next job start a new group.
            self.since_intra = self.control.steering.gop;
        }
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
        self.since_intra = self.control.steering.gop;
        self.index
    }

    fn key_frame(&mut self) {
        // A waiting job that starts a group becomes a key frame anyway, so there is nothing to do.
        if self.start.is_none() || self.since_intra == 0 {
            return;
        }
        // Ignore the size of this group, because a part of a group does not predict a whole one.
        self.cut = true;
        if self.encoder_queue.begin_group() {
            (self.since_intra, self.late) = (0, 0);
            self.control.reset();
            self.cut = false;
        } else {
            self.since_intra = self.control.steering.gop;
        }
    }

    fn on_rate(&mut self, rate: Rate) {
        self.rate_sum = (self.rate_sum.0 + rate.as_bps_f64(), self.rate_sum.1 + 1);
        self.rate = rate;
        // Request the first picture only now, because its quantizer depends on the rate.
        if self.start.is_none() {
            self.start = Some(self.clock.now());
            self.ask(0, Bytes::ZERO);
        }
    }

    fn limited(&self) -> bool {
        self.control.limited
    }
}

/// All access units of a rung, that is, of a clip that was encoded with one quantizer.
#[derive(Clone, Debug)]
pub struct RungData {
    /// The access units in coding order.
    pub data: Vec<u8>,
    /// Where each access unit begins in `data`, followed by the end of the last access unit.
    pub offsets: Vec<u64>,
    /// Decoder configuration. It is repeated before every I frame for receivers that join late.
    pub head: Vec<u8>,
}

/// The rungs of a ladder by quantizer. Several sessions may share them.
pub type SharedRungs = Arc<BTreeMap<u8, RungData>>;

/// A feed of a ladder that was encoded in advance. An [`Encoder`] selects the frames as in a simulation.
pub struct LadderFeed {
    encoder: Encoder,
    store: PayloadStore,
    rungs: SharedRungs,
    parts: VecDeque<Part>,
    /// Number of frames. If `None`, the clip is repeated without end.
    frames: Option<u32>,
    over: Arc<std::sync::atomic::AtomicBool>,
}

impl LadderFeed {
    /// Creates a feed from rungs that were encoded in advance. It ends after `frames` frames. If `frames` is `None`, it
    /// repeats the clip.
    pub fn new(encoder: Encoder, store: PayloadStore, rungs: SharedRungs, frames: Option<u32>) -> Self {
        Self { encoder, store, rungs, parts: VecDeque::new(), frames, over: Arc::default() }
    }

    /// Returns a flag that is set as soon as the last frame has been taken.
    pub fn over(&self) -> Arc<std::sync::atomic::AtomicBool> {
        Arc::clone(&self.over)
    }
}

impl Feed for LadderFeed {
    fn due(&self) -> Span {
        if self.over.load(std::sync::atomic::Ordering::Relaxed) { Span::MAX } else { self.encoder.due() }
    }

    fn next(&mut self, rate: Rate, backlog: Bytes) -> Option<Coded> {
        let mut coded = self.encoder.next_frame(rate, backlog);
        let rung = self.rungs.get(&coded.quantizer)?;
        let at = |n: u32| rung.offsets.get(n as usize).map_or(0, |o| *o as usize);
        let unit = rung.data.get(at(coded.clip)..at(coded.clip + 1)).unwrap_or_default();
        let whole;
        // Add the configuration unless the encoder has written it into the stream.
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

    fn best(&self) -> Option<Rate> {
        self.encoder.best()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_media::Scale;

    fn steering() -> Steering {
        Steering {
            fps: (25, 1),
            gop: 250,
            quantizers: (2, 31),
            scale: Scale::Linear,
            sizes: vec![(352, 288)],
            own_pace: false,
            overhead: 52,
        }
    }

    /// Simulates an encoder up to picture `until`. Returns its jobs, the maximum backlog and the queue. `rate` gives
    /// the rate at each picture. At the coarsest quantizer, the first frame of a group has 3000 bytes and the others
    /// have 800, as is typical of CIF. The size is inversely proportional to the quantizer to the power `by`.
    fn coded(
        steering: Steering,
        until: u32,
        by: f64,
        rate: impl Fn(u32) -> Rate,
    ) -> (Vec<EncoderJob>, Span, EncoderQueue) {
        let (jobs, longest, encoder_queue, _) = coded_late(steering, until, by, rate, |_| 0);
        (jobs, longest, encoder_queue)
    }

    /// Does the same as `coded` for an encoder that is `late(n)` pictures late after picture n. Also returns the size
    /// of all packets in bytes, including headers.
    fn coded_late(
        steering: Steering,
        until: u32,
        by: f64,
        rate: impl Fn(u32) -> Rate,
        late: impl Fn(u32) -> u32,
    ) -> (Vec<EncoderJob>, Span, EncoderQueue, Bytes) {
        let encoder_queue = EncoderQueue::default();
        let sizes = steering.sizes.clone();
        let mut feed =
            LiveFeed::new(encoder_queue.clone(), PayloadStore::new(PayloadFormat::Mpeg4, 900), steering, Clock::old());
        let (mut jobs, mut waits, mut longest) = (Vec::<EncoderJob>::new(), Bytes::ZERO, Span::ZERO);
        let mut sum = Bytes::ZERO;
        feed.on_rate(rate(0));
        loop {
            let NextJob::Job(job) = encoder_queue.next_job(Duration::ZERO) else { panic!("there is work") };
            let next = jobs.last().map_or(0, |last| last.picture + 1);
            encoder_queue.passed(job.picture.min(until) - next);
            if job.picture >= until {
                return (jobs, longest, encoder_queue, sum);
            }
            let rate = rate(job.picture);
            let since = job.picture - jobs.last().map_or(0, |last| last.picture);
            waits = waits.saturating_sub(rate.over(Span::millis(40) * u64::from(since)));
            let (width, height) = sizes[usize::from(job.size)];
            let smaller = f64::from(width * height) / f64::from(352 * 288);
            let factor = libm::pow(smaller, 0.85) * libm::pow(31.0 / f64::from(job.quantizer), by);
            let (kind, size) = if job.first { (FrameKind::I, 3_000.0) } else { (FrameKind::P, 800.0) };
            let bytes = vec![0; (size * factor) as usize];
            let size = bytes.len() as u64;
            encoder_queue.push(EncodedFrame { picture: job.picture, kind, quantizer: job.quantizer, bytes });
            jobs.push(job);
            feed.on_rate(rate);
            feed.start =
                Some(feed.clock.now().before(feed.time(job.picture + 1 + late(job.picture)) + Span::millis(10)));
            assert!(feed.next(rate, waits).is_some());
            let size = Bytes::new(size + 52 * feed.parts().len() as u64);
            (waits, sum) = (waits + size, sum + size);
            longest = longest.max(waits.at(rate));
        }
    }

    fn coded_at(rate: Rate) -> (Vec<u32>, Span, u64) {
        let (jobs, longest, encoder_queue) = coded(Steering { gop: 12, ..steering() }, 250, 0.0, |_| rate);
        (jobs.iter().map(|job| job.picture).collect(), longest, encoder_queue.no_room())
    }

    fn smaller() -> Steering {
        let sizes = vec![(352, 288), (264, 216), (176, 144), (132, 108), (88, 72), (66, 54)];
        Steering { gop: 12, sizes, ..steering() }
    }

    /// Returns each change of the size, as the picture's number and the new size.
    fn sizes(jobs: &[EncoderJob]) -> Vec<(u32, u8)> {
        let mut found: Vec<(u32, u8)> = Vec::new();
        for job in jobs {
            if found.last().is_none_or(|(_, size)| *size != job.size) {
                assert!(job.first, "another size begins with an I frame: {job:?}");
                found.push((job.picture, job.size));
            }
        }
        found
    }

    #[test]
    fn pictures_are_made_smaller_before_any_is_left_out() {
        // The rate falls from 150 to 50 kb/s after four seconds, as it does for a player that sends no RTCP.
        let rate = |picture: u32| Rate::kbps(if picture < 100 { 150 } else { 50 });
        let (jobs, longest, encoder_queue) = coded(smaller(), 250, 0.9, rate);
        assert!((248..=250).contains(&jobs.len()), "{}", jobs.len());
        assert_eq!(encoder_queue.no_room(), 250 - jobs.len() as u64);
        assert!(longest < Span::millis(600), "{longest:?}");
        let found = sizes(&jobs);
        assert!((2..=4).contains(&found.len()), "{found:?}");
        assert!(found.iter().all(|(at, size)| *at < 101 || *size >= 3), "{found:?}");
        let stats = encoder_queue.sizes();
        assert_eq!(u64::from(stats.now), u64::from(found[found.len() - 1].1));
        assert_eq!(stats.changes, found.len() as u64 - 1);
        assert_eq!(stats.smaller, jobs.iter().filter(|job| job.size > 0).count() as u64);
    }

    #[test]
    fn a_long_group_that_outgrows_the_rate_is_broken_off() {
        // After three seconds, the rate is halved every second, three times.
        let rate = |picture: u32| Rate::kbps(400 >> (picture.saturating_sub(75) / 25).min(3));
        let (jobs, longest, _) = coded(Steering { gop: 250, ..smaller() }, 250, 0.9, rate);
        let groups: Vec<_> = jobs.iter().filter(|job| job.first).map(|job| (job.picture, job.quantizer)).collect();
        assert!((225..=250).contains(&jobs.len()), "{}: {groups:?}", jobs.len());
        assert!(longest < Span::secs(1), "{longest:?}");
        assert!((3..=10).contains(&groups.len()), "{groups:?}");
        assert!(sizes(&jobs).len() > 1, "{groups:?}");
    }

    #[test]
    fn the_source_size_returns_when_it_has_fitted_for_some_time() {
        for (kbps, after) in [(1_000, 25..=60), (380, 125..=400)] {
            let rate = |picture: u32| Rate::kbps(if picture < 100 { 50 } else { kbps });
            let (jobs, _, _) = coded(smaller(), 500, 0.9, rate);
            let found = sizes(&jobs);
            let (at, size) = found[found.len() - 1];
            assert_eq!(size, 0, "{kbps}: {found:?}");
            assert!(after.contains(&(at - 100)), "{kbps}: {found:?}");
        }
    }

    #[test]
    fn at_a_constant_rate_a_size_that_was_taken_again_is_kept() {
        for kbps in (30..=500).step_by(10) {
            let (jobs, _, encoder_queue) = coded(smaller(), 1_500, 0.9, |_| Rate::kbps(kbps));
            let found = sizes(&jobs);
            let grown = found.windows(2).position(|pair| pair[1].1 < pair[0].1).unwrap_or(found.len());
            assert!(
                found[grown.min(found.len() - 1)..].windows(2).all(|pair| pair[1].1 < pair[0].1),
                "{kbps}: {found:?}"
            );
            assert!(found.len() <= 5, "{kbps}: {found:?}");
            // Few pictures are left out, because the smallest size of 66x54 needs at most 30 kb/s at the coarsest
            // quantizer.
            assert!(encoder_queue.no_room() <= 15, "{kbps}: {}", encoder_queue.no_room());
        }
    }

    #[test]
    fn an_encoder_too_slow_for_the_frame_rate_still_uses_its_rate() {
        for (late, kbps) in (0..=4).flat_map(|late| [120, 250, 400].map(|kbps| (late, kbps))) {
            let (jobs, longest, encoder_queue, sum) = coded_late(smaller(), 1_500, 0.9, |_| Rate::kbps(kbps), |_| late);
            assert!(
                encoder_queue.left_out() >= u64::from(late) * (jobs.len() as u64 - 1),
                "{late}: {}",
                encoder_queue.left_out()
            );
            let used = sum.at(Rate::kbps(kbps)).ratio(Span::secs(60));
            assert!((0.8..=1.05).contains(&used), "{late} of {kbps} kb/s: {used}");
            assert!(longest < Span::secs(1), "{late} of {kbps} kb/s: {longest:?}");
        }
    }

    #[test]
    fn an_encoder_that_stalls_once_makes_no_group_finer() {
        for (stall, kbps) in [10, 50, 250].into_iter().flat_map(|stall| [120, 250, 400].map(|kbps| (stall, kbps))) {
            let late = |picture: u32| if picture == 300 { stall } else { 0 };
            let (jobs, ..) = coded_late(smaller(), 600, 0.9, |_| Rate::kbps(kbps), late);
            let finest = |from: u32, to: u32| {
                jobs.iter().filter(|job| (from..to).contains(&job.picture)).map(|job| job.quantizer).min().unwrap()
            };
            let (before, after) = (finest(200, 301), finest(301, 600));
            assert!(f64::from(after) >= 0.8 * f64::from(before), "{stall} at {kbps} kb/s: {before}, then {after}");
        }
    }

    #[test]
    fn pictures_that_the_rate_has_no_room_for_are_left_out_before_they_are_coded() {
        let (pictures, longest, no_room) = coded_at(Rate::kbps(50));
        // The pacer would skip frames at a backlog of one second.
        assert!(longest < Span::secs(1), "{longest:?}");
        // In 10 s, 50 kb/s are enough for 57 frames of 1100 bytes, including headers.
        assert!((50..=62).contains(&pictures.len()), "{}", pictures.len());
        assert_eq!(pictures.len() as u64 + no_room, 250);
        assert!(pictures.windows(2).all(|pair| pair[1] - pair[0] <= 25), "{pictures:?}");
        let (pictures, longest, no_room) = coded_at(Rate::mbps(1));
        assert_eq!((pictures.len(), no_room), (250, 0));
        assert!(longest < Span::millis(100), "{longest:?}");
    }

    #[test]
    fn each_picture_of_a_source_that_ends_is_coded_or_counted() {
        for length in 240..250 {
            let (jobs, _, encoder_queue) = coded(Steering { gop: 12, ..steering() }, length, 0.0, |_| Rate::kbps(50));
            assert_eq!(jobs.len() as u64 + encoder_queue.no_room(), u64::from(length), "{length}");
            assert_eq!(encoder_queue.left_out(), 0);
        }
        // Without a job, skipped pictures count as left out for the slow encoder.
        let encoder_queue = EncoderQueue::default();
        encoder_queue.passed(7);
        assert_eq!((encoder_queue.left_out(), encoder_queue.no_room()), (7, 0));
    }

    #[test]
    fn the_next_uncoded_picture_becomes_a_key_frame_on_request() {
        let encoder_queue = EncoderQueue::default();
        let mut feed = LiveFeed::new(
            encoder_queue.clone(),
            PayloadStore::new(PayloadFormat::Mpeg4, 900),
            steering(),
            Clock::start(),
        );
        feed.on_rate(Rate::mbps(1));
        let mut kinds = Vec::new();
        for picture in 0..12 {
            // At the first request, the encoder has already taken the third picture. At the second request, the ninth
            // picture still waits.
            if picture == 8 {
                feed.key_frame();
                feed.key_frame();
            }
            let NextJob::Job(job) = encoder_queue.next_job(Duration::ZERO) else { panic!("there is work") };
            if picture == 2 {
                feed.key_frame();
            }
            let kind = if job.first { FrameKind::I } else { FrameKind::P };
            encoder_queue.push(EncodedFrame {
                picture: job.picture,
                kind,
                quantizer: job.quantizer,
                bytes: vec![0, 0, 1, 0xb6, 0],
            });
            kinds.push(feed.next(Rate::mbps(1), Bytes::ZERO).map(|coded| coded.kind));
        }
        let keys: Vec<_> = (0..12).filter(|n| kinds[*n] == Some(FrameKind::I)).collect();
        assert_eq!(keys, [0, 3, 8]);
    }
}
