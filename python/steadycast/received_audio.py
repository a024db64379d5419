"""The sound of a saved video. The Opus packets that arrived are decoded and placed on the time line of the pictures."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import av
import numpy as np

from steadycast.lazy_import import pl
from steadycast.live.audio import HZ, PACKET_SAMPLES, Encoder, Samples, Sound, sound_of
from steadycast.media.table import F64, I64, Bools
from steadycast.media.yuv import is_raw

if TYPE_CHECKING:
    from steadycast.folder import Folder
    from steadycast.viewing import Record, Viewer

CODECS = {".mkv": ("flac", 0), ".mp4": ("aac", 128_000), ".webm": ("libopus", 128_000)}
"""The encoder of the sound and its rate in bit/s, for each file suffix. FLAC is lossless, so it has no rate."""
_MONO_BPS = 256_000
"""FFmpeg does not encode a single channel of Opus at a higher rate than this, in bit/s."""


def _clip_of(video: Mapping[str, Any]) -> Path | None:
    """Return the clip whose sound a flow sends.

    Returns `None` for a flow without sound, for several clips and for a raw file.
    """
    paths: Sequence[str] = video.get("paths") or ()
    if video.get("audio_bps") is None or video["media"] != "clip" or len(paths) != 1:
        return None
    return None if is_raw(Path(paths[0])) else Path(paths[0])


def record_changes(videos: Sequence[Mapping[str, Any]], target: Path) -> list[str]:
    """Return the scenario settings that record the sound.

    Returns no settings if no clip has sound, or if a file such as ``target`` can't contain sound.
    """
    if target.suffix and target.suffix.lower() not in CODECS:
        return []
    clips = [clip for video in videos if (clip := _clip_of(video)) is not None]
    return ["record.audio=true"] if any(sound_of(clip)[0] is not None for clip in clips) else []


def _warn(target: Path, flow: str, what: str) -> None:
    print(f"warning: {target}: the sound of {flow} is not kept: {what}", file=sys.stderr)


def _sounds(videos: Sequence[Mapping[str, Any]], folder: Folder, target: Path) -> dict[str, Sound]:
    sounds: dict[str, Sound] = {}
    for video in videos:
        flow, paths = str(video["flow"]), video.get("paths") or ()
        if video.get("audio_bps") is not None and video["media"] == "clip" and len(paths) > 1:
            _warn(target, flow, "it has several clips; give it one")
        clip = _clip_of(video)
        sound, problem = (None, None) if clip is None else sound_of(clip)
        if problem is not None:
            print(f"warning: {problem}", file=sys.stderr)
        if sound is None:
            continue
        if target.suffix and target.suffix.lower() not in CODECS:
            others = ", ".join(CODECS)
            _warn(target, flow, f"{target.suffix} has no sound track; take {others}, or a folder")
        elif not folder.has("audio"):
            _warn(target, flow, "its packets were not recorded; run it again with --set record.audio=true")
        else:
            if video["audio_bps"] > _MONO_BPS:
                sound.layout = "stereo"
            sounds[flow] = sound
    return sounds


@dataclass(frozen=True, eq=False)
class Packets:
    """The audio packets that were sent to a receiver, sorted by packet number."""

    begins: I64
    """Position of each packet's first sample in the saved file, in samples."""
    arrived: Bools
    concealed: I64
    """For each packet, the number of samples that a player must conceal because of this packet."""

    @classmethod
    def of(cls, folder: Folder, record: Record, flow: str, receiver: str, viewer: Viewer) -> Packets:
        """Read the audio packets of a receiver from the table `audio` of a run."""
        table = folder.table("audio")
        mine = table.filter((pl.col("flow") == flow) & (pl.col("node") == receiver)).sort("packet")
        rows = record.frames.where(viewer.rows)
        sent = mine["sent_s"].to_numpy()
        return cls(
            positions(sent, rows["display"], rows["pts_s"], viewer.ladder.table.fps),
            mine["arrived_s"].is_not_null().to_numpy(),
            np.rint(mine["concealed_ms"].to_numpy() * HZ / 1000).astype(np.int64),
        )


