//! The event loop that drives endpoints over their sockets in one thread.

use crate::net::Buffers;
use crate::{Clock, Meta, Pair, Which};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use steadycast_units::{Ecn, Span, Spread, Time};

/// A datagram that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The port of arrival.
    pub which: Which,
    /// The datagram's bytes.
    pub bytes: &'a [u8],
    /// The source address and arrival time.
    pub meta: Meta,
}

/// The datagrams that an end sends, in order.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    list: Vec<(Ecn, Which, Option<SocketAddr>, usize)>,
    other_end: Option<SocketAddr>,
}

impl Outbox {
    /// Appends a datagram that is not ECN-capable. Without an address, the datagram goes to the pair's peer.
    pub fn push(&mut self, which: Which, to: Option<SocketAddr>, write: impl FnOnce(&mut Vec<u8>)) {
        self.push_as(Ecn::NotEct, which, to, write);
    }

    /// Like [`Outbox::push`], with this ECN field.
    pub fn push_as(&mut self, ecn: Ecn, which: Which, to: Option<SocketAddr>, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.list.push((ecn, which, to, self.bytes.len()));
    }

    /// Changes the peer of all datagrams without an address, including datagrams that are already queued.
    pub fn redirect(&mut self, to: SocketAddr) {
        self.other_end = Some(to);
    }

    fn flush(&mut self, pair: &mut Pair, echo: &mut Echo) {
        if let Some(to) = self.other_end.take() {
            pair.redirect(to);
        }
        let mut from = 0;
        for (ecn, which, to, until) in self.list.drain(..) {
            // A browser may have moved since the datagram was queued.
            let to = to.unwrap_or_else(|| pair.peer(which));
            // Senders ignore looped-back media.
            if matches!(which, Which::Rtcp | Which::AudioRtcp) && to.ip().is_multicast() {
                echo.wrote(&self.bytes[from..until]);
            }
            pair.port_mut(which).send(&self.bytes[from..until], to, ecn);
            from = until;
        }
        self.bytes.clear();
    }
}

/// Digests of the last RTCP datagrams to the group. The kernel loops them back, which must not look like an SSRC
/// collision (RFC 3550, section 8.2).
#[derive(Debug, Default)]
struct Echo([u64; 16], usize);

impl Echo {
    fn digest(bytes: &[u8]) -> u64 {
        // FNV-1a, but any hash would do for an end's own datagrams.
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
    }
    fn wrote(&mut self, bytes: &[u8]) {
        self.1 = (self.1 + 1) % self.0.len();
        self.0[self.1] = Self::digest(bytes);
    }
    fn is_own(&self, bytes: &[u8]) -> bool {
        self.0.contains(&Self::digest(bytes))
    }
}

