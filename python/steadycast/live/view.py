"""The terminal's view of a live session: status, limiting factor, receivers, and hints about problems."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from steadycast.report.say import frac as share
from steadycast.report.say import ms, rate

if TYPE_CHECKING:
    from rich.console import Group

Json = dict[str, Any]

_SILENT_S = 6.0
"""A receiver counts as silent if it has sent no report for longer than this time, in seconds.

Standard receivers send a report every 2.4 to 5 s.
"""

_STILL_S = 2.0
"""A picture counts as frozen if no complete frame has arrived for longer than this time, in seconds.

Sources send at least one frame per second.
"""


def counted(count: int, one: str, many: str) -> str:
    """Format a count, followed by ``one`` (singular) or ``many`` (plural)."""
    return f"{count} {one if count == 1 else many}"


def level(buffer: Json | None) -> str:
    """Describe a play-out buffer: how full it is, how often it was empty, and how many packets did not fit."""
    if buffer is None:
        return "-"
    full = (
        f"{100 * buffer['level_bytes'] / buffer['size_bytes']:.0f} % of {buffer['size_bytes'] / 1024:.0f} KiB"
    )
    return f"{full}, {buffer['underflows']} times empty, {buffer['overflows']} packets too many"


def why(decision: Json | None) -> str:
    """Describe what limits the rate, as one line."""
    if not decision:
        return "starting"
    parts = [decision["rule"]]
    if decision["loss"] is not None:
        parts.append(f"loss {share(decision['loss'])}")
    if decision["rtt_ms"] is not None:
        parts.append(f"RTT {ms(decision['rtt_ms'])}")
    if decision["by"]:
        parts.append(f"set by {decision['by']}")
    limits = {
        "network": "the network limits",
        # Either the best quality of the encoder needs no higher rate, or the encoder is too slow. `hints` says which.
        "encoder": "the encoder limits",
        "start": "start phase",
        "cap": "the cap limits",
        "floor": "the floor limits",
    }
    return f"{limits.get(decision['limit'], decision['limit'])}: {', '.join(parts)}"


_NAMED = 3
"""Maximum number of receivers that hints of one kind mention by name."""


def _few(told: list[str], more: str) -> list[str]:
    rest = len(told) - _NAMED
    return told if rest <= 0 else [*told[:_NAMED], f"{rest} {more}"]


def _more_room(peers: list[Json], *more: str) -> str:
    reported = any(peer["reports"] for peer in peers)
    ways = [*([] if reported else ["a player that sends RTCP"]), "a higher --floor (the key +)", *more]
    return " or ".join(ways) if len(ways) < 3 else f"{', '.join(ways[:-1])}, or {ways[-1]}"


def hints(status: Json, to: str, port: int | None) -> list[str]:
    """Return hints about problems of a sender.

    ``to`` is the destination. ``port`` is the RTCP port, or `None` if the system chose the port.
    """
    found = []
    here = f"port {port} of this machine" if port is not None else "this machine"
    connection = status.get("browser")
    # A browser or WebRTC server sends RTCP over the connection of the media, so no other port has to be open.
    remedy = "" if port is not None or connection else " Give --port N, and open N + 1"
    host = to if connection else to.rpartition(":")[0].strip("[]")
    peers = [p for p in status["peers"] if not p["left"]]
    if connection and connection["state"] in ("checking", "connecting"):
        if status["at_s"] > _SILENT_S:
            found.append(
                f"no connection to {host} for {status['at_s']:.0f} s: check that UDP passes in both directions"
            )
    elif not peers and not (connection and connection["state"] == "ended"):
        # The warnings at the end of the session say why a connection has ended.
        found += _nobody(status, host, f"{here} reachable", remedy)
    silent = [p for p in peers if p["silent_s"] > _SILENT_S]
    found += _few(
        [
            f"no RTCP from {p['address'].rpartition(':')[0].strip('[]')} ({p['name']}) for "
            f"{p['silent_s']:.0f} s: is it still there, and is {here} reachable?{remedy}"
            for p in silent
        ],
        "more receivers are silent",
    )
    found += _few(
        [
            f"{p['name']} sends RTCP, but no report on this stream: does it get any packets?"
            for p in peers
            # A receiver that has just joined may not have received a packet when it sends its first RTCP.
            if p not in silent and not p["reports"] and p["known_s"] > _SILENT_S
        ],
        "more send RTCP, but no report on this stream",
    )
    found += _few(
        [
            f"{p['name']} has reported more losses than packets: these reports are ignored; check how its program "
            "counts losses (RFC 3550, A.3)"
            for p in peers
            if p.get("implausible")
        ],
        "more have reported more losses than packets",
    )
    found += _unreported_sound(status, to, peers)
    if status["refused"]:
        refused = counted(status["refused"], "packet was", "packets were")
        found.append(f"{refused} refused: check that a receiver listens at {to}")
    if status["left_out"]:
        found.append(
            f"the encoder is too slow: {counted(status['left_out'], 'picture was', 'pictures were')} left out; "
            "use a smaller --size or --fps"
        )
    if status["no_room"]:
        pictures = counted(status["no_room"], "picture", "pictures")
        found.append(f"the rate was too low for {pictures}; use {_more_room(peers, 'a smaller --size')}")
    size = status["size"]
    if size and size["smaller"]:
        found.append(
            "the rate is too low for the source's size: pictures are encoded at "
            f"{size['width']}x{size['height']}; use {_more_room(peers)}"
        )
    if status["skipped_frames"]:
        found.append(
            f"{counted(status['skipped_frames'], 'frame was', 'frames were')} skipped: the rate fell faster than the "
            "encoder could"
        )
    if status["feedback_refused"]:
        found.append(
            f"{counted(status['feedback_refused'], 'report was', 'reports were')} ignored: too many from one address, "
            "or not from the receiver"
        )
    if status["unreadable"]:
        found.append(
            f"{counted(status['unreadable'], 'datagram', 'datagrams')} at the RTCP port could not be read"
        )
    if (status["ecn"] or {}).get("failure"):
        found.append(f"{status['ecn']['failure']}: packets leave as not ECN-capable from now on")
    return found


def _nobody(status: Json, host: str, reachable: str, remedy: str) -> list[str]:
    """Return a hint if no receiver reports.

    Either no receiver has reported yet, or the last receiver has left or become silent.
    """
    last = status.get("last_heard")
    if last is not None and last["left"]:
        return [f"{last['name']} left at {last['at_s']:.0f} s: nobody receives"]
    who = f"{host} ({last['name']})" if last is not None else host
    silent_s = status["at_s"] - (last["at_s"] if last is not None else 0.0)
    question = "is it still there, and is" if last is not None else "is"
    if silent_s <= _SILENT_S:
        return []
    end = "?" if last is not None else " from there?"
    return [f"no RTCP from {who} for {silent_s:.0f} s: {question} {reachable}{end}{remedy}"]


_AUDIO_PACKETS = 150
"""A hint appears if no report mentions any of the first 150 audio packets, which last three seconds."""


def _unreported_sound(status: Json, to: str, peers: list[Json]) -> list[str]:
    """Return a hint if no receiver has reported the sound.

    Return no hint if all receivers send only standard reports, without per-packet feedback or the controller's reports.
    """
    audio = status.get("audio")
    if not audio or audio["loss_frac"] is not None or audio["packets"] < _AUDIO_PACKETS:
        return []
    if not any(peer["ours"] or peer["packets"] for peer in peers):
        return []
    port = to.rpartition(":")[2]
    # A browser or WebRTC server receives all streams at one port. Other receivers need a separate port for the sound.
    apart = port.isdecimal() and not status.get("browser")
    check = f"check that UDP reaches port {int(port) + 2}, and" if apart else "check"
    return [f"no receiver has reported any sound: {check} that the receiver takes it"]


def send_line(status: Json) -> str:
    """Format the status of a sender as one line of plain text."""
    decision = status["decision"] or {}
    present = [p for p in status["peers"] if not p["left"]]
    return (
        f"{status['at_s']:6.0f} s  sending {rate(status['rate_bps'])}, target {rate(decision.get('target_bps'))}, "
        f"{len(present)} receiver{'' if len(present) == 1 else 's'}{_again(status)}{_marked(status)}{_smaller(status)}"
        f"; {why(status['decision'])}"
    )


def _marked(status: Json) -> str:
    """Describe the state of ECN: what the path does wrong with ECN, or how many packets were marked."""
    ecn = status["ecn"]
    if ecn is None:
        return ""
    return f", {ecn['failure']}" if ecn["failure"] else f", {_packets(ecn['marked'])} marked"


def _smaller(status: Json) -> str:
    size = status["size"]
    return f", pictures of {size['width']}x{size['height']}" if size and size["smaller"] else ""


def _again(status: Json) -> str:
    repair = status.get("repair") or {}
    again, parity = repair.get("packets"), repair.get("parities")
    return (f", {_packets(again)} sent again" if again else "") + (
        f", {_packets(parity)} of parity" if parity else ""
    )


def _packets(count: int) -> str:
    return f"{count} packet{'' if count == 1 else 's'}"


def _repaired(status: Json) -> str:
    repair = status.get("repair")
    counts = repair and (repair["requests"] or repair["repaired"])
    return f"{repair['repaired']} lost packets were repaired, " if repair and counts else ""


def _came_marked(status: Json) -> str:
    ecn = status.get("ecn")
    return f"{_packets(ecn['marked'])} marked, " if ecn else ""


def send_view(status: Json, to: str, port: int | None) -> Group:
    """Build the terminal's view of a sender."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    decision = status["decision"] or {}
    head = Table.grid(padding=(0, 3))
    ecn = status["ecn"]
    size = status["size"]
    cells: dict[str, Any] = {
        "rate": Text(rate(status["rate_bps"]), style="bold"),
        "target": rate(decision.get("target_bps")),
        "floor": rate(status["floor_bps"]),
        "pacer": ms(status["backlog_ms"]),
        "frames": str(status["frames"] or "-"),
        "size": f"{size['width']}x{size['height']}" if size else "-",
        "quantizer": str(status["quantizer"] or "-"),
        "feedback": f"{status['feedback']} reports",
        **({"ECN": f"{ecn['path']}, {ecn['marked']} marked"} if ecn else {}),
    }
    head.add_row(*cells)
    head.add_row(*cells.values())
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("", "receiver", "address", "reports", "heard", "loss", "RTT", "jitter", "kind"):
        table.add_column(name, justify="left" if name in ("", "receiver", "address", "kind") else "right")
    order = ordered(status)
    for number, peer in enumerate(order[:20], 1):
        limiting = peer["name"] == decision.get("by")
        silent = peer["silent_s"] > _SILENT_S or peer["left"]
        # Print numbers 1 to 9 only, because a receiver is excluded by pressing a single digit.
        table.add_row(
            str(number) if number < 10 else "",
            peer["name"],
            peer["address"],
            str(peer["reports"]),
            "left" if peer["left"] else f"{peer['silent_s']:.1f} s ago",
            share(peer["loss_frac"]),
            ms(peer["rtt_ms"]),
            ms(peer["jitter_ms"]),
            f"ignored: {peer['aside']}" if peer["aside"] else _REPORTS.get(kind(peer), ""),
            style="bold" if limiting else "dim" if silent else "",
        )
    parts: list[Any] = [head, Text(why(status["decision"])), Text("")]
    parts.append(table if status["peers"] else Text("no receiver has reported yet"))
    if len(order) > 20:
        parts.append(Text(f"… and {len(order) - 20} more"))
    parts += [Text(hint, style="yellow") for hint in hints(status, to, port)]
    parts.append(Text("1-9: ignore a receiver   a: ignore none   + -: floor   Ctrl-C: end", style="dim"))
    return Group(*parts)


