//! One thread's way through real time.

use crate::net::Buffers;
use crate::{Clock, Meta, Pair, Which};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fd::OwnedFd;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use steadycast_units::{Ecn, Span, Spread, Time};

/// A datagram that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// At which port.
    pub which: Which,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// From where, and when.
    pub meta: Meta,
}

/// What an end lets go: datagrams, in the order in which they leave.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    list: Vec<(Ecn, Which, Option<SocketAddr>, usize)>,
    other_end: Option<SocketAddr>,
}

impl Outbox {
    /// One more datagram, which is not ECN-capable: `write` appends its bytes. Without an address it goes to the pair's
    /// other end.
    pub fn push(&mut self, which: Which, to: Option<SocketAddr>, write: impl FnOnce(&mut Vec<u8>)) {
        self.push_as(Ecn::NotEct, which, to, write);
    }

    /// As [`Outbox::push`], with this ECN field.
    pub fn push_as(&mut self, ecn: Ecn, which: Which, to: Option<SocketAddr>, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.list.push((ecn, which, to, self.bytes.len()));
    }

    /// Sends what names no address to this one, also what was pushed before.
    pub fn redirect(&mut self, to: SocketAddr) {
        self.other_end = Some(to);
    }

    fn flush(&mut self, pair: &mut Pair, echo: &mut Echo) {
        if let Some(to) = self.other_end.take() {
            pair.redirect(to);
        }
        let mut from = 0;
        for (ecn, which, to, until) in self.list.drain(..) {
            let to = to.unwrap_or_else(|| pair.peer(which));
            if which == Which::Rtcp && to.ip().is_multicast() {
                echo.wrote(&self.bytes[from..until]);
            }
            pair.port_mut(which).send(&self.bytes[from..until], to, ecn);
            from = until;
        }
        self.bytes.clear();
    }
}

/// The RTCP datagrams that an end sent to its group last. The system hands a member its own datagrams back, from an
/// address that all members on this machine share; they are known by their bytes, and are no collision of SSRCs (RFC
/// 3550, section 8.2).
#[derive(Debug, Default)]
struct Echo([u64; 16], usize);

