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
    /// The port at which the datagram arrived.
    pub which: Which,
    /// The datagram's bytes.
    pub bytes: &'a [u8],
    /// The datagram's source address and arrival time.
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
    /// Appends a datagram that is not ECN-capable. `write` appends its bytes. Without an address it is sent to the
    /// pair's peer.
    pub fn push(&mut self, which: Which, to: Option<SocketAddr>, write: impl FnOnce(&mut Vec<u8>)) {
        self.push_as(Ecn::NotEct, which, to, write);
    }

    /// Appends a datagram with this ECN field. See [`Outbox::push`].
    pub fn push_as(&mut self, ecn: Ecn, which: Which, to: Option<SocketAddr>, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.list.push((ecn, which, to, self.bytes.len()));
    }

    /// Changes the pair's peer. This applies to all datagrams without an address, including those already pushed.
    pub fn redirect(&mut self, to: SocketAddr) {
        self.other_end = Some(to);
    }

    fn flush(&mut self, pair: &mut Pair, echo: &mut Echo) {
        if let Some(to) = self.other_end.take() {
            pair.redirect(to);
        }
        let mut from = 0;
        for (ecn, which, to, until) in self.list.drain(..) {
            // The peer's address is looked up when the datagram is sent, because a browser may have moved since the
            // datagram was queued.
            let to = to.unwrap_or_else(|| pair.peer(which));
            // Only RTCP is recorded, because senders ignore media that is looped back.
            if matches!(which, Which::Rtcp | Which::AudioRtcp) && to.ip().is_multicast() {
                echo.wrote(&self.bytes[from..until]);
            }
            pair.port_mut(which).send(&self.bytes[from..until], to, ecn);
            from = until;
        }
        self.bytes.clear();
    }
}

/// Digests of the last RTCP datagrams that an end sent to its group. The kernel loops these datagrams back from an
/// address that all members on this machine share. They are recognised by their bytes, so that they are not mistaken
/// for an SSRC collision (RFC 3550, section 8.2).
#[derive(Debug, Default)]
struct Echo([u64; 16], usize);

impl Echo {
    fn digest(bytes: &[u8]) -> u64 {
        // The hash is FNV-1a. Any other hash would do, because only an end's own datagrams are compared.
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

/// One end of a flow, as the loop drives it. The loop reads [`End::wake`] after each call.
pub trait End {
    /// Returns the time at which [`End::on_wake`] is due. A time in the past is due immediately.
    fn wake(&self) -> Time;
    /// Handles the expiry of the timer of [`End::wake`], or a call of [`Waker::wake`].
    fn on_wake(&mut self, now: Time, out: &mut Outbox);
    /// Handles a datagram. The loop drops RTCP datagrams that the end itself sent to its group and that were looped
    /// back.
    fn on_datagram(&mut self, now: Time, datagram: &Datagram<'_>, out: &mut Outbox);
    /// Handles a gap in the clock: the process or its machine was suspended until now. This call precedes the delivery
    /// of the datagrams that arrived during the gap, because an end may serve its timers when it receives a datagram.
    fn on_clock_gap(&mut self, _now: Time) {}
    /// Returns true if the end has nothing more to do. A loop whose ends are all done returns.
    fn done(&self) -> bool {
        false
    }
}

/// The index of an end in its loop.
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
        // The write fails only if the counter would exceed 2⁶⁴ − 2. In that case the loop wakes anyway.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Cancels all previous calls of [`Waker::wake`].
    pub(crate) fn reset(&self) {
        // One read resets the counter, so that several calls count as one.
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
    /// The latest time with which the end was called. An end's time never goes back.
    last_call: Time,
}

/// The event loop, which drives ends over their sockets in one thread.
pub struct Loop<E> {
    /// The clock that timers and arrival times refer to.
    pub clock: Clock,
    poll: OwnedFd,
    waker: Waker,
    places: Vec<AttachedEnd<E>>,
    buffers: Buffers,
    out: Outbox,
    /// The end of the last wait, by which a clock gap is detected; `None` before the first wait.
    last_wait: Option<Time>,
    /// Lateness of timer calls.
    pub late: Spread,
}

const WAKER: u64 = u64::MAX;
/// Number of bits of an epoll token that identify one of an end's ports ([`Which`]).
const PORT_BITS: u32 = 2;
/// Mask of the bits of an epoll token that identify a port.
const PORT_MASK: u64 = 3;

/// Maximum number of batches read from a socket before other sockets and timers are served. Epoll is level-triggered,
/// so a socket with remaining datagrams is reported again.
const BATCHES: usize = 16;
/// A wait that ends this much later than requested is a clock gap. A busy machine delays a thread by milliseconds,
/// seldom by hundreds of them. Processing time of the ends is not part of the wait.
const MIN_CLOCK_GAP: Span = Span::secs(1);
/// Maximum time for emptying the sockets after a clock gap. The kernel queues about 16,000 datagrams of a few bytes per
/// socket, which an end processes in some tenths of a second.
const MAX_EMPTYING: Span = Span::secs(1);

impl<E: End> Loop<E> {
    /// Creates a loop with this clock. [`Loop::run`] drives the ends in the thread that calls it.
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
            last_wait: None,
            late: Spread::default(),
        })
    }

