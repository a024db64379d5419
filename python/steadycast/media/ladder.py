"""One clip at every quantizer, cut so that any group of pictures of any rung can follow any other."""

import json
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import IO, Protocol, cast

import av
import av.error
import numpy as np
from av.video.frame import PictureType

from steadycast.errors import UserError
from steadycast.media import cache
from steadycast.media.clip import Source
from steadycast.media.raw import RawVideo, raw_video
from steadycast.media.table import U8, U32, U64, FrameTable, Kind
from steadycast.workers import cores as cores

Progress = Callable[[str, int, int], None]
"""Told what is being done, how many parts of it are done, and how many there are."""

_FORMAT = 1
_LAMBDA = 118
"""FFmpeg's Lagrangian multiplier for quantizer 1."""


@dataclass(frozen=True)
class Codec:
    """How a codec is driven so that its groups of pictures can be spliced."""

    name: str
    encoder: str
    decoder: str
    quantizers: range
    bframes: int
    """B frames between two others, where nothing else is asked for."""
    most_bframes: int
    multiple: int
    """Width and height must be multiples of this."""
    rates: tuple[Fraction, ...] | None
    """Frame rates that its headers can name (`None`: any). Others are written as 25: no picture changes."""


_FILM = tuple(map(Fraction, ("24000/1001", "24", "25", "30000/1001", "30", "50", "60000/1001", "60")))
_MPEG_QS = range(2, 32)
CODECS = {
    codec.name: codec
    for codec in (
        Codec("mpeg4", "mpeg4", "mpeg4", _MPEG_QS, 2, 8, 2, None),
        Codec("mpeg2", "mpeg2video", "mpeg2video", _MPEG_QS, 2, 8, 2, _FILM),
        Codec("h263", "h263p", "h263", _MPEG_QS, 0, 0, 4, (Fraction(25), Fraction(30000, 1001))),
        Codec("h264", "libx264", "h264", range(18, 48), 2, 8, 2, None),
    )
}


@dataclass(frozen=True, eq=False)
class Rung:
    """The clip at one quantizer."""

    q: int
    data: U8
    """All access units, one after the other in coding order."""
    offsets: U64
    """Where each access unit starts in `data`, and at the end where the last one ends."""
    extradata: bytes
    """What a decoder must be told before the first access unit; empty where the stream itself says it."""

    def unit(self, index: int) -> bytes:
        """Access unit ``index`` in coding order."""
        return self.data[int(self.offsets[index]) : int(self.offsets[index + 1])].tobytes()


@dataclass(eq=False)
class Ladder:
    """A clip at every quantizer, and the pictures it was made from."""

    table: FrameTable
    codec: Codec
    width: int
    height: int
    bframes: int
    rungs: list[Rung]
    warnings: tuple[str, ...]
    """What was wrong with the source."""
    load_raw: Callable[[], RawVideo] = field(repr=False)
    scores: dict[tuple[object, ...], object] = field(default_factory=dict, repr=False)
    """What `quality` has already measured; pictures that many receivers share are measured once."""
    path: Path | None = None
    """Its file in the cache."""

    @cached_property
    def raw(self) -> RawVideo:
        """The source's pictures, in display order."""
        return self.load_raw()

    def rung(self, q: int) -> Rung:
        """Return the rung of quantizer ``q``; `KeyError` when there is none."""
        return self.rungs[self.table.row(q)]


