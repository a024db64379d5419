//! Network namespaces without a name: they are gone with the last descriptor that holds them, however we end.

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
    /// The namespace of the calling thread.
    fn own() -> io::Result<Self> {
        Ok(Self { fd: File::open("/proc/thread-self/ns/net")? })
    }

    /// Where other processes find it, as long as this one holds it: for `nsenter --net=`.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd()))
    }

    /// Takes the calling thread into it. Sockets that the thread opens then are the host's, and stay so.
    ///
    /// # Errors
    /// The kernel's: a right is missing.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}

/// Runs `work` on a thread of its own, so that it may go from one namespace to another and the caller stays where it
/// is.
pub(crate) fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("sc-setup".into()).spawn_scoped(scope, work)?;
        thread.join().map_err(|_| io::Error::other("the thread that enters namespaces has ended"))
    })
}

/// A new host: its namespace, and its device's other end. The calling thread is in the namespace afterwards.
pub(crate) fn host(addr: Ipv4Addr, mtu: u16) -> Result<(Namespace, OwnedFd), EmulateError> {
    kernel::new_network().map_err(during("network namespaces"))?;
    // Where these can't be written the host still works: it says a little more than it is asked, and remembers.
    set("ipv6/conf/all/disable_ipv6", "1");
    set("ipv4/tcp_no_metrics_save", "1");
    let tun = kernel::open_tun(addr, mtu).map_err(during("/dev/net/tun"))?;
    Ok((Namespace::own().map_err(during("the hosts"))?, tun))
}

/// Sets a value of the calling thread's own namespace under /proc/sys/net; returns whether it could.
pub(crate) fn set(key: &str, value: &str) -> bool {
    std::fs::write(format!("/proc/sys/net/{key}"), value).is_ok()
}
