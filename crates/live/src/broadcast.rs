//! A live source that is encoded once for all viewers. It is encoded at a few rates ("rungs"), which share their key
//! frames.

use crate::group_control::{GroupControl, LastGroup, room};
use crate::{AudioQueue, Clock, PayloadStore, SizeStats, Steering, Waker};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use steadycast_media::{
    Coded, Feed, RungChooser, RungContext, RungHistory, RungNeed, SwitchingRule as _, abandons_group, spaced_rates,
};
use steadycast_session::{FrameKind, Part};
use steadycast_units::{Bytes, Rate, Span, Time};

/// Number of header bytes to assume for each packet of a rung.
const HEADERS: u64 = 64;
/// Number of payload bytes to assume for each packet of a rung.
const PAYLOAD: u64 = 1_100;

/// Minimum time between a key frame and the next key frame that a viewer requests.
const KEY_FRAMES_APART: Span = Span::secs(1);
/// If a regular key frame is due within this time, a request gets no additional key frame.
const SOON: Span = Span::millis(600);

/// Minimum period over which the lag of the encoders is evaluated.
const LAG_OVER: Span = Span::secs(6);
/// Maximum share of pictures that may be left out in [`LAG_OVER`]. Above it, the finest rung is no longer encoded.
const MAX_LEFT_OUT_SHARE: f64 = 0.1;

/// Maximum share of left-out pictures at which the encoders still count as on time.
const ON_TIME_SHARE: f64 = 0.01;
/// How long the encoders must be on time before a removed rung returns. If the rung is then removed again, this time
/// doubles.
const FIRST_RETURN_WAIT: Span = Span::secs(60);
/// Maximum of the time before a removed rung returns.
const MAX_RETURN_WAIT: Span = Span::secs(3_600);

/// Number of groups of pictures that are stored for viewers that are late.
const KEPT_GROUPS: usize = 3;

/// Audio is passed to the viewers this long before its time on the source's timeline.
const AUDIO_LEAD: Span = Span::millis(60);

/// Pictures are coded this long before they are sent. Without this lead, each picture would be late by its encoding
/// time. On two cores with a load of 7, encoding took up to 92 ms (99 % below 50 ms).
const PICTURE_LEAD: Span = Span::millis(100);

/// A picture that is to be encoded at each rung.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BroadcastJob {
    /// Number of the picture.
    pub picture: u32,
    /// Whether the picture starts a group of pictures.
    pub first: bool,
    /// The quantizer and the size of each rung, finest rung first. The size is an index of [`Steering::sizes`].
    pub rungs: Vec<(u8, u8)>,
}

/// The answer to an encoder that asks for its next job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextBroadcastJob {
    /// A picture that is to be encoded.
    Job(BroadcastJob),
    /// No picture is due yet, or there are no viewers.
    Nothing,
    /// The broadcast has ended.
    Closed,
}

#[derive(Clone, Debug)]
struct RungUnit {
    kind: FrameKind,
    quantizer: u8,
    size: u8,
    bytes: Arc<[u8]>,
}

/// A picture that was encoded at all rungs. A rung is one of the encodings of the source, which differ in rate.
#[derive(Debug)]
struct SharedFrame {
    number: u64,
    picture: u32,
    /// When the picture was sampled, counted from the source's first picture.
    sampled: Span,
    /// When the picture may be sent. This is its time on the source's timeline, or the time at which it was coded if
    /// that is later.
    at: Time,
    first: bool,
    /// How many rungs had been given up when the picture was coded.
    given_up: u32,
    units: Vec<RungUnit>,
}

#[derive(Debug)]
struct Member {
    id: u64,
    waker: Option<Waker>,
    /// Where the viewer's audio goes: the audio queue, the start of the viewer's session on the source's timeline, and
    /// whether a packet was queued yet.
    audio: Option<(AudioQueue, Span, bool)>,
}

#[derive(Debug)]
struct State {
    controls: Vec<GroupControl>,
    rates: Vec<Rate>,
    /// When the first picture was due.
    start: Option<Time>,
    /// Number of the next picture.
    next: u32,
    /// Number of the first picture of the present group.
    group_began: u32,
    /// Number of pictures since the last key frame.
    since_key: u32,
    job: Option<BroadcastJob>,
    group: Vec<Bytes>,
    history: RungHistory,
    frames: VecDeque<Arc<SharedFrame>>,
    pushed: u64,
    key_wanted: bool,
    /// Whether the broadcast had no viewers until now. The last group is then incomplete and must not be evaluated.
    fresh: bool,
    /// Target rates of the rungs that were given up. The last one is the coarsest.
    given_up: Vec<Rate>,
    /// How long the encoders have been on time.
    on_time: Span,
    /// How long the encoders must be on time before a rung returns.
    return_wait: Span,
    /// Whether a rung has returned since the last rung was given up.
    has_returned: bool,
    /// Number of pictures that were coded and number of pictures that were left out since the last evaluation.
    lag: (u64, u64),
    lag_since: Time,
    left_out: u64,
    members: Vec<Member>,
    joined: u64,
    ended: bool,
    closed: bool,
}

/// A live source for many viewers. There is one encoder per rung.
#[derive(Clone, Debug)]
pub struct Broadcast {
    shared: Arc<(Mutex<State>, Condvar)>,
    clock: Clock,
    steering: Arc<Steering>,
}

enum Waited<'a> {
    Due(MutexGuard<'a, State>, Time),
    NotYet,
    Ended,
}

/// The status of a broadcast, for an operator.
#[derive(Clone, Debug, PartialEq)]
pub struct BroadcastStatus {
    /// Target rate and picture size of each rung, finest rung first.
    pub rungs: Vec<(Rate, (u32, u32))>,
    /// Number of rungs that were given up because the encoders fell behind.
    pub given_up: u32,
    /// Number of pictures that were left out because the encoders were too slow.
    pub left_out: u64,
}

