//! The event loop that runs endpoints over their sockets in one thread.

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
    /// The port at which the datagram arrived.
    pub which: Which,
    /// The datagram's bytes.
    pub bytes: &'a [u8],
    /// Address that sent the datagram, and when it arrived.
    pub meta: Meta,
}

/// The datagrams that an endpoint ([`End`]) sends, in order.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    list: Vec<(Ecn, Which, Option<SocketAddr>, usize)>,
    other_end: Option<SocketAddr>,
}

impl Outbox {
    /// Appends a datagram that is not ECN-capable. If `to` is `None`, the datagram is sent to the peer of the
    /// endpoint's sockets.
    pub fn push(&mut self, which: Which, to: Option<SocketAddr>, write: impl FnOnce(&mut Vec<u8>)) {
        self.push_as(Ecn::NotEct, which, to, write);
    }

    /// Appends a datagram like [`Outbox::push`], but with the ECN field `ecn`.
    pub fn push_as(&mut self, ecn: Ecn, which: Which, to: Option<SocketAddr>, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.list.push((ecn, which, to, self.bytes.len()));
    }

    /// Changes the peer, to which all datagrams without an address are sent. This includes datagrams that are queued
    /// already.
    pub fn redirect(&mut self, to: SocketAddr) {
        self.other_end = Some(to);
    }

    fn flush(&mut self, pair: &mut Pair, echo: &mut Echo) {
        if let Some(to) = self.other_end.take() {
            pair.redirect(to);
        }
        let mut from = 0;
        for (ecn, which, to, until) in self.list.drain(..) {
            // Look up the peer now, because a browser may have moved since the datagram was queued.
            let to = to.unwrap_or_else(|| pair.peer(which));
            // Remember only RTCP, because senders ignore looped-back media.
            if matches!(which, Which::Rtcp | Which::AudioRtcp) && to.ip().is_multicast() {
                echo.wrote(&self.bytes[from..until]);
            }
            pair.port_mut(which).send(&self.bytes[from..until], to, ecn);
            from = until;
        }
        self.bytes.clear();
    }
}

/// Digests of the last RTCP datagrams that were sent to the group. The kernel loops these datagrams back. They must not
/// look like an SSRC collision (RFC 3550, section 8.2).
#[derive(Debug, Default)]
struct Echo([u64; 16], usize);

