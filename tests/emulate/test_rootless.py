"""Networks for a user without root rights, and each refusal with its remedy."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import steadycast
from steadycast import rootless
from steadycast.errors import MissingError

from tests.conftest import ran

from .conftest import COMMAND, DUMBBELL

USER = 65534
CAPS = "sh -c 'grep -h CapEff /proc/self/status; id -u'"
TUN_OPEN = "mknod -m 0666 /mnt/tun c 10 200; mount --bind /mnt/tun /dev/net/tun"

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or any(shutil.which(each) is None for each in ("unshare", "setpriv", "nsenter")),
    reason="needs root, unshare, setpriv and nsenter",
)


def opened() -> str:
    """Return commands that make this program visible in folders that are closed to others, such as root's home."""
    script = []
    needed = [Path(sys.executable), Path(sys.executable).resolve(), Path(steadycast.__file__).parent]
    for n, path in enumerate(needed):
        for folder in reversed(path.parents):
            if folder.stat().st_mode & 0o005 != 0o005:
                seen = folder / path.relative_to(folder).parts[0]
                script += [f"mkdir /mnt/{n}", f"mount --rbind {seen} /mnt/{n}"]
                script += [f"mount -t tmpfs -o mode=755 none {folder}", f"mkdir {seen}"]
                script += [f"mount --rbind /mnt/{n} {seen}"]
                break
    return "; ".join(dict.fromkeys(script))


def as_user(script: str, device: str = TUN_OPEN) -> subprocess.CompletedProcess[str]:
    """Run a script as a user without any capability. Its mounts and files are removed at the end."""
    prepared = "; ".join(
        part
        for part in (
            "set -e; mount -t tmpfs -o mode=755 none /mnt",
            device,
            opened(),
            f"mkdir /mnt/home; printf %s {shlex.quote(DUMBBELL)} > /mnt/home/short.toml",
            f"chown -R {USER}:{USER} /mnt/home; cd /mnt/home",
            f"exec setpriv --reuid={USER} --regid={USER} --clear-groups --inh-caps=-all "
            f"sh -c {shlex.quote(script)}",
        )
        if part
    )
    environment = {**os.environ, "HOME": "/mnt/home", "STEADYCAST_CACHE": "/mnt/home/cache", "COLUMNS": "200"}
    return ran(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", prepared],
        env={**environment, "PYTHONPATH": str(Path(steadycast.__file__).parents[1]), "TMPDIR": "/mnt/home"},
    )


def words(*more: str) -> str:
    return shlex.join([*COMMAND, *more])


def test_an_ordinary_user_runs_a_scenario_and_the_folder_is_theirs_and_a_program_has_no_capability() -> None:
    run = words("emulate", "short.toml", "--set", "duration=2s", "--no-film", "-o", "out")
    done = as_user(
        f"{run} --in tcp.dst1 -- {CAPS}; stat -c 'owner %u' out/summary.json; cat out/summary.json"
    )
    assert done.returncode == 0, done.stderr
    said, _, summary = done.stdout.partition("owner ")
    assert f"CapEff:\t0000000000000000\n{USER}\n" in said
    assert summary.startswith(f"{USER}\n")
    assert '"world": "emulated"' in summary


def test_programs_on_two_hosts_of_an_ordinary_user_have_no_capability() -> None:
    run = words("emulate", "short.toml", "--only", "--in", "video.src", "--")
    done = as_user(f"{run} {CAPS} --in video.dst1 -- sh -c '{CAPS.replace(chr(39), chr(34))}; exec sleep 60'")
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {"CapEff:", "0000000000000000", str(USER)}, done.stdout