impl Broadcast {
    /// Creates a broadcast with `count` rungs. Their rates lie between `bottom` and `top`.
    pub fn new(mut steering: Steering, count: usize, top: Rate, bottom: Rate) -> Self {
        steering.overhead = HEADERS;
        let rates = spaced_rates(count.max(1), top, bottom);
        let clock = Clock::start();
        let state = State {
            controls: rates.iter().map(|_| GroupControl::new(steering.clone())).collect(),
            rates,
            start: None,
            next: 0,
            group_began: 0,
            since_key: 0,
            job: None,
            group: Vec::new(),
            history: RungHistory::default(),
            frames: VecDeque::new(),
            pushed: 0,
            key_wanted: false,
            fresh: true,
            given_up: Vec::new(),
            on_time: Span::ZERO,
            return_wait: FIRST_RETURN_WAIT,
            has_returned: false,
            lag: (0, 0),
            lag_since: Time::ZERO,
            left_out: 0,
            members: Vec::new(),
            joined: 0,
            ended: false,
            closed: false,
        };
        Self { shared: Arc::new((Mutex::new(state), Condvar::new())), clock, steering: Arc::new(steering) }
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when a picture is sampled, counted from the first picture.
    fn time(&self, picture: u32) -> Span {
        self.steering.time(picture)
    }

    /// Waits up to `patience` until the next picture is due, and returns the job of encoding it.
    pub fn next_job(&self, patience: Duration) -> NextBroadcastJob {
        let due = |state: &State| if state.members.is_empty() { Time::NEVER } else { self.due(state) };
        match self.wait_until(due, patience) {
            Waited::Due(mut state, now) => NextBroadcastJob::Job(self.begin(&mut state, now)),
            Waited::NotYet => NextBroadcastJob::Nothing,
            Waited::Ended => NextBroadcastJob::Closed,
        }
    }

    /// Waits up to `patience` for the time that `due` returns. This time may change while it waits.
    fn wait_until(&self, due: impl Fn(&State) -> Time, patience: Duration) -> Waited<'_> {
        let until = self.clock.now() + Span::nanos(patience.as_nanos() as u64);
        let mut state = self.locked();
        loop {
            if state.closed || state.ended {
                return Waited::Ended;
            }
            let (now, due) = (self.clock.now(), due(&state));
            if due <= now {
                return Waited::Due(state, now);
            }
            let wait = due.min(until).since(now);
            if wait == Span::ZERO {
                return Waited::NotYet;
            }
            let waited = self.shared.1.wait_timeout(state, Duration::from_nanos(wait.as_nanos()));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns when the next picture is to be coded.
    fn due(&self, state: &State) -> Time {
        self.shown(state, state.next).before(PICTURE_LEAD)
    }

    /// Returns when a picture is due on the source's timeline. Returns zero if the source sets the pace itself.
    fn shown(&self, state: &State, picture: u32) -> Time {
        match state.start {
            Some(start) if !self.steering.own_pace => start + self.time(picture),
            _ => Time::ZERO,
        }
    }

    fn begin(&self, state: &mut State, now: Time) -> BroadcastJob {
        let start = *state.start.get_or_insert(now);
        if !self.steering.own_pace {
            // If the encoders are late, leave out the pictures whose time is over.
            state.next += self.pictures_since(start + self.time(state.next));
        }
        let since = self.time(state.since_key);
        let left = self.time(self.steering.gop.saturating_sub(state.since_key));
        // If the next group begins within `SOON`, its key frame answers the request.
        let wanted = state.key_wanted && since >= KEY_FRAMES_APART && left > SOON;
        let first = state.fresh || state.since_key >= self.steering.gop || wanted;
        if first {
            self.begin_group(state, now);
        }
        let rungs = state.controls.iter().map(|control| (control.rounded(), control.size as u8)).collect();
        let job = BroadcastJob { picture: state.next, first, rungs };
        state.job = Some(job.clone());
        job
    }

    /// Evaluates the group of pictures that has ended. Sets the quantizers of the group that begins.
    fn begin_group(&self, state: &mut State, now: Time) {
        let lasted = self.time(state.next.saturating_sub(state.group_began));
        let whole = !std::mem::take(&mut state.fresh) && lasted > Span::ZERO;
        let mut has_new = false;
        if whole {
            let rates = state.group.iter().map(|bytes| bytes.per(lasted)).collect();
            state.history.push(self.time(state.next), rates);
            has_new = self.judge_lag(state, now);
        }
        for (n, (control, rate)) in state.controls.iter_mut().zip(&state.rates).enumerate() {
            // The finest rung has no previous group if `judge_lag` has just added it again.
            let last = if whole && !(has_new && n == 0) { LastGroup::Whole } else { LastGroup::Cut };
            // Use the duration of the previous group, because `steer` compares the budget with the bytes of that group.
            let lasts = if whole { lasted } else { self.time(self.steering.gop) };
            control.steer(self.time(state.next), room(rate.over(lasts), Bytes::ZERO), *rate, last);
        }
        state.group = vec![Bytes::ZERO; state.controls.len()];
        (state.group_began, state.since_key, state.key_wanted) = (state.next, 0, false);
    }

    /// Removes the finest rung if too many pictures were left out. Adds a removed rung again if the encoders were on
    /// time for `return_wait`, and returns true in this case.
    fn judge_lag(&self, state: &mut State, now: Time) -> bool {
        let lasted = now.since(state.lag_since);
        if lasted < LAG_OVER {
            return false;
        }
        let (coded, left_out) = std::mem::take(&mut state.lag);
        state.lag_since = now;
        let share = left_out as f64 / ((coded + left_out) as f64).max(1.0);
        if share > MAX_LEFT_OUT_SHARE && state.controls.len() > 1 {
            state.controls.remove(0);
            state.group.remove(0);
            state.given_up.push(state.rates.remove(0));
            state.history.remove_finest();
            // If this rung had returned before, `return_wait` was too short.
            if std::mem::take(&mut state.has_returned) {
                // Double the time, so that a rung does not come and go every minute on a slow machine.
                state.return_wait = (state.return_wait * 2).min(MAX_RETURN_WAIT);
            }
        }
        state.on_time = if share <= ON_TIME_SHARE { state.on_time + lasted } else { Span::ZERO };
        if state.on_time < state.return_wait {
            return false;
        }
        state.on_time = Span::ZERO;
        let Some(rate) = state.given_up.pop() else { return false };
        state.rates.insert(0, rate);
        state.controls.insert(0, GroupControl::new((*self.steering).clone()));
        state.history.add_finest(rate);
        state.has_returned = true;
        true
    }

    /// Adds the encoded picture of the present job, as an access unit per rung. The finest rung comes first.
    ///
    /// If the source sets the pace itself, `sampled` is when the picture was sampled, counted from the first picture.
    pub fn push(&self, picture: u32, sampled: Option<Span>, units: Vec<(FrameKind, Vec<u8>)>) {
        let mut state = self.locked();
        let Some(job) = state.job.take() else { return };
        if units.len() != job.rungs.len() || state.closed {
            return;
        }
        for (n, (_, bytes)) in units.iter().enumerate() {
            let headers = Bytes::new((bytes.len() as u64).div_ceil(PAYLOAD) * HEADERS);
            let size = Bytes::new(bytes.len() as u64) + headers;
            state.controls[n].add(size, headers);
            state.group[n] += size;
        }
        let made = |((quantizer, size), (kind, bytes)): (&(u8, u8), (FrameKind, Vec<u8>))| RungUnit {
            kind,
            quantizer: *quantizer,
            size: *size,
            bytes: bytes.into(),
        };
        let units = job.rungs.iter().zip(units).map(made).collect();
        let (number, given_up, at) = (state.pushed, state.given_up.len() as u32, self.shown(&state, picture));
        state.frames.push_back(Arc::new(SharedFrame {
            number,
            picture,
            sampled: sampled.unwrap_or(self.time(picture)),
            at: self.clock.now().max(at),
            first: job.first,
            given_up,
            units,
        }));
        if job.first {
            state.group_began = picture;
        }
        state.pushed += 1;
        state.since_key += 1;
        state.lag.0 += 1;
        state.next = picture + 1;
        let firsts: Vec<usize> = (0..state.frames.len()).filter(|n| state.frames[*n].first).collect();
        if firsts.len() > KEPT_GROUPS {
            state.frames.drain(..firsts[firsts.len() - KEPT_GROUPS]);
        }
        // Release the lock before the viewers are woken, because each viewer's thread needs it first.
        let wakers = state.wakers();
        drop(state);
        wakers.iter().for_each(Waker::wake);
    }

    /// Counts pictures that the source has skipped because the encoders were too slow.
    pub fn passed(&self, pictures: u32) {
        let mut state = self.locked();
        if state.members.is_empty() {
            return;
        }
        state.left_out += u64::from(pictures);
        state.lag.1 += u64::from(pictures);
    }

    /// Ends the broadcast after the source's last picture. Waits until the time of this picture is over, because
    /// pictures are coded in advance.
    pub fn end(&self) {
        let over = |state: &State| self.shown(state, state.next);
        drop(self.wait_until(over, Duration::from_nanos(PICTURE_LEAD.as_nanos())));
        let mut state = self.locked();
        state.ended = true;
        state.wake();
        self.shared.1.notify_all();
    }

    /// Ends the broadcast immediately.
    pub fn close(&self) {
        let mut state = self.locked();
        (state.closed, state.ended) = (true, true);
        state.wake();
        self.shared.1.notify_all();
    }

    /// Waits up to `patience` for the end of the broadcast. Returns whether it has ended.
    pub fn wait(&self, patience: Duration) -> bool {
        let waited = self.shared.1.wait_timeout_while(self.locked(), patience, |state| !state.ended);
        waited.unwrap_or_else(PoisonError::into_inner).0.ended
    }

    /// Waits until an Opus packet is due, for up to `patience`, and passes it to all viewers. Returns whether the
    /// packet was due, or `None` if the broadcast has ended.
    ///
    /// `at` is the time at which the audio was sampled, counted from the first picture. `begins` is true if the packet
    /// is the first one after a silence.
    pub fn push_audio(&self, at: Span, begins: bool, bytes: &[u8], patience: Duration) -> Option<bool> {
        let due = |state: &State| match state.start {
            // A source that sets the pace itself delivers each packet when the packet is due.
            Some(_) if self.steering.own_pace => Time::ZERO,
            Some(start) => (start + at).before(AUDIO_LEAD),
            None => Time::NEVER,
        };
        let mut state = match self.wait_until(due, patience) {
            Waited::Due(state, _) => state,
            Waited::NotYet => return Some(false),
            Waited::Ended => return None,
        };
        for member in &mut state.members {
            let Some((queue, began, has_begun)) = member.audio.as_mut().filter(|(_, began, _)| *began <= at) else {
                continue;
            };
            let at = at.saturating_sub(*began);
            // If the source sets the pace itself, send the packet immediately, because the source's clock may be ahead
            // of this clock.
            let due = if self.steering.own_pace { Span::ZERO } else { at };
            // If the viewer's queue is full, only this viewer misses the packet.
            match queue.push_due(due, at, begins || !*has_begun, bytes, Duration::ZERO) {
                Some(taken) => *has_begun |= taken,
                None => member.audio = None,
            }
        }
        Some(true)
    }

    /// Returns the highest share of lost audio packets that a viewer reports.
    pub fn audio_loss(&self) -> f64 {
        let state = self.locked();
        let queues = state.members.iter().filter_map(|member| member.audio.as_ref());
        queues.map(|(queue, ..)| queue.loss()).fold(0.0, f64::max)
    }

    /// Returns the status of the broadcast, for an operator.
    pub fn status(&self) -> BroadcastStatus {
        let state = self.locked();
        let size = |control: &GroupControl| self.steering.sizes.get(control.size).copied().unwrap_or_default();
        let rungs = state.rates.iter().zip(&state.controls).map(|(rate, control)| (*rate, size(control))).collect();
        BroadcastStatus { rungs, given_up: state.given_up.len() as u32, left_out: state.left_out }
    }

    pub(crate) fn sizes(&self) -> &[(u32, u32)] {
        &self.steering.sizes
    }

    fn want_key_frame(&self) {
        self.locked().key_wanted = true;
    }

    fn join(&self) -> u64 {
        let mut state = self.locked();
        state.joined += 1;
        let id = state.joined;
        if state.members.is_empty() {
            // Forget the lag, because nothing was coded while there were no viewers.
            (state.fresh, state.lag, state.lag_since) = (true, (0, 0), self.clock.now());
        }
        state.members.push(Member { id, waker: None, audio: None });
        // Request a key frame, because a new viewer can start only with one.
        state.key_wanted = true;
        self.shared.1.notify_all();
        id
    }

    /// Returns the number of the picture that is due now. The source must not set the pace itself.
    fn due_picture(&self) -> u32 {
        self.locked().start.map_or(0, |start| self.pictures_since(start))
    }

    /// Connects an audio queue to viewer `id`. The viewer's session starts at the time `origin` on the source's
    /// timeline.
    fn join_audio(&self, id: u64, audio: Option<AudioQueue>, origin: Span) {
        let mut state = self.locked();
        if let Some(member) = state.members.iter_mut().find(|member| member.id == id) {
            member.audio = audio.map(|queue| (queue, origin, false));
        }
    }

    /// Returns how many whole pictures fit between `time` and now.
    fn pictures_since(&self, time: Time) -> u32 {
        self.clock.now().since(time).ratio(self.time(1)).floor().clamp(0.0, f64::from(u32::MAX)) as u32
    }

    fn leave(&self, id: u64) {
        self.locked().members.retain(|member| member.id != id);
    }

    /// Returns frame `number`. If this frame is no longer stored, returns the oldest frame that is stored, which is a
    /// key frame.
    fn frame(&self, number: u64) -> Option<Arc<SharedFrame>> {
        let state = self.locked();
        let oldest = state.frames.front()?.number;
        state.frames.get(number.saturating_sub(oldest) as usize).cloned()
    }

    /// Returns the rate that each rung needs. Before the first group has ended, it is the rung's target rate.
    fn needs(&self) -> Vec<RungNeed> {
        let state = self.locked();
        let needs = state.history.needs();
        if needs.len() == state.rates.len() {
            return needs;
        }
        state.rates.iter().map(|rate| RungNeed { recent: *rate, worst: *rate }).collect()
    }
}

impl State {
    fn wakers(&self) -> Vec<Waker> {
        self.members.iter().filter_map(|member| member.waker.clone()).collect()
    }

    fn wake(&self) {
        self.wakers().iter().for_each(Waker::wake);
    }
}

/// The status of the rung that a viewer gets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RungView {
    /// Index of the rung. The finest rung has index 0.
    pub(crate) rung: usize,
    pub(crate) rungs: usize,
    /// Highest recent rate of this rung.
    pub(crate) need: Rate,
    /// Highest recent rate of the next finer rung. `None` if this rung is the finest.
    pub(crate) finer: Option<Rate>,
    /// Why this rung was chosen.
    pub(crate) why: &'static str,
    /// How often the rung was changed after the first choice.
    pub(crate) switches: u64,
    /// Number of pictures that were not sent because the rate had fallen.
    pub(crate) abandoned: u64,
    /// Number of pictures that were left out since the viewer joined.
    pub(crate) left_out: u64,
    pub(crate) sizes: SizeStats,
}

/// Gives a viewer's session access to the status of the viewer's rung, which is the encoding that the viewer receives.
#[derive(Clone, Debug)]
pub(crate) struct RungStatus {
    broadcast: Broadcast,
    id: u64,
    view: Arc<Mutex<RungView>>,
    over: Arc<AtomicBool>,
}

impl RungStatus {
    pub(crate) fn view(&self) -> RungView {
        self.view.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Removes the viewer from the broadcast.
    pub(crate) fn leave(&self) {
        self.broadcast.leave(self.id);
    }

    pub(crate) fn over(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.over)
    }
}

/// The feed of one viewer. It chooses a rung at each key frame.
pub(crate) struct RungFeed {
    broadcast: Broadcast,
    id: u64,
    store: PayloadStore,
    chooser: RungChooser,
    /// Number of the next shared frame.
    cursor: u64,
    /// When the session started.
    began: Option<Time>,
    /// Number of the picture that was due at `began`. The session counts its pictures from this one.
    base: Option<u32>,
    /// When the session started, on the source's timeline.
    origin: Span,
    /// When the last frame was sampled, counted from the start of the session.
    sampled: Span,
    waits_for_key: bool,
    given_up: u32,
    index: u32,
    /// The rung at present. `None` before the first choice.
    rung: Option<usize>,
    rate: Rate,
    rate_sum: (f64, u32),
    limited: bool,
    parts: VecDeque<Part>,
    audio: Option<AudioQueue>,
    left_out_before: u64,
    status: RungStatus,
}

impl RungFeed {
    pub(crate) fn new(broadcast: Broadcast, store: PayloadStore) -> Self {
        let id = broadcast.join();
        let (cursor, given_up, left_out_before) = {
            let state = broadcast.locked();
            (state.pushed, state.given_up.len() as u32, state.left_out)
        };
        Self {
            id,
            store,
            chooser: RungChooser::default(),
            cursor,
            began: None,
            base: None,
            origin: Span::ZERO,
            sampled: Span::ZERO,
            waits_for_key: true,
            given_up,
            index: 0,
            rung: None,
            rate: Rate::ZERO,
            rate_sum: (0.0, 0),
            limited: false,
            parts: VecDeque::new(),
            audio: None,
            left_out_before,
            status: RungStatus { broadcast: broadcast.clone(), id, view: Arc::default(), over: Arc::default() },
            broadcast,
        }
    }

