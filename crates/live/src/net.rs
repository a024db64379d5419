//! Sockets for RTP and RTCP. They support unicast, any-source multicast and source-specific multicast over IPv4 and
//! IPv6.

use crate::{Clock, LiveError, SharedPort, entropy};
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::net::netdevice::name_to_index;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::str::FromStr;
use steadycast_rtcp::Origin;
use steadycast_units::{Ecn, Time};

/// A network interface. The user gives its name or its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interface {
    /// A name, as `ip link` shows it.
    Name(String),
    /// An address of this machine.
    Address(IpAddr),
}

impl FromStr for Interface {
    type Err = std::convert::Infallible;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.parse().map_or_else(|_| Self::Name(text.to_owned()), Self::Address))
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "--interface {name}"),
            Self::Address(address) => write!(f, "--interface {address}"),
        }
    }
}

/// One of the ports of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The port for media.
    Rtp,
    /// The port for reports. It is the port for media if RTP and RTCP are multiplexed (RFC 5761).
    Rtcp,
    /// The port for audio. It is the port for media if the streams are bundled (RFC 9143).
    Audio,
    /// The port for reports on audio.
    AudioRtcp,
}

/// Options of the sockets of a sender or receiver.
#[derive(Clone, Debug, Default)]
pub struct PairOptions {
    /// Interface through which to send and join groups. If `None`, the routing table decides.
    pub interface: Option<Interface>,
    /// Time to live, or hop limit. If `None`, the system's default is used, which is 1 for multicast.
    pub ttl: Option<u8>,
    /// Source of a source-specific join (RFC 4607). It is required in 232/8 and ff3x::/32.
    pub source: Option<IpAddr>,
    /// Whether RTP and RTCP share a port (RFC 5761).
    pub mux: bool,
    /// Local RTP port of a sender. If `None`, any free pair of ports is taken.
    pub local: Option<u16>,
    /// RTCP port, if it is not the port after the RTP port (RFC 3605).
    pub reports: Option<u16>,
}

/// A non-blocking UDP socket.
pub struct Port {
    socket: Socket,
    state: UdpSocketState,
    local: SocketAddr,
    connected: bool,
    /// Number of datagrams that the peer refused (ICMP port unreachable).
    refused: u64,
    /// Number of datagrams that this machine could not send.
    unsent: u64,
}

/// Metadata of a datagram that was received.
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    /// Address that the datagram came from.
    pub from: SocketAddr,
    /// Address that the datagram was sent to, if the system provides it.
    pub to: Option<IpAddr>,
    /// ECN field of the datagram on arrival.
    pub ecn: Ecn,
    /// When the kernel received the datagram.
    pub at: Time,
}

/// Returns a number that identifies the host that a sender's datagrams come from. It does not depend on the port,
/// because NAT may change the port. IPv6 addresses are hashed with a secret key, so that nobody can construct
/// collisions.
pub fn origin(address: IpAddr) -> Origin {
    match address.to_canonical() {
        IpAddr::V4(v4) => Origin(u64::from(u32::from(v4))),
        IpAddr::V6(v6) => Origin(entropy::number(v6.octets())),
    }
}

/// Returns whether a source must be given to join this group (RFC 4607, sections 1 and 3).
pub fn source_specific(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(v4) => v4.octets()[0] == 232,
        IpAddr::V6(v6) => v6.segments()[0] & 0xfff0 == 0xff30 && v6.segments()[1] == 0,
    }
}

fn any(of: IpAddr) -> IpAddr {
    match of {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Receive buffers that all sockets of an event loop share.
pub(crate) struct Buffers {
    bytes: Vec<u8>,
    metas: [RecvMeta; BATCH],
}

const BATCH: usize = 8;
/// Size of a buffer in bytes. UDP GRO puts up to 64 datagrams into one buffer.
const MAX_GRO_DATAGRAM: usize = 65_536;

impl Buffers {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; BATCH * MAX_GRO_DATAGRAM], metas: [RecvMeta::default(); BATCH] }
    }
}