def kind(peer: Json) -> str:
    """Return how a receiver reports: "ours", "packets" (per-packet feedback) or "standard" (neither of the two).

    "ours" is the format of the controller's own reports (RTCP APP). Returns "left" if the receiver has left, and
    "aside" if the sender ignores its reports.
    """
    if peer["left"]:
        return "left"
    if peer["aside"]:
        return "aside"
    return "ours" if peer["ours"] else "packets" if peer["packets"] else "standard"


_REPORTS = {"ours": "the controller's", "packets": "per packet", "standard": "standard"}


def ordered(status: Json) -> list[Json]:
    """Sort the receivers. The one that determines the rate comes first, then the others by descending loss."""
    by = (status["decision"] or {}).get("by")
    return sorted(status["peers"], key=lambda p: (p["name"] != by, -(p["loss_frac"] or 0)))


def receive_hints(status: Json, address: str) -> list[str]:
    """Return hints about a receiver's problems."""
    found = []
    if other := status["other"]:
        found.append(_waiting(other, status))
    elif status["silent_s"] is None and status["at_s"] > 3:
        if status.get("unused"):
            found.append(f"no usable packet has arrived at {address} for {status['at_s']:.0f} s")
            return [*found, *_unreadable(status), *status["unused_said"]]
        found.append(
            f"no packet has arrived at {address} for {status['at_s']:.0f} s: check that the sender "
            "sends to this address"
        )
    elif status["silent_s"] is not None and status["silent_s"] > 2:
        found.append(f"no packet has arrived for {status['silent_s']:.0f} s")
    elif status["still_s"] is not None and status["still_s"] > _STILL_S:
        found.append(
            f"the picture has been frozen for {status['still_s']:.0f} s: {_undecoded(status['frames'])}"
        )
    if status["overrun"]:
        found.append(f"{counted(status['overrun'], 'frame was', 'frames were')} not written in time")
    return [*found, *_unreadable(status), *status["odd"]]


