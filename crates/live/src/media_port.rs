//! A UDP port that the sessions of all browsers share. One thread distributes the datagrams to the queues of the
//! sessions. Each session authenticates its own datagrams.

use crate::net::{PairOptions, Port};
use crate::{Clock, Datagram, End, LiveError, Loop, Meta, Outbox, Pair, Waker};
use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use steadycast_units::{Ecn, Span, Time};
use steadycast_web::{Credentials, Demultiplexer, DropReason, Protocol};

/// Maximum number of datagrams in the queue of a session. A viewer sends 25 per second, and a publisher sends 1,000 per
/// second at 8 Mb/s. Only a flood fills the queue.
const MAX_QUEUE: usize = 512;
/// Size of the send buffer that all sessions share, in bytes. The kernel limits it.
const SEND_BUFFER: usize = 4 << 20;
/// Maximum number of datagrams that a session takes from its queue at once.
const BATCH: usize = 64;

/// A datagram in a queue, with its metadata and its arrival time.
type Queued = (Vec<u8>, Meta, Instant);

/// The queue of a session. Its waker is readable while the queue is not empty.
struct Inbox {
    queue: Mutex<VecDeque<Queued>>,
    ready: Waker,
}

impl Inbox {
    fn queue(&self) -> MutexGuard<'_, VecDeque<Queued>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a datagram. Returns false if the queue is full.
    fn push(&self, datagram: Queued) -> bool {
        let mut queue = self.queue();
        if queue.len() >= MAX_QUEUE {
            return false;
        }
        queue.push_back(datagram);
        // Wake the session only if the queue was empty, because the waker stays readable until it is empty again.
        if queue.len() == 1 {
            self.ready.wake();
        }
        true
    }

    /// Removes up to [`BATCH`] datagrams from the queue and returns them. Also returns whether there are more.
    fn take(&self) -> (Vec<Queued>, bool) {
        let mut queue = self.queue();
        let count = queue.len().min(BATCH);
        let taken = queue.drain(..count).collect();
        // Reset the waker while the queue is locked, so that a datagram that arrives now is not missed.
        if queue.is_empty() {
            self.ready.reset();
        }
        (taken, !queue.is_empty())
    }
}

/// State that the thread of the port shares with the sessions.
struct Shared {
    /// The sockets. There is at most one for IPv4 and one for IPv6.
    sockets: Vec<Port>,
    routes: Mutex<Demultiplexer<Arc<Inbox>>>,
    stop: AtomicBool,
}

impl Shared {
    fn routes(&self) -> MutexGuard<'_, Demultiplexer<Arc<Inbox>>> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Distributes the datagrams of one of the port's sockets. The thread's loop runs it.
struct Router {
    shared: Arc<Shared>,
    clock: Clock,
}

impl End for Router {
    fn wake(&self) -> Time {
        Time::NEVER
    }

    fn on_wake(&mut self, _: Time, _: &mut Outbox) {}

    fn on_datagram(&mut self, now: Time, datagram: &Datagram<'_>, _: &mut Outbox) {
        let mut routes = self.shared.routes();
        let delivered = match routes.route(now, datagram.meta.from, datagram.bytes) {
            Ok(inbox) => {
                // Convert the time to an instant, because the session's clock has another zero.
                let at = self.clock.instant(datagram.meta.at);
                inbox.push((datagram.bytes.to_vec(), datagram.meta, at)).then_some(()).ok_or(DropReason::FullQueue)
            }
            Err(reason) => Err(reason),
        };
        if let Err(reason) = delivered {
            routes.count(reason);
        }
    }
}

/// A UDP port for the media of any number of browsers.
pub struct MediaPort {
    shared: Arc<Shared>,
    port: u16,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for MediaPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MediaPort").field("port", &self.port).finish_non_exhaustive()
    }
}

