"""A publisher as the source of `serve`. It is a browser, OBS or a Steadycast sender that uses WHIP (RFC 9725).

One publisher sends at a time. When it leaves, viewers keep the last picture.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np

from steadycast.errors import UserError
from steadycast.folder import Json
from steadycast.live import session
from steadycast.live.encoder import Shape
from steadycast.live.receiver import Outbox
from steadycast.live.source import Newest
from steadycast.media.clip import parse_fps, parse_size
from steadycast.media.table import U8

SOURCE = "whip"
_SIZE = (1280, 720)
"""Default size of the source's pictures. It stays the same when a publisher changes the size of its own pictures."""
_FPS = Fraction(30)
"""Default for the highest frame rate, in pictures per second."""
_CLOCK = 90_000
"""Ticks per second of the time stamps."""
_APART_S = 0.5
"""The arrival of a picture does not match its time stamp if they differ by more than this, in seconds.

Then the publisher has stalled, or its clock was reset.
"""
_STALL_S = 2.0
"""The clock was reset if arrivals and time stamps differ by more than `_APART_S` for longer than this, in seconds.

If they differ for a shorter time, the publisher has stalled. The clock was also reset if a time stamp goes back, or if
it advances by more than the elapsed time plus `_STALL_S`. A reset interrupts the sound.
"""
_PAUSE_S = 0.1
"""If the gap before an audio packet is longer than this, in seconds, a talkspurt begins (RFC 3551, section 4.1)."""
_ROOM = 2
"""Maximum number of decoded pictures in the queue."""
_STALE_S = 0.2
"""Sound is dropped if it is older than the newest sound by more than this, in seconds.

Sound waits for the first sender report of the publisher, which may come seconds after the first packet. Without this
limit, all sound of this time would reach the viewers together and delay later sound for a long time.
"""
_POLL_S = 0.02
"""Polling interval for audio packets, in seconds. It equals the duration of a packet."""
_BLACK = (16, 128)
"""Luma and chroma of black (BT.601)."""
_UFRAG = re.compile(r"^a=ice-ufrag:(\S+)", re.MULTILINE)


class BusyError(UserError):
    """Refuses a publisher because another publisher is sending."""


class RestartError(UserError):
    """A request for new ICE credentials."""


class Published(Newest):
    """The pictures of the publisher that is sending, scaled to one size.

    Black bars are added if their aspect ratio differs.
    """

    def __init__(self, size: str, fps: str) -> None:
        width, height = parse_size(size, _SIZE)
        super().__init__(Shape(width, height, parse_fps(fps, _FPS)), [])

    def put(self, at: float, frame: Any) -> None:
        """Add a decoded picture. ``at`` is when it was taken, in seconds of a monotonic clock."""
        self._put(at, fitted(frame, self.shape.width, self.shape.height))

    def since_first(self, at: float) -> float | None:
        """Return the time from the source's first picture to ``at``, in seconds.

        Returns `None` before the first picture.
        """
        with self._change:
            return None if self._began is None else at - self._began

    def stop(self) -> None:
        """End the source."""
        self._end()


