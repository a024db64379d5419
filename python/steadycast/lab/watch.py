"""Shows a live session in the lab. It reads the session's file of status lines, which gets one line per second."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from steadycast import style
from steadycast.folder import Json, number
from steadycast.live.status import FATES
from steadycast.record import median
from steadycast.report import say

KEPT = 600
"""The number of status lines that the page shows. They cover ten minutes."""
_MOST_BYTES = 1 << 20
"""The largest number of bytes that one call reads. Of a longer file, the first call reads only the end."""
_MOST_PEERS = 20
_OLD_S = 5.0
"""If there is no new line for this time, in seconds, the page says so."""
_MOST = 1e15
"""Larger numbers in a status line are invalid."""
_NAME = 100
"""The number of characters of a name that the page shows."""


class Watched:
    """A file of status lines. It need not exist yet, and lines of other kinds are ignored."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._next: int | None = None
        self._half = b""
        self._rows: deque[Json] = deque(maxlen=KEPT)

    def read(self) -> None:
        """Read the lines that were appended since the last call.

        If the file has become shorter, read it from its start.
        """
        try:
            with self.place.open("rb") as file:
                size = file.seek(0, 2)
                if self._next is None or size < self._next:
                    self._next, self._half = max(0, size - _MOST_BYTES), b""
                    self._rows.clear()
                file.seek(self._next)
                content = file.read(_MOST_BYTES)
        except OSError:
            return
        self._next += len(content)
        *lines, self._half = (self._half + content).split(b"\n")
        self._half = self._half[-_MOST_BYTES:]
        for line in lines:
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            row = json.loads(line, parse_float=_finite, parse_int=_finite, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            return
        if not isinstance(row, dict) or row.get("kind", "status") != "status":
            return
        at = number(row.get("at_s"))
        if at is None:
            return
        if self._rows and at < self._rows[-1]["at_s"]:
            self._rows.clear()  # another session has begun
        self._rows.append({**row, "at_s": at})

    @property
    def began(self) -> float | None:
        """When the session started, in seconds of its host's clock. It is `None` if the status lines do not show it."""
        last = self._rows[-1] if self._rows else {}
        try:
            return datetime.fromisoformat(str(last.get("at"))).timestamp() - float(last["at_s"])
        except (ValueError, OverflowError, OSError):
            return None

    def shown(self, origin: float | None = None) -> Json:
        """Return the session's charts and numbers, in the same format as for a run (`steadycast.lab.work.shown`).

        Args:
            origin: the start of the page's time axis, in seconds of the hosts' clocks. By default, it is the session's
                start.

        """
        later = 0.0 if origin is None or self.began is None else self.began - origin
        rows = [{**row, "at_s": round(row["at_s"] + later, 3)} for row in self._rows]
        last = rows[-1] if rows else {}
        sends = last.get("command") != "receive"
        colour = style.look({"kind": "video", "controller": last.get("controller") or self.place.stem}).colour
        t = [row["at_s"] for row in rows]

        def line(label: str, values: Sequence[float | None], *, main: bool = True) -> Json:
            return {"flow": label, "label": label, "colour": colour, "video": main, "t": t, "y": list(values)}

        rates = [line("sent" if sends else "received", [number(row.get("rate_bps")) for row in rows])]
        if sends:
            target = [number(_decision(row).get("target_bps")) for row in rows]
            rates.append(line("target", target, main=False))
            delay = line("round trip", [median(_of_peers(row, "rtt_ms")) for row in rows])
            loss = [max(_of_peers(row, "loss_frac"), default=None) for row in rows]
        else:
            delay = line("delay", [number(row.get("delay_ms")) for row in rows])
            loss = [number(row.get("loss_frac")) for row in rows]
        return {
            "pixels": False,
            "from_s": 0.0,
            "since_s": t[0] if t else 0.0,
            "to_s": t[-1] if t else 0.0,
            "cpu_s": None,
            "says": [self._says(last, sends)],
            "warnings": [],
            "expect": [],
            "numbers": _numbers(last, sends, colour),
            "titles": {"delay": "round trip" if sends else "delay above the least"},
            "charts": {
                "rates": {"lines": rates, "capacity": None, "shares": []},
                "delay": [delay],
                "queue": [],
                "loss": [line("loss", [None if v is None else 100 * v for v in loss])],
            },
            "events": [],
            "decisions": _decisions(rows, self._name(last)),
            "strips": [],
        }

    def _name(self, last: Json) -> str:
        return str(last.get("session") or self.place.name)[:_NAME]

    def _says(self, last: Json, sends: bool) -> str:
        if not last:
            return f"Nothing has come to {self.place} yet: start send or receive with --status {self.place}."
        session = self._name(last)
        ago = time.time() - (self.began + self._rows[-1]["at_s"]) if self.began is not None else 0.0
        old = f" Its last line is {say.seconds(ago)} old." if ago > _OLD_S else ""
        return (
            f"{session}: {'sending' if sends else 'receiving'} {say.rate(last.get('rate_bps'))} "
            f"after {say.seconds(self._rows[-1]['at_s'])}.{old}"
        )


def why(rule: object, loss: object, rtt_ms: object) -> str:
    """Explain a rate decision by its rule and by its inputs, as far as they are known."""
    measured = (("loss", loss, say.frac), ("RTT", rtt_ms, say.ms))
    told = [f"{name} {how(value)}" for name, value, how in measured if number(value) is not None]
    return " · ".join(filter(None, [str(rule or ""), *told]))


def _finite(text: str) -> float | None:
    value = float(text)
    return value if abs(value) < _MOST else None


def _decision(row: Json) -> Json:
    found = row.get("decision")
    return found if isinstance(found, dict) else {}


def _peers(row: Json) -> list[Json]:
    found = row.get("peers")
    return [peer for peer in found if isinstance(peer, dict)] if isinstance(found, list) else []


def _of_peers(row: Json, key: str) -> list[float]:
    return [value for peer in _peers(row) if (value := number(peer.get(key))) is not None]


def _decisions(rows: Sequence[Json], title: str) -> list[Json]:
    found = [(row["at_s"], _decision(row)) for row in rows if _decision(row)]
    if not found:
        return []
    return [
        {
            "flow": "sent",
            "title": title,
            "t": [at for at, _ in found],
            "target": [say.rate(each.get("target_bps")) for _, each in found],
            "why": [why(each.get("rule"), each.get("loss"), each.get("rtt_ms")) for _, each in found],
            "limit": [str(each.get("limit") or "") for _, each in found],
            "by": [str(each["by"]) if each.get("by") else None for _, each in found],
        }
    ]


def _numbers(last: Json, sends: bool, colour: str) -> Json:
    if not sends:
        frames = last.get("frames")
        given = frames if isinstance(frames, dict) else {}
        told = {name: given[name] for name in (*FATES, *given) if name in given}
        heads = [[str(name), f"Frames that were {name}."] for name in told]
        cells = [say.count(value) for value in told.values()]
        row = {"flow": "frames", "title": "frames", "cells": cells, "colour": colour}
        return {"heads": heads, "rows": [row] if told else []}
    heads = [
        ["loss", "Loss between its last two reports."],
        ["RTT", "Round trip, from its reports."],
        ["jitter", "Interarrival jitter (RFC 3550), from its reports."],
        ["silent", "Since it was last heard."],
    ]
    rows = []
    for peer in _peers(last)[:_MOST_PEERS]:
        cells = [
            say.frac(peer.get("loss_frac")),
            say.ms(peer.get("rtt_ms")),
            say.ms(peer.get("jitter_ms")),
            say.seconds(peer.get("silent_s")),
        ]
        name = str(peer.get("name") or "?")[:_NAME]
        rows.append({"flow": f"{name} {peer.get('ssrc')}", "title": name, "cells": cells, "colour": colour})
    return {"heads": heads, "rows": rows}