impl MediaPort {
    /// Opens the port at these local addresses and starts to read it. There may be at most one IPv4 address and one
    /// IPv6 address.
    ///
    /// # Errors
    /// An address can't be used, or the system has no descriptors or threads left.
    pub fn open(addresses: &[IpAddr], port: u16) -> Result<Self, LiveError> {
        let clock = Clock::start();
        let mut driver = Loop::new(clock)?;
        let (mut sockets, mut pairs) = (Vec::new(), Vec::new());
        for address in addresses {
            let own = Port::open(SocketAddr::new(*address, port), &PairOptions::default(), false)?;
            own.set_send_buffer_size(SEND_BUFFER)?;
            // Give the sessions a copy of the socket, through which they send while the thread reads.
            sockets.push(own.duplicate()?);
            pairs.push(Pair::of_port(own));
        }
        let stop = AtomicBool::new(false);
        let shared = Arc::new(Shared { sockets, routes: Mutex::default(), stop });
        for pair in pairs {
            driver.add(Router { shared: Arc::clone(&shared), clock }, pair)?;
        }
        let (waker, routed) = (driver.waker(), Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("steadycast-media".into()).spawn(move || {
            let mut runs = true;
            while runs {
                // The waker ends this wait when the port is closed. The loop fails only if the system refuses to wait.
                let until = clock.now() + Span::secs(3_600);
                let waited = driver.run(until, |_| !routed.stop.load(Ordering::Relaxed));
                runs = waited.is_ok() && !routed.stop.load(Ordering::Relaxed);
            }
        })?;
        Ok(Self { shared, port, waker, thread: Some(thread) })
    }

    /// Returns the number of the port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns how many datagrams could not be delivered to a session, by reason.
    pub fn dropped(&self) -> [(DropReason, u64); DropReason::ALL.len()] {
        self.shared.routes().dropped()
    }

    /// Creates the sockets of a session. `local` is the address at which the browser reaches the port.
    ///
    /// # Errors
    /// The system is out of descriptors.
    pub(crate) fn attach(&self, own: Credentials, peer_ufrag: String, local: IpAddr) -> Result<Pair, LiveError> {
        let inbox = Arc::new(Inbox { queue: Mutex::default(), ready: Waker::new()? });
        let ufrag = own.ufrag.clone();
        self.shared.routes().add(own, peer_ufrag, Arc::clone(&inbox));
        let shared = Arc::clone(&self.shared);
        let local = SocketAddr::new(local, self.port);
        Ok(Pair::shared(SharedPort { shared, inbox, ufrag, local, source: None, unsent: 0 }))
    }
}

impl Drop for MediaPort {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The part of a [`MediaPort`] that belongs to one session.
pub struct SharedPort {
    shared: Arc<Shared>,
    inbox: Arc<Inbox>,
    /// ICE user name of this end, which identifies the session.
    ufrag: String,
    local: SocketAddr,
    /// Local address to which the browser sent its last connectivity check. The response must come from this address
    /// (RFC 8445, section 7.2.5.2.1).
    source: Option<IpAddr>,
    /// Number of datagrams that this machine could not send.
    unsent: u64,
}

impl SharedPort {
    pub(crate) const fn local(&self) -> SocketAddr {
        self.local
    }

    pub(crate) const fn unsent(&self) -> u64 {
        self.unsent
    }

    pub(crate) fn send(&mut self, bytes: &[u8], to: SocketAddr, ecn: Ecn) -> bool {
        let same_family = |socket: &&Port| socket.local().is_ipv4() == to.is_ipv4();
        let socket = self.shared.sockets.iter().find(same_family);
        let is_sent = socket.is_some_and(|socket| socket.send_from(self.source, bytes, to, ecn).is_ok());
        self.unsent += u64::from(!is_sent);
        is_sent
    }

    /// Takes a batch of datagrams from the queue. Returns whether there are more.
    pub(crate) fn receive(&mut self, clock: &Clock, mut each: impl FnMut(&[u8], &Meta)) -> bool {
        let (taken, more) = self.inbox.take();
        for (bytes, meta, at) in taken {
            if Protocol::of(&bytes) == Protocol::Stun {
                self.source = meta.to.or(self.source);
            }
            each(&bytes, &Meta { at: clock.time(at), ..meta });
        }
        more
    }
}

impl AsFd for SharedPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inbox.ready.as_fd()
    }
}

impl Drop for SharedPort {
    fn drop(&mut self) {
        self.shared.routes().remove(&self.ufrag);
    }
}
