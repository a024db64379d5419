"""Viewers are browsers. Each viewer has its own live sender, but the source is encoded once for all."""

from __future__ import annotations

import json
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from steadycast.controllers import registry
from steadycast.errors import UserError, meant
from steadycast.folder import Draft, Json, free_or_force
from steadycast.live import outlets, send, view
from steadycast.live.flow import WEB_CODECS, Flow, encoding
from steadycast.live.source import Plan, plan
from steadycast.progress import Progress
from steadycast.serve.broadcast import LiveSource, Settings
from steadycast.serve.capacity import Capacity, cores
from steadycast.serve.publisher import SOURCE as WHIP
from steadycast.serve.publisher import Publishers

UNFINISHED = 16
"""Maximum number of viewers that may be connecting at the same time."""
_LOOK_S = 0.5
"""Polling interval for the status of a session, in seconds."""
_KEPT = 8
"""Number of viewers that are still listed after they have left."""
_END_S = 5.0
"""Time limit for ending a session, in seconds."""
_NAMED = 40
"""Messages contain at most this number of characters of a controller's name."""
_HANDLE = 4
"""Length of the public beginning of a viewer's id.

The id has 22 characters. The other 18 are secret (108 bits).
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of the command line."""

    source: str
    flow: Flow = field(default_factory=dict)
    """Values of the options in `flow.OPTIONS`, for the flow of each viewer. The keys are the names of the options."""
    listen: str = "127.0.0.1:8080"
    media_port: int = 40_000
    media_ports: str | None = None
    """A former option: a range of ports, of which only the first port is used."""
    media_address: Sequence[str] | None = None
    certificate: Path | None = None
    key: Path | None = None
    public_url: str | None = None
    allow_origin: Sequence[str] | None = None
    viewers: int = 4
    no_token: bool = False
    loop: bool = False
    ladder: bool = False
    keep_size: bool = False
    no_audio: bool = False
    out: Path | None = None
    force: bool = False
    outlets: outlets.Options = field(default_factory=outlets.Options)


class FullError(UserError):
    """An error that is raised if all places are taken or too many viewers are connecting. The client may try again."""


class Viewer:
    """A browser, and the session that sends to it."""

    def __init__(self, number: int, core: Any, planned: Plan, controller: str) -> None:
        self.id = secrets.token_urlsafe(16)
        """A secret. A browser that knows it may end the session."""
        self.number, self.controller = number, controller
        self.core, self.planned = core, planned
        self.began = time.monotonic()
        self.status: Json | None = None
        self.failed: BaseException | None = None
        self.thread: threading.Thread | None = None
        self.why: str | None = None
        """Why the server has ended the session."""
        self.told: outlets.Outlets | None = None

    @property
    def name(self) -> str:
        """Name of the viewer in log lines, records and metrics."""
        return f"viewer-{self.number}"

    @property
    def browser(self) -> Json:
        """State of the connection, why it has ended, and the address of the browser."""
        none = {"state": "checking", "why": None, "address": None, "silent_s": None, "is_silent": False}
        return {**none, **((self.status or {}).get("browser") or {})}

    @property
    def is_silent(self) -> bool:
        """Whether a browser is connected but has sent nothing for too long."""
        return not self.core.done and bool(self.browser["is_silent"])

    @property
    def unfinished(self) -> bool:
        """Whether the browser is still connecting."""
        return not self.core.done and self.browser["state"] in ("checking", "connecting")

    def shown(self) -> Json:
        """Return data about the viewer for the page."""
        status = self.status or {}
        decision, browser = status.get("decision") or {}, self.browser
        peers = [peer for peer in status.get("peers", ()) if not peer["left"]]
        first = peers[0] if peers else {}
        ended = self.core.done
        return {
            "id": self.id[:_HANDLE],
            "name": self.name,
            "controller": self.controller,
            "state": "ended" if ended else "silent" if self.is_silent else browser["state"],
            "ended_by": str(self.failed or self.why or browser["why"] or "") if ended else browser["why"],
            "address": browser["address"],
            "at_s": status.get("at_s"),
            "rate_bps": status.get("rate_bps"),
            "target_bps": decision.get("target_bps"),
            "rtt_ms": first.get("rtt_ms") or decision.get("rtt_ms"),
            "loss_frac": first.get("loss_frac"),
            # Leave out the name of the receiver that determines the rate, because there is only one receiver.
            "why": view.why(decision and {**decision, "by": None}),
            "frames": status.get("frames"),
            "skipped": status.get("skipped_frames"),
            "left_out": status.get("left_out"),
            "audio": status.get("audio"),
            "again": (status.get("repair") or {}).get("packets"),
            "key_frames": status.get("key_frames"),
            "size": status.get("size"),
            "rung": status.get("rung"),
        }