/// Handles timers and datagrams in an event loop. The loop reads [`End::wake`] after each call.
pub trait End {
    /// Returns when [`End::on_wake`] is due. A time in the past means immediately.
    fn wake(&self) -> Time;
    /// Handles the timer of [`End::wake`], or a call of [`Waker::wake`].
    fn on_wake(&mut self, now: Time, out: &mut Outbox);
    /// Handles a datagram. The end's own looped-back RTCP is left out.
    fn on_datagram(&mut self, now: Time, datagram: &Datagram<'_>, out: &mut Outbox);
    /// Handles the end of a suspension of the process. Datagrams that arrived during the suspension are delivered after
    /// this call.
    fn on_clock_gap(&mut self, _now: Time) {}
    /// Returns whether the end is done. A loop returns when all ends are done.
    fn done(&self) -> bool {
        false
    }
}

/// The index of a sender or receiver (an *end*) in the event loop that drives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndIx(pub usize);

/// Wakes a loop from another thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Makes the loop call [`End::on_wake`] of every end as soon as possible.
    pub fn wake(&self) {
        // The write fails only at 2⁶⁴ − 2 pending calls, which wake the loop anyway.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(crate) fn reset(&self) {
        // One read resets the counter.
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.0, &mut count);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

struct AttachedEnd<E> {
    end: E,
    pair: Pair,
    echo: Echo,
    wake: Time,
    /// An end's time never goes back.
    last_call: Time,
}

/// The event loop, which drives ends over their sockets in one thread.
pub struct Loop<E> {
    /// The clock of timers and arrival times.
    pub clock: Clock,
    poll: OwnedFd,
    waker: Waker,
    places: Vec<AttachedEnd<E>>,
    buffers: Buffers,
    out: Outbox,
    /// The last reading of the clock, to detect clock gaps.
    last_reading: Option<Time>,
    /// Lateness of timer calls.
    pub late: Spread,
}

const WAKER: u64 = u64::MAX;
/// The number of bits of an epoll token for an end's port ([`Which`]).
const PORT_BITS: u32 = 2;
/// The lowest bits of an epoll token, which are the port.
const PORT_MASK: u64 = 3;

/// Maximum number of batches read from a socket before other sockets are served. Epoll reports the rest again.
const BATCHES: usize = 16;
/// The minimum delay of a clock reading, beyond the requested wait, that counts as a clock gap. On a busy machine,
/// readings are delayed by milliseconds, and seldom by hundreds of milliseconds.
const MIN_CLOCK_GAP: Span = Span::secs(1);
/// Maximum time for emptying the sockets after a gap. The kernel queues about 16,000 small datagrams per socket.
const MAX_EMPTYING: Span = Span::secs(1);

impl<E: End> Loop<E> {
    /// Creates a loop, which [`Loop::run`] drives in the calling thread.
    ///
    /// # Errors
    /// The system is out of descriptors.
    pub fn new(clock: Clock) -> io::Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let waker = Waker::new()?;
        epoll::add(&poll, &waker, epoll::EventData::new_u64(WAKER), epoll::EventFlags::IN)?;
        Ok(Self {
            clock,
            poll,
            waker,
            places: Vec::new(),
            buffers: Buffers::new(),
            out: Outbox::default(),
            last_reading: None,
            late: Spread::default(),
        })
    }

    /// Returns a waker for other threads.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Adds an end. Its sockets may be of any network namespace.
    ///
    /// # Errors
    /// The system can't watch more sockets.
    pub fn add(&mut self, end: E, pair: Pair) -> io::Result<EndIx> {
        let ix = self.places.len();
        for (which, port) in pair.ports() {
            let token = (ix as u64) << PORT_BITS | which as u64;
            epoll::add(&self.poll, port, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?;
        }
        let wake = end.wake();
        self.places.push(AttachedEnd { end, pair, echo: Echo::default(), wake, last_call: Time::ZERO });
        Ok(EndIx(ix))
    }

    /// Returns the end with this index.
    pub fn end(&self, ix: EndIx) -> &E {
        &self.places[ix.0].end
    }

    /// Returns the sockets of the end with this index.
    pub fn pair(&self, ix: EndIx) -> &Pair {
        &self.places[ix.0].pair
    }

    /// Calls `what` with an end, and sends what the end emits.
    pub fn call(&mut self, ix: EndIx, what: impl FnOnce(&mut E, Time, &mut Outbox)) {
        let now = self.now(Span::ZERO);
        let place = &mut self.places[ix.0];
        place.last_call = now.max(place.last_call);
        what(&mut place.end, place.last_call, &mut self.out);
        place.settle(&mut self.out);
    }

    /// Returns all ends with their sockets.
    pub fn into_ends(self) -> Vec<(E, Pair)> {
        self.places.into_iter().map(|p| (p.end, p.pair)).collect()
    }

    /// Runs until `until`, until all ends are done, or until `go_on`, called after every wait, returns false. Reads
    /// sockets before it serves timers, so that silence timers know all arrivals.
    ///
    /// # Errors
    /// The system refuses to wait: a bug, or out of memory.
    pub fn run(&mut self, until: Time, mut go_on: impl FnMut(&mut Self) -> bool) -> io::Result<()> {
        // Linux's default timer slack of 50 µs would disturb pacing.
        rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
        let mut events = Vec::with_capacity(64);
        loop {
            let now = self.now(Span::ZERO);
            let next = self.places.iter().map(|place| place.wake).fold(until, Time::min);
            let all_done = !self.places.is_empty() && self.places.iter().all(|place| place.end.done());
            let over = now >= until || all_done;
            // The last iteration does not wait, but still reads the datagrams that have arrived.
            let wait = if over { 0 } else { next.since(now).as_nanos() };
            let timeout = Timespec { tv_sec: (wait / 1_000_000_000) as i64, tv_nsec: (wait % 1_000_000_000) as i64 };
            events.clear();
            let waited =
                epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)).map(|_| ());
            match waited {
                // A signal only shortens the wait.
                Ok(()) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.now(Span::nanos(wait));
            let tokens = || events.iter().map(|event| event.data.u64());
            for token in tokens().filter(|token| *token != WAKER) {
                let which = [Which::Rtp, Which::Rtcp, Which::Audio, Which::AudioRtcp][(token & PORT_MASK) as usize];
                self.readable((token >> PORT_BITS) as usize, which);
            }
            if tokens().any(|token| token == WAKER) {
                self.woken();
            }
            self.serve_timers();
            if over || !go_on(self) {
                return Ok(());
            }
        }
    }

