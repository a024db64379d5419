//! The TCP of the hosts' kernels: connections, what is sent over them, and statistics.

use crate::kernel;
use crate::namespace::Namespace;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use steadycast_endpoints::{BuildError, KernelSource, Observed, Work};
use steadycast_live::Clock;
use steadycast_scenario::{self as sc, Workload};
use steadycast_tcp::LINUX_WINDOW;
use steadycast_units::{Bytes, Chance, Span, Time};

/// Interval at which the kernel's statistics are read.
const STATS_INTERVAL: Span = Span::millis(10);

/// Maximum number of bytes that are written at once.
const WRITE_CHUNK: usize = 64 * 1024;

/// Size of IP and TCP headers in bytes: first without, then with the timestamps option.
const HEADERS: [u32; 2] = [40, 52];

/// Socket options from `linux/tcp.h` that some C libraries do not define.
const TCP_RTO_MAX_MS: libc::c_int = 44;
const TCP_RTO_MIN_US: libc::c_int = 45;
const TCP_DELACK_MAX_US: libc::c_int = 46;

/// A TCP flow between two hosts.
pub(crate) struct Session {
    pub(crate) flow: String,
    pub(crate) spec: sc::Tcp,
    pub(crate) from: (Arc<Namespace>, Ipv4Addr),
    pub(crate) to: (Arc<Namespace>, SocketAddrV4),
    /// When the session starts (`true`) and when it stops (`false`).
    pub(crate) plan: VecDeque<(Time, bool)>,
    pub(crate) chance: Chance,
    pub(crate) figures: KernelSource,
}

impl Session {
    /// Returns the payload size of a full segment, in bytes.
    pub(crate) fn payload(&self) -> u32 {
        payload(&self.spec)
    }
}

pub(crate) fn payload(spec: &sc::Tcp) -> u32 {
    let header = HEADERS[usize::from(spec.config.timestamps)];
    u32::try_from(spec.config.packet.get()).unwrap_or(u32::MAX).saturating_sub(header).max(1)
}

struct Running {
    session: Session,
    listener: Socket,
    accepted: Vec<Socket>,
    open: Option<Open>,
    /// Whether the last transition in `plan` was a start.
    active: bool,
    work: Work,
}

struct Open {
    socket: Socket,
    connected: bool,
    /// Number of bytes that the application still has to write.
    left: u64,
    /// Whether the connection is closed after these bytes.
    last: bool,
    shut: bool,
}

pub(crate) struct Runner {
    running: Vec<Running>,
}

/// Returns the name that the kernel has for a congestion control.
pub(crate) fn name(congestion: sc::Congestion) -> &'static str {
    match congestion {
        sc::Congestion::Reno | sc::Congestion::NewReno | sc::Congestion::Sack => "reno",
        // Mainline kernels have BBR version 1 under the name "bbr".
        sc::Congestion::Bbr | sc::Congestion::Bbr1 => "bbr",
        congestion => congestion.name(),
    }
}

impl Runner {
    /// Opens the listening sockets, and checks that the kernel supports the flows' options. Changes the caller's
    /// namespace.
    pub(crate) fn new(sessions: Vec<Session>) -> Result<Self, BuildError> {
        Ok(Self { running: sessions.into_iter().map(Running::new).collect::<Result<_, _>>()? })
    }

    /// Runs the connections until `stop` is set. Writes data and records samples until `end`. Changes the caller's
    /// namespace.
    pub(crate) fn run(
        mut self,
        clock: Clock,
        stop: &AtomicBool,
        end: Time,
        step: Span,
    ) -> io::Result<Vec<KernelSource>> {
        kernel::precise_waits();
        let (mut ask, mut sample) = (Time::ZERO, Time::ZERO + step);
        let mut chunk = vec![0u8; WRITE_CHUNK];
        while !stop.load(Ordering::Acquire) {
            let now = clock.now();
            if now >= ask {
                self.running.iter_mut().for_each(|r| r.observe(now));
                ask = now + STATS_INTERVAL;
            }
            while sample <= now && sample <= end {
                self.running.iter_mut().for_each(|r| r.session.figures.sample());
                sample += step;
            }
            for running in &mut self.running {
                running.follow(now, end)?;
                running.serve(now, &mut chunk)?;
            }
            let next = self.running.iter().map(Running::wake).min().unwrap_or(Time::NEVER).min(ask);
            self.wait(next.since(clock.now()))?;
        }
        Ok(self.running.into_iter().map(|r| r.session.figures).collect())
    }

