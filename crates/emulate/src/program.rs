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

/// Environment variable that identifies the process that owns an emulation. Its value contains that process's ID and
/// start time.
const MARK: &str = "STEADYCAST_EMULATION";

/// A program that runs on a host.
pub struct Program {
    /// The name of the host.
    pub host: String,
    /// The name of the program, and its arguments.
    pub command: Vec<String>,
}

pub(crate) struct Started {
    thread: Option<JoinHandle<()>>,
    ended: Arc<Mutex<Option<io::Result<ExitStatus>>>>,
    /// The value of the environment variable [`MARK`] in the program and its children.
    mark: String,
}

impl Started {
    /// Starts a program on `host`. There, the names of `hosts` resolve to their addresses.
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
        // Wait for the child in this thread, because the kernel kills the child when the thread that started it ends.
        let work = move || {
            let spawned = space.enter().and_then(|()| {
                // Ignore an error, because the program can use addresses instead of names.
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

    /// Ends the program and its children. Returns its exit code. If a signal ended it, returns 128 plus the signal's
    /// number.
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
        // End the processes that ignored SIGTERM, and the processes that the program left behind.
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

/// Returns the name of an environment variable about the host `name`. If `what` is `NET_`, the variable contains the
/// path of the host's namespace. If `what` is empty, it contains the host's address.
fn variable(what: &str, name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("STEADYCAST_{what}{}", name.chars().map(letter).collect::<String>())
}

/// Makes the hosts' names resolve for the calling thread and the processes that it starts.
fn name_hosts(names: &[(String, String)], mark: &str) -> io::Result<()> {
    let mut text = String::from("127.0.0.1 localhost\n");
    for (name, address) in names {
        text.push_str(&format!("{address} {name}\n"));
    }
    let file: PathBuf = std::env::temp_dir().join(format!("steadycast-hosts-{mark}"));
    fs::write(&file, text)?;
    let mounted = kernel::new_mounts().and_then(|()| {
        // Make mounts private first. Otherwise the bind mount would apply to the whole machine.
        mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
        mount_bind(&file, "/etc/hosts")?;
        Ok(())
    });
    // Remove the file at once. Its contents remain visible through the bind mount.
    fs::remove_file(&file)?;
    mounted
}

/// Creates the mark of a program. It consists of the ID and start time of this process, and a counter. The start time
/// distinguishes this process from a later process with the same ID.
fn new_mark() -> String {
    static PROGRAMS: AtomicU64 = AtomicU64::new(0);
    let id = std::process::id();
    format!("{id}-{}-{}", began(id).unwrap_or(0), PROGRAMS.fetch_add(1, Ordering::Relaxed))
}

/// Returns whether the process that created this mark has ended.
fn orphaned(mark: &str) -> bool {
    let mut parts = mark.split('-').map(str::parse::<u64>);
    let (Some(Ok(id)), Some(Ok(at))) = (parts.next(), parts.next()) else { return false };
    u32::try_from(id).is_ok_and(|id| began(id) != Some(at))
}

/// Returns the start time of a process, in kernel ticks. Returns `None` if there is no such process.
fn began(id: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // Skip the process name in parentheses. It may contain spaces and parentheses.
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

/// Sends a signal to the processes of emulations. Skips a process if `of` returns false for its mark. Returns the
/// number of processes that got the signal.
fn end_all(of: impl Fn(&str) -> bool, signal: Signal) -> usize {
    let Ok(all) = fs::read_dir("/proc") else { return 0 };
    let mut count = 0;
    for id in all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        // Skip a process that has ended or belongs to another user.
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

/// Kills the processes of emulations whose owner has ended. Their namespaces disappear with them. Returns the number of
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
