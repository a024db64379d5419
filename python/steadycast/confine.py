"""Runs programs of others without rights: their user, capabilities, environment, and what they may write.

A confined program can write neither results nor caches, gains no rights by setuid programs, and finds no secrets of the
caller's environment. What it leaves behind is copied as regular files of a bounded size.
"""

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
"""What starts confined programs: util-linux and a shell."""
ENVIRONMENT = (
    *("PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV"),
    *("GST_PLUGIN_PATH", "PLAYWRIGHT_BROWSERS_PATH", "STEADYCAST_EMULATION", "STEADYCAST_HOST"),
)
"""Variables that a confined program gets of the caller's, beside those that begin with `LC_`."""
MOST_BYTES = 1 << 30
"""Bytes that are kept of what a program leaves."""
MOST_FILES = 10_000
"""Files and folders that are looked at in what a program leaves."""
_NO_RIGHTS = ("--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all")
# Arguments: the writable folder, then the number of files and for each its source and its place, then the number of
# read-only folders and these. A bind mount gets its own flags only when it is mounted again (mount(2)).
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
    """What a program of others sees and may."""

    writable: str
    """The one folder of ours that it may write: its home."""
    read_only: Sequence[str] = ()
    """Folders of ours that it can't change; `writable` may be in one of them."""
    shown: Sequence[Sequence[str]] = ()
    """Files that it may read, from where they are to empty files in a folder that it reaches."""
    user: Sequence[int] | None = None
    """User and group; `None`: those of the caller, who is no root, or root without capabilities."""

    def words(self, words: Sequence[str]) -> list[str]:
        """Return a program's command such that it runs confined; the caller needs CAP_SYS_ADMIN."""
        became = []
        if self.user is not None:
            became = [f"--reuid={self.user[0]}", f"--regid={self.user[1]}", "--clear-groups"]
        view = [self.writable, str(len(self.shown)), *(path for pair in self.shown for path in pair)]
        view += [str(len(self.read_only)), *self.read_only]
        rights = ["setpriv", *became, *_NO_RIGHTS, "--", *words]
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
        """Return the environment of a program, with the variables that the user wrote for it."""
        kept = {name: value for name, value in caller.items() if name in ENVIRONMENT or name[:3] == "LC_"}
        return {**kept, "HOME": self.writable, **own}


def need_tools() -> None:
    """Make sure that what starts confined programs is there."""
    for tool in TOOLS:
        if shutil.which(tool) is None:
            raise MissingError(tool, "it is not installed", "apt-get install util-linux mount")


def user_for(paths: Sequence[Path]) -> tuple[tuple[int, int] | None, str | None]:
    """Return the user and the group that confined programs run as, and a warning where they keep those of root.

    These are the user who typed sudo, else nobody. Who is no root runs programs as themselves.

    Args:
        paths: what the programs need to read.

    Raises:
        UserError: the user who typed sudo can't read one of the paths.

    """
    if os.geteuid() != 0 or MARK in os.environ:
        return None, None
    number, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
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
        found = 65534, 65534
    if (closed := _closed(found, paths)) is not None:
        what = f'the programs run as root, without capabilities: the user "nobody" can\'t read {closed}'
        return None, f"{what}. Begin by sudo as an ordinary user, or in a folder that others can read"
    return found, None


def _closed(user: tuple[int, int], paths: Sequence[Path]) -> Path | None:
    """Return the first path that a user can't read."""
    became = ["setpriv", f"--reuid={user[0]}", f"--regid={user[1]}", "--clear-groups", *_NO_RIGHTS, "--"]
    for path in paths:
        words = [*became, "sh", "-c", 'test -r "$1" && { ! test -d "$1" || test -x "$1"; }', "sh", str(path)]
        if subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode:
            return path
    return None


@contextmanager
def reachable(folder: Path, user: tuple[int, int] | None) -> Iterator[Path]:
    """Give a folder that a user can reach: this one, or a temporary one that is removed afterwards."""
    if user is None or _closed(user, [folder]) is None:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="steadycast-judge-") as made:
        yield Path(made)


def copy_left(source: Path, target: Path, most: int = MOST_BYTES) -> list[str]:
    """Copy the regular files that programs have left, and return a line for each kind of what was left out.

    Neither links nor pipes are followed or opened for long: a program may have left anything. All of its processes
    have ended.
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
                file = os.open(
                    name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
                )
            except OSError:
                special += 1  # a link, a socket, or a device without a driver
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
    """Copy at most this many bytes; return how many are left, and whether the file is whole."""
    with target.open("xb") as new:
        while True:
            part = source.read(min(1 << 20, room + 1))
            new.write(part[:room])
            if len(part) > room:
                return 0, False
            room -= len(part)
            if not part:
                return room, True


def descendants(process: int) -> Iterator[int]:
    """Yield the processes that a process has started, directly or not, and that have not left it."""
    with suppress(OSError):
        for task in os.scandir(f"/proc/{process}/task"):
            for child in Path(task.path, "children").read_text().split():
                yield int(child)
                yield from descendants(int(child))
