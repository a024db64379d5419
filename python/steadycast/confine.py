"""Runs third-party programs without privileges: restricts their user, capabilities, environment and writable files."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from steadycast.errors import MissingError, UserError
from steadycast.rootless import MARK

TOOLS = ("nsenter", "unshare", "mount", "setpriv", "sh")
"""The required programs: a shell and programs of util-linux."""
ENVIRONMENT = (
    *("PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV"),
    *("GST_PLUGIN_PATH", "PLAYWRIGHT_BROWSERS_PATH", "STEADYCAST_EMULATION", "STEADYCAST_HOST"),
)
"""Variables of the caller that a confined program inherits. It also inherits those whose names begin with `LC_`."""
MOST_BYTES = 1 << 30
"""Maximum total size of the files that are copied from a program's folder, in bytes."""
MOST_FILES = 10_000
"""The largest number of files and folders of a program that are examined."""
_NO_RIGHTS = ("--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all")
# The script has these arguments: the writable folder, the number of files, the source and the mount point of each
# file, the number of read-only folders, the read-only folders, and the command.
#
# `ro` mounts a second time, because a bind mount gets its own flags only when it is mounted again (mount(2)).
_SCRIPT = """
fail() { echo "the program's view of the files can't be made: $*" >&2; exit 126; }
ro() { mount -o remount,bind,ro "$1" || fail "$1"; }
mount --bind "$1" "$1" || fail "$1"; shift
n=$1; shift
while [ "$n" -gt 0 ]; do mount --bind "$1" "$2" || fail "$2"; ro "$2"; shift 2; n=$((n - 1)); done
n=$1; shift
while [ "$n" -gt 0 ]; do mount --rbind "$1" "$1" || fail "$1"; ro "$1"; shift; n=$((n - 1)); done
exec "$@"
"""


@dataclass(frozen=True)
class Confinement:
    """The restrictions of a confined program."""

    writable: str
    """The program's home folder. It is writable even if it is inside a read-only folder."""
    read_only: Sequence[str] = ()
    """Folders that are mounted read-only. One of them may contain `writable`."""
    shown: Sequence[Sequence[str]] = ()
    """Pairs of two paths. The program may read the file at the first path.

    This file is mounted read-only over the empty file at the second path.
    """
    user: Sequence[int] | None = None
    """User and group of the program. `None` means the caller's, without capabilities if the caller is root."""

    def words(self, words: Sequence[str]) -> list[str]:
        """Return a command that runs a program with these restrictions. Its caller needs CAP_SYS_ADMIN."""
        became = []
        if self.user is not None:
            became = [f"--reuid={self.user[0]}", f"--regid={self.user[1]}", "--clear-groups"]
        view = [self.writable, str(len(self.shown)), *(path for pair in self.shown for path in pair)]
        view += [str(len(self.read_only)), *self.read_only]
        # Set the parent-death signal again, because a change of the user clears it (prctl(2)).
        rights = ["setpriv", "--pdeathsig=KILL", *became, *_NO_RIGHTS, "--", *words]
        return [
            "unshare",
            "--mount",
            "--propagation=private",
            "--",
            "sh",
            "-c",
            _SCRIPT,
            "sh",
            *view,
            *rights,
        ]

    def environment(self, caller: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a program. ``own`` contains the variables that the user sets for the program."""
        kept = {name: value for name, value in caller.items() if name in ENVIRONMENT or name[:3] == "LC_"}
        return {**kept, "HOME": self.writable, **own}


def need_tools() -> None:
    """Check that the tools for confined programs are installed."""
    for tool in TOOLS:
        if shutil.which(tool) is None:
            raise MissingError(tool, "it is not installed", "apt-get install util-linux mount")


def user_for(paths: Sequence[Path]) -> tuple[tuple[int, int] | None, str | None]:
    """Return the user and group of confined programs, and a warning if the programs run as root.

    If the caller is root, the programs run as the user who called sudo, or else as `nobody`. Other callers run programs
    as themselves.

    Args:
        paths: files and folders that the programs must be able to read.

    Raises:
        UserError: the user who called sudo can't read one of the paths.

    """
    if os.geteuid() != 0 or MARK in os.environ:
        return None, None
    number, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    # The variable SUDO_UID is 0 if root itself called sudo.
    if number.isdecimal() and group.isdecimal() and int(number):
        found = int(number), int(group)
        if (closed := _closed(found, paths)) is not None:
            what = f"the programs run as user {found[0]}, who typed sudo and can't read it"
            raise UserError(str(closed), what, "make it readable, or begin in another folder")
        return found, None
    try:
        entry = pwd.getpwnam("nobody")
        found = entry.pw_uid, entry.pw_gid
    except KeyError:
        # This is the id of `nobody` on most systems.
        found = 65534, 65534
    if (closed := _closed(found, paths)) is not None:
        what = f'the programs run as root, without capabilities: the user "nobody" can\'t read {closed}'
        return None, f"{what}. Begin by sudo as an ordinary user, or in a folder that others can read"
    return found, None


def _closed(user: tuple[int, int], paths: Sequence[Path]) -> Path | None:
    """Return the first path that a user can't read. Return `None` if the user can read all paths."""
    became = ["setpriv", f"--reuid={user[0]}", f"--regid={user[1]}", "--clear-groups", *_NO_RIGHTS, "--"]
    for path in paths:
        words = [*became, "sh", "-c", 'test -r "$1" && { ! test -d "$1" || test -x "$1"; }', "sh", str(path)]
        if subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode:
            return path
    return None


@contextmanager
def reachable(folder: Path, user: tuple[int, int] | None) -> Iterator[Path]:
    """Yield ``folder`` if a user can access it. Otherwise, yield a temporary folder, which is removed afterwards."""
    if user is None or _closed(user, [folder]) is None:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="steadycast-judge-") as made:
        yield Path(made)


