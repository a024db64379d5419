"""The units of `packaging/systemd` as systemd runs them, in separate namespaces and folders."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT, ran, until
from tests.live.conftest import needs

SYSTEMD = Path("/lib/systemd/systemd")
TARGETS = ("basic", "default", "multi-user", "network", "network-online", "paths", "shutdown", "slices", "sockets",
           "sysinit", "timers")  # fmt: skip
# Python is below /opt, because the units can't access home folders.
LAUNCHER = """#!/bin/sh
export LD_LIBRARY_PATH=/opt/python/lib PYTHONPATH=/opt/checkout:/opt/site
exec /opt/python/bin/python3 -m steadycast "$@"
"""
BOOT = """
set -e
echo $$ > {group}/cgroup.procs
exec unshare --mount --pid --cgroup --uts --ipc --fork --kill-child sh -ec '
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs tmpfs {home}/layers
for each in etc var; do
    mkdir -p {home}/layers/$each/upper {home}/layers/$each/work
    mount -t overlay overlay /$each -o \
        lowerdir=/$each,upperdir={home}/layers/$each/upper,workdir={home}/layers/$each/work
done
mount -t tmpfs tmpfs /opt
mkdir -p /opt/python /opt/site /opt/checkout /opt/steadycast/bin /etc/steadycast
mount --bind {base} /opt/python
mount --bind {site} /opt/site
mount --bind {checkout} /opt/checkout
cp {home}/steadycast /opt/steadycast/bin/steadycast
cp {home}/*.env /etc/steadycast/
mount -t tmpfs tmpfs /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /run
cp -r {home}/units /run/units
export container=test SYSTEMD_UNIT_PATH=/run/units
exec {systemd} --system --log-target=console --show-status=0 --unit=default.target'
"""


def _unified() -> Path | None:
    """Return the mount point of cgroup v2."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    return None


pytestmark = [
    pytest.mark.claim,
    needs("unshare"),
    needs("nsenter"),
    pytest.mark.skipif(not SYSTEMD.exists(), reason="systemd is not installed"),
    pytest.mark.skipif(os.geteuid() != 0 or _unified() is None, reason="namespaces and cgroup v2 need root"),
]


@dataclass(frozen=True)
class Systemd:
    """A systemd that runs."""

    pid: int

    def ctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Calls systemctl."""
        inside = ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--cgroup", *words]
        return ran(inside)

    def show(self, unit: str, key: str) -> str:
        """Returns what systemd knows of a unit."""
        return self.ctl("systemctl", "show", unit, f"--property={key}", "--value").stdout.strip()


@pytest.fixture
def systemd(port: int) -> Iterator[Systemd]:
    """Begins systemd with the units, and with a file of options for each."""
    unified = _unified()
    assert unified is not None
    with tempfile.TemporaryDirectory(prefix="systemd-") as folder:
        home = Path(folder)
        (home / "layers").mkdir()
        units = home / "units"
        shutil.copytree(ROOT / "packaging" / "systemd", units)
        for target in TARGETS:
            (units / f"{target}.target").write_text(f"[Unit]\nDescription={target}\n")
        # The unit's settings with shorter times.
        quick = units / "steadycast-send@stuck.service.d"
        quick.mkdir()
        (quick / "quick.conf").write_text("[Service]\nWatchdogSec=2\nTimeoutAbortSec=1\nRestartSec=1\n")
        (home / "steadycast").write_text(LAUNCHER)
        (home / "steadycast").chmod(0o755)
        send = f"SOURCE=testsrc\nOPTIONS=--to 127.0.0.1:{port} --size 96x80 --max-rate 500kbps\n"
        (home / "lobby.env").write_text(send)
        (home / "stuck.env").write_text(send.replace(str(port), str(port + 1000)))
        (home / "wrong.env").write_text(send.replace(f"127.0.0.1:{port}", "nowhere"))
        options = "--codec mpeg4 --out /var/lib/steadycast/wall.m4v"
        (home / "wall.env").write_text(f"SESSION=127.0.0.1:{port}\nOPTIONS={options}\n")
        group = unified / f"steadycast-test-{os.getpid()}"
        group.mkdir()
        boot = BOOT.format(
            group=group,
            home=home,
            base=sys.base_prefix,
            site=sysconfig.get_path("purelib"),
            checkout=ROOT / "python",
            systemd=SYSTEMD,
        )
        with (home / "said").open("wb") as said:
            outer = subprocess.Popen(["sh", "-c", boot], stdout=said, stderr=subprocess.STDOUT)
        try:

            def child() -> str:
                assert outer.poll() is None, (home / "said").read_text(errors="replace")
                return Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text()

            until(lambda: bool(child()), "unshare began nothing")
            found = Systemd(int(child().split()[0]))
            until(
                lambda: found.ctl("systemctl", "is-active", "default.target").stdout == "active\n",
                "systemd did not come up",
            )
            yield found
        finally:
            outer.kill()  # and everything that it started, because of unshare's option
            outer.wait(30)
            until(lambda: "populated 0" in (group / "cgroup.events").read_text(), "a process did not end")
            for each in sorted(group.rglob("*/"), reverse=True):
                if each.is_dir():
                    each.rmdir()
            group.rmdir()