    pub(crate) fn status(&self) -> RungStatus {
        self.status.clone()
    }

    /// Sets a waker, which is called for each frame, and a queue, which receives the audio packets.
    pub(crate) fn attach(&mut self, waker: Waker, audio: Option<AudioQueue>) {
        self.audio = audio;
        let mut state = self.broadcast.locked();
        if let Some(member) = state.members.iter_mut().find(|member| member.id == self.id) {
            member.waker = Some(waker);
        }
    }

    /// Returns whether the rest of the group is skipped, because the rate has fallen too far below the rung's need.
    fn abandons(&self, frame: &SharedFrame, rate: Rate) -> bool {
        let needs = self.broadcast.needs();
        // Use the last entries of `needs`, which are the frame's rungs. A finer rung may have been added after the
        // frame was coded.
        abandons_group(self.rung, &needs[needs.len().saturating_sub(frame.units.len())..], rate)
    }

    /// Chooses the rung for the group that begins.
    fn choose(&mut self, frame: &SharedFrame, backlog: Bytes) {
        for _ in self.given_up..frame.given_up {
            self.chooser.remove_finest();
            self.rung = self.rung.map(|rung| rung.saturating_sub(1));
        }
        for _ in frame.given_up..self.given_up {
            self.chooser.add_finest();
            self.rung = self.rung.map(|rung| rung + 1);
        }
        self.given_up = frame.given_up;
        let mean = match std::mem::take(&mut self.rate_sum) {
            (_, 0) => self.rate,
            (sum, count) => Rate::from_bps_f64(sum / f64::from(count)),
        };
        let needs = self.broadcast.needs();
        // Use the last entries of `needs`, which are the frame's rungs. A finer rung may have been added after the
        // frame was coded.
        let needs = &needs[needs.len().saturating_sub(frame.units.len())..];
        let context = RungContext {
            at: self.broadcast.time(frame.picture),
            rung: self.rung,
            needs,
            lasts: self.broadcast.time(self.broadcast.steering.gop),
            // Take the present rate if it is lower than the group's mean, because the rate may have fallen.
            rate: mean.min(self.rate),
            backlog,
        };
        let before = self.rung;
        let rung = *self.rung.insert(self.chooser.choose(&context).min(frame.units.len().saturating_sub(1)));
        let need = |rung: usize| needs.get(rung).copied().unwrap_or_default();
        self.limited = rung == 0 && need(0).recent < self.rate.scale(0.95);
        let mut view = self.status.view.lock().unwrap_or_else(PoisonError::into_inner);
        view.switches += u64::from(self.index > 0 && before != Some(rung));
        (view.rung, view.rungs, view.need) = (rung, frame.units.len(), need(rung).worst);
        view.finer = rung.checked_sub(1).map(|finer| need(finer).worst);
        view.why = self.chooser.reason().name();
    }

