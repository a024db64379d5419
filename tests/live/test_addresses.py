"""IPv6 and source-specific multicast, between two network namespaces."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.conftest import ran
from tests.live.conftest import needs, needs_networks, steadycast

TO = {
    "IPv6": "[fd00:9::2]:5104",
    "IPv6 group": "[ff1e::1234]:5204",
    "IPv6 source-specific": "[ff3e::8000:1]:5304",
    "IPv4 source-specific": "232.1.2.3:5404",
}

# A pair of virtual Ethernet devices, and a second namespace that exists as long as this script.
WIRE = """
set -eu
within_a_minute() { for n in $(seq 600); do "$@" && return; sleep 0.1; done; echo "never: $*" >&2; return 1; }
ip link set lo up
unshare -n sleep 300 & there=$!
trap 'kill $there' EXIT
until [ "$(readlink /proc/$there/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
far() { nsenter -t $there -n "$@"; }
ip link add near type veth peer name far netns $there
ip address add 10.9.0.1/24 dev near; ip address add fd00:9::1/64 dev near nodad
far ip address add 10.9.0.2/24 dev far; far ip address add fd00:9::2/64 dev far nodad
ip link set near up; far ip link set lo up; far ip link set far up
ip route add 224.0.0.0/4 dev near; far ip route add 224.0.0.0/4 dev far
"""

# The kernel's table of sources lists an interface's sources only if its last group has sources. The group without
# sources is therefore joined first.
AFTER = {"IPv6 source-specific": "within_a_minute far grep -q ff1e /proc/net/igmp6"}

# All sessions run in parallel. A receiver can start after its sender.
SESSION = """
( $STEADYCAST send greedy --controller asmp --to '{to}' --max-rate 400kbps --ttl 4 --for 90s \\
    --sdp {n}.sdp --json > sent{n}.json & sender=$!
  within_a_minute grep -qs sendonly {n}.sdp
  {after}
  far $STEADYCAST receive {n}.sdp --for 5s --json > received{n}.json
  sleep 0.5; kill -INT $sender; wait $sender ) & all="${{all:-}} $!"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("addresses")
    shell = steadycast()
    own = place / "steadycast"
    # A shell's background job ignores SIGINT unless Python restores the default handler.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    own.write_text(f"#!/bin/sh\nexec {shell[0]} -c '{heed}{shell[2]}' \"$@\"\n")
    own.chmod(0o755)
    script = WIRE + "".join(
        SESSION.format(to=to, n=n, after=AFTER.get(kind, ":")) for n, (kind, to) in enumerate(TO.items())
    )
    watch = "( for n in $(seq 600); do far cat /proc/net/mcfilter /proc/net/mcfilter6 >> joined; sleep 0.2; done ) &"
    ran(
        ["unshare", "-n", "bash", "-c", f"{script}\n{watch} watch=$!\nwait $all\nkill $watch"],
        cwd=place,
        env={**os.environ, "STEADYCAST": str(own)},
        code=0,
    )
    return place


@needs("unshare")
@needs_networks
@pytest.mark.parametrize("kind", TO)
def test_a_session_runs_over(kind: str, folder: Path) -> None:
    number = list(TO).index(kind)
    sent, received = (
        json.loads((folder / f"{side}{number}.json").read_text())["flows"][0] for side in ("sent", "received")
    )
    text = (folder / f"{number}.sdp").read_text()
    host = TO[kind].rpartition(":")[0].strip("[]")
    assert f"c=IN IP{6 if ':' in host else 4} {host}" in text
    (peer,) = sent["receivers"]
    assert not peer["standard"]
    assert peer["feedback_packets"] > 3
    assert peer["address"].startswith("[fd00:9::2]" if ":" in host else "10.9.0.2")
    assert 0.15e6 < received["receivers"][0]["throughput_bps"] < 0.42e6
    assert received["receivers"][0]["loss_frac"] == 0
    if "specific" in kind:
        source = "fd00:9::1" if ":" in host else "10.9.0.1"
        assert f"a=source-filter: incl IN IP{6 if ':' in host else 4} {host} {source}" in text
        # The kernel has joined only that source, as /proc shows in hexadecimal.
        joined = (folder / "joined").read_text()
        group, from_ = (
            ("0xe8010203", "0x0a090001")
            if ":" not in host
            else ("ff3e0000000000000000000080000001", "fd000009000000000000000000000001")
        )
        assert any(group in line and from_ in line for line in joined.splitlines())
