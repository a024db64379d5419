"""A sweep as a job array of SLURM, with one controller and one node, which the test starts and ends."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

from tests.conftest import Said, command, ran, until

TOOLS = {"slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client", "munged": "munge"}
PARTS = 4
OVER = (
    "--over",
    "flow.video.controller=asmp,tfrc",
    "--over",
    "topology.bottleneck.rate=500kbps,1Mbps",
    "--seeds",
    "1-3",
)
CONFIG = """
ClusterName=claim
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={home}/munge.sock
CredType=cred/munge
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
TaskPlugin=task/none
ReturnToService=2
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.pid
NodeName={host} NodeAddr=127.0.0.1 CPUs={processors} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=10 State=UP
"""

lacking = " ".join(sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None}))
pytestmark = [
    pytest.mark.claim,
    pytest.mark.skipif(bool(lacking), reason=f"SLURM is not installed (apt-get install {lacking})"),
    pytest.mark.skipif(os.geteuid() != 0, reason="a job of SLURM's begins as another user: this needs root"),
]


def free(count: int) -> list[int]:
    """Return unused TCP ports."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return found


def processors() -> int:
    said = ran(["slurmd", "-C"], check=True).stdout
    return int(said.split("CPUs=")[1].split()[0])


@pytest.fixture
def cluster() -> Iterator[dict[str, str]]:
    """Start munge, a controller and a node in a separate folder; return the environment of their commands."""
    # The name is short, because the path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        home = Path(folder)
        for name in ("state", "spool"):
            (home / name).mkdir()
        host = socket.gethostname().partition(".")[0]
        words = {"host": host, "ports": free(2), "user": "root", "home": home, "processors": processors()}
        (home / "slurm.conf").write_text(CONFIG.format(**words))
        environment = {**os.environ, "SLURM_CONF": str(home / "slurm.conf")}
        subprocess.run(["mungekey", "--create", f"--keyfile={home}/key"], check=True)
        daemons = (
            ["munged", "--foreground", "--force", "--num-threads=2", f"--key-file={home}/key"]
            + [f"--{what}-file={home}/munge.{what}" for what in ("log", "pid", "seed")]
            + [f"--socket={home}/munge.sock"],
            ["slurmctld", "-D", "-i", "-f", f"{home}/slurm.conf"],
            ["slurmd", "-D", "-N", host, "-f", f"{home}/slurm.conf"],
        )
        begun: list[subprocess.Popen[bytes]] = []
        with (home / "said").open("wb") as said:
            try:
                for daemon in daemons:
                    begun.append(
                        subprocess.Popen(daemon, stdout=said, stderr=subprocess.STDOUT, env=environment)
                    )
                    if daemon[0] == "munged":
                        until((home / "munge.sock").exists)

                def idle() -> bool:
                    for each in begun:
                        assert each.poll() is None, (home / "said").read_text(errors="replace")
                    asked = ["sinfo", "--noheader", "--format=%T"]
                    return (
                        b"idle"
                        in subprocess.run(
                            asked, env=environment, capture_output=True, check=False, timeout=30
                        ).stdout
                    )

                until(idle)
                yield environment
            finally:
                for each in reversed(begun):
                    each.terminate()
                    each.wait(30)


def test_a_job_array_s_parts_are_the_sweep_of_one_machine(
    cluster: dict[str, str], small: Path, tmp_path: Path, say: Callable[..., Said]
) -> None:
    say("sweep", small, *OVER, "--jobs", 1, "-o", "whole", code=0)
    words = command("sweep", small, *OVER, "--jobs", 1, "--shard", "SHARD", "-o", tmp_path / "shared")
    # The command in the documentation, with this Python.
    job = shlex.join(words).replace("SHARD", f"$SLURM_ARRAY_TASK_ID/{PARTS}")
    batch = ["sbatch", "--wait", f"--array=0-{PARTS - 1}", f"--output={tmp_path}/job-%a.txt", "--wrap", job]
    done = ran(batch, env=cluster, cwd=tmp_path)
    told = {path.name: path.read_text() for path in tmp_path.glob("job-*.txt")}
    assert (done.returncode, len(told)) == (0, PARTS), (done.stderr, told)
    parts = sorted(path.name for path in (tmp_path / "shared").glob("shard-*"))
    assert parts == [f"shard-{part}-of-{PARTS}" for part in range(PARTS)]
    say("sweep", "--collect", "-o", "shared", code=0)

    def rows(folder: str) -> pl.DataFrame:
        return pl.read_parquet(tmp_path / folder / "results.parquet").drop("cpu_s")

    assert rows("whole").height == 12
    assert rows("shared").equals(rows("whole"))