def encode_ladder(
    source: Source,
    codec: str = "mpeg4",
    size: str = "cif",
    fps: str | int | float | Fraction = 25,
    gop: int = 12,
    bframes: int | None = None,
    qs: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Ladder:
    """Encode ``source`` once per quantizer, or take the result from the cache.

    Every rung has I frames at the same places and no reference across them. ``bframes`` is the number of B
    frames between two others (default 2; H.263 has none); the last frame of a group is then a P frame in
    place of a B frame, since nothing may refer to the next group. ``qs`` are quantizers 2…31, for H.264 QPs
    18…47.
    """
    kind, between, quantizers = _settings(codec, gop, bframes, qs)

    def load_raw() -> RawVideo:
        return raw_video(source, size, fps)

    name = cache.key(
        {
            "format": _FORMAT,
            "source": source.identity(),
            "codec": codec,
            "size": size,
            "fps": str(fps),
            "gop": gop,
            "bframes": between,
            "qs": quantizers,
            "libraries": [av.__version__, sorted(av.library_versions.items())],
        }
    )
    path = cache.folder() / f"{name}.ladder"
    ladder = _load(path, kind, between, source, load_raw)
    if ladder is None:
        if progress is not None:
            progress("reading pictures", 0, 1)
        raw = load_raw()
        ladder = _encode(raw, kind, between, gop, quantizers, source.label, progress)
        ladder.load_raw = load_raw
        ladder.raw = raw
        _store(path, ladder)
    ladder.path = path
    return ladder


def _settings(
    codec: str, gop: int, bframes: int | None, qs: Sequence[int] | None
) -> tuple[Codec, int, list[int]]:
    kind = CODECS.get(codec)
    if kind is None:
        raise UserError("encode.codec", f"there is no codec {codec!r}", f"take one of {', '.join(CODECS)}")
    if not 1 <= gop <= 600:
        raise UserError(
            "encode.gop", f"a group of {gop} pictures is not supported", "lengths go from 1 to 600"
        )
    between = kind.bframes if bframes is None else bframes
    if not 0 <= between <= kind.most_bframes:
        raise UserError(
            "encode.bframes",
            f"{codec} cannot have {between} B frames in a row",
            f"it has 0 to {kind.most_bframes}",
        )
    quantizers = sorted(set(kind.quantizers if qs is None else qs))
    if not quantizers:
        raise UserError("encode.q", "no quantizer is left", f"name some of {_range(kind)}")
    if quantizers[0] < kind.quantizers[0] or quantizers[-1] > kind.quantizers[-1]:
        raise UserError(
            "encode.q",
            f"{codec} has no quantizers {quantizers[0]}…{quantizers[-1]}",
            f"they go {_range(kind)}",
        )
    return kind, between, quantizers


def _range(codec: Codec) -> str:
    return f"from {codec.quantizers[0]} to {codec.quantizers[-1]}"


def _encode(
    raw: RawVideo, codec: Codec, bframes: int, gop: int, qs: list[int], label: str, progress: Progress | None
) -> Ladder:
    if raw.width % codec.multiple or raw.height % codec.multiple:
        raise UserError(
            "encode.size",
            f"{codec.name} cannot have pictures of {raw.width}x{raw.height}",
            f"both sides must be multiples of {codec.multiple}",
        )
    stop = Event()
    # Fine quantizers take longest: they go first, so that no core waits for one of them at the end.
    with ThreadPoolExecutor(cores()) as pool:
        jobs = [pool.submit(_encode_rung, raw, codec, bframes, gop, q, stop) for q in qs]
        try:
            _follow(jobs, progress)
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    encoded = [job.result() for job in jobs]
    rungs = [rung for rung, _, _ in encoded]
    _, kinds, display = encoded[0]
    for rung, its_kinds, its_display in encoded[1:]:
        if not (np.array_equal(kinds, its_kinds) and np.array_equal(display, its_display)):
            raise RuntimeError(
                f"{codec.encoder} chose other frame types at quantizer {rung.q}: nothing can be spliced"
            )
    sizes = np.stack([np.diff(rung.offsets).astype(np.uint32) for rung in rungs])
    table = FrameTable(raw.fps, gop, kinds, qs, sizes, display, label)
    return Ladder(table, codec, raw.width, raw.height, bframes, rungs, raw.warnings, lambda: raw)


def _follow(jobs: list[Future[tuple[Rung, U8, U32]]], progress: Progress | None) -> None:
    waiting = set(jobs)
    while waiting:
        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        for job in done:
            job.result()
        if progress is not None:
            progress("encoding", len(jobs) - len(waiting), len(jobs))


class Sized(Protocol):
    """Pictures of one size and rate."""

    @property
    def width(self) -> int:
        """Of a picture."""

    @property
    def height(self) -> int:
        """Of a picture."""

    @property
    def fps(self) -> Fraction:
        """Pictures per second."""


def open_encoder(codec: Codec, raw: Sized, bframes: int, gop: int, q: int) -> av.VideoCodecContext:
    """Return an encoder at one quantizer whose groups of pictures can be spliced."""
    context = cast(av.VideoCodecContext, av.CodecContext.create(codec.encoder, "w"))
    context.width, context.height, context.pix_fmt = raw.width, raw.height, "yuv420p"
    rate = raw.fps if codec.rates is None or raw.fps in codec.rates else Fraction(25)
    context.framerate, context.time_base = rate, 1 / rate
    context.thread_count = 1
    context.max_b_frames = bframes
    if codec.encoder == "libx264":
        context.gop_size = gop
        context.options = {
            "qp": str(q),
            "preset": "medium",
            "forced-idr": "1",
            # `stitchable` keeps the parameter sets, which stand before every IDR, the same at all quantizers.
            "x264-params": f"keyint={gop}:min-keyint={gop}:scenecut=0:open-gop=0:b-adapt=0:b-pyramid=none"
            ":stitchable=1:repeat-headers=1:annexb=1:threads=1",
        }
    else:
        # I frames are forced: an own `gop_size` of the same length would give a second one next to it when
        # there are B frames. A closed group is refused unless scene cuts are out of the question.
        context.gop_size = 600
        # With qmin = qmax alone the rate control still picks the multiplier for its decisions as if it were
        # free, and coarse rungs come out half as large again as `ffmpeg -qscale` makes them.
        context.qmin = context.qmax = q
        multiplier = str(q * _LAMBDA)
        context.options = {
            "flags": "+cgop+bitexact",
            "sc_threshold": "1000000000",
            "lmin": multiplier,
            "lmax": multiplier,
            "i_qfactor": "1",
            "i_qoffset": "0",
            "b_qfactor": "1",
            "b_qoffset": "0",
        }
    return context


def _encode_rung(
    raw: RawVideo, codec: Codec, bframes: int, gop: int, q: int, stop: Event
) -> tuple[Rung, U8, U32]:
    encoder = open_encoder(codec, raw, bframes, gop, q)
    shape = (raw.height * 3 // 2, raw.width)
    units: list[bytes] = []
    places: list[int] = []
    opens: list[bool] = []

    def take(frame: av.VideoFrame | None) -> None:
        for packet in encoder.encode(frame):
            units.append(bytes(packet))
            places.append(packet.pts or 0)
            opens.append(packet.is_keyframe)

    for index in range(len(raw)):
        if stop.is_set():
            raise InterruptedError
        frame = av.VideoFrame.from_ndarray(raw.samples[index].reshape(shape), format="yuv420p")
        frame.pts, frame.time_base = index, encoder.time_base
        frame.pict_type = PictureType.I if index % gop == 0 else PictureType.NONE
        take(frame)
    take(None)
    display = np.array(places, dtype=np.uint32)
    shown_before = np.maximum.accumulate(display) > display
    kinds = np.where(shown_before, Kind.B, Kind.P).astype(np.uint8)
    kinds[opens] = Kind.I
    offsets = np.concatenate([[0], np.cumsum([len(unit) for unit in units])]).astype(np.uint64)
    data = np.frombuffer(b"".join(units), dtype=np.uint8)
    return Rung(q, data, offsets, bytes(encoder.extradata or b"")), kinds, display


def _store(path: Path, ladder: Ladder) -> None:
    about = {
        "width": ladder.width,
        "height": ladder.height,
        "fps": str(ladder.table.fps),
        "gop": ladder.table.gop,
        "qs": ladder.table.qs,
        "warnings": ladder.warnings,
        "extradata": [rung.extradata.hex() for rung in ladder.rungs],
    }

    def fill(file: IO[bytes]) -> None:
        # A zip archive checks each of its members when it is read.
        np.savez(
            file,
            about=np.frombuffer(json.dumps(about).encode(), dtype=np.uint8),
            kinds=ladder.table.kinds,
            display=ladder.table.display,
            sizes=ladder.table.sizes,
            data=np.concatenate([rung.data for rung in ladder.rungs]),
        )

    cache.write(path, fill)


def _load(
    path: Path, codec: Codec, bframes: int, source: Source, load_raw: Callable[[], RawVideo]
) -> Ladder | None:
    try:
        with np.load(path, allow_pickle=False) as archive:
            about = json.loads(archive["about"].tobytes())
            kinds, display, sizes, data = (archive[name] for name in ("kinds", "display", "sizes", "data"))
        qs = [int(q) for q in about["qs"]]
        table = FrameTable(Fraction(about["fps"]), int(about["gop"]), kinds, qs, sizes, display, source.label)
        rungs = []
        start = 0
        for q, row, extradata in zip(qs, sizes, about["extradata"], strict=True):
            offsets = np.concatenate([[0], np.cumsum(row, dtype=np.uint64)]).astype(np.uint64)
            rungs.append(Rung(q, data[start : start + int(offsets[-1])], offsets, bytes.fromhex(extradata)))
            start += int(offsets[-1])
        if start != len(data):
            return None
        width, height, warnings = (
            int(about["width"]),
            int(about["height"]),
            tuple(map(str, about["warnings"])),
        )
        return Ladder(table, codec, width, height, bframes, rungs, warnings, load_raw)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, NotImplementedError):
        return None  # absent or damaged: made again