impl Echo {
    fn digest(bytes: &[u8]) -> u64 {
        // This is FNV-1a, but any hash is good enough for datagrams that this endpoint has sent itself.
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

/// An endpoint in an event loop, which handles timers and datagrams. The loop reads [`End::wake`] after each call.
pub trait End {
    /// Returns when [`End::on_wake`] is due. If this time is in the past, the call is due immediately.
    fn wake(&self) -> Time;
    /// Handles the timer of [`End::wake`], or a call of [`Waker::wake`].
    fn on_wake(&mut self, now: Time, out: &mut Outbox);
    /// Handles a datagram. RTCP that this endpoint has sent itself and that was looped back is left out.
    fn on_datagram(&mut self, now: Time, datagram: &Datagram<'_>, out: &mut Outbox);
    /// Informs the endpoint that the process was suspended and runs again. Datagrams that arrived during the suspension
    /// are delivered after this call.
    fn on_clock_gap(&mut self, _now: Time) {}
    /// Returns whether this endpoint has finished. A loop returns when all its endpoints have finished.
    fn done(&self) -> bool {
        false
    }
}

/// Index of an endpoint ([`End`]) in its event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndIx(pub usize);

/// Wakes an event loop from another thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Makes the loop call [`End::on_wake`] of every endpoint as soon as possible.
    pub fn wake(&self) {
        // Ignore an error. The write fails only if 2⁶⁴ − 2 calls are pending, and these wake the loop anyway.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(crate) fn reset(&self) {
        // Read once, which resets the counter to zero.
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
    /// Time of the last call. The time that an endpoint sees never goes back.
    last_call: Time,
}

/// An event loop that runs endpoints ([`End`]) over their sockets in one thread.
pub struct Loop<E> {
    /// The clock of the timers and arrival times.
    pub clock: Clock,
    poll: OwnedFd,
    waker: Waker,
    places: Vec<AttachedEnd<E>>,
    buffers: Buffers,
    out: Outbox,
    /// When the clock was read last. It is needed to detect that the process was suspended.
    last_reading: Option<Time>,
    /// How late timers were served.
    pub late: Spread,
}

const WAKER: u64 = u64::MAX;
/// Number of bits of an epoll token that contain the port ([`Which`]). The other bits contain the endpoint's index.
const PORT_BITS: u32 = 2;
/// The bits of an epoll token that contain the port.
const PORT_MASK: u64 = 3;

/// Maximum number of batches that are read from a socket before the other sockets are served. Epoll reports the socket
/// again if it has more.
const BATCHES: usize = 16;
/// A reading of the clock shows a gap if it is later than expected by more than this time. On a busy machine, readings
/// are late by milliseconds, and seldom by hundreds of milliseconds.
const MIN_CLOCK_GAP: Span = Span::secs(1);
/// Maximum time for reading the sockets after a clock gap. The kernel queues about 16,000 small datagrams per socket.
const MAX_EMPTYING: Span = Span::secs(1);

impl<E: End> Loop<E> {
    /// Creates a loop that has no endpoints yet. [`Loop::run`] runs it in the calling thread.
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

    /// Adds an endpoint with its sockets. The sockets may belong to any network namespace.
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

    /// Returns the endpoint with this index.
    pub fn end(&self, ix: EndIx) -> &E {
        &self.places[ix.0].end
    }

    /// Returns the sockets of the endpoint with this index.
    pub fn pair(&self, ix: EndIx) -> &Pair {
        &self.places[ix.0].pair
    }

    /// Calls `what` with an endpoint. Then sends the datagrams that the endpoint has emitted.
    pub fn call(&mut self, ix: EndIx, what: impl FnOnce(&mut E, Time, &mut Outbox)) {
        let now = self.now(Span::ZERO);
        let place = &mut self.places[ix.0];
        place.last_call = now.max(place.last_call);
        what(&mut place.end, place.last_call, &mut self.out);
        place.settle(&mut self.out);
    }

    /// Returns all endpoints with their sockets.
    pub fn into_ends(self) -> Vec<(E, Pair)> {
        self.places.into_iter().map(|p| (p.end, p.pair)).collect()
    }

    /// Runs the loop until the time `until`, until all endpoints have finished, or until `go_on` returns false. `go_on`
    /// is called after every wait. Sockets are read before timers are served, so that a timer for silence knows all
    /// arrivals.
    ///
    /// # Errors
    /// The system refuses to wait, because of a bug or because it is out of memory.
    pub fn run(&mut self, until: Time, mut go_on: impl FnMut(&mut Self) -> bool) -> io::Result<()> {
        // Reduce the timer slack. Linux's default of 50 µs would disturb pacing.
        rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
        let mut events = Vec::with_capacity(64);
        loop {
            let now = self.now(Span::ZERO);
            let next = self.places.iter().map(|place| place.wake).fold(until, Time::min);
            let all_done = !self.places.is_empty() && self.places.iter().all(|place| place.end.done());
            let over = now >= until || all_done;
            // Do not wait in the last iteration, but still read the datagrams that have arrived.
            let wait = if over { 0 } else { next.since(now).as_nanos() };
            let timeout = Timespec { tv_sec: (wait / 1_000_000_000) as i64, tv_nsec: (wait % 1_000_000_000) as i64 };
            events.clear();
            let waited =
                epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)).map(|_| ());
            match waited {
                // A signal only ends the wait early, so continue.
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

    /// Reads the clock. If the process was suspended since the last reading, calls [`End::on_clock_gap`] of every
    /// endpoint first. `waited` is how long the caller has waited on purpose, which is no suspension.
    fn now(&mut self, waited: Span) -> Time {
        let now = self.clock.now();
        let last = self.last_reading.replace(now);
        if last.is_some_and(|last| now > last + waited + MIN_CLOCK_GAP) {
            self.on_clock_gap(now);
            return self.clock.now();
        }
        now
    }

    /// Informs the endpoints of a clock gap, and then reads everything from the sockets.
    fn on_clock_gap(&mut self, now: Time) {
        for place in &mut self.places {
            place.last_call = now.max(place.last_call);
            place.end.on_clock_gap(place.last_call);
            place.settle(&mut self.out);
        }
        // Read the datagrams that the kernel has queued, so that they are delivered before timers are served.
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

    /// Reads up to [`BATCHES`] batches of datagrams from a port. Returns whether there may be more.
    fn readable(&mut self, ix: usize, at: Which) -> bool {
        (0..BATCHES).all(|_| {
            self.now(Span::ZERO);
            self.read_batch(ix, at)
        })
    }

    /// Reads a batch of datagrams from a port. Returns whether there may be more.
    fn read_batch(&mut self, ix: usize, at: Which) -> bool {
        let Self { clock, places, buffers, out, .. } = self;
        let Some(place) = places.get_mut(ix) else { return false };
        let AttachedEnd { end, pair, echo, last_call, .. } = place;
        let port = pair.port_mut(at);
        let mut each = |bytes: &[u8], meta: &Meta| {
            // Look at the datagram, because reports and media may share a port (RFC 5761).
            let which = if steadycast_wire::is_rtcp(bytes) { Which::Rtcp } else { Which::Rtp };
            if which == Which::Rtcp && echo.is_own(bytes) {
                return;
            }
            // Use the last call's time if it is later, because an endpoint's time must not go back.
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

    /// Sends the datagrams that the endpoint has emitted, and reads its next timer.
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

    /// An endpoint that records how it is called.
    struct Witness {
        seen: Vec<&'static str>,
        wake: Time,
        /// Name of the call during which the process is suspended.
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

    /// Returns a loop with one endpoint. The endpoint's timer is due, and `count` datagrams are queued at its socket.
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
        // The largest count needs several reads, but still fits into the smallest default receive buffer.
        for count in [0, 1, 100, 250] {
            let (mut driver, ix) = filled(count);
            driver.on_clock_gap(Time::ZERO);
            assert_eq!(driver.end(ix).seen, [vec!["gap"], vec!["datagram"; count]].concat());
        }
    }
}