    fn wait(&self, most: Span) -> io::Result<()> {
        let left = most.as_nanos();
        let timeout = Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
        let mut fds: Vec<PollFd<'_>> = Vec::new();
        for running in &self.running {
            fds.push(PollFd::new(&running.listener, PollFlags::IN));
            fds.extend(running.accepted.iter().map(|s| PollFd::new(s, PollFlags::IN)));
            if let Some(open) = &running.open {
                // Wait for a writable socket only if there is data to write. Otherwise the loop would spin, because a
                // socket is nearly always writable.
                let wants = if open.writes() { PollFlags::OUT | PollFlags::IN } else { PollFlags::IN };
                fds.push(PollFd::new(&open.socket, wants));
            }
        }
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Open {
    fn writes(&self) -> bool {
        !self.connected || self.left > 0
    }
}

impl Running {
    fn new(session: Session) -> Result<Self, BuildError> {
        let wrong = |key, what| BuildError::new(format!("flow.{}.{key}", session.flow), what);
        let spec = &session.spec;
        let enter = |space: &Namespace| space.enter().map_err(|e| wrong("from", e.to_string()));
        enter(&session.from.0)?;
        // Configure a trial socket, so that an unsupported option is reported before the run.
        let trial = tcp_socket().map_err(|e| wrong("kind", e.to_string()))?;
        configure(&trial, spec).map_err(|(key, error)| {
            let what = match key {
                "congestion" => format!(
                    "this kernel has no \"{}\" ({error}); it has {}",
                    name(spec.config.congestion),
                    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
                        .map_or_else(|_| "others".into(), |all| all.trim().replace(' ', ", "))
                ),
                _ => format!("this kernel does not take it ({error})"),
            };
            wrong(key, what)
        })?;
        enter(&session.to.0)?;
        let listener = tcp_socket().map_err(|e| wrong("to", e.to_string()))?;
        configure(&listener, spec).map_err(|(key, error)| wrong(key, error.to_string()))?;
        let bound = listener
            .bind(&SockAddr::from(session.to.1))
            .and_then(|()| listener.listen(16))
            .and_then(|()| listener.set_nonblocking(true));
        bound.map_err(|e| wrong("to", e.to_string()))?;
        let work = Work::new(&spec.source, spec.config.packet);
        Ok(Self { session, listener, accepted: Vec::new(), open: None, active: false, work })
    }

    fn wake(&self) -> Time {
        let plan = self.session.plan.front().map_or(Time::NEVER, |(at, _)| *at);
        if self.active { plan.min(self.work.wake()) } else { plan }
    }

    fn follow(&mut self, now: Time, end: Time) -> io::Result<()> {
        while let Some((_, start)) = self.session.plan.pop_front_if(|(at, _)| *at <= now) {
            if start { self.start(now)? } else { self.stop(now) }
        }
        if now >= end {
            self.stop(now);
        }
        if !self.active {
            return Ok(());
        }
        if self.work.transfers(now)
            && let Workload::Transfers { bytes, .. } = self.session.spec.source
        {
            self.session.figures.activity.begin(now);
            self.connect(bytes.get(), true)?;
        }
        let Session { chance, figures, spec, .. } = &mut self.session;
        self.work.turn(now, chance, &mut figures.activity);
        let Some(open) = &mut self.open else { return Ok(()) };
        if let Work::OnOff { gap: None, writing, .. } = self.work {
            // A source that has no rate writes as fast as the connection allows.
            open.left = if writing { u64::MAX } else { 0 };
        }
        let payload = u64::from(payload(spec));
        while self.work.writes(now) {
            // Do not write data beyond the window, as if the socket's buffer were full.
            if open.left < u64::from(spec.config.window) * payload {
                open.left += payload;
            }
        }
        Ok(())
    }

    fn start(&mut self, now: Time) -> io::Result<()> {
        if self.active {
            return Ok(());
        }
        self.active = true;
        self.session.figures.activity.begin(now);
        match self.session.spec.source {
            Workload::Bulk => self.connect(u64::MAX, false),
            Workload::File(bytes) => self.connect(bytes.get(), true),
            Workload::Transfers { bytes, .. } => self.connect(bytes.get(), true),
            Workload::OnOff { .. } => {
                self.work.start(now, &mut self.session.chance);
                self.connect(0, false)
            }
        }
    }

    /// Stops the source immediately. Queued data is discarded.
    fn stop(&mut self, now: Time) {
        if !std::mem::replace(&mut self.active, false) {
            return;
        }
        self.session.figures.activity.end(now);
        if let Some(open) = self.open.take() {
            observe(&mut self.session, &open.socket, now);
            self.session.figures.close();
            // Set the linger time to zero, which resets the connection and discards the data in the kernel.
            let _ = open.socket.set_linger(Some(Duration::ZERO));
        }
    }

    fn connect(&mut self, left: u64, last: bool) -> io::Result<()> {
        self.session.from.0.enter()?;
        let socket = tcp_socket()?;
        configure(&socket, &self.session.spec).map_err(|(_, error)| error)?;
        // Switch Nagle's algorithm off, because it would delay a paced source.
        socket.set_tcp_nodelay(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SockAddr::from(SocketAddrV4::new(self.session.from.1, 0)))?;
        match socket.connect(&SockAddr::from(self.session.to.1)) {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(e) => return Err(e),
        }
        self.open = Some(Open { socket, connected: false, left, last, shut: false });
        Ok(())
    }

    fn serve(&mut self, now: Time, chunk: &mut [u8]) -> io::Result<()> {
        while let Ok((socket, _)) = self.listener.accept() {
            socket.set_nonblocking(true)?;
            self.accepted.push(socket);
        }
        let prompt = !self.session.spec.config.delayed_ack;
        self.accepted.retain(|socket| read_all(socket, prompt));
        let Some(open) = &mut self.open else { return Ok(()) };
        if !open.connected {
            match open.socket.peer_addr() {
                Ok(_) => open.connected = true,
                Err(_) if matches!(open.socket.take_error(), Ok(None)) => return Ok(()),
                // The attempt has timed out. Repeat it, as a user would do.
                Err(_) => {
                    let (left, last) = (open.left, open.last);
                    return self.connect(left, last);
                }
            }
        }
        while open.left > 0 {
            let most = usize::try_from(open.left).unwrap_or(usize::MAX).min(chunk.len());
            match (&open.socket).write(&chunk[..most]) {
                Ok(n) => open.left = if open.left == u64::MAX { u64::MAX } else { open.left - n as u64 },
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // The connection was reset, or it has timed out.
                Err(_) => {
                    self.finish(now, false);
                    return Ok(());
                }
            }
        }
        if open.last && open.left == 0 && !std::mem::replace(&mut open.shut, true) {
            let _ = open.socket.shutdown(std::net::Shutdown::Write);
        }
        // If the peer has closed the connection, the transfer has ended. It is complete if this side had sent all data
        // and closed its direction (`shut`).
        if !read_all(&open.socket, false) {
            let whole = open.shut;
            self.finish(now, whole);
        }
        Ok(())
    }

    fn finish(&mut self, now: Time, whole: bool) {
        let Some(open) = self.open.take() else { return };
        observe(&mut self.session, &open.socket, now);
        self.session.figures.close();
        if whole {
            self.session.figures.activity.complete(now);
            self.work.complete(now, &mut self.session.chance);
        } else {
            self.session.figures.activity.end(now);
        }
    }

    fn observe(&mut self, now: Time) {
        if let Some(open) = self.open.as_ref().filter(|o| o.connected) {
            observe(&mut self.session, &open.socket, now);
            let pausing = matches!(self.work, Work::OnOff { writing: false, .. }) && open.left == 0;
            if pausing && !self.session.figures.waits() {
                self.session.figures.activity.end(now);
            }
        }
    }
}

/// Discards received bytes. If `prompt` is true, acknowledges each segment at once. Returns whether more bytes may
/// arrive.
fn read_all(socket: &Socket, prompt: bool) -> bool {
    loop {
        match kernel::discard(socket.as_raw_fd(), 1 << 24) {
            Ok(0) => return false,
            Ok(_) if prompt => {
                // Set TCP_QUICKACK again, because it lasts only until the next segment.
                let _ = kernel::tcp_option(socket.as_raw_fd(), libc::TCP_QUICKACK, 1);
            }
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // The socket is still connecting if the error is `ENOTCONN`.
            Err(e) => return e.raw_os_error() == Some(libc::ENOTCONN),
        }
    }
}

fn tcp_socket() -> io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::STREAM.cloexec(), Some(Protocol::TCP))
}