    /// Decides whether a frame is sent. If it is, returns the number of its picture in this session.
    fn takes(&mut self, frame: &SharedFrame, rate: Rate, backlog: Bytes) -> Option<u32> {
        let began = self.began?;
        if self.base.is_none() && frame.first {
            // The source sets the pace itself, because otherwise `on_rate` has set `base`. The first key frame that
            // this session gets shows which picture was due at `began`.
            let base = frame.picture.saturating_sub(self.broadcast.pictures_since(began));
            self.begin_at(base, self.broadcast.time(base).min(frame.sampled));
        }
        // Skip a picture that is older than the session, because it has no number.
        let display = frame.picture.checked_sub(self.base?)?;
        if frame.first {
            self.choose(frame, backlog);
            self.waits_for_key = false;
        } else if !self.waits_for_key && self.abandons(frame, rate) {
            self.waits_for_key = true;
        }
        if self.waits_for_key {
            let mut view = self.status.view.lock().unwrap_or_else(PoisonError::into_inner);
            view.abandoned += u64::from(self.index > 0);
            return None;
        }
        Some(display)
    }

    /// Sets the picture from which the session counts, and when the session starts on the source's timeline.
    fn begin_at(&mut self, base: u32, origin: Span) {
        (self.base, self.origin) = (Some(base), origin);
        self.broadcast.join_audio(self.id, self.audio.take(), origin);
    }

