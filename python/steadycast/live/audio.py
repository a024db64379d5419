"""Encodes the sound of a file with Opus (RFC 6716) for a live sender."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from steadycast import files
from steadycast.media.reader import first_shown, said

_BPS = 48_000
RATE = f"{_BPS // 1000}kbps"
"""The rate of the codec, without packet headers."""
HZ = 48_000
"""The sampling rate of Opus (RFC 7587, section 4.1)."""
PACKET_SAMPLES = HZ // 50
"""Number of samples per packet and channel. They last for 20 ms."""
_STEP_S = Fraction(1, 50)
"""A time stamp shows a gap or an overlap if it differs by more than this from the earlier samples' end, in seconds."""
_JOINED_S = Fraction(1, 25)
"""The largest gap between two repetitions of the film that is filled with silence, in seconds.

The start of a repetition is known only 40 ms in advance, so the silence for a larger gap would be sent too late.
"""
_QUIET = 10
"""The number of silent packets (0.2 s) that are sent before packets are omitted."""
_KEPT = 20
"""During silence, only each 20th packet is sent (every 0.4 s), as in libopus's discontinuous mode."""
_LOSSES = (0, 5, 10, 20, 30)
"""Loss rates in per cent for which FEC can be configured. The lowest that is not below the reported loss is used."""
_PATIENCE_S = 0.5
_MEASURED = 100
"""Number of packets that are encoded to measure how much CPU time the encoder needs. They contain 2 s of sound."""

Samples = NDArray[np.int16]


class Encoder:
    """An Opus encoder with in-band FEC (RFC 7587, section 3.1.1).

    ``bps`` is the codec rate in bit/s. If ``constant`` is set, all packets have the same length.
    """

    def __init__(self, layout: str, bps: int = _BPS, *, constant: bool = False) -> None:
        self._layout, self._bps = layout, bps
        # Without a constraint, Opus sends up to twice the rate, which the session could not reserve.
        self._vbr = "off" if constant else "constrained"
        self._loss = -1
        self._context: Any = None

    def expect(self, loss: float) -> None:
        """Configure FEC for a loss rate from 0 to 1. Create a new encoder if this changes the level in `_LOSSES`."""
        level = next((level for level in _LOSSES if level >= 100 * loss), _LOSSES[-1])
        if level == self._loss:
            return
        self._loss = level
        context: Any = av.CodecContext.create("libopus", "w")
        context.rate, context.layout, context.format = HZ, self._layout, "s16"
        context.bit_rate, context.time_base = self._bps, Fraction(1, HZ)
        fec = {"fec": "1", "packet_loss": str(level)} if level else {}
        context.options = {"application": "audio", "frame_duration": "20", "vbr": self._vbr, **fec}
        self._context = context

    def packets(self, samples: Samples, at: int) -> Iterator[tuple[int, bytes]]:
        """Encode the samples of one packet. Yield packets, each with the number of its first sample.

        ``at`` is the number of the first sample in ``samples``.
        """
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout=self._layout)
        frame.rate, frame.pts, frame.time_base = HZ, at, Fraction(1, HZ)
        for packet in self._context.encode(frame):
            # The first numbers are negative because of the encoder's delay (pre-skip, RFC 7845, section 4.2).
            yield int(packet.pts), bytes(packet)