fn configure(socket: &Socket, spec: &sc::Tcp) -> Result<(), (&'static str, io::Error)> {
    let fd = socket.as_raw_fd();
    socket.set_tcp_congestion(name(spec.config.congestion).as_bytes()).map_err(|e| ("congestion", e))?;
    // Do not subtract the bytes of the timestamps option, because TCP_MAXSEG includes them.
    let mss = (spec.config.packet.get() as u32).saturating_sub(HEADERS[0]);
    kernel::tcp_option(fd, libc::TCP_MAXSEG, mss).map_err(|e| ("packet", e))?;
    let linux = (Span::millis(200), Span::secs(120));
    // Set these options only if they differ from the default, because older kernels lack them.
    if spec.config.min_rto != linux.0 {
        let us = (spec.config.min_rto.as_nanos() / 1_000) as u32;
        kernel::tcp_option(fd, TCP_RTO_MIN_US, us).map_err(|e| ("min_rto", e))?;
    }
    if spec.config.max_rto != linux.1 {
        let ms = (spec.config.max_rto.as_nanos() / 1_000_000) as u32;
        kernel::tcp_option(fd, TCP_RTO_MAX_MS, ms).map_err(|e| ("max_rto", e))?;
    }
    if spec.config.window < LINUX_WINDOW {
        let clamp = spec.config.window.saturating_mul(payload(spec));
        kernel::tcp_option(fd, libc::TCP_WINDOW_CLAMP, clamp).map_err(|e| ("window", e))?;
    }
    if !spec.config.delayed_ack {
        // Ignore an error. If an older kernel lacks this option, the read loop sets TCP_QUICKACK for each segment
        // instead.
        let _ = kernel::tcp_option(fd, TCP_DELACK_MAX_US, 1);
    }
    Ok(())
}