class Viewers:
    """The viewers of a source."""

    def __init__(self, options: Options, progress: Progress | None = None) -> None:
        flow: dict[str, object] = {"codec": WEB_CODECS[0], **options.flow}
        if flow["codec"] not in WEB_CODECS:
            remedy = f"take {', '.join(WEB_CODECS)}"
            raise UserError(f"--codec {flow['codec']}", "no browser plays what is sent of it", remedy)
        if options.source == "greedy":
            raise UserError(options.source, "there are no pictures", 'use a file, "testsrc" or a camera')
        if options.source == WHIP and options.ladder:
            what = "what a publisher sends can't be encoded before"
            raise UserError("--ladder", what, "leave --ladder out, or serve a file")
        if options.out is not None:
            free_or_force(options.out, force=options.force)
        self.options = replace(options, flow=flow)
        self._all: dict[str, Viewer] = {}
        self._left: deque[Viewer] = deque(maxlen=_KEPT)
        self._numbers = iter(range(1, sys.maxsize))
        self._lock = threading.Lock()
        self.default = str(flow.get("controller") or send.default_controller("127.0.0.1:1", flow.get("mode")))
        self.controllers = [each.name for each in registry() if each.cast != "multicast"]
        self._ladder, self.live = self._laddered(progress) if options.ladder else None, None
        if self._ladder is None:
            settings = Settings(options.source, flow, options.loop, options.keep_size, not options.no_audio)
            self.live = LiveSource(settings, say)
        self.capacity = self._check()

    def _laddered(self, progress: Progress | None) -> Plan:
        options = self.options
        return plan(
            options.source,
            **encoding(options.flow),
            loop=options.loop,
            ladder=True,
            audio=not options.no_audio,
            progress=progress,
        )

    def _check(self) -> Capacity:
        """Check the source and the options as a viewer's session would. Return an estimate of how many viewers fit."""
        planned = self._ladder or self._source().checked()
        flow = {**self.options.flow, "controller": self.default}
        settings = send.settings_of(send.Options(source=self.options.source, to="127.0.0.1:1", mux=True))
        send.checked(settings, flow, planned)
        self._named(self.default)
        if self._ladder is None:
            return self._source().capacity
        return Capacity(cores(), 0.0, sound=0.0 if planned.audio is None else planned.audio.cost())

    def _source(self) -> LiveSource:
        assert self.live is not None
        return self.live

    @property
    def publishers(self) -> Publishers | None:
        """The publishers that can be the source. `None` if the source is not a publisher."""
        return None if self.live is None else self.live.publishers

    def __iter__(self) -> Iterator[Viewer]:
        with self._lock:
            return iter([*self._all.values(), *self._left])

    def told(self) -> list[outlets.Outlets]:
        """Return the outputs of the viewers that are watching."""
        with self._lock:
            return [each.told for each in self._all.values() if each.told is not None]

    def offer(self, sdp: str, media: tuple[Any, list[str]], controller: str | None = None) -> Viewer:
        """Start a session that answers a browser's offer.

        ``media`` is the core's `MediaPort`, and the addresses at which browsers can reach it.

        Raises:
            FullError: all places are taken, or `UNFINISHED` viewers are connecting.
            UserError: the offer can't be answered. Its ``place`` is ``offer.codec`` if the codecs do not match.

        """
        flow = {**self.options.flow, "controller": self._named(controller)}
        if flow["controller"] != self.default:
            # Drop the parameters, because they are for the controller that the command line specifies.
            flow.pop("param", None)
        self._make_room()
        with self._lock:
            present = [each for each in self._all.values() if not each.core.done]
            unfinished = sum(each.unfinished for each in present)
            if len(present) >= self.options.viewers:
                raise FullError("viewers", f"all {len(present)} places are taken", "try again later")
            if unfinished >= UNFINISHED:
                problem = f"{unfinished} other viewers are connecting at this moment"
                raise FullError("viewers", problem, "try again in a few seconds")
            settings = send.settings_of(send.Options(source=self.options.source, to="", mux=True))
            del settings["to"]
            settings |= {"offer": sdp, "media": media}
            planned = self._ladder or self._source().plan()
            try:
                core = send.begun(settings, flow, planned)
            except UserError:
                self._settle()
                raise
            viewer = Viewer(next(self._numbers), core, planned, str(flow["controller"]))
            self._all[viewer.id] = viewer
        viewer.thread = threading.Thread(target=self._follow, args=(viewer,), daemon=True, name=viewer.name)
        viewer.thread.start()
        return viewer

    def _make_room(self) -> None:
        """If all places are taken, end the session of the viewer that has been silent for the longest time."""
        with self._lock:
            present = [each for each in self._all.values() if not each.core.done]
            silent = [each for each in present if each.is_silent]
        if len(present) < self.options.viewers or not silent:
            return
        viewer = max(silent, key=lambda each: each.browser["silent_s"] or 0.0)
        viewer.why = f"it was silent for {viewer.browser['silent_s']:.0f} s, and its place was wanted"
        viewer.core.stop()
        if viewer.thread is not None:
            viewer.thread.join(_END_S)

    def _settle(self) -> None:
        """Stop encoding if there are no viewers. The caller must hold the lock."""
        if self.live is not None and not self._all:
            self.live.settle()

    def _named(self, controller: str | None) -> str:
        if controller is None:
            return self.default
        if controller not in self.controllers:
            remedy = meant(controller[:_NAMED], self.controllers)
            raise UserError(f"controller {controller[:_NAMED]}", "there is no such controller", remedy)
        return controller

    def end(self, name: str) -> bool:
        """End the session of a viewer, and send a BYE. Return false if there is no viewer that has this id."""
        with self._lock:
            viewer = self._all.get(name)
        if viewer is not None:
            viewer.core.stop()
        return viewer is not None

    def close(self) -> None:
        """End all sessions, and wait until their records are written."""
        with self._lock:
            present = list(self._all.values())
        for each in present:
            each.core.stop()
        for each in present:
            if each.thread is not None:
                each.thread.join(_END_S)
        if self.live is not None:
            self.live.close()

    def _follow(self, viewer: Viewer) -> None:
        options = self.options
        try:
            with ExitStack() as stack:
                draft = None
                if options.out is not None:
                    options.out.mkdir(parents=True, exist_ok=True)
                    place = options.out / viewer.name
                    draft = stack.enter_context(Draft(place, force=options.force))
                # Start no metrics server here, because all viewers share one.
                asked = replace(options.outlets, metrics=None)
                told = stack.enter_context(outlets.Outlets(asked, "send", viewer.name, alone=False))
                viewer.told = told
                worker = send.working(viewer.core, viewer.planned)
                self._look(viewer, told)
                send.recorded(viewer.core, viewer.planned, worker, draft)
                if self.live is not None and self.live.failed is not None:
                    raise self.live.failed
        except BaseException as error:
            viewer.failed = error
            viewer.core.stop()
        finally:
            with self._lock:
                self._all.pop(viewer.id, None)
                self._left.append(viewer)
                self._settle()
            say(
                f"{viewer.name} has left: {viewer.failed or viewer.why or viewer.browser['why'] or 'it said so'}"
            )

    def _say_how_many(self) -> None:
        with self._lock:
            count = sum(each.browser["state"] == "connected" for each in self._all.values())
        if count > 1:
            say(
                f"{count} viewers watch, each by a stream of its own: where they share a link, each has about "
                f"1/{count} of what one alone had (--viewers limits their number)"
            )

    def _look(self, viewer: Viewer, told: outlets.Outlets) -> None:
        state = ""
        while True:
            over = viewer.core.done
            viewer.status = json.loads(viewer.core.status()) or viewer.status
            told.look(viewer.status)
            if viewer.browser["state"] != state:
                state = viewer.browser["state"]
                if state == "connected":
                    say(f"{viewer.name} watches from {viewer.browser['address']}, by {viewer.controller}")
                    self._say_how_many()
            if over:
                return
            viewer.core.wait(_LOOK_S)


def say(what: str) -> None:
    """Print a line for the operator."""
    # Ignore errors of a closed standard error, because they must not end the server.
    with suppress(OSError):
        print(what, file=sys.stderr, flush=True)
