"""Creates networks without root, in a user namespace, and explains what to do if the system refuses this."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from steadycast.core import core
from steadycast.errors import MissingError

MARK = "STEADYCAST_ROOTLESS"
"""Environment variable that is set if this command was restarted in a user namespace."""
UNSHARE = ("unshare", "--user", "--map-current-user", "--keep-caps", "--")
"""Runs a command in a new user namespace. The command has all capabilities there, but the same user and files."""
_BARE = ("setpriv", "--inh-caps=-all", "--ambient-caps=-all", "--")
_TUN = "/dev/net/tun"
_SMALLEST = """
duration = "1s"
nodes = ["a", "b"]
[[link]]
between = ["a", "b"]
rate = "1Mbps"
[[flow]]
name = "x"
kind = "cbr"
rate = "1kbps"
from = "a"
to = ["b"]
"""


def need_rights() -> None:
    """Raise an error if the system is not Linux, or if it does not permit network namespaces."""
    try:
        core.Emulation(core.Scenario("rights", [], _SMALLEST), {}, {})
    except OSError as error:
        if (refused := refusal(error)) is None:
            raise
        raise refused from error


def refusal(error: OSError, system: Path = Path("/")) -> MissingError | None:
    """Return an error that explains why networks can't be created, and gives one remedy.

    Returns `None` if ``error`` has another cause.

    Args:
        error: the error of the system. Its file name says what was refused: "user namespaces", "network namespaces" or
            the path of a device.
        system: the folder that contains /proc/sys and the files by which a container is recognised.

    """
    what, number = str(error.filename), error.errno

    def is_set(key: str, value: str) -> bool:
        try:
            return (system / "proc/sys" / key).read_text().strip() == value
        except OSError:
            return False

    contained = any((system / mark).exists() for mark in ("run/.containerenv", ".dockerenv"))
    problem, remedy = f"this system refuses {what}", "run it as root"
    if number == errno.ENOSPC and what.endswith("namespaces"):
        limit = f"user.max_{what.split()[0].replace('network', 'net')}_namespaces"
        problem, remedy = f"there can be no more {what} ({limit})", f"sudo sysctl -w {limit}=15000"
    elif what == _TUN and number in (errno.ENOENT, errno.ENODEV, errno.ENXIO):
        problem = f"there is no {_TUN}"
        remedy = f"start the container with --device {_TUN}" if contained else "sudo modprobe tun"
    elif number == errno.EACCES and what == _TUN:
        problem, remedy = f"this user may not open {_TUN}", f"sudo chmod 0666 {_TUN}"
    elif number not in (errno.EPERM, errno.EACCES):
        return None
    elif is_set("kernel/apparmor_restrict_unprivileged_userns", "1"):
        problem = "AppArmor denies permissions in user namespaces"
        remedy = "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or run it by sudo"
    elif is_set("kernel/unprivileged_userns_clone", "0"):
        problem = "user namespaces are root's alone"
        remedy = "sudo sysctl -w kernel.unprivileged_userns_clone=1"
    elif contained:
        problem = f"this container is refused {what}"
        remedy = (
            "start it with --cap-add SYS_ADMIN --cap-add NET_ADMIN --cap-add SYS_NICE "
            f"--security-opt apparmor=unconfined --device {_TUN}"
        )
    elif MARK not in os.environ:
        remedy = f"run it as root, or by {' '.join(UNSHARE)} COMMAND"
    return MissingError("emulate", problem, remedy)


def way() -> Sequence[str]:
    """Return what to put in front of a command that creates networks: nothing, or `UNSHARE`.

    Raises:
        MissingError: networks can be created neither directly nor in a user namespace.

    """
    try:
        need_rights()
    except MissingError as refused:
        if not isinstance(refused.__cause__, PermissionError) or MARK in os.environ:
            raise
        if shutil.which(UNSHARE[0]) is None:
            raise
    else:
        return ()
    # Set LC_ALL=C to get English messages, because they are compared below.
    tried = subprocess.run(
        [*UNSHARE, sys.executable, "-P", "-m", "steadycast.rootless"],
        env={**os.environ, MARK: "1", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode == 0:
        return UNSHARE
    if tried.stdout:
        raise MissingError("emulate", *tried.stdout.splitlines())
    number = next((n for n in (errno.ENOSPC, errno.EINVAL) if os.strerror(n) in tried.stderr), errno.EPERM)
    why = refusal(OSError(number, tried.stderr, "user namespaces"))
    raise why or MissingError("emulate", tried.stderr.strip(), "run it as root")


def enter() -> None:
    """Restart this command in a user namespace, if networks can't be created otherwise.

    If other code runs in the same process, the process is not restarted, because a restart would end that code.

    Raises:
        MissingError: networks can't be created in a user namespace, either.

    """
    if words := way():
        asked = sys.argv[1:]
        if sys.orig_argv[len(sys.orig_argv) - len(asked) :] != asked:
            return
        again = [*words, sys.executable, *sys.orig_argv[1:]]
        os.execvpe(again[0], again, {**os.environ, MARK: "1"})


def bare(words: Sequence[str]) -> list[str]:
    """Return a command that runs a program without the capabilities that we have in our user namespace."""
    return [*_BARE, *words] if MARK in os.environ and shutil.which(words[0]) else list(words)


def main() -> int:
    """Try to create a network namespace. If this fails, print the problem and the remedy, each on its own line."""
    try:
        need_rights()
    except MissingError as refused:
        print(refused.problem, refused.remedy, sep="\n")
        return refused.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