def _undecoded(frames: Json) -> str:
    if frames["undecodable"] and not frames["whole"]:
        return "no key frame has arrived yet; the sender should send one at least every few seconds"
    return "no frame arrived that can be decoded"


def _unreadable(status: Json) -> list[str]:
    # The short datagrams of a transport stream do not show what they are.
    if not status["unreadable"] or status.get("unused", {}).get("mpeg_ts"):
        return []
    why = "the key may be wrong" if status.get("keyed") else "is the stream encrypted?"
    return [f"{counted(status['unreadable'], 'datagram', 'datagrams')} could not be read: {why}"]


def _waiting(other: Json, status: Json) -> str:
    who = f"another source (SSRC {other['ssrc']}, address {other['from']}) sends here"
    if status["silent_s"] is not None and status["silent_s"] < 1:
        return f"{who}; it is ignored while {status['from']} sends"
    return f"{who}; it will be received in {other['after_s']:.0f} s"


def _not_whole(frames: Json) -> int:
    """Count the frames that are incomplete, or that refer to incomplete frames."""
    return int(frames["damaged"] + frames["missing"] + frames["undecodable"])


def receive_line(status: Json) -> str:
    """Format the status of a receiver as one line of plain text."""
    frames = status["frames"]
    return (
        f"{status['at_s']:6.0f} s  receiving {rate(status['rate_bps'])}, loss {share(status['loss_frac'])}, "
        + _repaired(status)
        + _came_marked(status)
        + (f"buffer {level(status['buffer'])}, " if status["buffer"] else "")
        + f"jitter {ms(status['jitter_ms'])}, frames {frames['whole']} whole, "
        f"{_not_whole(frames)} not; {status['reports']} reports sent"
    )