impl Port {
    pub(crate) fn open(bind: SocketAddr, options: &PairOptions, shared: bool) -> Result<Self, LiveError> {
        let make = || -> io::Result<(Socket, UdpSocketState, SocketAddr)> {
            let socket = Socket::new(Domain::for_address(bind), Type::DGRAM, Some(Protocol::UDP))?;
            if bind.is_ipv6() {
                // Restrict the socket to IPv6, because it would otherwise occupy the IPv4 port as well.
                socket.set_only_v6(true)?;
            }
            // Share the port with other programs only if it is the port of a group.
            socket.set_reuse_address(shared)?;
            if let Some(Interface::Name(name)) = &options.interface {
                socket.bind_device(Some(name.as_bytes()))?;
            }
            socket.bind(&bind.into())?;
            let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
            // Allow fragmentation, because RTP header extensions can make a datagram larger than the MTU.
            discover_no_mtu(&socket, bind.is_ipv6())?;
            // Make room for datagrams that arrive while this thread sleeps. The kernel limits the size.
            socket.set_recv_buffer_size(1 << 21)?;
            let local = socket.local_addr()?.as_socket().ok_or_else(|| io::Error::other("no address"))?;
            Ok((socket, state, local))
        };
        let (socket, state, local) = make().map_err(|e| {
            let remedy = match e.kind() {
                io::ErrorKind::AddrInUse => "another program uses this port: stop it, or take another port",
                io::ErrorKind::AddrNotAvailable => "this machine does not have this address: see `ip address`",
                io::ErrorKind::PermissionDenied => "ports below 1024 and binding to an interface may need more rights",
                _ if e.raw_os_error() == Some(libc::ENODEV) => "there is no such interface: see `ip link`",
                _ if link_local(bind) => {
                    "it is of one link alone: name the --interface, or write [ADDRESS%INTERFACE]:PORT"
                }
                _ => "choose another address, port or interface",
            };
            // Report the interface if the error concerns it. The user has given the interface, not the address that the
            // socket is bound to.
            let named = match &options.interface {
                Some(Interface::Name(_)) => e.raw_os_error() == Some(libc::ENODEV),
                Some(Interface::Address(own)) => *own == bind.ip() && e.kind() == io::ErrorKind::AddrNotAvailable,
                None => false,
            };
            match options.interface.as_ref().filter(|_| named) {
                Some(interface) => LiveError::new(interface, e, remedy),
                None => LiveError::new(bind, e, remedy),
            }
        })?;
        let port = Self { socket, state, local, connected: false, refused: 0, unsent: 0 };
        port.configure(bind, options)?;
        Ok(port)
    }

    pub(crate) fn duplicate(&self) -> io::Result<Self> {
        let socket = self.socket.try_clone()?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        Ok(Self { socket, state, local: self.local, connected: self.connected, refused: 0, unsent: 0 })
    }

    /// Sets the size of the send buffer in bytes. The kernel limits it.
    pub(crate) fn set_send_buffer_size(&self, size: usize) -> io::Result<()> {
        self.socket.set_send_buffer_size(size)
    }

    fn configure(&self, bind: SocketAddr, options: &PairOptions) -> Result<(), LiveError> {
        if let Some(ttl) = options.ttl {
            let set = self.set_ttl(ttl.into());
            set.map_err(|e| LiveError::new(format!("--ttl {ttl}"), e, "take 1 to 255"))?;
        }
        if let Some(interface) = &options.interface {
            let remedy = "no interface of this machine has it: see `ip address`";
            self.set_interface(interface).map_err(|e| LiveError::new(interface, e, remedy))?;
        }
        // Receive only the groups that this socket has joined. By default, Linux also delivers groups that other
        // processes have joined.
        let alone = if self.local.is_ipv6() {
            self.socket.set_multicast_all_v6(false)
        } else {
            self.socket.set_multicast_all_v4(false)
        };
        alone.map_err(|e| LiveError::new(bind, e, "choose another address, port or interface"))
    }

    fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        if self.local.is_ipv6() {
            self.socket.set_unicast_hops_v6(ttl)?;
            self.socket.set_multicast_hops_v6(ttl)
        } else {
            self.socket.set_ttl_v4(ttl)?;
            self.socket.set_multicast_ttl_v4(ttl)
        }
    }

    fn set_interface(&self, interface: &Interface) -> io::Result<()> {
        match interface {
            Interface::Address(IpAddr::V4(v4)) if self.local.is_ipv4() => self.socket.set_multicast_if_v4(v4),
            Interface::Name(name) if self.local.is_ipv6() => {
                self.socket.set_multicast_if_v6(index(&self.socket, name)?)
            }
            _ => Ok(()),
        }
    }

    fn join(&self, group: IpAddr, options: &PairOptions) -> Result<(), LiveError> {
        let joined = match options.source {
            Some(source) => self.join_source(group, source, options),
            None if source_specific(group) => {
                let remedy = "name the sender's address with --source";
                return Err(LiveError::new(group, "this is a source-specific group", remedy));
            }
            None => self.join_any(group, options),
        };
        joined.map_err(|e| {
            let remedy = match e.raw_os_error() {
                // Linux chooses the interface by the route to the group, and there is no such route.
                Some(libc::ENODEV) => "no route leads to this group: name an interface with --interface",
                Some(libc::EINVAL) => "group and source must be of one kind, IPv4 or IPv6",
                _ => "name another --interface",
            };
            LiveError::new(group, e, remedy)
        })
    }

    fn join_any(&self, group: IpAddr, options: &PairOptions) -> io::Result<()> {
        match (group, &options.interface) {
            (IpAddr::V4(group), Some(Interface::Address(IpAddr::V4(own)))) => {
                self.socket.join_multicast_v4(&group, own)
            }
            (IpAddr::V4(group), Some(Interface::Name(name))) => {
                let by = socket2::InterfaceIndexOrAddress::Index(index(&self.socket, name)?);
                self.socket.join_multicast_v4_n(&group, &by)
            }
            (IpAddr::V4(group), _) => self.socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED),
            (IpAddr::V6(group), Some(Interface::Name(name))) => {
                self.socket.join_multicast_v6(&group, index(&self.socket, name)?)
            }
            (IpAddr::V6(group), _) => self.socket.join_multicast_v6(&group, 0),
        }
    }

    fn join_source(&self, group: IpAddr, source: IpAddr, options: &PairOptions) -> io::Result<()> {
        match (group, source, &options.interface) {
            (IpAddr::V4(group), IpAddr::V4(source), Some(Interface::Address(IpAddr::V4(own)))) => {
                self.socket.join_ssm_v4(&source, &group, own)
            }
            (_, _, Some(Interface::Name(name))) => {
                join_source_group(&self.socket, group, source, index(&self.socket, name)?)
            }
            _ => join_source_group(&self.socket, group, source, 0),
        }
    }

    /// Returns the local address.
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns how many datagrams the peer refused, and how many datagrams this machine could not send.
    pub const fn failures(&self) -> (u64, u64) {
        (self.refused, self.unsent)
    }

    /// Sends a datagram. Returns false if it could not be sent, which counts as a loss.
    pub(crate) fn send(&mut self, bytes: &[u8], to: SocketAddr, ecn: Ecn) -> bool {
        // Try twice, because the pending ICMP error of an earlier datagram makes the next send fail once.
        for _ in 0..2 {
            let sent = if ecn.is_capable() {
                self.send_from(None, bytes, to, ecn)
            } else if self.connected {
                self.socket.send(bytes).map(|_| ())
            } else {
                self.socket.send_to(bytes, &SockAddr::from(to)).map(|_| ())
            };
            match sent {
                Ok(()) => return true,
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => self.refused += 1,
                Err(_) => break,
            }
        }
        self.unsent += 1;
        false
    }

    /// Sends from the address `source` with control messages (`IP_PKTINFO` and `IP_TOS`, or `IPV6_PKTINFO` and
    /// `IPV6_TCLASS`). If `source` is `None`, the routing table chooses the address.
    pub(crate) fn send_from(&self, source: Option<IpAddr>, bytes: &[u8], to: SocketAddr, ecn: Ecn) -> io::Result<()> {
        let ecn = EcnCodepoint::from_bits(ecn.bits());
        let transmit = Transmit { destination: to, ecn, contents: bytes, segment_size: None, src_ip: source };
        self.state.try_send(UdpSockRef::from(&self.socket), &transmit)
    }

    /// Receives a batch of datagrams. Returns whether there may be more.
    pub(crate) fn receive(&mut self, clock: &Clock, buffers: &mut Buffers, mut each: impl FnMut(&[u8], &Meta)) -> bool {
        let Buffers { bytes, metas } = buffers;
        let mut slices = {
            let mut chunks = bytes.chunks_exact_mut(MAX_GRO_DATAGRAM);
            std::array::from_fn::<_, BATCH, _>(|_| IoSliceMut::new(chunks.next().unwrap_or_default()))
        };
        let count = match self.state.recv(UdpSockRef::from(&self.socket), &mut slices, metas) {
            Ok(count) => count,
            Err(error) => {
                // The error was caused by an earlier send.
                self.refused += u64::from(error.kind() == io::ErrorKind::ConnectionRefused);
                return false;
            }
        };
        for (slice, meta) in slices.iter().zip(metas.iter()).take(count) {
            // Prefer the kernel's time, because it does not include the wait for this thread.
            let at = meta.timestamp.and_then(|stamp| clock.of_wall(stamp)).unwrap_or_else(|| clock.now());
            let about = Meta {
                from: meta.addr,
                to: meta.dst_ip,
                ecn: meta.ecn.map_or(Ecn::NotEct, |ecn| Ecn::from_bits(ecn as u8)),
                at,
            };
            // With GRO, a buffer contains several datagrams, and each has `stride` bytes.
            for datagram in slice[..meta.len].chunks(meta.stride.max(1)) {
                each(datagram, &about);
            }
        }
        count == BATCH
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn index(socket: &Socket, name: &str) -> io::Result<u32> {
    Ok(name_to_index(socket, name)?)
}

/// A port of a session. It is a socket of its own or a part of a shared socket.
pub enum PairPort {
    /// A socket that belongs to this session only.
    Own(Port),
    /// A part of a [`MediaPort`](crate::MediaPort).
    Shared(SharedPort),
}

impl PairPort {
    /// Returns the local address.
    pub const fn local(&self) -> SocketAddr {
        match self {
            Self::Own(port) => port.local(),
            Self::Shared(port) => port.local(),
        }
    }

    /// Returns how many datagrams the peer refused, and how many datagrams this machine could not send.
    pub const fn failures(&self) -> (u64, u64) {
        match self {
            Self::Own(port) => port.failures(),
            // There are no refusals, because only a connected socket gets them.
            Self::Shared(port) => (0, port.unsent()),
        }
    }

    /// Sends a datagram like [`Port::send`].
    pub(crate) fn send(&mut self, bytes: &[u8], to: SocketAddr, ecn: Ecn) -> bool {
        match self {
            Self::Own(port) => port.send(bytes, to, ecn),
            Self::Shared(port) => port.send(bytes, to, ecn),
        }
    }

    /// Receives datagrams like [`Port::receive`].
    pub(crate) fn receive(&mut self, clock: &Clock, buffers: &mut Buffers, each: impl FnMut(&[u8], &Meta)) -> bool {
        match self {
            Self::Own(port) => port.receive(clock, buffers, each),
            Self::Shared(port) => port.receive(clock, each),
        }
    }
}

impl AsFd for PairPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(port) => port.as_fd(),
            Self::Shared(port) => port.as_fd(),
        }
    }
}