    fn serve_timers(&mut self) {
        for ix in 0..self.places.len() {
            let now = self.now(Span::ZERO);
            let place = &mut self.places[ix];
            if place.wake <= now {
                self.late.add(now.since(place.wake));
                place.on_wake(now, &mut self.out);
            }
        }
    }

    /// Reads the clock. If the process was suspended since the last reading, calls [`End::on_clock_gap`] of every end
    /// first. A requested wait, which lasts `waited`, is no suspension.
    fn now(&mut self, waited: Span) -> Time {
        let now = self.clock.now();
        let last = self.last_reading.replace(now);
        if last.is_some_and(|last| now > last + waited + MIN_CLOCK_GAP) {
            self.on_clock_gap(now);
            return self.clock.now();
        }
        now
    }

    /// Tells the ends about the clock gap, then empties the sockets.
    fn on_clock_gap(&mut self, now: Time) {
        for place in &mut self.places {
            place.last_call = now.max(place.last_call);
            place.end.on_clock_gap(place.last_call);
            place.settle(&mut self.out);
        }
        // What the kernel has queued is delivered before timers are served.
        let until = now + MAX_EMPTYING;
        for ix in 0..self.places.len() {
            let ports: Vec<Which> = self.places[ix].pair.ports().map(|(which, _)| which).collect();
            for which in ports {
                while self.readable(ix, which) && self.clock.now() < until {}
            }
        }
    }

    fn woken(&mut self) {
        self.waker.reset();
        for ix in 0..self.places.len() {
            let now = self.now(Span::ZERO);
            self.places[ix].on_wake(now, &mut self.out);
        }
    }

    /// Reads up to [`BATCHES`] batches. Returns whether there may be more.
    fn readable(&mut self, ix: usize, at: Which) -> bool {
        (0..BATCHES).all(|_| {
            self.now(Span::ZERO);
            self.read_batch(ix, at)
        })
    }

    /// Reads a batch. Returns whether there may be more.
    fn read_batch(&mut self, ix: usize, at: Which) -> bool {
        let Self { clock, places, buffers, out, .. } = self;
        let Some(place) = places.get_mut(ix) else { return false };
        let AttachedEnd { end, pair, echo, last_call, .. } = place;
        let port = pair.port_mut(at);
        let mut each = |bytes: &[u8], meta: &Meta| {
            // Reports and media may share a port (RFC 5761).
            let which = if steadycast_wire::is_rtcp(bytes) { Which::Rtcp } else { Which::Rtp };
            if which == Which::Rtcp && echo.is_own(bytes) {
                return;
            }
            // The time of a call must not go back.
            *last_call = meta.at.max(*last_call);
            end.on_datagram(*last_call, &Datagram { which, bytes, meta: *meta }, out);
        };
        let more = port.receive(clock, buffers, &mut each);
        place.settle(out);
        more
    }
}

impl<E: End> AttachedEnd<E> {
    fn on_wake(&mut self, now: Time, out: &mut Outbox) {
        self.last_call = now.max(self.last_call);
        self.end.on_wake(self.last_call, out);
        self.settle(out);
    }