def receive_view(status: Json, address: str) -> Group:
    """Build the terminal's view of a receiver."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    frames, view = status["frames"], status["view"]
    head = Table.grid(padding=(0, 3))
    head.add_row(
        "rate", "loss", "delay above minimum", "jitter", "whole frames", "other frames", "reports sent"
    )
    head.add_row(
        Text(rate(status["rate_bps"]), style="bold"),
        share(status["loss_frac"]),
        ms(status["delay_ms"]),
        ms(status["jitter_ms"]),
        str(frames["whole"]),
        str(_not_whole(frames)),
        str(status["reports"]),
    )
    said = f"from {status['from'] or 'no sender yet'}, reports to {status['reports_to'] or 'the group'}"
    asks = (
        f"asks for {rate(view['rate_bps'])}: loss {share(view['loss'])}, RTT {ms(view['rtt_ms'])}"
        + (f", {view['state']}" if view["state"] else "")
        if view["rate_bps"] is not None
        else ""
    )
    parts: list[Any] = [head, Text(said), Text(asks)]
    if status["buffer"]:
        parts.append(Text(f"play-out buffer {level(status['buffer'])}"))
    parts += [Text(hint, style="yellow") for hint in receive_hints(status, address)]
    return Group(*parts)


def _kind(hint: str) -> str:
    """Return a hint without counts and durations, so that the same hint is recognised when these numbers change."""
    before = hint.partition(" for ")[0].partition("; followed")[0]
    # Remove numbers that precede a word, because they are counts. Numbers in addresses and ports stay.
    before = re.sub(r"(?<![\w.:])\d[\d,]*(?= [a-z])", "", before)
    return before.replace("pictures were", "picture was").replace("frames were", "frame was")


class Keys:
    """Reads key presses from a terminal while its ``with`` block runs."""

    def __init__(self) -> None:
        self._before: Any = None

    def __enter__(self) -> Self:
        if sys.stdin.isatty() and sys.stderr.isatty():
            import termios
            import tty

            self._before = termios.tcgetattr(sys.stdin)
            # Use cbreak mode instead of raw mode, so that Ctrl-C still interrupts the program.
            tty.setcbreak(sys.stdin)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            import termios

            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def pressed(self) -> str:
        """Return the keys pressed since the last call."""
        import select

        found = ""
        while self._before is not None and select.select([sys.stdin], [], [], 0)[0]:
            key = sys.stdin.read(1)
            if not key:
                break
            found += key
        return found


class Watch:
    """Shows a session on stderr.

    A terminal shows a view that is refreshed. Otherwise a line is printed periodically.
    """

    EVERY_S = 5.0

    def __init__(
        self,
        line: Callable[[Json], str],
        view: Callable[[Json], Group],
        missing: Callable[[Json], list[str]],
    ) -> None:
        self._line, self._view, self._missing = line, view, missing
        self._live: Any = None
        self._next = 0.0
        self._told: set[str] = set()
        self.in_terminal = sys.stderr.isatty()
        self.period_s = 0.25 if self.in_terminal else 0.5

    def __enter__(self) -> Self:
        if self.in_terminal:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), auto_refresh=False)
            self._live.__enter__()
        self._next = time.monotonic() + self.EVERY_S
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def follow(
        self,
        core: Any,
        until: float,
        told: Callable[[Json | None], None],
        show: Callable[[Json | None], None],
    ) -> None:
        """Poll a core session until it ends, or until `time.monotonic` reaches ``until``."""
        while not core.done and time.monotonic() < until:
            time.sleep(max(0.0, min(self.period_s, until - time.monotonic())))
            status = json.loads(core.status())
            told(status)
            # Ignore errors of a closed terminal, because they must not end the session.
            with suppress(OSError):
                show(status)

    def show(self, status: Json | None) -> None:
        """Show the present status. Outside of a terminal, print only hints that were not printed before."""
        if not status:
            return
        if self._live is not None:
            self._live.update(self._view(status), refresh=True)
            return
        if time.monotonic() >= self._next:
            self._next += self.EVERY_S
            print(self._line(status), file=sys.stderr)
        for hint in self._missing(status):
            key = _kind(hint)
            if key not in self._told:
                self._told.add(key)
                print(f"         {hint}", file=sys.stderr)