/// The sockets of a session's sender or receiver.
pub struct Pair {
    rtp: PairPort,
    /// The RTCP port. `None` if RTCP shares the port of RTP.
    rtcp: Option<PairPort>,
    /// The destination of a sender, or the address at which a receiver's media arrives.
    pub(crate) address: SocketAddr,
    /// Address for the reports of a sender, or for the reports of a receiver in a group.
    reports: SocketAddr,
    /// The sockets for audio. `None` if audio shares the sockets of video.
    audio: Option<Box<Self>>,
}

/// Returns the RTP address for audio. Its port is the second one after the RTP port of `video`.
pub(crate) fn audio_address(video: SocketAddr) -> Result<SocketAddr, LiveError> {
    let mut next = video;
    let none = || LiveError::new(video, "audio needs the two ports after these", "take a port from 1 to 65532");
    next.set_port(video.port().checked_add(2).ok_or_else(none)?);
    Ok(next)
}

impl Pair {
    /// Adds sockets for audio.
    #[must_use]
    pub fn with_audio(self, audio: Self) -> Self {
        Self { audio: Some(Box::new(audio)), ..self }
    }

    /// Opens the sockets of a sender that sends RTP to the address `to` and RTCP to the next port.
    ///
    /// # Errors
    /// An address can't be used. The error contains the remedy.
    pub fn sender(to: SocketAddr, options: &PairOptions) -> Result<Self, LiveError> {
        let reports = rtcp_port(to, options)?;
        // Refuse this address, because Linux sends datagrams for 0.0.0.0 to the local host.
        if to.ip().is_unspecified() {
            return Err(LiveError::new(
                to,
                "this address has no receiver",
                "write the receiver's address, or a group's",
            ));
        }
        let own = match &options.interface {
            Some(Interface::Address(ip)) if ip.is_ipv4() == to.is_ipv4() => *ip,
            Some(Interface::Address(ip)) => {
                let problem = format!("it does not go with {}", to.ip());
                let remedy = "name an address of the same kind, IPv4 or IPv6, or an interface";
                return Err(LiveError::new(ip, problem, remedy));
            }
            _ => any(to.ip()),
        };
        let multicast = to.ip().is_multicast();
        // Join an any-source group, because its receivers send their reports to the group.
        let group_port = multicast && !source_specific(to.ip()) && options.source.is_none();
        let (mut rtp, rtcp) = if options.mux {
            let port = if group_port {
                Port::group(to, options)?
            } else {
                Port::open(local(own, options, 0), options, false)?
            };
            (port, None)
        } else if group_port {
            (Port::open(local(own, options, 0), options, false)?, Some(Port::group(reports, options)?))
        } else {
            let (rtp, rtcp) = neighbours(own, options)?;
            (rtp, Some(rtcp))
        };
        if !options.mux {
            // Connect the socket, because only a connected socket gets ICMP errors. Connecting also checks the route.
            let connected = rtp.socket.connect(&to.into());
            connected.map_err(|e| {
                // Find out whether the address is a broadcast address. Linux refuses such an address unless this option
                // is set.
                let broadcast = || {
                    let connected = rtp.socket.set_broadcast(true).and_then(|()| rtp.socket.connect(&to.into()));
                    connected.is_ok()
                };
                LiveError::new(to, &e, unreached(to, &e, options, broadcast))
            })?;
            rtp.connected = true;
            rtp.local = rtp.socket.local_addr().ok().and_then(|a| a.as_socket()).unwrap_or(rtp.local);
        }
        Ok(Self { rtp: PairPort::Own(rtp), rtcp: rtcp.map(PairPort::Own), address: to, reports, audio: None })
    }