def test_doctor_says_that_networks_need_no_root_and_that_the_priority_is_missing() -> None:
    done = as_user(f"ulimit -r 0; {words('doctor', 'emulate', '--json')}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "TUN devices without root, in a user namespace" in done.stdout
    assert "rtprio 5" in done.stdout


@pytest.mark.parametrize(
    ("device", "number", "problem"),
    [
        (TUN_OPEN.replace("0666", "0600"), errno.EACCES, "this user may not open /dev/net/tun"),
        ("mount -t tmpfs none /dev/net", errno.ENOENT, "there is no /dev/net/tun"),
    ],
)
def test_a_device_that_is_closed_or_not_there_is_said_with_its_remedy(
    device: str, number: int, problem: str
) -> None:
    # In a container the remedy is different.
    told = rootless.refusal(OSError(number, os.strerror(number), "/dev/net/tun"))
    assert told is not None
    assert told.problem == problem
    done = as_user(words("emulate", "nothing.toml"), device)
    assert (done.returncode, done.stderr) == (3, f"steadycast: {told}\n")
    assert f"emulate: {problem}" in as_user(words("doctor"), device).stdout.replace("\n", " ")


def test_a_limit_on_user_namespaces_is_said_with_its_remedy(tmp_path: Path) -> None:
    bare = f"setpriv --bounding-set=-all --inh-caps=-all {words('emulate', 'nothing.toml')}"
    limit = "/proc/sys/user/max_user_namespaces"
    done = ran(
        ["unshare", "--user", "--map-root-user", "sh", "-c", f"echo 0 > {limit}; exec {bare}"],
        cwd=tmp_path,
        code=3,
    )
    assert done.stderr == (
        "steadycast: emulate: there can be no more user namespaces (user.max_user_namespaces); "
        "sudo sysctl -w user.max_user_namespaces=15000\n"
    )


@pytest.mark.parametrize(
    ("files", "number", "what", "remedy"),
    [
        ({}, errno.EPERM, "user namespaces", "run it as root"),
        ({}, errno.ENOSPC, "network namespaces", "user.max_net_namespaces=15000"),
        ({}, errno.EMFILE, "network namespaces", None),
        (
            {"kernel/apparmor_restrict_unprivileged_userns": "0"},
            errno.EPERM,
            "user namespaces",
            "run it as root",
        ),
        (
            {"kernel/apparmor_restrict_unprivileged_userns": "1"},
            errno.EPERM,
            "network namespaces",
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        (
            {"kernel/unprivileged_userns_clone": "0"},
            errno.EPERM,
            "user namespaces",
            "sudo sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        ({"../../.dockerenv": ""}, errno.EPERM, "user namespaces", "--cap-add SYS_ADMIN"),
        ({}, errno.EACCES, "/dev/net/tun", "sudo chmod 0666 /dev/net/tun"),
        ({}, errno.ENOENT, "/dev/net/tun", "sudo modprobe tun"),
        ({"../../run/.containerenv": ""}, errno.ENOENT, "/dev/net/tun", "--device /dev/net/tun"),
    ],
)
def test_each_refusal_has_its_remedy(
    files: dict[str, str], number: int, what: str, remedy: str | None, tmp_path: Path
) -> None:
    for name, text in files.items():
        path = tmp_path / "proc/sys" / name
        for folder in (tmp_path / "proc/sys", path.parent):
            folder.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    found = rootless.refusal(OSError(number, os.strerror(number), what), tmp_path)
    assert (found is None) == (remedy is None)
    assert found is None or str(remedy) in found.remedy


def test_a_command_within_another_process_does_not_replace_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rootless, "way", lambda: rootless.UNSHARE)
    monkeypatch.setattr(os, "execvpe", lambda *_: pytest.fail("it would end the tests"))
    monkeypatch.setattr(sys, "argv", ["steadycast", "emulate", "short.toml"])
    rootless.enter()


def test_what_is_refused_in_a_user_namespace_is_not_tried_in_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise MissingError("emulate", "may not", "be root") from PermissionError()

    monkeypatch.setattr(rootless, "need_rights", refused)
    monkeypatch.setenv(rootless.MARK, "1")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("it would go round and round"))
    with pytest.raises(MissingError, match="may not"):
        rootless.way()