def copy_left(source: Path, target: Path, most: int = MOST_BYTES) -> list[str]:
    """Copy the regular files that a program has written. Return a message for each kind of omitted files.

    The files are not trusted: links are not followed, and pipes do not block. The program must have ended.
    """
    target.mkdir()
    special = unread = 0
    room, places = most, MOST_FILES
    left_out = 0
    for inside, folders, names, folder in os.fwalk(source, follow_symlinks=False):
        there = target / os.path.relpath(inside, source)
        for name in list(folders):
            if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                special += 1
        if (places := places - len(names) - len(folders)) < 0:
            left_out += 1
            folders.clear()
            continue
        there.mkdir(parents=True, exist_ok=True)
        for name in names:
            try:
                # O_NOFOLLOW refuses links. O_NONBLOCK avoids waiting for the writer of a named pipe.
                file = os.open(
                    name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
                )
            except OSError:
                special += 1  # it is a link, a socket, or a device without a driver
                continue
            with open(file, "rb") as opened:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    special += 1
                    continue
                try:
                    room, whole = _copied(opened, there / name, room)
                except OSError:
                    unread += 1
                else:
                    left_out += not whole
    said = [
        (special, "no regular file: links, pipes and devices are not kept"),
        (left_out, f"more than {most >> 20} MiB or {MOST_FILES} files: cut there"),
        (unread, "could not be read"),
    ]
    return [f"{count} {what}" for count, what in said if count]


def _copied(source: BinaryIO, target: Path, room: int) -> tuple[int, bool]:
    """Copy at most ``room`` bytes. Return how many bytes of ``room`` are left, and whether the copy is complete."""
    with target.open("xb") as new:
        while True:
            part = source.read(min(1 << 20, room + 1))
            new.write(part[:room])
            if len(part) > room:
                return 0, False
            room -= len(part)
            if not part:
                return room, True


def children(process: int) -> Iterator[int]:
    """Yield the ids of a process's children."""
    # Ignore errors, because a process may end between the two reads.
    with suppress(OSError):
        for task in os.scandir(f"/proc/{process}/task"):
            yield from map(int, Path(task.path, "children").read_text().split())


def descendants(process: int) -> Iterator[int]:
    """Yield the ids of a process's children, of their children, and so on."""
    for child in children(process):
        yield child
        yield from descendants(child)
