"""A live source of `serve`. It is encoded once for all viewers, at a few rates (rungs) whose key frames coincide."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast import units
from steadycast.errors import UserError
from steadycast.live import session
from steadycast.live.encoder import Encoder
from steadycast.live.flow import Flow, encoding
from steadycast.live.source import Filed, Pattern, Pictures, Plan, pictures_of, steering
from steadycast.media.ladder import as_options, codec_of
from steadycast.serve import publisher
from steadycast.serve.capacity import Capacity, cores, rungs_for

if TYPE_CHECKING:
    from steadycast.live.audio import Work as AudioWork

_MEASURED = 24
"""Maximum number of pictures that are encoded to measure how expensive an encoder is."""
_BOTTOM_BPS = 100_000
"""Target rate of the lowest rung, in bit/s."""
_TOP_BITS = 1.0
"""Bits per luma sample at the target rate of the highest rung."""
_TOP_BPS = (500_000, 8_000_000)
"""Lower and upper bound for the target rate of the highest rung, in bit/s."""
_BELOW_CAP = 0.65
"""Upper limit for the target rate of the highest rung, as a fraction of `--max-rate`.

A viewer gets a higher rung only if that rung's peak rate is at most 0.8 of the viewer's target rate (`CLIMB_SHARE` in
`crates/media/src/rungs.rs`). So the peak rate of the highest rung may be 0.8 / 0.65 = 1.23 times its target rate.
"""
NICER = 5
"""This number is added to the nice value of threads that encode."""


@dataclass(frozen=True)
class Settings:
    """The options of a live source."""

    source: str
    flow: Flow
    loop: bool
    keep_size: bool
    audio: bool


class _Encoders:
    def __init__(self, make: Callable[[], Encoder], pictures: Pictures, rungs: int) -> None:
        self.encoders = [make() for _ in range(rungs)]
        self.pictures = pictures
        self.failed: BaseException | None = None

    def __call__(self, broadcast: Any, told: Callable[[str], None]) -> None:
        """Encode each picture at all rungs when the picture is due. Return when the broadcast ends."""
        given_up = 0
        try:
            with ThreadPoolExecutor(max(1, round(cores())), "rungs") as pool:
                while (job := broadcast.next_job(0.5)) is not False:
                    if job is None:
                        self.pictures.passed()  # resets the count, because nobody missed these pictures
                        continue
                    number, first, rungs = job
                    if first and (now := broadcast.status()[1]) != given_up:
                        told(changed(broadcast, returned=now < given_up))
                        given_up = now
                    taken = self.pictures.picture(number)
                    if passed := self.pictures.passed():
                        broadcast.passed(passed)
                    if taken is None:
                        self.failed = self.pictures.close()
                        return
                    number, samples = taken

                    def unit(
                        encoder: Encoder, rung: tuple[int, int], samples: Any = samples, first: bool = first
                    ) -> Any:
                        return encoder.unit(samples, first=first, quantizer=rung[0], size=rung[1])

                    # Use the encoders of the lowest rungs, because the highest rungs are given up first.
                    units = list(pool.map(unit, self.encoders[-len(rungs) :], rungs))
                    broadcast.push(number, units, self.pictures.taken_s)
        except BaseException as error:
            self.failed = error
        finally:
            broadcast.end()


def yield_to_senders() -> None:
    """Lower the priority of this thread, which encodes, below the priority of the senders.

    A late packet would look like queueing delay. So on a slow machine the encoders fall behind instead, and rungs are
    given up.
    """
    # Set the nice value of this thread only. Linux has one for each thread.
    with suppress(OSError):
        here = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, here, os.getpriority(os.PRIO_PROCESS, here) + NICER)


def changed(broadcast: Any, *, returned: bool) -> str:
    """Return a line for the operator. It says that a rung was given up, or that it is encoded again."""
    rungs, given_up, _ = broadcast.status()
    count, top = f"{len(rungs)} of {len(rungs) + given_up} rungs", f"up to {rungs[0][0] / 1e6:.2g} Mb/s"
    if returned:
        return f"the encoders are on time again: {count} are encoded, {top}"
    return f"the encoders fall behind: {count} are left, {top}. Serve a smaller --size or --fps"


class _Running:
    def __init__(
        self,
        medium: dict[str, Any],
        encoders: _Encoders,
        audio: AudioWork | None,
        told: Callable[[str], None],
        *,
        has_sound: bool,
    ):
        self.core, self.encoders = medium["broadcast"], encoders
        self.plan = Plan(medium, None, warnings=encoders.pictures.warnings, sound_is_shared=has_sound)

        def encode() -> None:
            yield_to_senders()  # the threads of the encoders inherit the priority
            encoders(self.core, told)

        self._threads = [threading.Thread(target=encode, daemon=True, name="encoders")]
        if audio is not None:
            self._threads.append(threading.Thread(target=audio, args=(self.core,), daemon=True, name="audio"))
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self.core.close()
        for thread in self._threads:
            thread.join(5.0)


class LiveSource:
    """A live source. A file and the test pattern begin with their first viewer and end with their last viewer."""

    def __init__(self, settings: Settings, told: Callable[[str], None]) -> None:
        self._settings, self._told = settings, told
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._codec = codec_of(str(settings.flow["codec"]))
        self._encoding = encoding(settings.flow)
        pictures, self._clip = self._open()
        # Keep a camera or a pipe open, because it can be opened only once.
        self._kept = pictures if pictures.own_pace else None
        self.publishers: publisher.Publishers | None = None
        """The publishers that can be the source. `None` if the source is not a publisher."""
        if isinstance(pictures, publisher.Published):
            self.publishers = publisher.Publishers(pictures, self._hear, told, audio=settings.audio)
        self.cost_s = self._measured(self._alike(pictures))
        self.fps = float(pictures.shape.fps)
        shape = pictures.shape
        wanted = _TOP_BITS * shape.width * shape.height * self.fps
        self._top_bps = min(max(round(wanted), _TOP_BPS[0]), _TOP_BPS[1])
        self.rungs = rungs_for(self.cost_s, self.fps)
        self._sound = self._sound_of(pictures)
        self.sound_cores = 0.0 if self._sound is None else self._sound.cost()

    def _open(self) -> tuple[Pictures, str | None]:
        with as_options():
            given = self._settings
            if given.source == publisher.SOURCE:
                return publisher.Published(self._encoding["size"], self._encoding["fps"]), None
            return pictures_of(given.source, self._encoding["size"], self._encoding["fps"], loop=given.loop)

    def _encoder(self, pictures: Pictures) -> Encoder:
        with as_options():
            # Use the baseline profile, because all browsers can decode it.
            profile = "baseline" if self._codec.name == "h264" else ""
            gop, keep = self._encoding["gop"], self._settings.keep_size
            return Encoder(self._codec, pictures.shape, gop, keep_size=keep, profile=profile)

    def _alike(self, pictures: Pictures) -> Pictures:
        """Return pictures with which the cost of the encoders can be measured.

        They are the source's pictures. If the source is a publisher, it has sent none yet, so a test pattern is used.
        """
        if self.publishers is None:
            return pictures
        shape = pictures.shape
        return Filed(Pattern(), f"{shape.width}x{shape.height}", str(shape.fps), loop=True)

    def _hear(self, at_s: float, begins: bool, data: bytes) -> None:
        """Pass an Opus packet from a publisher to all viewers."""
        running = self._running
        if running is not None:
            running.core.push_audio(at_s, begins, data, 0.0)

    def _measured(self, pictures: Pictures) -> float | None:
        """Return the processor time for encoding a picture, in seconds.

        Returns `None` if the source ends too early. The measurement reads up to `_MEASURED` pictures from ``pictures``.
        """
        encoder = self._encoder(pictures)
        # Measure with the middle quantizer, because the cost depends on the quantizer.
        middle = self._codec.quantizers[len(self._codec.quantizers) // 2]
        spent, count = 0.0, min(encoder.gop, _MEASURED)
        for number in range(count):
            taken = pictures.picture(number)
            if taken is None:
                return None
            began = time.process_time()
            encoder.unit(taken[1], first=number == 0, quantizer=middle)
            spent += time.process_time() - began
        return spent / count

    def _sound_of(self, pictures: Pictures) -> AudioWork | None:
        from steadycast.live.audio import Work, sound_of

        if self._clip is None or not self._settings.audio:
            return None
        sound, warning = sound_of(Path(self._clip))
        if warning is not None:
            pictures.warnings.append(warning)
        return None if sound is None else Work(sound, pictures.loop_s, pictures.warnings)

    @property
    def capacity(self) -> Capacity:
        """How many viewers this machine is expected to serve."""
        encoding = None if self.cost_s is None else self.rungs * self.cost_s * self.fps
        return Capacity(cores(), encoding, self.rungs, self.sound_cores)

    def _medium(self, pictures: Pictures, cap_bps: float | None) -> dict[str, Any]:
        encoder = self._encoder(pictures)
        top = self._top_bps if cap_bps is None else min(self._top_bps, round(_BELOW_CAP * cap_bps))
        rates = {"rungs": self.rungs, "top_bps": max(top, _BOTTOM_BPS), "bottom_bps": _BOTTOM_BPS}
        core = session.live_core().Broadcast(steering(pictures, encoder) | rates)
        return {"kind": "broadcast", "codec": self._codec.name, "config": encoder.config(), "broadcast": core}

    def _cap_bps(self) -> float | None:
        # The rate is valid here, because the options were checked before.
        return units.read(self._settings.flow.get("max_rate"), units.RATE)

    def checked(self) -> Plan:
        """Return what a viewer's session would send. No encoder is started."""
        pictures = self._kept or self._open()[0]
        return Plan(self._medium(pictures, self._cap_bps()), self._clip, sound_is_shared=self._has_sound)

    @property
    def _has_sound(self) -> bool:
        """Whether viewers are offered sound.

        With publishers they always are, because the next publisher may have sound.
        """
        return self._settings.audio and (self._sound is not None or self.publishers is not None)

    def plan(self) -> Plan:
        """Return what a viewer's session sends. If no viewer watches yet, start to encode.

        Raises:
            UserError: a camera or a pipe has ended.

        """
        with self._lock:
            if self._running is None or self._running.core.wait(0.0):
                if self._running is not None and self._kept is not None:
                    why = self._running.encoders.failed or "it has no more pictures"
                    raise UserError(self._settings.source, f"it has ended ({why})", "start serve again")
                self._end()
                pictures = self._kept or self._open()[0]
                medium = self._medium(pictures, self._cap_bps())
                sound = self._sound_of(pictures)
                encoders = _Encoders(lambda: self._encoder(pictures), pictures, self.rungs)
                self._running = _Running(medium, encoders, sound, self._told, has_sound=self._has_sound)
                self._running.plan.clip = self._clip
            return self._running.plan

    def _end(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.close()

    def settle(self) -> None:
        """End the broadcast when the last viewer has left.

        The broadcast of a camera or a pipe continues without encoding, because such a source can be opened only once.
        """
        with self._lock:
            if self._kept is None:
                self._end()

    def close(self) -> None:
        """End the broadcast. If there is a publisher, end its session, too."""
        if self.publishers is not None:
            self.publishers.close()
        with self._lock:
            self._end()

    @property
    def failed(self) -> BaseException | None:
        """The error that ended the broadcast, if any."""
        running = self._running
        return None if running is None else running.encoders.failed

    def shown(self) -> dict[str, Any]:
        """Return data for the page: the target rate and the size of each rung, and the number of rungs at the start."""
        running = self._running
        rungs = [] if running is None else running.core.status()[0]
        told = [{"bps": bps, "width": width, "height": height} for bps, width, height in rungs]
        published = {} if self.publishers is None else {"publisher": self.publishers.shown()}
        return {"rungs": told, "rungs_at_start": self.rungs, **published}