/// Size of `struct tcp_info` in Linux 6.7, in bytes. That version is the first to have `tcpi_total_rto`.
const TCP_INFO_LEN: usize = 248;

fn observe(session: &mut Session, socket: &Socket, now: Time) {
    let mut info = [0u8; TCP_INFO_LEN];
    let Ok(len) = kernel::tcp_info(socket.as_raw_fd(), &mut info) else { return };
    let word = |at: usize| -> u32 {
        if at + 4 > len { 0 } else { u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]) }
    };
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    let (retransmitted, sent, rtt, ssthresh) = (word(100), word(156), word(68), word(76));
    // Swap the halves on big-endian machines, because `long` takes the first word as the low half.
    let bytes = if cfg!(target_endian = "little") { long(200) } else { long(200).rotate_left(32) };
    let header = u64::from(HEADERS[usize::from(session.spec.config.timestamps)]);
    session.figures.observe(
        now,
        Observed {
            sent: u64::from(sent),
            bytes: Bytes::new(bytes + header * u64::from(sent)),
            retransmitted: u64::from(retransmitted),
            timeouts: u64::from(word(240) & 0xffff),
            cwnd: f64::from(word(80)),
            // The kernel uses 0x7fffffff for an infinite threshold.
            ssthresh: if ssthresh >= 0x7fff_ffff { f64::INFINITY } else { f64::from(ssthresh) },
            srtt: (rtt > 0).then(|| Span::micros(u64::from(rtt))),
            // Data waits if there are unacknowledged segments (first word) or unsent bytes (second word).
            waits: word(24) > 0 || word(144) > 0,
        },
    );
}
