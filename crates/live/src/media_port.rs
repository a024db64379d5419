//! A UDP port that all browsers' sessions share. One thread sorts the datagrams into the sessions' queues. The sessions
//! authenticate their datagrams themselves.

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

/// Maximum number of queued datagrams per session. A viewer sends 25 per second, a publisher 1,000 at 8 Mb/s, so only a
/// flood fills it.
const MAX_QUEUE: usize = 512;
/// The send buffer in bytes, shared by all sessions. The kernel limits it.
const SEND_BUFFER: usize = 4 << 20;
/// Datagrams that a session takes before it serves its timers.
const BATCH: usize = 64;

/// A queued datagram with its arrival time.
type Queued = (Vec<u8>, Meta, Instant);

/// A session's queue. Its waker is readable while the queue is not empty.
struct Inbox {
    queue: Mutex<VecDeque<Queued>>,
    ready: Waker,
}

impl Inbox {
    fn queue(&self) -> MutexGuard<'_, VecDeque<Queued>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns false if the queue is full.
    fn push(&self, datagram: Queued) -> bool {
        let mut queue = self.queue();
        if queue.len() >= MAX_QUEUE {
            return false;
        }
        queue.push_back(datagram);
        // The waker stays readable until the queue is empty.
        if queue.len() == 1 {
            self.ready.wake();
        }
        true
    }

    /// Takes a batch of datagrams. Returns whether there are more.
    fn take(&self) -> (Vec<Queued>, bool) {
        let mut queue = self.queue();
        let count = queue.len().min(BATCH);
        let taken = queue.drain(..count).collect();
        // Under the lock, so that a later datagram is not missed.
        if queue.is_empty() {
            self.ready.reset();
        }
        (taken, !queue.is_empty())
    }
}

/// The state that the port's thread shares with its sessions.
struct Shared {
    /// The sockets, at most one per address family.
    sockets: Vec<Port>,
    routes: Mutex<Demultiplexer<Arc<Inbox>>>,
    stop: AtomicBool,
}

impl Shared {
    fn routes(&self) -> MutexGuard<'_, Demultiplexer<Arc<Inbox>>> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the port's sockets in the thread's loop.
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
                // The session's clock has another zero.
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
    /// Opens and reads the port at these local addresses, at most one IPv4 and one IPv6.
    ///
    /// # Errors
    /// An address can't be used, or the system is out of descriptors or threads.
    pub fn open(addresses: &[IpAddr], port: u16) -> Result<Self, LiveError> {
        let clock = Clock::start();
        let mut driver = Loop::new(clock)?;
        let (mut sockets, mut pairs) = (Vec::new(), Vec::new());
        for address in addresses {
            let own = Port::open(SocketAddr::new(*address, port), &PairOptions::default(), false)?;
            own.set_send_buffer_size(SEND_BUFFER)?;
            // Sessions send through a copy while the thread reads.
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
                // The waker ends this wait at the port's end. The loop fails only if the system refuses to wait.
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

    /// Returns the datagrams delivered to no session, by reason.
    pub fn dropped(&self) -> [(DropReason, u64); DropReason::ALL.len()] {
        self.shared.routes().dropped()
    }

    /// Creates a session's sockets. `local` is the address by which the browser reaches the port.
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

/// A session's part of a [`MediaPort`].
pub struct SharedPort {
    shared: Arc<Shared>,
    inbox: Arc<Inbox>,
    /// This end's user name, which identifies the session.
    ufrag: String,
    local: SocketAddr,
    /// The local address to which the browser sent its last connectivity check. The response must come from this
    /// address (RFC 8445, section 7.2.5.2.1).
    source: Option<IpAddr>,
    /// Datagrams that this machine could not send.
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

    /// Takes a batch of queued datagrams. Returns whether there are more.
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