def test_units_start_when_their_sessions_do_tell_how_they_go_and_end_with_a_bye(systemd: Systemd) -> None:
    sender, receiver = "steadycast-send@lobby", "steadycast-receive@wall"
    for unit in (receiver, sender):
        begun = systemd.ctl("systemctl", "start", unit)
        assert begun.returncode == 0, begun.stderr + systemd.ctl("systemctl", "status", unit).stdout
        assert systemd.show(unit, "ActiveState") == "active"
    until(lambda: "1 receiver" in systemd.show(sender, "StatusText"), "the sender heard nobody")
    until(lambda: "kb/s" in systemd.show(receiver, "StatusText"), "the receiver received nothing")
    # Both send keep-alives to the watchdog, as a user without special rights.
    first = {unit: systemd.show(unit, "WatchdogTimestampMonotonic") for unit in (sender, receiver)}
    until(
        lambda: all(systemd.show(unit, "WatchdogTimestampMonotonic") != at for unit, at in first.items()),
        "the watchdog heard nothing",
    )
    status = systemd.ctl("cat", f"/proc/{systemd.show(sender, 'MainPID')}/status").stdout
    assert "Uid:\t0" not in status
    assert "CapEff:\t0000000000000000" in status
    systemd.ctl("systemctl", "stop", sender)
    # The sender's BYE ends the receiver, whose file is complete.
    until(lambda: systemd.show(receiver, "ActiveState") == "inactive", "the receiver went on")
    for unit in (sender, receiver):
        assert (systemd.show(unit, "Result"), systemd.show(unit, "ExecMainStatus")) == ("success", "0")
        assert systemd.show(unit, "NRestarts") == "0"
    listed = systemd.ctl("ls", "/var/lib/private/steadycast").stdout
    assert listed.split() == ["wall.m4v"]


def test_bad_input_is_not_tried_again_and_a_session_that_stands_still_is(systemd: Systemd) -> None:
    wrong = "steadycast-send@wrong"
    assert systemd.ctl("systemctl", "start", wrong).returncode != 0
    assert (systemd.show(wrong, "ActiveState"), systemd.show(wrong, "ExecMainStatus")) == ("failed", "2")
    assert systemd.show(wrong, "NRestarts") == "0"
    stuck = "steadycast-send@stuck"
    assert systemd.ctl("systemctl", "start", stuck).returncode == 0
    until(lambda: "sending" in systemd.show(stuck, "StatusText"), "the sender said nothing")
    first = systemd.show(stuck, "MainPID")
    systemd.ctl("kill", "-STOP", first)
    until(lambda: systemd.show(stuck, "NRestarts") == "1", "the watchdog did nothing")
    until(lambda: systemd.show(stuck, "ActiveState") == "active", "the sender did not come back")
    assert systemd.show(stuck, "MainPID") not in (first, "0")
