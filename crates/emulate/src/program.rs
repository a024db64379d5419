//! Programs on emulated hosts, and the clean-up of their processes.

use crate::kernel;
use crate::world::Host;
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

/// The environment variable whose value identifies the emulation's owner by process ID and start time.
const MARK: &str = "STEADYCAST_EMULATION";

/// A program on a host.
pub struct Program {
    /// The host's name.
    pub host: String,
    /// The program and its arguments.
    pub command: Vec<String>,
}

pub(crate) struct Started {
    thread: Option<JoinHandle<()>>,
    ended: Arc<Mutex<Option<io::Result<ExitStatus>>>>,
    /// The value of [`MARK`] in the environment of the program and its children.
    mark: String,
}

impl Started {
    /// Starts a program on `host`, where the names of `hosts` resolve.
    pub(crate) fn new(program: &Program, host: &Host, hosts: &[Host]) -> io::Result<Self> {
        let names: Vec<(String, String)> =
            hosts.iter().map(|h| (h.name.clone(), crate::host_address(h.node).to_string())).collect();
        let ended = Arc::new(Mutex::new(None));
        let (ready, started) = mpsc::channel();
        let (space, command, told) = (Arc::clone(&host.namespace), program.command.clone(), Arc::clone(&ended));
        let own = host.name.clone();
        let mark = new_mark();
        let marked = mark.clone();
        let spaces: Vec<(String, PathBuf)> = hosts.iter().map(|h| (h.name.clone(), h.namespace.path())).collect();
        // The kernel kills the child when the thread that started it ends, so the thread waits for the child.
        let work = move || {
            let spawned = space.enter().and_then(|()| {
                // Without names, the program can still use addresses.
                let _ = name_hosts(&names, &marked);
                let (name, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
                let mut command = Command::new(name);
                command.args(arguments).env(MARK, &marked).env("STEADYCAST_HOST", own);
                for (name, address) in &names {
                    command.env(variable("", name), address);
                }
                for (name, path) in &spaces {
                    command.env(variable("NET_", name), path);
                }
                kernel::kill_with_parent(&mut command);
                command.spawn()
            });
            let status = match spawned {
                Ok(mut child) => {
                    let _ = ready.send(Ok(()));
                    child.wait()
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                    return;
                }
            };
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
        };
        let thread = std::thread::Builder::new().name("sc-program".into()).spawn(work)?;
        started.recv().map_err(|_| io::Error::other("its thread has ended"))??;
        Ok(Self { thread: Some(thread), ended, mark })
    }

    pub(crate) fn ended(&self) -> bool {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Ends the program and its children. Returns its exit code, or 128 plus the signal's number.
    pub(crate) fn end(mut self) -> i32 {
        if !self.ended() {
            end_all(|owner| owner == self.mark, Signal::TERM);
            let patience = std::iter::repeat_n((), 20);
            for () in patience {
                if self.ended() {
                    break;
                }
                kernel::pause_ms(50);
            }
        }
        // SIGKILL ends processes that ignore SIGTERM, and those that the program left running.
        end_all(|owner| owner == self.mark, Signal::KILL);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        match &*ended {
            Some(Ok(status)) => {
                use std::os::unix::process::ExitStatusExt;
                status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
            }
            _ => 1,
        }
    }
}

/// Returns the name of a host's environment variable. With `NET_` as `what`, the variable has the path of the host's
/// namespace; with an empty `what`, the host's address.
fn variable(what: &str, name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("STEADYCAST_{what}{}", name.chars().map(letter).collect::<String>())
}

/// Makes the names resolve for the calling thread and its processes.
fn name_hosts(names: &[(String, String)], mark: &str) -> io::Result<()> {
    let mut text = String::from("127.0.0.1 localhost\n");
    for (name, address) in names {
        text.push_str(&format!("{address} {name}\n"));
    }
    let file: PathBuf = std::env::temp_dir().join(format!("steadycast-hosts-{mark}"));
    fs::write(&file, text)?;
    let mounted = kernel::new_mounts().and_then(|()| {
        // Without private propagation the whole machine would see the bind mount.
        mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
        mount_bind(&file, "/etc/hosts")?;
        Ok(())
    });
    // The bind mount still shows the removed file's contents.
    fs::remove_file(&file)?;
    mounted
}

/// Creates a mark for a program that this process emulates: the ID and start time of this process, and a counter. The
/// start time distinguishes this process from a later one with the same ID.
fn new_mark() -> String {
    static PROGRAMS: AtomicU64 = AtomicU64::new(0);
    let id = std::process::id();
    format!("{id}-{}-{}", began(id).unwrap_or(0), PROGRAMS.fetch_add(1, Ordering::Relaxed))
}

/// Returns whether the process named by this mark has ended.
fn orphaned(mark: &str) -> bool {
    let mut parts = mark.split('-').map(str::parse::<u64>);
    let (Some(Ok(id)), Some(Ok(at))) = (parts.next(), parts.next()) else { return false };
    u32::try_from(id).is_ok_and(|id| began(id) != Some(at))
}

/// Returns a process's start time in kernel ticks, if it exists.
fn began(id: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name in brackets may contain spaces and brackets.
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

/// Signals the processes whose mark matches. Returns their number.
fn end_all(of: impl Fn(&str) -> bool, signal: Signal) -> usize {
    let Ok(all) = fs::read_dir("/proc") else { return 0 };
    let mut count = 0;
    for id in all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        // The process may have ended, or belong to another user.
        let Ok(environment) = fs::read(format!("/proc/{id}/environ")) else { continue };
        let own = environment
            .split(|b| *b == 0)
            .find_map(|variable| std::str::from_utf8(variable).ok()?.strip_prefix(MARK)?.strip_prefix('='));
        if own.is_some_and(&of)
            && id.cast_unsigned() != std::process::id()
            && let Some(pid) = Pid::from_raw(id)
        {
            count += usize::from(kill_process(pid, signal).is_ok());
        }
    }
    count
}

/// Kills the processes of emulations whose owner has ended, which ends their namespaces. Returns the number of
/// processes.
pub fn sweep() -> usize {
    end_all(orphaned, Signal::KILL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_distinguished_from_a_later_one_with_its_id() {
        let own = std::process::id();
        assert!(began(own).is_some_and(|at| at > 0));
        assert_eq!(began(u32::MAX), None);
        assert!(!orphaned(&new_mark()) && orphaned(&format!("{own}-1-0")) && orphaned(&format!("{}-1", u32::MAX)));
    }

    #[test]
    fn two_programs_of_one_process_have_two_marks() {
        assert_ne!(new_mark(), new_mark());
    }

    #[test]
    fn a_hosts_variable_has_letters_digits_and_lines_only() {
        assert_eq!(variable("", "tcp.dst1"), "STEADYCAST_TCP_DST1");
        assert_eq!(variable("NET_", "phone-2"), "STEADYCAST_NET_PHONE_2");
    }
}