def positions(sent_s: F64, display: I64, pts_s: F64, fps: Fraction) -> I64:
    """Return the position of each packet's first sample, in samples. Display slot i of the file begins at i / fps.

    Args:
        sent_s: when the first sample of each packet was captured, in seconds.
        display: the display slots of the pictures that were sent to the receiver.
        pts_s: when these pictures were captured, in seconds.
        fps: the number of pictures per second in the file.

    """
    if not len(sent_s):
        return np.zeros(0, dtype=np.int64)
    order = np.argsort(pts_s)
    taken, slots = pts_s[order], display[order]
    before = np.maximum(np.searchsorted(taken, sent_s, side="right") - 1, 0)
    begins = np.rint((slots[before] / float(fps) + sent_s - taken[before]) * HZ).astype(np.int64)
    # If a packet is more than half a packet off its place, there was a pause. Smaller deviations are jitter of the
    # sender's clock. So the packets between two pauses are placed exactly `PACKET_SAMPLES` apart.
    jumps = np.abs(np.diff(begins) - PACKET_SAMPLES) > PACKET_SAMPLES // 2
    firsts = np.concatenate([[0], np.flatnonzero(jumps) + 1])
    counts = np.diff(firsts, append=len(begins))
    within = np.arange(len(begins)) - np.repeat(firsts, counts)
    placed = np.repeat(begins[firsts], counts) + PACKET_SAMPLES * within
    return np.asarray(np.maximum.accumulate(np.maximum(placed, 0)), dtype=np.int64)


def _silence(count: int, width: int) -> Iterator[Samples]:
    while count > 0:
        yield np.zeros((1, min(count, HZ) * width), dtype=np.int16)
        count -= HZ