class Sound:
    """The sound of a film. Its times are relative to the film's first picture."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with files.media(path) as container:
            found = container.streams.audio[0]
            self.layout = "mono" if found.codec_context.channels == 1 else "stereo"
            self._began = first_shown(container)

    def frames(self) -> Iterator[tuple[int, Samples]]:
        """Yield blocks of samples of 20 ms, each with the number of its first sample.

        Number 0 is at the first picture. The last block may be shorter.
        """
        width = 1 if self.layout == "mono" else 2
        held, at = np.zeros((1, 0), dtype=np.int16), 0
        begun = False
        for begins, samples in self._samples():
            gap = begins - (at + held.shape[1] // width)
            if abs(gap) > HZ * _STEP_S or not begun:
                # Drop samples before the first picture, and samples that overlap earlier samples. Fill a gap with
                # silence.
                samples = samples[:, max(0, -gap) * width :]
                held = np.concatenate([held, np.zeros((1, max(0, gap) * width), dtype=np.int16)], axis=1)
            begun = begun or samples.shape[1] > 0
            held = np.concatenate([held, samples], axis=1)
            while held.shape[1] >= PACKET_SAMPLES * width:
                yield at, np.ascontiguousarray(held[:, : PACKET_SAMPLES * width])
                held, at = held[:, PACKET_SAMPLES * width :], at + PACKET_SAMPLES
        if held.shape[1]:
            yield at, held

    def _samples(self) -> Iterator[tuple[int, Samples]]:
        resampler = av.AudioResampler(format="s16", layout=self.layout, rate=HZ)
        with files.media(self.path) as container:
            found = container.streams.audio[0]
            for packet in container.demux(found):
                try:
                    frames = packet.decode()
                except av.error.InvalidDataError:
                    continue  # the damaged part becomes a gap
                for frame in itertools.chain.from_iterable(map(resampler.resample, frames)):
                    if frame.pts is not None and frame.time_base is not None:
                        begins = frame.pts * frame.time_base - self._began
                        yield round(begins * HZ), frame.to_ndarray().astype(np.int16, copy=False)


def sound_of(path: Path) -> tuple[Sound | None, str | None]:
    """Return the sound of a film and a warning. Both may be `None`.

    If the film has no sound, both are `None`. If the sound can't be decoded, only the warning is returned.
    """
    try:
        with files.media(path) as container:
            if not container.streams.audio:
                return None, None
        sound = Sound(path)
        if next(sound.frames(), None) is None:
            return None, None
        return sound, None
    except (av.error.FFmpegError, OSError, ValueError, IndexError) as error:
        return None, f"{path.name}: its sound can't be decoded, and is left out ({said(error)})"


class Work:
    """The loop that encodes a film's sound and passes the packets to a core `Sender` until the session ends.

    ``loop_s`` returns when a repetition of the film begins, in seconds (`source.Pictures.loop_s`).
    """

    def __init__(self, sound: Sound, loop_s: Callable[[int], float | None], warnings: list[str]) -> None:
        self._sound, self._loop_s, self._warnings = sound, loop_s, warnings

    def cost(self) -> float:
        """Return how many CPU seconds the encoder needs per second of sound.

        Encode the beginning of the sound to measure it.

        Call this before threads start, because the measurement would include their CPU time.
        """
        encoder, samples = Encoder(self._sound.layout), 0
        encoder.expect(0.0)
        began = time.process_time()
        for at, each in itertools.islice(self._sound.frames(), _MEASURED):
            samples += sum(1 for _ in encoder.packets(each, at)) * PACKET_SAMPLES
        return (time.process_time() - began) * HZ / max(samples, PACKET_SAMPLES)

    def __call__(self, sender: Any) -> None:
        """Run the loop until the session ends."""
        encoder, silent, left_out, first = Encoder(self._sound.layout), 0, True, 0
        try:
            for at, samples, begins in self._blocks(sender):
                if begins:
                    encoder, left_out, first = Encoder(self._sound.layout), True, at
                encoder.expect(sender.audio_loss)
                silent = 0 if samples.any() else silent + 1
                for number, data in encoder.packets(samples, at):
                    if number < first:
                        continue
                    if silent > _QUIET and silent % _KEPT:
                        left_out = True
                        continue
                    taken = False
                    while not taken:
                        taken = sender.push_audio(number / HZ, left_out, data, _PATIENCE_S)
                        if taken is None:
                            return
                    left_out = False
        except (av.error.FFmpegError, OSError, ValueError) as error:
            self._warnings.append(f"{self._sound.path.name}: its sound ended early ({said(error)})")

    def _blocks(self, sender: Any) -> Iterator[tuple[int, Samples, bool]]:
        """Yield the samples of each packet, the number of the first sample, and whether a new encoder is needed.

        A film may be repeated. If the film starts again at once, the encoder is kept, because a new encoder would
        interrupt the sound for 20 ms. If the film starts again before its sound has ended, the beginning of the new
        sound is cut.
        """
        width = 1 if self._sound.layout == "mono" else 2
        empty = np.zeros((1, 0), dtype=np.int16)
        held, at, begins = empty, 0, True
        for n in itertools.count():
            while (begins_s := self._loop_s(n)) is None:
                if sender.wait(0.02):
                    return
            if begins_s == float("inf"):
                break
            gap = round(begins_s * HZ) - (at + held.shape[1] // width)
            if n == 0 or gap > HZ * _JOINED_S:
                held, at, begins, gap = empty, round(begins_s * HZ), True, 0
            held = np.concatenate([held, np.zeros((1, max(0, gap) * width), dtype=np.int16)], axis=1)
            for number, samples in self._sound.frames():
                held = np.concatenate([held, samples[:, max(0, -gap - number) * width :]], axis=1)
                while held.shape[1] >= PACKET_SAMPLES * width:
                    yield at, np.ascontiguousarray(held[:, : PACKET_SAMPLES * width]), begins
                    held, at, begins = held[:, PACKET_SAMPLES * width :], at + PACKET_SAMPLES, False
        if held.shape[1]:
            yield at, np.pad(held, ((0, 0), (0, PACKET_SAMPLES * width - held.shape[1]))), begins