    /// Creates the sockets of an endpoint whose peer is still unknown. [`Pair::redirect`] sets the peer's address.
    fn waiting(rtp: PairPort) -> Self {
        let at = rtp.local();
        Self { rtp, rtcp: None, address: at, reports: at, audio: None }
    }

    pub(crate) fn of_port(port: Port) -> Self {
        Self::waiting(PairPort::Own(port))
    }

    /// Opens one port at all addresses of the same family as `family`. ICE finds the peer.
    pub(crate) fn to_server(family: IpAddr, options: &PairOptions) -> Result<Self, LiveError> {
        Ok(Self::of_port(Port::open(local(any(family), options, 0), options, false)?))
    }

    pub(crate) fn shared(port: SharedPort) -> Self {
        Self::waiting(PairPort::Shared(port))
    }

    pub(crate) const fn redirect(&mut self, to: SocketAddr) {
        (self.address, self.reports) = (to, to);
    }

    /// Opens the sockets of a receiver. `at` is an address of this machine, the unspecified address, or a group. A
    /// group is joined.
    ///
    /// # Errors
    /// See [`Pair::sender`].
    pub fn receiver(at: SocketAddr, options: &PairOptions) -> Result<Self, LiveError> {
        let reports = rtcp_port(at, options)?;
        let open = |at: SocketAddr| {
            if at.ip().is_multicast() { Port::group(at, options) } else { Port::open(at, options, false) }
        };
        let rtp = open(at)?;
        let rtcp = if options.mux { None } else { Some(open(reports)?) };
        Ok(Self { rtp: PairPort::Own(rtp), rtcp: rtcp.map(PairPort::Own), address: at, reports, audio: None })
    }

    /// Returns the socket for media.
    pub const fn rtp(&self) -> &PairPort {
        &self.rtp
    }

    /// Returns the socket for reports. It may be the same as the socket for media.
    pub fn rtcp(&self) -> &PairPort {
        self.rtcp.as_ref().unwrap_or(&self.rtp)
    }

