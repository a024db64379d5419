//! Unnamed network namespaces. The kernel removes a namespace with its last descriptor, however the program ends.

use crate::kernel;
use crate::world::{EmulateError, during};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;

/// A host's network namespace.
#[derive(Debug)]
pub struct Namespace {
    fd: File,
}

impl Namespace {
    /// Returns the calling thread's namespace.
    fn own() -> io::Result<Self> {
        Ok(Self { fd: File::open("/proc/thread-self/ns/net")? })
    }

    /// Returns a path for `nsenter --net=`. The path is valid while this process keeps the namespace open.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd()))
    }

    /// Moves the calling thread into the namespace. Sockets that the thread opens afterwards belong to this host
    /// permanently.
    ///
    /// # Errors
    /// Returns an error if a privilege is missing.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}

/// Runs `work` in a separate thread, so that it can change its namespace and the caller keeps its own.
pub(crate) fn in_separate_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("sc-setup".into()).spawn_scoped(scope, work)?;
        thread.join().map_err(|_| io::Error::other("the thread that enters namespaces has ended"))
    })
}

/// Creates a host. Returns its namespace and the relay's end of its TUN device. The calling thread is in the host's
/// namespace afterwards.
pub(crate) fn host(addr: Ipv4Addr, mtu: u16) -> Result<(Namespace, OwnedFd), EmulateError> {
    kernel::new_network().map_err(during("network namespaces"))?;
    // Ignore errors here. The host also works without these settings, but sends IPv6 datagrams and keeps TCP metrics
    // from one run to the next.
    set("ipv6/conf/all/disable_ipv6", "1");
    set("ipv4/tcp_no_metrics_save", "1");
    let tun = kernel::open_tun(addr, mtu).map_err(during("/dev/net/tun"))?;
    Ok((Namespace::own().map_err(during("the hosts"))?, tun))
}

/// Sets a value under /proc/sys/net in the caller's namespace. Returns whether it succeeded.
pub(crate) fn set(key: &str, value: &str) -> bool {
    std::fs::write(format!("/proc/sys/net/{key}"), value).is_ok()
}