    /// Sends what the end emitted, and reads its next timer.
    fn settle(&mut self, out: &mut Outbox) {
        out.flush(&mut self.pair, &mut self.echo);
        self.wake = self.end.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PairOptions;
    use std::net::UdpSocket;
    use std::time::Duration;

    /// An end that records its calls.
    struct Witness {
        seen: Vec<&'static str>,
        wake: Time,
        /// The call during which the process is suspended.
        suspended_in: &'static str,
    }

    impl Witness {
        fn enter(&mut self, call: &'static str) {
            self.seen.push(call);
            if call == self.suspended_in {
                #[expect(clippy::disallowed_methods, reason = "a suspension takes real time")]
                std::thread::sleep(Duration::from_nanos((MIN_CLOCK_GAP * 2).as_nanos()));
            }
        }
    }

    impl End for Witness {
        fn wake(&self) -> Time {
            self.wake
        }

        fn on_wake(&mut self, _: Time, _: &mut Outbox) {
            self.enter("timer");
            self.wake = Time::NEVER;
        }

        fn on_datagram(&mut self, _: Time, _: &Datagram<'_>, _: &mut Outbox) {
            self.enter("datagram");
        }

        fn on_clock_gap(&mut self, _: Time) {
            self.seen.push("gap");
        }
    }

    /// Returns a loop with an end whose timer is due, and with this many datagrams queued at its socket.
    fn filled(count: usize) -> (Loop<Witness>, EndIx) {
        let out = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let pair = Pair::receiver(at, &PairOptions { mux: true, ..PairOptions::default() }).unwrap();
        let mut driver = Loop::new(Clock::start()).unwrap();
        let ix = driver.add(Witness { seen: Vec::new(), wake: Time::ZERO, suspended_in: "" }, pair).unwrap();
        for _ in 0..count {
            out.send_to(&[0x80; 20], at).unwrap();
        }
        (driver, ix)
    }

    #[test]
    fn a_suspension_in_a_call_is_notified_before_timers_are_served() {
        for call in ["datagram", "timer"] {
            let (mut driver, first) = filled(1);
            let at = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let pair = Pair::receiver(at, &PairOptions { mux: true, ..PairOptions::default() }).unwrap();
            let other = Witness { seen: Vec::new(), wake: Time::ZERO, suspended_in: "" };
            let second = driver.add(other, pair).unwrap();
            driver.places[first.0].end.suspended_in = call;
            driver.run(Time::ZERO, |_| true).unwrap();
            assert_eq!(driver.end(second).seen, ["gap", "timer"]);
            let at_first = driver.end(first).seen.iter().position(|seen| *seen == "gap").unwrap();
            assert_eq!(driver.end(first).seen[at_first - 1], call);
        }
    }

    #[test]
    fn queued_datagrams_are_read_before_timers_also_after_the_end() {
        for count in [0, 1, 100] {
            let (mut driver, ix) = filled(count);
            driver.run(Time::ZERO, |_| true).unwrap();
            assert_eq!(driver.end(ix).seen, [vec!["datagram"; count], vec!["timer"]].concat());
        }
    }

    #[test]
    fn a_suspension_between_two_runs_is_a_clock_gap() {
        for suspended in [false, true] {
            let (mut driver, ix) = filled(1);
            driver.run(Time::ZERO, |_| true).unwrap();
            if suspended {
                driver.clock = Clock::old();
            }
            driver.run(Time::ZERO, |_| true).unwrap();
            assert_eq!(driver.end(ix).seen.contains(&"gap"), suspended);
        }
    }

    #[test]
    fn after_a_clock_gap_the_end_is_notified_before_the_sockets_are_emptied() {
        // The largest count needs several reads of the socket, but fits the smallest default receive buffer.
        for count in [0, 1, 100, 250] {
            let (mut driver, ix) = filled(count);
            driver.on_clock_gap(Time::ZERO);
            assert_eq!(driver.end(ix).seen, [vec!["gap"], vec!["datagram"; count]].concat());
        }
    }
}