    /// Returns where a sender sends its datagrams, or where a receiver sends its reports to a multicast group.
    pub(crate) fn peer(&self, which: Which) -> SocketAddr {
        match (which, &self.audio) {
            (Which::Audio, Some(audio)) => audio.address,
            (Which::AudioRtcp, Some(audio)) => audio.reports,
            (Which::Rtp | Which::Audio, _) => self.address,
            (Which::Rtcp | Which::AudioRtcp, _) => self.reports,
        }
    }

    pub(crate) fn port_mut(&mut self, which: Which) -> &mut PairPort {
        match (which, &mut self.audio) {
            (Which::Audio, Some(audio)) => audio.port_mut(Which::Rtp),
            (Which::AudioRtcp, Some(audio)) => audio.port_mut(Which::Rtcp),
            _ => match (which, &mut self.rtcp) {
                (Which::Rtcp | Which::AudioRtcp, Some(port)) => port,
                _ => &mut self.rtp,
            },
        }
    }

    /// Returns all sockets, each of them once.
    pub(crate) fn ports(&self) -> impl Iterator<Item = (Which, &PairPort)> {
        let audio = self.audio.as_ref();
        let rtp = std::iter::once((Which::Rtp, &self.rtp)).chain(self.rtcp.iter().map(|p| (Which::Rtcp, p)));
        let media = audio.map(|audio| (Which::Audio, &audio.rtp));
        let reports = audio.and_then(|audio| audio.rtcp.as_ref()).map(|port| (Which::AudioRtcp, port));
        rtp.chain(media).chain(reports)
    }
}

impl Port {
    /// Opens a port that may be shared with other programs, and joins the group at `at`. The port gets only datagrams
    /// for the group.
    fn group(at: SocketAddr, options: &PairOptions) -> Result<Self, LiveError> {
        let port = Self::open(at, options, true)?;
        port.join(at.ip(), options)?;
        Ok(port)
    }
}

/// Returns whether the address is link-local and has no zone (RFC 4007).
fn link_local(address: SocketAddr) -> bool {
    let SocketAddr::V6(v6) = address else { return false };
    let first = v6.ip().segments()[0];
    v6.scope_id() == 0 && (first & 0xffc0 == 0xfe80 || first & 0xff0f == 0xff02)
}

/// Returns the remedy for a connection that failed. If permission was refused, `broadcast` finds out whether the
/// address is a broadcast address.
fn unreached(
    to: SocketAddr,
    error: &io::Error,
    options: &PairOptions,
    broadcast: impl FnOnce() -> bool,
) -> &'static str {
    let zoned = matches!(to, SocketAddr::V6(v6) if v6.scope_id() != 0);
    match &options.interface {
        _ if error.kind() == io::ErrorKind::PermissionDenied => {
            if broadcast() {
                "write a receiver's address or a group's, no broadcast's"
            } else {
                "a route or a firewall of this machine prohibits it: see `ip route get` with this address"
            }
        }
        interface if zoned || interface.is_some() => {
            "no route leads there by this interface: see `ip route` and `ip -6 route`"
        }
        _ if link_local(to) => "it is of one link alone: name the --interface, or write [ADDRESS%INTERFACE]:PORT",
        _ => "no route leads there: name an --interface",
    }
}

fn local(own: IpAddr, options: &PairOptions, plus: u16) -> SocketAddr {
    SocketAddr::new(own, options.local.map_or(0, |p| p.saturating_add(plus)))
}

fn rtcp_port(rtp: SocketAddr, options: &PairOptions) -> Result<SocketAddr, LiveError> {
    let port = if options.mux { Some(rtp.port()) } else { options.reports.or(rtp.port().checked_add(1)) };
    match port.filter(|_| rtp.port() > 0) {
        Some(port) => {
            // Change a copy of the address, which keeps the zone of an IPv6 address.
            let mut next = rtp;
            next.set_port(port);
            Ok(next)
        }
        None => Err(LiveError::new(rtp, "RTCP needs the port after this one", "take a port from 1 to 65534")),
    }
}