class _Film:
    """The samples of a clip's sound.

    The sound is repeated together with the pictures. Read it in ascending order only.
    """

    def __init__(self, sound: Sound, pass_s: Fraction) -> None:
        self._sound, self._pass_s = sound, pass_s
        self.width = 1 if sound.layout == "mono" else 2
        self._blocks = self._repeated()
        self._held, self._at = np.zeros((1, 0), dtype=np.int16), 0

    def _repeated(self) -> Iterator[Samples]:
        for n in itertools.count():
            # The clip need not last a whole number of samples. So the number of samples may differ by one between
            # repetitions.
            left = round((n + 1) * self._pass_s * HZ) - round(n * self._pass_s * HZ)
            for _, samples in self._sound.frames():
                block = samples[:, : left * self.width]
                left -= block.shape[1] // self.width
                yield block
                if not left:
                    break
            yield from _silence(left, self.width)

    def packet(self, begins: int) -> Samples:
        """Return the samples of the packet whose first sample is number ``begins``."""
        while self._at + self._held.shape[1] // self.width < begins + PACKET_SAMPLES:
            passed = max(0, min(begins - self._at, self._held.shape[1] // self.width))
            self._held = np.concatenate([self._held[:, passed * self.width :], next(self._blocks)], axis=1)
            self._at += passed
        start = (begins - self._at) * self.width
        return np.ascontiguousarray(self._held[:, start : start + PACKET_SAMPLES * self.width])


class _Decoder:
    def __init__(self, layout: str) -> None:
        self._context: Any = av.CodecContext.create("libopus", "r")
        self._context.layout = layout

    def samples(self, data: bytes) -> Samples:
        """Decode a packet."""
        frames = self._context.decode(av.Packet(data))
        return np.concatenate([frame.to_ndarray() for frame in frames], axis=1).astype(np.int16, copy=False)


@dataclass(frozen=True, eq=False)
class Track:
    """The sound track of a receiver's saved video, on the time line of its pictures.

    The track is silent where a player would conceal sound, because FFmpeg gives no access to Opus's concealment.
    """

    sound: Sound
    bps: int
    """Rate at which the sender encodes the sound, in bit/s."""
    packets: Packets
    pass_s: Fraction
    """Duration of the clip in seconds. The clip is repeated after this time."""
    count: int
    """Number of samples in each channel of the track."""

    def most_bytes(self, ending: str) -> int:
        """Return the maximum size of the track in a file with this suffix, in bytes."""
        bps = CODECS[ending][1] or 16 * HZ * (1 if self.sound.layout == "mono" else 2)
        return self.count * bps // (8 * HZ)

    def into(self, out: Any, ending: str) -> TrackWriter:
        """Add the track to the container ``out``, whose file has the suffix ``ending``."""
        return TrackWriter(out, ending, self)

    def blocks(self) -> Iterator[Samples]:
        """Yield all samples of the track, in blocks."""
        film = _Film(self.sound, self.pass_s)
        encoder, decoder = Encoder(self.sound.layout, self.bps, constant=True), _Decoder(self.sound.layout)
        encoder.expect(0.0)
        width, at, silent_until, delay = film.width, 0, 0, None
        packets = self.packets
        for begins, arrived, concealed in zip(
            packets.begins.tolist(), packets.arrived.tolist(), packets.concealed.tolist(), strict=True
        ):
            ((number, data),) = encoder.packets(film.packet(begins), begins)
            # Take the encoder's delay from the first packet, because it is the same for all packets.
            delay = begins - number if delay is None else delay
            start = begins - delay
            block = (
                decoder.samples(data) if arrived else np.zeros((1, PACKET_SAMPLES * width), dtype=np.int16)
            )
            if concealed:
                silent_until = max(silent_until, start + concealed)
            block[:, : max(0, silent_until - start) * width] = 0
            yield from _silence(min(start, self.count) - at, width)
            at = max(at, min(start, self.count))
            block = block[:, (at - start) * width : max(0, self.count - start) * width]
            yield block
            at += block.shape[1] // width
        yield from _silence(self.count - at, width)


class TrackWriter:
    """Writes a sound track into a container, step by step while the pictures are written."""

    def __init__(self, out: Any, ending: str, track: Track) -> None:
        codec, bps = CODECS[ending]
        self._layout = track.sound.layout
        self._out, self._stream = out, out.add_stream(codec, rate=HZ, layout=self._layout)
        if bps:
            self._stream.codec_context.bit_rate = bps
        self._width = 1 if self._layout == "mono" else 2
        self._blocks, self._at = track.blocks(), 0

    def write(self, until_s: Fraction) -> None:
        """Encode the sound up to ``until_s``, which is a time of the file in seconds."""
        while self._at < until_s * HZ:
            if (block := next(self._blocks, None)) is None:
                return
            self._put(block)

    def end(self) -> None:
        """Encode the remaining sound and flush the encoder."""
        for block in self._blocks:
            self._put(block)
        self._out.mux(self._stream.encode())

    def _put(self, block: Samples) -> None:
        if not block.shape[1]:
            return
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(block), format="s16", layout=self._layout)
        frame.sample_rate, frame.pts, frame.time_base = HZ, self._at, Fraction(1, HZ)
        self._out.mux(self._stream.encode(frame))
        self._at += block.shape[1] // self._width


def tracks_of(folder: Folder, record: Record, target: Path) -> Callable[[str, str, Viewer], Track | None]:
    """Return a function that creates the sound track of a receiver.

    The function returns `None` if the flow has no sound.
    """
    sounds = _sounds(record.videos, folder, target)
    rates = {video["flow"]: video["audio_bps"] for video in record.videos}

    def track(flow: str, receiver: str, viewer: Viewer) -> Track | None:
        if flow not in sounds:
            return None
        packets, table = Packets.of(folder, record, flow, receiver, viewer), viewer.ladder.table
        count = round(viewer.slots / table.fps * HZ)
        return Track(sounds[flow], rates[flow], packets, table.frames / table.fps, count)

    return track
