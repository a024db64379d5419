//! System calls. This is the only module of the crate that has `unsafe` code.
#![allow(unsafe_code, reason = "ioctl, prctl and sched_setscheduler have no safe face; each call says why it is sound")]

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Name of the network device in each host's namespace.
const DEVICE: &[u8] = b"net0";

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn request(name: &[u8]) -> libc::ifreq {
    // SAFETY: `ifreq` is plain data, for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    request
}

fn ifreq(socket: RawFd, what: libc::Ioctl, request: &libc::ifreq) -> io::Result<()> {
    // SAFETY: the kernel reads, and for some requests writes, one `ifreq`, which lives until the call returns.
    check(unsafe { libc::ioctl(socket, what, std::ptr::from_ref(request)) })
}

fn address(addr: Ipv4Addr) -> libc::sockaddr {
    let inner = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from(addr).to_be() },
        sin_zero: [0; 8],
    };
    // SAFETY: both types are 16 bytes of plain data, and the kernel reads a `sockaddr` of this family as a
    // `sockaddr_in`.
    unsafe { std::mem::transmute(inner) }
}

/// Opens a TUN device in the caller's network namespace. The device gets the address `addr`, and becomes the default
/// route.
pub(crate) fn open_tun(addr: Ipv4Addr, mtu: u16) -> io::Result<OwnedFd> {
    let path = c"/dev/net/tun";
    // SAFETY: the path is a valid C string. The result is checked below.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK) };
    check(fd)?;
    // SAFETY: the descriptor is new, and has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut tun = request(DEVICE);
    tun.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    ifreq(fd.as_raw_fd(), libc::TUNSETIFF as libc::Ioctl, &tun)?;

    // Open a socket, because devices are configured through one. Any socket will do.
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let socket = socket.as_raw_fd();
    let mut lo = request(b"lo");
    lo.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    ifreq(socket, libc::SIOCSIFFLAGS as libc::Ioctl, &lo)?;

    let mut own = request(DEVICE);
    own.ifr_ifru.ifru_addr = address(addr);
    ifreq(socket, libc::SIOCSIFADDR as libc::Ioctl, &own)?;
    own.ifr_ifru.ifru_netmask = address(Ipv4Addr::new(255, 0, 0, 0));
    ifreq(socket, libc::SIOCSIFNETMASK as libc::Ioctl, &own)?;
    own.ifr_ifru.ifru_mtu = i32::from(mtu);
    ifreq(socket, libc::SIOCSIFMTU as libc::Ioctl, &own)?;
    own.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING | libc::IFF_MULTICAST) as libc::c_short;
    ifreq(socket, libc::SIOCSIFFLAGS as libc::Ioctl, &own)?;

    // SAFETY: `rtentry` is plain data, for which all zeros is a valid value.
    let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
    let mut name = [0 as libc::c_char; 16];
    for (to, from) in name.iter_mut().zip(DEVICE) {
        *to = *from as libc::c_char;
    }
    route.rt_dst = address(Ipv4Addr::UNSPECIFIED);
    route.rt_genmask = address(Ipv4Addr::UNSPECIFIED);
    route.rt_flags = libc::RTF_UP;
    route.rt_dev = name.as_mut_ptr();
    // SAFETY: the kernel reads one `rtentry` and the name that it points to. Both live until the call returns.
    check(unsafe { libc::ioctl(socket, libc::SIOCADDRT as libc::Ioctl, std::ptr::from_ref(&route)) })?;
    Ok(fd)
}

/// Moves the calling thread into a new, empty network namespace.
pub(crate) fn new_network() -> io::Result<()> {
    // SAFETY: the call only takes a number. It leaves open descriptors as they are.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) })
}

/// Gives the calling thread its own mount namespace, so that other processes do not see its later mounts.
pub(crate) fn new_mounts() -> io::Result<()> {
    // SAFETY: the call only takes a number. The thread gets its own copy of the working directory.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) })
}

/// Reads TCP_INFO of a socket into `info`. Returns the number of bytes that the kernel has written.
pub(crate) fn tcp_info(socket: RawFd, info: &mut [u8]) -> io::Result<usize> {
    let mut len = info.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into the buffer, which has that length. It writes the new length
    // into `len`.
    check(unsafe {
        libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut len)
    })?;
    Ok(len as usize)
}

pub(crate) fn tcp_option(socket: RawFd, option: libc::c_int, value: u32) -> io::Result<()> {
    // SAFETY: the kernel reads four bytes, which live until the call returns.
    check(unsafe { libc::setsockopt(socket, libc::IPPROTO_TCP, option, (&raw const value).cast(), 4) })
}

/// Discards up to `most` received bytes. Returns the number of discarded bytes, or zero at the end of the stream.
pub(crate) fn discard(socket: RawFd, most: usize) -> io::Result<usize> {
    // SAFETY: with MSG_TRUNC, TCP writes nothing into the buffer, so a null pointer is allowed (tcp(7)).
    let got = unsafe { libc::recv(socket, std::ptr::null_mut(), most, libc::MSG_TRUNC | libc::MSG_DONTWAIT) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Sets the timer slack to its minimum. The default slack delays wake-ups by up to 50 µs.
pub(crate) fn precise_waits() {
    // SAFETY: the call takes only numbers. It can't fail for the calling thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

pub(crate) fn pause_ms(ms: i32) {
    // SAFETY: a null pointer is allowed, because the number of descriptors is zero.
    unsafe { libc::poll(std::ptr::null_mut(), 0, ms) };
}

/// Sets real-time priority for the calling thread. `first` is set for the relay's thread, which takes precedence over
/// the threads that pace packets. Returns whether the system permitted it.
pub(crate) fn set_realtime_priority(first: bool) -> bool {
    let param = libc::sched_param { sched_priority: 1 + libc::c_int::from(first) };
    // SAFETY: thread 0 is the calling thread. The kernel reads one `sched_param`.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &param) == 0 }
}

pub(crate) fn set_normal_priority() {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: thread 0 is the calling thread. The kernel reads one `sched_param`.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &param) };
}

/// Makes the kernel kill the child when the thread that starts the child ends for any reason.
pub(crate) fn kill_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let before_exec = move || {
        // SAFETY: the calls take only numbers, and are safe between fork and exec.
        unsafe {
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong))?;
            // Fail if the parent has already ended. `prctl` has no effect for a parent that ended before the call.
            if libc::getppid() as u32 != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
        }
        Ok(())
    };
    // SAFETY: the closure makes two system calls, and neither allocates nor locks.
    unsafe { command.pre_exec(before_exec) };
}