/// Opens an even port and the port after it (RFC 3550, section 11).
fn neighbours(own: IpAddr, options: &PairOptions) -> Result<(Port, Port), LiveError> {
    if options.local.is_some() {
        return Ok((
            Port::open(local(own, options, 0), options, false)?,
            Port::open(local(own, options, 1), options, false)?,
        ));
    }
    let mut tried = Vec::new();
    loop {
        let first = Port::open(SocketAddr::new(own, 0), options, false)?;
        let port = first.local.port();
        if port.is_multiple_of(2) {
            match Port::open(SocketAddr::new(own, port + 1), options, false) {
                Ok(second) => return Ok((first, second)),
                Err(error) if tried.len() > 64 => return Err(error),
                Err(_) => {}
            }
        }
        // Keep this socket open, so that the system assigns another port to the next socket.
        tried.push(first);
    }
}

#[allow(unsafe_code, reason = "no library sets this option: it lets the network cut what is larger than a path's MTU")]
fn discover_no_mtu(socket: &Socket, six: bool) -> io::Result<()> {
    let (level, option, value) = if six {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT)
    } else {
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT)
    };
    let size = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the value is an int of the given size, which lives until the call returns.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), size) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[allow(unsafe_code, reason = "no library joins IPv6 groups by source: RFC 3678's option is set by hand")]
fn join_source_group(socket: &Socket, group: IpAddr, source: IpAddr, interface: u32) -> io::Result<()> {
    if group.is_ipv4() != source.is_ipv4() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let level = if group.is_ipv4() { libc::IPPROTO_IP } else { libc::IPPROTO_IPV6 };
    let storage = |ip: IpAddr| SockAddr::from(SocketAddr::new(ip, 0)).as_storage();
    // SAFETY: all bits zero are a valid value of this plain structure.
    let mut request: libc::group_source_req = unsafe { std::mem::zeroed() };
    request.gsr_interface = interface;
    let (group, source) = (storage(group), storage(source));
    // SAFETY: socket2's storage is the system's `sockaddr_storage`.
    (request.gsr_group, request.gsr_source) =
        unsafe { (*(&raw const group).cast::<libc::sockaddr_storage>(), *(&raw const source).cast()) };
    let size = size_of::<libc::group_source_req>() as libc::socklen_t;
    // SAFETY: the value is a `group_source_req` of the given size, which lives until the call returns.
    let set = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, MCAST_JOIN_SOURCE_GROUP, (&raw const request).cast(), size)
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The value of RFC 3678's option in Linux (section 5.1).
const MCAST_JOIN_SOURCE_GROUP: libc::c_int = 46;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_here_is_named_as_the_user_has_written_it() {
        let (group, one): (SocketAddr, SocketAddr) =
            ("239.1.2.3:5004".parse().unwrap(), "127.0.0.1:5004".parse().unwrap());
        for (interface, remedy) in [("nope0", "`ip link`"), ("192.0.2.77", "`ip address`")] {
            let options = PairOptions { interface: interface.parse().ok(), ..PairOptions::default() };
            let of = |pair: Result<Pair, LiveError>| pair.err().map(|error| error.to_string()).unwrap_or_default();
            let all = [Pair::sender(group, &options), Pair::sender(one, &options), Pair::receiver(group, &options)];
            for said in all.map(of) {
                assert!(said.starts_with(&format!("--interface {interface}: ")), "{said}");
                assert!(said.contains(remedy) && !said.contains("--ttl"), "{said}");
            }
        }
    }

    #[test]
    fn an_unspecified_destination_is_an_error_with_a_remedy() {
        let options = PairOptions::default();
        for nobody in ["0.0.0.0:5004", "[::]:5004"] {
            let error = Pair::sender(nobody.parse().unwrap(), &options).err().map(|error| error.to_string());
            assert!(error.is_some_and(|said| said.contains("write the receiver's address")), "{nobody}");
        }
        let (denied, unreachable) = (io::ErrorKind::PermissionDenied, io::ErrorKind::NetworkUnreachable);
        for (to, kind, broadcast, remedy) in [
            ("10.0.0.255:5004", denied, true, "no broadcast's"),
            ("10.0.0.1:5004", denied, false, "prohibits it"),
            ("[fe80::1%7]:5004", unreachable, false, "by this interface"),
            ("[fe80::1]:5004", unreachable, false, "[ADDRESS%INTERFACE]"),
            ("10.0.0.1:5004", unreachable, false, "name an --interface"),
        ] {
            let said = unreached(to.parse().unwrap(), &kind.into(), &options, || broadcast);
            assert!(said.contains(remedy), "{to}: {said}");
        }
    }
}