    /// Returns a waker for use in other threads.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Adds an end with its sockets, which may belong to any network namespace.
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

    /// Calls `what` with an end and the present time, and sends the datagrams that the end emits.
    pub fn call(&mut self, ix: EndIx, what: impl FnOnce(&mut E, Time, &mut Outbox)) {
        let now = self.clock.now();
        let place = &mut self.places[ix.0];
        place.last_call = now.max(place.last_call);
        what(&mut place.end, place.last_call, &mut self.out);
        place.settle(&mut self.out);
    }

    /// Returns all ends with their sockets, after the loop has ended.
    pub fn into_ends(self) -> Vec<(E, Pair)> {
        self.places.into_iter().map(|p| (p.end, p.pair)).collect()
    }

    /// Drives the ends until `until`, until all are done, or until `go_on` returns false. `go_on` is called after every
    /// wait.
    ///
    /// Sockets are read before timers are served. A silence timer therefore considers all datagrams that have arrived,
    /// even if the thread is scheduled late.
    ///
    /// # Errors
    /// The system refuses to wait: a bug, or out of memory.
    pub fn run(&mut self, until: Time, mut go_on: impl FnMut(&mut Self) -> bool) -> io::Result<()> {
        // The default timer slack of Linux delays a wait by up to 50 µs, which would be visible in packet pacing.
        rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
        let mut events = Vec::with_capacity(64);
        loop {
            let now = self.clock.now();
            // The process may also be suspended between two waits, while it handles datagrams or timers, or between two
            // calls of this function.
            let was_suspended = self.last_wait.is_some_and(|last| now > last + MIN_CLOCK_GAP);
            let next = self.places.iter().map(|place| place.wake).fold(until, Time::min);
            let all_done = !self.places.is_empty() && self.places.iter().all(|place| place.end.done());
            let over = now >= until || all_done;
            // After the end the sockets are read once more, so that no datagram that has already arrived is ignored.
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
            let waited = self.clock.now();
            self.last_wait = Some(waited);
            if was_suspended || waited > now + Span::nanos(wait) + MIN_CLOCK_GAP {
                self.on_clock_gap();
            }
            let tokens = || events.iter().map(|event| event.data.u64());
            // Datagrams are delivered before wakes and timers; the reason is in the description of this function.
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

    /// Calls the ends whose timers have expired.
    fn serve_timers(&mut self) {
        let mut now = self.clock.now();
        for place in &mut self.places {
            if place.wake <= now {
                self.late.add(now.since(place.wake));
                place.on_wake(now, &mut self.out);
                now = self.clock.now();
            }
        }
    }

    /// Reports the clock gap to the ends, then empties the sockets.
    fn on_clock_gap(&mut self) {
        let now = self.clock.now();
        for place in &mut self.places {
            place.last_call = now.max(place.last_call);
            place.end.on_clock_gap(place.last_call);
            place.settle(&mut self.out);
        }
        // The kernel's queues hold datagrams from before and after the gap. They are delivered before timers are
        // served.
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
        for place in &mut self.places {
            place.on_wake(self.clock.now(), &mut self.out);
        }
    }

    /// Reads the datagrams queued at a socket, up to [`BATCHES`] batches. Returns true if there may be more.
    fn readable(&mut self, ix: usize, at: Which) -> bool {
        let Self { clock, places, buffers, out, .. } = self;
        let Some(place) = places.get_mut(ix) else { return false };
        let AttachedEnd { end, pair, echo, last_call, .. } = place;
        let port = pair.port_mut(at);
        let mut each = |bytes: &[u8], meta: &Meta| {
            // Reports and media may share a port (RFC 5761), so the type is determined from the packet, not from the
            // port.
            let which = if steadycast_wire::is_rtcp(bytes) { Which::Rtcp } else { Which::Rtp };
            if which == Which::Rtcp && echo.is_own(bytes) {
                return;
            }
            // A datagram that arrived before the last call is delivered with the time of that call, because an end's
            // time never goes back.
            *last_call = meta.at.max(*last_call);
            end.on_datagram(*last_call, &Datagram { which, bytes, meta: *meta }, out);
        };
        let more = (0..BATCHES).all(|_| port.receive(clock, buffers, &mut each));
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

    /// Sends the datagrams that the end emitted, and reads its next timer.
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

    /// An end that records its calls.
    struct Witness {
        seen: Vec<&'static str>,
        wake: Time,
    }

    impl End for Witness {
        fn wake(&self) -> Time {
            self.wake
        }

        fn on_wake(&mut self, _: Time, _: &mut Outbox) {
            self.seen.push("timer");
            self.wake = Time::NEVER;
        }

        fn on_datagram(&mut self, _: Time, _: &Datagram<'_>, _: &mut Outbox) {
            self.seen.push("datagram");
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
        let ix = driver.add(Witness { seen: Vec::new(), wake: Time::ZERO }, pair).unwrap();
        for _ in 0..count {
            out.send_to(&[0x80; 20], at).unwrap();
        }
        (driver, ix)
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
            driver.on_clock_gap();
            assert_eq!(driver.end(ix).seen, [vec!["gap"], vec!["datagram"; count]].concat());
        }
    }
}