    fn count(&self, size: u8) {
        let left_out = self.broadcast.locked().left_out.saturating_sub(self.left_out_before);
        let mut view = self.status.view.lock().unwrap_or_else(PoisonError::into_inner);
        view.left_out = left_out;
        view.sizes.changes += u64::from(self.index > 0 && view.sizes.now != size);
        view.sizes.smaller += u64::from(size > 0);
        view.sizes.now = size;
    }
}

impl Feed for RungFeed {
    fn due(&self) -> Span {
        // A frame from before the start of the session is due at the start.
        if let Some(frame) = self.broadcast.frame(self.cursor) {
            return self.began.map_or(Span::ZERO, |began| frame.at.since(began));
        }
        if self.broadcast.locked().ended {
            self.status.over.store(true, Ordering::Relaxed);
        }
        Span::MAX
    }

    fn next(&mut self, rate: Rate, backlog: Bytes) -> Option<Coded> {
        self.rate = rate;
        let begins = self.cursor;
        while let Some(frame) = self.broadcast.frame(self.cursor) {
            // Stop at a frame that is not due yet. Only the first frame of this call is known to be due.
            if self.cursor > begins && frame.at > self.broadcast.clock.now() {
                return None;
            }
            // If the session is late, continue with the first key frame that is still stored.
            self.waits_for_key |= frame.number > self.cursor;
            self.cursor = frame.number + 1;
            let Some(display) = self.takes(&frame, rate, backlog) else { continue };
            let Some(unit) = self.rung.and_then(|rung| frame.units.get(rung)) else { continue };
            self.count(unit.size);
            self.sampled = frame.sampled.saturating_sub(self.origin);
            self.parts = self.store.put(self.index, &unit.bytes);
            let coded = Coded {
                index: self.index,
                clip: display,
                display,
                kind: unit.kind,
                quantizer: unit.quantizer,
                size: Bytes::new(unit.bytes.len() as u64),
            };
            self.index += 1;
            return Some(coded);
        }
        None
    }