impl Echo {
    fn digest(bytes: &[u8]) -> u64 {
        // FNV-1a: any hash will do, since only one's own datagrams are compared with each other.
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

/// One end of a flow, as a loop sees it. After each call [`End::wake`] is asked again.
pub trait End {
    /// When it wants [`End::on_wake`]. A time that is past means at once.
    fn wake(&self) -> Time;
    /// The time of [`End::wake`] has come, or [`Waker::wake`] was called.
    fn on_wake(&mut self, now: Time, out: &mut Outbox);
    /// A datagram has arrived; RTCP that the end sent to its group itself is not shown to it.
    fn on_datagram(&mut self, now: Time, datagram: &Datagram<'_>, out: &mut Outbox);
    /// The loop's clock has stood still until now: its process was stopped, or its machine was. All that had arrived by
    /// then was shown to the end before, and no timer has been served.
    fn on_clock_gap(&mut self, _now: Time) {}
    /// Whether it has nothing more to do: a loop whose ends are all done returns.
    fn done(&self) -> bool {
        false
    }
}

/// An end's place in its loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndIx(pub usize);

/// Wakes a loop from another thread: something is there that its ends wait for.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Has every end's [`End::on_wake`] called soon.
    pub fn wake(&self) {
        // It fails only when 2⁶⁴ calls wait already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

struct Attached<E> {
    end: E,
    pair: Pair,
    echo: Echo,
    wake: Time,
    /// The latest time that the end was told.
    told: Time,
}

/// Drives ends over their sockets in one thread.
pub struct Loop<E> {
    /// The clock by which it drives.
    pub clock: Clock,
    poll: OwnedFd,
    waker: Waker,
    places: Vec<Attached<E>>,
    buffers: Buffers,
    out: Outbox,
    /// How late its ends were called.
    pub late: Spread,
}

const WAKER: u64 = u64::MAX;

/// Batches that are read from a socket before it is somebody else's turn, or a time has come. What is left makes it
/// readable at once again.
const BATCHES: usize = 16;
/// A loop whose wait ends this much later than it asked for has stood still: a busy machine delays a thread by
/// milliseconds, seldom by hundreds of them. What its ends take for themselves is no part of the wait.
const CLOCK_GAP: Span = Span::secs(1);
/// Sockets are emptied for this long at the most after the clock has stood still. The kernel keeps some 16,000 datagrams
/// of a few bytes for one, which take an end some tenths of a second.
const EMPTYING: Span = Span::secs(1);

impl<E: End> Loop<E> {
    /// A loop by this clock. It drives its ends in the thread that calls [`Loop::run`].
    ///
    /// # Errors
    /// The system is out of descriptors.
    pub fn new(clock: Clock) -> io::Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let waker = Waker(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?));
        epoll::add(&poll, &waker.0, epoll::EventData::new_u64(WAKER), epoll::EventFlags::IN)?;
        Ok(Self {
            clock,
            poll,
            waker,
            places: Vec::new(),
            buffers: Buffers::new(),
            out: Outbox::default(),
            late: Spread::default(),
        })
    }

    /// What wakes it from another thread.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// An end more, with its sockets, from whichever namespace they are.
    ///
    /// # Errors
    /// The system can't watch more sockets.
    pub fn add(&mut self, end: E, pair: Pair) -> io::Result<EndIx> {
        let ix = self.places.len();
        for (which, port) in pair.ports() {
            let token = (ix as u64) << 1 | u64::from(which == Which::Rtcp);
            epoll::add(&self.poll, port, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?;
        }
        let wake = end.wake();
        self.places.push(Attached { end, pair, echo: Echo::default(), wake, told: Time::ZERO });
        Ok(EndIx(ix))
    }

    /// An end.
    pub fn end(&self, ix: EndIx) -> &E {
        &self.places[ix.0].end
    }

    /// An end's sockets.
    pub fn pair(&self, ix: EndIx) -> &Pair {
        &self.places[ix.0].pair
    }

    /// Tells an end something that is not a datagram; what it lets go is sent.
    pub fn tell(&mut self, ix: EndIx, what: impl FnOnce(&mut E, Time, &mut Outbox)) {
        let now = self.clock.now();
        let place = &mut self.places[ix.0];
        place.told = now.max(place.told);
        what(&mut place.end, place.told, &mut self.out);
        place.settle(&mut self.out);
    }

    /// All ends, at the end.
    pub fn into_ends(self) -> Vec<(E, Pair)> {
        self.places.into_iter().map(|p| (p.end, p.pair)).collect()
    }

    /// Drives its ends until `until`, or until all are done, or `go_on` says no: it is asked after every wait.
    ///
    /// Sockets are read before timers are served, so that silence is judged by what has arrived, however late this
    /// thread is called.
    ///
    /// # Errors
    /// The system refuses to wait: a bug, or out of memory.
    pub fn run(&mut self, until: Time, mut go_on: impl FnMut(&mut Self) -> bool) -> io::Result<()> {
        // Without it a wait may last 50 µs longer than it was asked to.
        rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
        let mut events = Vec::with_capacity(64);
        loop {
            let now = self.clock.now();
            let next = self.places.iter().map(|place| place.wake).fold(until, Time::min);
            let all_done = !self.places.is_empty() && self.places.iter().all(|place| place.end.done());
            let over = now >= until || all_done;
            let wait = if over { 0 } else { next.since(now).as_nanos() };
            let timeout = Timespec { tv_sec: (wait / 1_000_000_000) as i64, tv_nsec: (wait % 1_000_000_000) as i64 };
            events.clear();
            let waited =
                epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)).map(|_| ());
            match waited {
                Ok(()) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if self.clock.now() > now + Span::nanos(wait) + CLOCK_GAP {
                self.on_clock_gap();
            }
            let tokens = || events.iter().map(|event| event.data.u64());
            for token in tokens().filter(|token| *token != WAKER) {
                let which = if token & 1 == 0 { Which::Rtp } else { Which::Rtcp };
                self.readable((token >> 1) as usize, which);
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

    /// Calls the ends whose time has come.
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

    /// Empties the sockets, and tells the ends that the clock has stood still.
    fn on_clock_gap(&mut self) {
        let now = self.clock.now();
        let until = now + EMPTYING;
        for ix in 0..self.places.len() {
            let ports: Vec<Which> = self.places[ix].pair.ports().map(|(which, _)| which).collect();
            for which in ports {
                while self.readable(ix, which) && self.clock.now() < until {}
            }
        }
        for place in &mut self.places {
            place.told = now.max(place.told);
            place.end.on_clock_gap(place.told);
            place.settle(&mut self.out);
        }
    }

    fn woken(&mut self) {
        // Several calls count as one.
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.waker.0, &mut count);
        for place in &mut self.places {
            place.on_wake(self.clock.now(), &mut self.out);
        }
    }

    /// Reads the datagrams that wait at a socket, up to [`BATCHES`]. Returns whether there may be more.
    fn readable(&mut self, ix: usize, at: Which) -> bool {
        let Self { clock, places, buffers, out, .. } = self;
        let Some(place) = places.get_mut(ix) else { return false };
        let Attached { end, pair, echo, told, .. } = place;
        let port = pair.port_mut(at);
        let mut each = |bytes: &[u8], meta: &Meta| {
            // Whoever sends reports to the port of the media means the same (RFC 5761).
            let which = if steadycast_wire::is_rtcp(bytes) { Which::Rtcp } else { Which::Rtp };
            if which == Which::Rtcp && echo.is_own(bytes) {
                return;
            }
            // What arrived before the end was last called is not told it in the past.
            *told = meta.at.max(*told);
            end.on_datagram(*told, &Datagram { which, bytes, meta: *meta }, out);
        };
        let more = (0..BATCHES).all(|_| port.receive(clock, buffers, &mut each));
        place.settle(out);
        more
    }
}

impl<E: End> Attached<E> {
    fn on_wake(&mut self, now: Time, out: &mut Outbox) {
        self.told = now.max(self.told);
        self.end.on_wake(self.told, out);
        self.settle(out);
    }

    /// Sends what the end let go, and asks when it wants to be woken.
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

    /// An end that writes down what it is told.
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

    /// A loop with an end whose timer is due, and to whose socket this many datagrams have come.
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
    fn what_has_come_is_read_before_a_timer_is_served_also_where_the_time_is_over() {
        for count in [0, 1, 100] {
            let (mut driver, ix) = filled(count);
            driver.run(Time::ZERO, |_| true).unwrap();
            assert_eq!(driver.end(ix).seen, [vec!["datagram"; count], vec!["timer"]].concat());
        }
    }

    #[test]
    fn after_the_clock_stood_still_all_that_came_is_read_before_the_end_is_told() {
        // More than one turn reads, and no more than the smallest buffer that systems have holds.
        for count in [0, 1, 100, 250] {
            let (mut driver, ix) = filled(count);
            driver.on_clock_gap();
            assert_eq!(driver.end(ix).seen, [vec!["datagram"; count], vec!["gap"]].concat());
        }
    }
}
