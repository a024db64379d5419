"""Programs on an emulated network: one link between a sender's host and a receiver's."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from tests.conftest import ran
from tests.live.conftest import steadycast

LINK = """
duration = "10min"
nodes = ["s", "r"]
[[link]]
name = "air"
between = ["s", "r"]
rate = "%s"
delay = "%s"
%s
loss = %s
"""

READY = "until nsenter --net=$STEADYCAST_NET_R cat /proc/net/udp | grep -q :138C; do sleep 0.1; done"
"""Waits until port 5004 of the receiver's host is open."""

SEND = "$STEADYCAST send greedy --to $STEADYCAST_R:5004 --port 6004"
"""A sender's command line on its host. Its RTCP port is fixed, because players need it."""

PLAYER = (
    "nsenter --net=$STEADYCAST_NET_R timeout 200 gst-launch-1.0 -q rtpbin name=r latency=200 {bin} "
    "udpsrc port=5004 caps='application/x-rtp,media=video,clock-rate=90000,encoding-name=MP4V-ES,payload=96{caps}' ! "
    "r.recv_rtp_sink_0 r. ! rtpmp4vdepay ! fakesink sync=false udpsrc port=5005 ! "
    "r.recv_rtcp_sink_0 r.send_rtcp_src_0 ! udpsink host=$STEADYCAST_S port=6005 sync=false async=false"
)

GSTREAMER = PLAYER.format(bin="", caps="")
"""A player that sends reports until it is killed."""

TRANSPORT_WIDE = (
    "rtcp-fb-transport-cc=(boolean)true,"
    "extmap-14=(string)http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01"
)
"""Makes GStreamer's session report each packet (with rtp-profile=avpf), as our session description does."""

REPORTER = PLAYER.format(bin="rtp-profile=avpf", caps=f",{TRANSPORT_WIDE}")
"""A player with a report for each packet."""


STALL_MS = 20.0
"""In milliseconds. A timer that is this late acts like a queue as long as the path's delay. A flow on another machine
has no such delay."""


@dataclass(frozen=True)
class Emulated:
    """The results of a program's run on the network."""

    folder: Path
    said: str

    @property
    def trusted(self) -> bool:
        """Whether the machine kept up."""
        summary = json.loads((self.folder / "net" / "summary.json").read_text())
        return bool(summary["emulation"]["trustworthy"])

    @property
    def kept_up(self) -> bool:
        """Whether the machine kept up and no timer was late by more than `STALL_MS`.

        The timers are those of the links, of the scenario's ends and of the sender.
        """
        emulation = json.loads((self.folder / "net" / "summary.json").read_text())["emulation"]
        late = [emulation["lateness_ms"], emulation["ends_lateness_ms"]]
        if (self.folder / "sent.json").exists():
            late.append(self.sent()["pacing_late_ms"])
        return self.trusted and not any(each["max"] is not None and each["max"] > STALL_MS for each in late)

    def sent(self, name: str = "sent") -> dict[str, Any]:
        """The flow in the summary that our sender or receiver printed into this file."""
        flow: dict[str, Any] = json.loads((self.folder / f"{name}.json").read_text())["flows"][0]
        return flow

    def warnings(self, name: str = "sent") -> list[str]:
        """Return the warnings in that summary."""
        warnings: list[str] = json.loads((self.folder / f"{name}.json").read_text())["warnings"]
        return warnings

    def link(self, first: float, last: float) -> tuple[float, float]:
        """Loss and utilisation of the forward link between two times, in seconds after its first packet."""
        rows = pl.read_parquet(self.folder / "net" / "links.parquet").filter(pl.col("direction") == "forward")
        began = rows.filter(pl.col("throughput_bps") > 0)["t_s"].min()
        assert isinstance(began, float), self.said
        seen = rows.filter(pl.col("t_s").is_between(began + first, began + last, closed="left"))
        dropped = float(seen["dropped_packets"].sum())
        # All packets have 1000 B; reports on the reverse path are not counted.
        carried = float(seen["throughput_bps"].sum()) / 8_000
        return dropped / max(dropped + carried, 1), float(seen["utilisation_frac"].mean() or 0)  # type: ignore[arg-type]


def emulate(
    folder: Path,
    script: str,
    *,
    rate: str = "2Mbps",
    record: bool = True,
    beside: str = "",
    loss: float | Sequence[int] = 0.0,
    link: str = 'queue = { kind = "droptail", limit = "50p" }',
    delay: str = "20ms",
    events: str = "",
) -> Emulated:
    """Run a shell script on the sender's host.

    `record` keeps the link's record. `beside` has further flows of the scenario. `loss` is random in both directions,
    or lists the lost packets of each direction. `link` has further keys of the link, `delay` is the one-way delay,
    and `events` change the link.
    """
    folder.mkdir(parents=True, exist_ok=True)
    scenario = folder / "link.toml"
    lost = f'"bernoulli", p = {loss}' if isinstance(loss, float) else f'"list", packets = {list(loss)}'
    scenario.write_text(LINK % (rate, delay, link, f"{{ kind = {lost} }}") + events + beside)
    only = [] if beside else ["--only"]
    words = ["emulate", scenario, *only, "--in", "s", *(["-o", folder / "net"] if record else [])]
    shell = steadycast()
    own = folder / "steadycast"
    own.write_text(f"#!/bin/sh\nexec {shell[0]} -c '{shell[2]}' \"$@\"\n")
    own.chmod(0o755)
    done = ran(
        [*steadycast(*words), "--", "sh", "-c", script],
        cwd=folder,
        env={**os.environ, "STEADYCAST": str(own)},
        code=0,
    )
    return Emulated(folder, done.stdout + done.stderr)