    fn parts(&mut self) -> VecDeque<Part> {
        std::mem::take(&mut self.parts)
    }

    fn shown_at(&self, display: u32) -> Span {
        self.broadcast.time(display)
    }

    fn sampled_at(&self, _: &Coded) -> Span {
        self.sampled
    }

    fn resume(&mut self) -> u32 {
        self.waits_for_key = true;
        self.broadcast.want_key_frame();
        self.index
    }

    fn key_frame(&mut self) {
        self.broadcast.want_key_frame();
    }

    fn on_rate(&mut self, rate: Rate) {
        self.rate_sum = (self.rate_sum.0 + rate.as_bps_f64(), self.rate_sum.1 + 1);
        self.rate = rate;
        if self.began.is_none() {
            self.began = Some(self.broadcast.clock.now());
            if !self.broadcast.steering.own_pace {
                let base = self.broadcast.due_picture();
                self.begin_at(base, self.broadcast.time(base));
            }
        }
    }

    fn limited(&self) -> bool {
        self.limited
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_media::Scale;
    use steadycast_wire::payload::PayloadFormat;

    fn steering(gop: u32) -> Steering {
        Steering {
            fps: (25, 1),
            gop,
            quantizers: (2, 31),
            scale: Scale::Linear,
            sizes: vec![(352, 288), (176, 144)],
            // The source sets the pace itself. Its pictures are due immediately, so that no test has to wait.
            own_pace: true,
            overhead: 0,
        }
    }

    fn broadcast(gop: u32, rungs: usize) -> Broadcast {
        Broadcast::new(steering(gop), rungs, Rate::kbps(1_600), Rate::kbps(100))
    }

    fn viewer(broadcast: &Broadcast, rate: Rate) -> RungFeed {
        let mut feed = RungFeed::new(broadcast.clone(), PayloadStore::new(PayloadFormat::Mpeg4, 900));
        feed.on_rate(rate);
        feed
    }

    /// Encodes the next picture at all rungs. The bytes contain the picture, rung, quantizer and size, so that streams
    /// with the same bytes show the same pictures. At quantizer 1, an I frame has 180 kB and any other picture 60 kB.
    fn code(broadcast: &Broadcast, picture: u32) -> bool {
        let NextBroadcastJob::Job(job) = broadcast.next_job(Duration::ZERO) else { panic!("there is work") };
        let kind = if job.first { FrameKind::I } else { FrameKind::P };
        let units = job.rungs.iter().enumerate().map(|(rung, (quantizer, size))| {
            let bytes =
                if job.first { 180_000 } else { 60_000 } / usize::from(*quantizer) / (1 + 3 * usize::from(*size));
            let mut unit = vec![0, 0, 1, 0xb6, picture as u8, rung as u8, *quantizer, *size];
            unit.resize(bytes.max(8), 1);
            (kind, unit)
        });
        broadcast.push(picture, None, units.collect());
        job.first
    }

    /// Takes all frames that are available at a rate. Returns the picture, rung, kind, quantizer and size of each
    /// frame.
    fn taken(feed: &mut RungFeed, rate: Rate) -> Vec<(u32, usize, FrameKind, u8, u64)> {
        let mut found = Vec::new();
        while feed.due() < Span::MAX {
            feed.on_rate(rate);
            let Some(coded) = feed.next(rate, Bytes::ZERO) else { break };
            found.push((coded.display, feed.rung.unwrap_or_default(), coded.kind, coded.quantizer, coded.size.get()));
        }
        found
    }

    #[test]
    fn a_second_viewer_does_not_change_the_pictures_of_the_first() {
        let watch = |others: bool| {
            let broadcast = broadcast(12, 5);
            let mut first = viewer(&broadcast, Rate::kbps(1_000));
            let mut second = None;
            let mut seen = Vec::new();
            for picture in 0..300 {
                if others && picture == 65 {
                    second = Some(viewer(&broadcast, Rate::kbps(150)));
                }
                if others && picture % 7 == 0 && second.is_some() {
                    broadcast.want_key_frame();
                }
                code(&broadcast, picture);
                seen.extend(taken(&mut first, Rate::kbps(1_000)));
                if let Some(second) = &mut second {
                    taken(second, Rate::kbps(150));
                }
            }
            seen
        };
        let alone = watch(false);
        assert_eq!(alone.len(), 300);
        assert_eq!(watch(true), alone);
    }

    #[test]
    fn viewers_begin_at_a_key_frame_and_change_their_rung_at_key_frames_alone() {
        let broadcast = broadcast(12, 5);
        let mut slow = viewer(&broadcast, Rate::kbps(200));
        let (mut fast, mut seen) = (None, [Vec::new(), Vec::new()]);
        for picture in 0..400 {
            if picture == 30 {
                fast = Some(viewer(&broadcast, Rate::mbps(3)));
            }
            code(&broadcast, picture);
            seen[0].extend(taken(&mut slow, Rate::kbps(if picture < 200 { 200 } else { 900 })));
            seen[1].extend(fast.iter_mut().flat_map(|fast| taken(fast, Rate::mbps(3))));
        }
        for frames in &seen {
            assert_eq!(frames[0].2, FrameKind::I, "{frames:?}");
            assert!(frames.windows(2).all(|pair| pair[0].1 == pair[1].1 || pair[1].2 == FrameKind::I), "{frames:?}");
        }
        assert!(seen[0].windows(2).any(|pair| pair[1].1 < pair[0].1), "the rate grew: {:?}", seen[0]);
        let (last_slow, last_fast) = (seen[0][seen[0].len() - 1], seen[1][seen[1].len() - 1]);
        assert!(last_fast.1 < last_slow.1, "{last_fast:?} beside {last_slow:?}");
        assert_eq!(last_fast.1, 0);
    }

    #[test]
    fn each_rung_keeps_its_rate() {
        let broadcast = broadcast(12, 5);
        let mut feed = viewer(&broadcast, Rate::mbps(3));
        for picture in 0..600 {
            code(&broadcast, picture);
            taken(&mut feed, Rate::mbps(3));
        }
        for (need, (rate, _)) in broadcast.needs().iter().zip(broadcast.status().rungs) {
            let share = need.worst.as_bps_f64() / rate.as_bps_f64();
            // Allow a deviation, because adjacent quantizers at the fine end of the scale differ in size by up to a
            // half.
            assert!((0.6..1.5).contains(&share), "{rate:?}: {share}");
        }
    }

    #[test]
    fn a_requested_key_frame_comes_within_the_regular_ones_or_a_second_after_the_last() {
        for (gop, firsts) in [(12, vec![0, 12, 24, 36, 48]), (100, vec![0, 25, 50])] {
            let broadcast = broadcast(gop, 3);
            let mut feed = viewer(&broadcast, Rate::mbps(1));
            let mut found = Vec::new();
            for picture in 0..60 {
                if picture < 51 {
                    feed.key_frame();
                }
                if code(&broadcast, picture) {
                    found.push(picture);
                }
                taken(&mut feed, Rate::mbps(1));
            }
            assert_eq!(found, firsts, "{gop}");
        }
    }

    #[test]
    fn a_rate_that_falls_far_leaves_the_rest_of_the_group_out() {
        let broadcast = broadcast(12, 5);
        let mut feed = viewer(&broadcast, Rate::kbps(1_200));
        let mut seen = Vec::new();
        for picture in 0..160 {
            code(&broadcast, picture);
            seen.extend(taken(&mut feed, Rate::kbps(if picture < 100 { 1_200 } else { 150 })));
        }
        let of = |from: u32, to: u32| seen.iter().filter(|frame| (from..to).contains(&frame.0)).count();
        assert_eq!((of(0, 100), of(100, 108)), (100, 0), "{seen:?}");
        assert_eq!(of(108, 160), 52);
        assert_eq!(feed.status().view().abandoned, 8);
        assert!(broadcast.status().rungs[seen[seen.len() - 1].1].0 <= Rate::kbps(150));
    }

    #[test]
    fn encoders_that_fall_behind_give_the_finest_rung_up() {
        for (every, given_up) in [(3, 3), (20, 0)] {
            let mut broadcast = broadcast(12, 4);
            broadcast.clock = Clock::old();
            let mut feed = viewer(&broadcast, Rate::mbps(1));
            let before = broadcast.status().rungs;
            let mut picture = 0;
            for n in 1..=120 {
                code(&broadcast, picture);
                let frames = taken(&mut feed, Rate::mbps(1));
                assert_eq!(frames.len(), 1, "{n}");
                // Leave out one in `every` pictures, and evaluate the lag at each key frame.
                let late = u32::from(n % every == 0);
                picture += 1 + late;
                broadcast.passed(late);
                broadcast.locked().lag_since = Time::ZERO;
            }
            let after = broadcast.status();
            assert_eq!(after.given_up, given_up);
            let left = before.len() - given_up as usize;
            assert_eq!((after.rungs.len(), feed.status().view().rungs), (left, left));
            assert!(after.rungs.iter().zip(&before[given_up as usize..]).all(|(after, before)| after.0 == before.0));
        }
    }

    /// Encodes pictures for `seconds` seconds. One in `every` pictures is left out. The lag is evaluated every six
    /// seconds.
    fn code_for(broadcast: &Broadcast, feed: &mut RungFeed, picture: &mut u32, seconds: u32, every: Option<u32>) {
        let until = *picture + 25 * seconds;
        let mut n = 0;
        while *picture < until {
            n += 1;
            // The test codes pictures faster than the clock advances. When six seconds of pictures have been coded, it
            // therefore sets the start of the evaluation back.
            let is_due = (until - *picture) % 150 < 6;
            broadcast.locked().lag_since = broadcast.clock.now().before(if is_due { LAG_OVER } else { Span::ZERO });
            code(broadcast, *picture);
            taken(feed, Rate::mbps(1));
            let late = u32::from(every.is_some_and(|every| n % every == 0));
            *picture += 1 + late;
            broadcast.passed(late);
        }
    }

    #[test]
    fn a_rung_that_was_given_up_returns_and_the_wait_doubles_after_each_new_fall() {
        let mut broadcast = broadcast(6, 4);
        broadcast.clock = Clock::old();
        let mut feed = viewer(&broadcast, Rate::mbps(1));
        let before: Vec<Rate> = broadcast.status().rungs.iter().map(|rung| rung.0).collect();
        let mut picture = 0;
        let given_up = |broadcast: &Broadcast| broadcast.status().given_up;
        // Two rungs that are given up in a row do not make the wait longer. They only show how many rungs the encoders
        // can encode.
        while given_up(&broadcast) < 2 {
            code_for(&broadcast, &mut feed, &mut picture, 6, Some(3));
        }
        let mut waits = Vec::new();
        for _ in 0..3 {
            let mut waited = 0;
            while given_up(&broadcast) == 2 {
                code_for(&broadcast, &mut feed, &mut picture, 6, None);
                waited += 6;
                assert!(waited < 1_000, "{waits:?}");
            }
            assert_eq!(broadcast.status().rungs[0].0, before[1], "the coarsest of those given up comes first");
            waits.push(waited);
            while given_up(&broadcast) == 1 {
                code_for(&broadcast, &mut feed, &mut picture, 6, Some(3));
            }
        }
        // Evaluations are six seconds apart. The first one after a fall still includes pictures that were left out.
        for (n, waited) in waits.iter().enumerate() {
            let expected = 60 << n;
            assert!((expected..=expected + 18).contains(waited), "{waits:?}");
        }
        // Nothing changes if between 1 and 10 % of the pictures are left out. The encoders are then not on time.
        (broadcast.locked().return_wait, broadcast.locked().lag) = (FIRST_RETURN_WAIT, (0, 0));
        code_for(&broadcast, &mut feed, &mut picture, 120, Some(20));
        assert_eq!(given_up(&broadcast), 2);
        // All rungs return if the encoders stay on time.
        code_for(&broadcast, &mut feed, &mut picture, 160, None);
        assert_eq!(broadcast.status().rungs.iter().map(|rung| rung.0).collect::<Vec<_>>(), before);
        assert_eq!(feed.status().view().rungs, 4);
    }

    #[test]
    fn pictures_are_coded_in_advance_and_sent_at_their_times() {
        let broadcast = Broadcast::new(Steering { own_pace: false, ..steering(12) }, 2, Rate::mbps(1), Rate::kbps(100));
        let mut feed = RungFeed::new(broadcast.clone(), PayloadStore::new(PayloadFormat::Mpeg4, 900));
        feed.on_rate(Rate::mbps(1));
        let began = feed.began.unwrap();
        // Set a start so late that no picture is due before the test ends, even on a slow machine.
        let start = began + Span::secs(1_000);
        broadcast.locked().start = Some(start);
        for picture in 0..14 {
            let shown = start + broadcast.time(picture);
            let job = {
                let mut state = broadcast.locked();
                assert_eq!(broadcast.due(&state), shown.before(PICTURE_LEAD));
                broadcast.begin(&mut state, shown.before(PICTURE_LEAD))
            };
            assert_eq!((job.picture, job.first), (picture, picture % 12 == 0), "no picture is left out");
            broadcast.push(picture, None, vec![(if job.first { FrameKind::I } else { FrameKind::P }, vec![1; 100]); 2]);
            assert_eq!(broadcast.frame(picture.into()).unwrap().at, shown);
        }
        assert_eq!(feed.due(), start.since(began));
        assert_eq!(feed.next(Rate::mbps(1), Bytes::ZERO).map(|coded| coded.display), Some(0));
        assert_eq!(feed.due(), start.since(began) + broadcast.time(1));
        // Frames up to the next key frame are skipped. Each call skips only one, because the frames after it are not
        // due.
        feed.waits_for_key = true;
        for picture in 1..12 {
            assert_eq!(feed.next(Rate::mbps(1), Bytes::ZERO), None);
            assert_eq!(feed.due(), start.since(began) + broadcast.time(picture + 1));
        }
        assert_eq!(feed.next(Rate::mbps(1), Bytes::ZERO).map(|coded| coded.display), Some(12));
    }

    #[test]
    fn pictures_and_sound_of_a_publisher_keep_their_times_at_each_frame_rate() {
        for (rate, offset_ms) in [(15.0, 0.0), (25.0, 300.0), (29.97, 7.0), (50.0, 0.0), (59.94, 300.0)] {
            let broadcast = broadcast(12, 2);
            let (mut feed, queue) = (viewer(&broadcast, Rate::mbps(1)), AudioQueue::default());
            feed.audio = Some(queue.clone());
            let mut taken = queue;
            for n in 0..40u32 {
                // The numbers of the pictures advance at 25 per second, whatever their real rate is.
                let at = Span::from_secs_f64(f64::from(n) / rate + offset_ms * f64::from(n.min(1)) / 1e3);
                let picture = (at.as_secs_f64() * 25.0).round() as u32;
                let NextBroadcastJob::Job(job) = broadcast.next_job(Duration::ZERO) else { panic!("there is work") };
                let kind = if job.first { FrameKind::I } else { FrameKind::P };
                broadcast.push(picture, Some(at), vec![(kind, vec![1; 100]); 2]);
                let coded = feed.next(Rate::mbps(1), Bytes::ZERO).unwrap();
                broadcast.push_audio(at, false, &[1], Duration::ZERO);
                assert_eq!(steadycast_media::AudioFeed::due(&taken), Span::ZERO, "it is due with the picture");
                let heard = steadycast_media::AudioFeed::next(&mut taken).unwrap();
                assert_eq!(heard.at, feed.sampled_at(&coded), "{rate}");
            }
        }
    }

    #[test]
    fn audio_reaches_each_viewer_from_its_beginning_on() {
        let broadcast = Broadcast::new(Steering { own_pace: false, ..steering(12) }, 2, Rate::mbps(1), Rate::kbps(100));
        let queue = AudioQueue::default();
        let mut feed = RungFeed::new(broadcast.clone(), PayloadStore::new(PayloadFormat::Mpeg4, 900));
        feed.audio = Some(queue.clone());
        assert_eq!(broadcast.push_audio(Span::ZERO, true, &[1], Duration::ZERO), Some(false), "it has not begun");
        code(&broadcast, 0);
        feed.on_rate(Rate::mbps(1));
        let mut other = queue.clone();
        assert_eq!(broadcast.push_audio(Span::ZERO, false, &[1], Duration::from_secs(1)), Some(true));
        assert_eq!(broadcast.push_audio(Span::millis(20), false, &[2], Duration::from_secs(1)), Some(true));
        let firsts: Vec<bool> =
            std::iter::from_fn(|| steadycast_media::AudioFeed::next(&mut other)).map(|audio| audio.begins).collect();
        assert_eq!(firsts, [true, false], "the first packet of a viewer begins");
        broadcast.close();
        assert_eq!(broadcast.push_audio(Span::millis(40), false, &[3], Duration::ZERO), None);
    }
}