def fitted(frame: Any, width: int, height: int) -> U8:
    """Return the samples of a picture (yuv420p), scaled to this size.

    Black bars are added if its aspect ratio differs.
    """
    scale = min(Fraction(width, frame.width), Fraction(height, frame.height))
    inner = [
        # Make the sides even, because the colour planes of 4:2:0 have half the width and height.
        max(2, min(most, round(side * scale / 2) * 2))
        for side, most in ((frame.width, width), (frame.height, height))
    ]
    samples = frame.reformat(*inner, format="yuv420p", interpolation="BICUBIC").to_ndarray()
    if inner == [width, height]:
        return np.asarray(samples, dtype=np.uint8).reshape(-1)
    # Fill Y, U and V. The chroma planes have half the width and height.
    planes, taken = [], samples.reshape(-1)
    for half, value in ((1, _BLACK[0]), (2, _BLACK[1]), (2, _BLACK[1])):
        wide, high = inner[0] // half, inner[1] // half
        plane = np.full((height // half, width // half), value, dtype=np.uint8)
        top, left = (height // half - high) // 2, (width // half - wide) // 2
        plane[top : top + high, left : left + wide] = taken[: wide * high].reshape(high, wide)
        planes.append(plane.reshape(-1))
        taken = taken[wide * high :]
    return np.concatenate(planes)


class _Clock:
    """Converts the time stamps of a publisher to times of this machine's monotonic clock."""

    def __init__(self) -> None:
        self._offset: float | None = None
        self._last = (0.0, 0.0)
        self._apart_since: float | None = None

    def at(self, ticks: int, now: float) -> float:
        """Return the time of a picture whose time stamp is ``ticks``. ``now`` is when the picture was decoded."""
        media = ticks / _CLOCK
        if self._offset is None or self._was_reset(media, now, self._offset):
            self._offset, self._apart_since = now - media, None
        self._last = (media, now)
        return media + self._offset

    def _was_reset(self, media: float, now: float, offset: float) -> bool:
        step, elapsed = media - self._last[0], now - self._last[1]
        if step < 0 or step > elapsed + _STALL_S:
            return True
        if abs(now - media - offset) <= _APART_S:
            self._apart_since = None
            return False
        if self._apart_since is None:
            self._apart_since = now
        return now - self._apart_since > _STALL_S

    def known(self, ticks: int) -> float | None:
        """Return the time that belongs to the time stamp ``ticks``, or `None` before the first picture."""
        return None if self._offset is None else ticks / _CLOCK + self._offset


def _fresh(packets: list[tuple[int, int, bytes]]) -> list[tuple[int, bytes]]:
    """Return the time stamp and the data of each audio packet. Packets that are too old are left out (`_STALE_S`)."""
    oldest = packets[-1][0] - round(_STALE_S * _CLOCK) if packets else 0
    return [(ticks, data) for ticks, _, data in packets if ticks >= oldest]


class Publisher:
    """A publisher, and the session that receives from it."""

    def __init__(self, core: Any, offer: str) -> None:
        self.id = secrets.token_urlsafe(16)
        """A secret. A publisher that knows it may end the session."""
        self.core = core
        self.why: str | None = None
        """Why this server has ended the session."""
        self.failed: BaseException | None = None
        self.pictures = 0
        self.size: tuple[int, int] | None = None
        self._ufrags = set(_UFRAG.findall(offer))
        self.status: Json = {}
        self.thread: threading.Thread | None = None

    @property
    def connection(self) -> Json:
        """State of the connection, why it has ended, and the address of the publisher."""
        return {"state": "checking", "why": None, "address": None, "is_silent": False} | (
            self.status.get("browser") or {}
        )

    def look(self) -> None:
        """Read the session's status."""
        self.status = json.loads(self.core.status()) or self.status

    def is_restart(self, fragment: str) -> bool:
        """Whether an SDP fragment contains other ICE credentials than the offer."""
        return not set(_UFRAG.findall(fragment)) <= self._ufrags

    def shown(self) -> Json:
        """Return data about the publisher for the page."""
        connection, status = self.connection, self.status
        size = self.size
        return {
            "state": "ended"
            if self.core.done
            else "silent"
            if connection["is_silent"]
            else connection["state"],
            "address": connection["address"],
            "codec": self.core.codec,
            "audio": self.core.has_audio,
            "size": None if size is None else {"width": size[0], "height": size[1]},
            "rate_bps": status.get("rate_bps"),
            "loss_frac": status.get("loss_frac"),
            "pictures": self.pictures,
            "why": str(self.failed or self.why or connection["why"] or "") or None,
        }


class Publishers:
    """Admits publishers. Only one of them is the source at a time."""

    def __init__(
        self,
        pictures: Published,
        hear: Callable[[float, bool, bytes], None],
        told: Callable[[str], None],
        *,
        audio: bool,
    ) -> None:
        self.pictures, self._hear, self._told, self._audio = pictures, hear, told, audio
        self._lock = threading.Lock()
        self.present: Publisher | None = None
        """The publisher that is sending, or else the last one that has sent."""

    def offer(self, sdp: str, media: tuple[Any, list[str]]) -> Publisher:
        """Start to receive from the publisher that has sent this offer.

        Raises:
            BusyError: another publisher is sending.
            UserError: the offer can't be answered. Its ``place`` is ``offer.codec`` if the codecs do not match.

        """
        with self._lock:
            former = self.present
            if former is not None and not former.core.done:
                former.look()
                # A silent publisher may have stopped without ending its session, so another publisher may replace it.
                if not former.connection["is_silent"]:
                    raise BusyError(
                        "publisher", "another one is sending", "end that one first, or try again later"
                    )
                former.why = "it was silent, and another publisher came"
                former.core.stop()
            settings = {"offer": sdp, "media": media, "audio": self._audio, "cname": session.own_name()}
            found = Publisher(session.live_core().Receiver(settings), sdp)
            self.present = found
        found.thread = threading.Thread(target=self._follow, args=(found,), daemon=True, name="publisher")
        found.thread.start()
        return found

    def named(self, name: str) -> Publisher | None:
        """Return the publisher that has this id. Return `None` if it has ended or is not known."""
        with self._lock:
            found = self.present
        known = found is not None and secrets.compare_digest(found.id.encode(), name.encode())
        return found if known and found is not None and not found.core.done else None

    def shown(self) -> Json:
        """Return data about the publisher for the page."""
        found = self.present
        return {"state": "waiting"} if found is None else found.shown()

    def close(self) -> None:
        """End the publisher's session and the source."""
        found = self.present
        if found is not None:
            found.core.stop()
            if found.thread is not None:
                found.thread.join(5.0)
        self.pictures.stop()

    def _follow(self, publisher: Publisher) -> None:
        clock = _Clock()
        # WebRTC encoders send no B frames, so low delay is safe.
        outbox = Outbox(publisher.core, _ROOM, low_delay=True, scaled=False)
        threads = [
            threading.Thread(target=outbox.run, daemon=True, name="publisher-decoder"),
            threading.Thread(target=self._pictures_of, args=(publisher, outbox, clock), daemon=True),
        ]
        if publisher.core.has_audio:
            threads.append(threading.Thread(target=self._audio_of, args=(publisher, clock), daemon=True))
        for thread in threads:
            thread.start()
        is_known = False
        while not publisher.core.wait(0.25):
            publisher.look()
            if not is_known and publisher.connection["state"] == "connected":
                is_known = True
                sound = " and sound" if publisher.core.has_audio else ""
                self._told(
                    f"a publisher sends {publisher.core.codec}{sound} from {publisher.connection['address']}"
                )
        publisher.look()
        for thread in threads:
            thread.join(5.0)
        publisher.failed = publisher.failed or outbox.failed
        with suppress(UserError):
            publisher.core.finish()
        why = publisher.failed or publisher.why or publisher.connection["why"] or "it said so"
        self._told(
            f"the publisher has left: {why}. Viewers keep the last picture until another publisher sends"
        )

    def _pictures_of(self, publisher: Publisher, outbox: Outbox, clock: _Clock) -> None:
        try:
            while (found := outbox.get(None)) is not None:
                frame, ticks, _, whole = found
                at = clock.at(ticks, time.monotonic())
                # Skip damaged pictures. The last whole picture stays until the key frame arrives that was requested.
                if whole:
                    publisher.pictures, publisher.size = publisher.pictures + 1, (frame.width, frame.height)
                    self.pictures.put(at, frame)
        except BaseException as error:
            publisher.failed = error
            publisher.core.stop()

    def _audio_of(self, publisher: Publisher, clock: _Clock) -> None:
        last = -1e9
        while not publisher.core.wait(_POLL_S):
            for ticks, data in _fresh(publisher.core.audio()):
                known = clock.known(ticks)
                at = None if known is None else self.pictures.since_first(known)
                if at is not None and at >= 0:
                    self._hear(at, at - last > _PAUSE_S, data)
                    last = at
