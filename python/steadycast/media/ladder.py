"""A ladder: one clip, encoded at every quantizer. Any GOP can be followed by the next GOP of another quantizer."""

import itertools
import json
import os
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import ceil
from pathlib import Path
from threading import Event, Lock, Thread
from typing import IO, Any, cast
from zipfile import BadZipFile

import av
import av.error
import numpy as np
import numpy.typing as npt
from av.video.frame import PictureType

from steadycast.errors import UserError
from steadycast.media import cache
from steadycast.media.clip import Source
from steadycast.media.raw import RawVideo, raw_video
from steadycast.media.table import U8, U32, U64, FrameTable, Kind
from steadycast.workers import cores

Progress = Callable[[str, int, int], None]
"""Reports progress. Its arguments are a label, the number of finished parts and the total number of parts."""

About = dict[str, Any]
_FORMAT = 2
_CHANGES = {"h264": 1, "h265": 1}
"""A number per codec. Increase it when the codec's options change. This invalidates the codec's cache entries."""
_LAMBDA = 118
"""FFmpeg's Lagrangian multiplier for quantizer 1, in FFmpeg's units."""


@dataclass(frozen=True)
class Codec:
    """A codec and its limits. GOPs that were encoded at different quantizers can be joined."""

    name: str
    encoder: str
    decoder: str
    quantizers: range
    bframes: int
    """The default number of B frames between two I or P frames."""
    most_bframes: int
    multiple: int
    """Width and height must be multiples of this."""
    rates: tuple[Fraction, ...] | None
    """Frame rates that the headers can express. `None` means any rate.

    Another rate is written into the headers as 25.
    """
    doubling: int | None = None
    """By how much the quantizer must rise to double the step size.

    `None` if the step size is proportional to the quantizer.
    """
    least: int = 16
    """The smallest width and height."""
    most: tuple[int, int] = (8192, 8192)
    """The largest width and height."""
    most_ticks: int | None = None
    """The highest clock rate that the headers can contain, in ticks per second."""

    def need_size(self, place: str, width: int, height: int) -> None:
        """Check that the codec supports a picture size. ``place`` is the key or option that sets the size."""
        problem = f"{self.name} cannot have pictures of {width}x{height}"
        if width % self.multiple or height % self.multiple:
            raise UserError(place, problem, f"both sides must be multiples of {self.multiple}")
        if min(width, height) < self.least:
            raise UserError(place, problem, f"both sides must be {self.least} at least")
        if width > self.most[0] or height > self.most[1]:
            most = "x".join(str(min(side, 4096)) for side in self.most)
            remedy = f"take encode.size {most} or less, or encode.codec h264"
            raise UserError(place, problem, remedy)

    def rate(self, fps: Fraction) -> Fraction:
        """Return the frame rate to write into the headers. It does not affect the pictures."""
        if self.rates is not None and fps not in self.rates:
            return Fraction(25)
        if self.most_ticks is not None and fps.numerator > self.most_ticks:
            return fps.limit_denominator(self.most_ticks // ceil(fps))
        return fps


_FILM = tuple(map(Fraction, ("24000/1001", "24", "25", "30000/1001", "30", "50", "60000/1001", "60")))
_H263 = (Fraction(25), Fraction(30000, 1001))
_MPEG_QS = range(2, 32)
_QPS = range(18, 48)
_INDICES = range(10, 64)
CODECS = {
    codec.name: codec
    for codec in (
        # The header has 13 bits for width and height, and 16 bits for the clock (ISO/IEC 14496-2, section 6.2.3).
        Codec("mpeg4", "mpeg4", "mpeg4", _MPEG_QS, 2, 8, 2, None, most=(8190, 8190), most_ticks=65_535),
        # The header has 12 bits for width and height. These bits must not be 0 (ISO/IEC 13818-2, section 6.3.3).
        Codec("mpeg2", "mpeg2video", "mpeg2video", _MPEG_QS, 2, 8, 2, _FILM, most=(4094, 4094)),
        # ITU-T H.263, section 5.1.5 limits the size of custom picture formats.
        Codec("h263", "h263p", "h263", _MPEG_QS, 0, 0, 4, _H263, most=(2048, 1152)),
        Codec("h264", "libx264", "h264", _QPS, 2, 8, 2, None, 6),
        Codec("h265", "libx265", "hevc", _QPS, 0, 0, 2, None, 6),
        # In VP8, VP9 and AV1, the step size doubles every 8 to 14 quantizer steps. Use 12 as a typical value.
        Codec("vp8", "libvpx", "vp8", _INDICES, 0, 0, 2, None, 12),
        Codec("vp9", "libvpx-vp9", "vp9", _INDICES, 0, 0, 2, None, 12),
        Codec("av1", "libsvtav1", "libdav1d", _INDICES, 0, 0, 2, None, 12, least=64),
    )
}


@dataclass(frozen=True, eq=False)
class Rung:
    """The clip, encoded at one quantizer."""

    q: int
    data: U8
    """Access units in coding order, concatenated."""
    offsets: U64
    """Offset of each access unit in `data`, then the end of the last access unit."""
    extradata: bytes
    """Configuration of the decoder. It is empty if the stream itself contains the configuration."""

    def unit(self, index: int) -> bytes:
        """Return the access unit with this index in coding order."""
        return self.data[int(self.offsets[index]) : int(self.offsets[index + 1])].tobytes()


@dataclass(eq=False)
class Ladder:
    """A clip, encoded at every quantizer, and its source pictures.

    A `Rung` is the clip at one quantizer. It is read from the cache or encoded when it is first needed.
    """

    table: FrameTable
    codec: Codec
    width: int
    height: int
    bframes: int
    warnings: tuple[str, ...]
    """Problems of the source."""
    load_raw: Callable[[], RawVideo] = field(repr=False)
    facts: About
    """The source and the settings of the encoder."""
    place: Path
    """Path of the ladder's file in the cache. The files of its rungs are in the same folder."""
    scores: dict[tuple[object, ...], object] = field(default_factory=dict, repr=False)
    """Results of `quality`. They are kept so that pictures are not measured again for another receiver."""
    _held: dict[int, Rung] = field(default_factory=dict, repr=False)

    @cached_property
    def raw(self) -> RawVideo:
        """The source's pictures, in display order."""
        return self.load_raw()

    def shape(self) -> dict[str, object]:
        """Return the codec, the size and the frame rate of the pictures.

        They are the value of a flow's key ``encoded`` in summary.json.
        """
        fps = float(self.table.fps)
        return {"codec": self.codec.name, "width": self.width, "height": self.height, "fps": fps}

    def told(self) -> dict[str, object]:
        """Return the frame sizes in the format of the core."""
        return self.table.told(self.codec.doubling)

    @property
    def rungs(self) -> list[Rung]:
        """All rungs, from the finest quantizer to the coarsest."""
        self.need(self.table.qs)
        return [self._held[q] for q in self.table.qs]

    def rung(self, q: int) -> Rung:
        """Return the rung of quantizer ``q``.

        Raises:
            KeyError: there is no such quantizer.

        """
        if q not in self._held:
            self.need([q])
        return self._held[q]

    def need(self, qs: Iterable[int], progress: Progress | None = None) -> None:
        """Read the rungs of the quantizers ``qs`` from the cache. Encode the rungs that are missing.

        Raises:
            KeyError: there is no such quantizer.

        """
        wanted = sorted({q for q in qs if q not in self._held})
        for q in wanted:
            if (rung := _read_rung(self.place, q, self.table.sizes[self.table.row(q)])) is not None:
                self._held[q] = rung
        lacking = [q for q in wanted if q not in self._held]
        if not lacking:
            return
        made = _encoded(self.raw, self.codec, self.bframes, self.table.gop, lacking, progress)
        if not all(coded.is_row_of(self.table) for coded in made):
            _encode(self.raw, self.codec, self.facts, self.table.label, self.place)
            raise UserError(
                self.table.label,
                "this FFmpeg encodes it to other sizes than those that came with the program",
                "run it again: the sizes of this FFmpeg are now in the cache",
            )
        for coded in made:
            _store_rung(self.place, coded.rung)
            self._held[coded.rung.q] = coded.rung


@dataclass(frozen=True, eq=False)
class _Coded:
    rung: Rung
    kinds: U8
    display: U32

    @property
    def sizes(self) -> U32:
        return np.diff(self.rung.offsets).astype(np.uint32)

    def is_row_of(self, table: FrameTable) -> bool:
        return len(self.kinds) == len(table.kinds) and self.begins(table)

    def begins(self, table: FrameTable) -> bool:
        """Whether the table begins with these frames."""
        count = len(self.kinds)
        return (
            np.array_equal(self.kinds, table.kinds[:count])
            and np.array_equal(self.display, table.display[:count])
            and np.array_equal(self.sizes, table.sizes[table.row(self.rung.q)][:count])
        )


KNOWN = tuple(
    Path(__file__).parent / f"synthetic{codec}{lines}.npz"
    for codec in ("", "-h264")
    for lines in ("", "-720")
)
"""Precomputed frame sizes of the synthetic clip.

There is one file for each combination of two codecs and two sizes. One size is small, the other has 720 lines.
"""


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
    """Encode ``source`` once per quantizer, or read the result from the cache.

    The GOPs are closed, and they are the same at all quantizers. Each of them ends with a P frame. ``bframes`` is the
    number of B frames between two I or P frames. Its default is `Codec.bframes`. ``qs`` are quantizers or QPs within
    `Codec.quantizers`. By default, all of these are encoded.
    """
    kind, between, quantizers = _settings(codec, gop, bframes, qs)

    def load_raw() -> RawVideo:
        return raw_video(source, size, fps)

    facts = {
        "source": source.identity(),
        "codec": codec,
        "size": size,
        "fps": str(fps),
        "gop": gop,
        "bframes": between,
        "qs": quantizers,
    }
    # Another version of FFmpeg may encode the same pictures to other sizes, so the versions are part of the key.
    libraries = [av.__version__, sorted(av.library_versions.items())]
    name = cache.key({"format": _FORMAT + _CHANGES.get(codec, 0), **facts, "libraries": libraries})
    path = cache.folder() / f"{name}.ladder"
    made = _load(path, source.label)
    if made is None:
        if progress is not None:
            progress("reading pictures", 0, 1)
        made = _known(facts, source, kind)
        if made is not None:
            _store(path, *made)
        else:
            made = _encode(load_raw(), kind, facts, source.label, path, progress)
    table, about = made
    width, height = int(about["width"]), int(about["height"])
    warnings = (*map(str, about["warnings"]), *_repeated(table))
    return Ladder(table, kind, width, height, between, warnings, load_raw, facts, path)


def _repeated(table: FrameTable) -> Iterator[str]:
    """Yield a warning if a film is shorter than a GOP. Its ladder then has an I frame more often than its GOPs ask."""
    count = len(table.kinds)
    if count < table.gop:
        pictures = "a single picture" if count == 1 else f"only {count} pictures"
        yield (
            f"{table.label} has {pictures}, fewer than a group of {table.gop}: each repetition begins with an I frame, "
            f"so {table.gop / count:.3g} times as many frames are I frames, which need a higher rate; "
            f"take a film of {table.gop} pictures or more"
        )


def codec_of(name: str) -> Codec:
    """Return the codec named ``name``."""
    if name not in CODECS:
        raise UserError(f"encode.codec {name}", "there is no such codec", f"choose from: {', '.join(CODECS)}")
    return CODECS[name]


def _settings(
    codec: str, gop: int, bframes: int | None, qs: Sequence[int] | None
) -> tuple[Codec, int, list[int]]:
    kind = codec_of(codec)
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
    raw: RawVideo, codec: Codec, facts: About, label: str, path: Path, progress: Progress | None = None
) -> tuple[FrameTable, About]:
    gop, qs = facts["gop"], facts["qs"]
    coded = _encoded(raw, codec, facts["bframes"], gop, qs, progress)
    sizes = np.stack([each.sizes for each in coded])
    table = FrameTable(raw.fps, gop, coded[0].kinds, qs, sizes, coded[0].display, label)
    for each in coded:
        if not each.is_row_of(table):
            raise RuntimeError(
                f"{codec.encoder} chose other frame types at quantizer {each.rung.q}: nothing can be spliced"
            )
    about = {**facts, "width": raw.width, "height": raw.height, "warnings": raw.warnings}
    for each in coded:
        _store_rung(path, each.rung)
    _store(path, table, about)
    return table, about


def _encoded(
    raw: RawVideo, codec: Codec, bframes: int, gop: int, qs: Sequence[int], progress: Progress | None
) -> list[_Coded]:
    codec.need_size("encode.size", raw.width, raw.height)
    stop = Event()
    # Start the fine quantizers first, because they take longest. So no core is idle at the end.
    with ThreadPoolExecutor(cores()) as pool:
        jobs = [pool.submit(_encode_rung, raw, codec, bframes, gop, q, stop) for q in qs]
        try:
            _follow(jobs, progress)
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return [job.result() for job in jobs]


def _follow(jobs: list[Future[_Coded]], progress: Progress | None) -> None:
    waiting = set(jobs)
    while waiting:
        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        for job in done:
            job.result()
        if progress is not None:
            progress("encoding", len(jobs) - len(waiting), len(jobs))


def open_encoder(
    codec: Codec, size: tuple[int, int], fps: Fraction, bframes: int, gop: int, q: int
) -> av.VideoCodecContext:
    """Return an encoder that has a fixed quantizer. Its GOPs can be joined with GOPs of other quantizers."""
    # This silences SVT-AV1's output on stderr. It must be set before the library is loaded.
    os.environ.setdefault("SVT_LOG", "1")
    context = cast(av.VideoCodecContext, av.CodecContext.create(codec.encoder, "w"))
    (context.width, context.height), context.pix_fmt = size, "yuv420p"
    rate = codec.rate(fps)
    context.framerate, context.time_base = rate, 1 / rate
    context.thread_count = 1
    context.max_b_frames = bframes
    context.gop_size = gop
    told = {"q": q, "gop": gop, "multiplier": q * _LAMBDA}
    context.options = {name: value.format_map(told) for name, value in _OPTIONS[codec.encoder].items()}
    if codec.encoder.startswith("libvpx"):
        # The encoder keeps the requested quantizer only if it has no rate limit.
        context.bit_rate = _UNBOUND if codec.encoder == "libvpx" else 0
        context.qmin = context.qmax = q
    elif codec.encoder in _MPEG:
        # The caller forces the I frames, so the encoder's own GOP size is set higher. With `gop_size = gop` and B
        # frames, the encoder would add a second I frame to each GOP.
        context.gop_size = 600
        context.qmin = context.qmax = q
    return context


@contextmanager
def as_options(flow: str | None = None) -> Iterator[None]:
    """Replace scenario keys by command-line options in errors (see `in_options`)."""
    try:
        yield
    except UserError as error:
        words = (error.place, error.problem, error.remedy)
        raise type(error)(*(in_options(text, flow) for text in words)) from error.__cause__


def in_options(text: str, flow: str | None = None) -> str:
    """Replace scenario keys in a text by the matching command-line options.

    With the name of a ``flow``, only texts of the form key=value are replaced, by the option ``--set``.
    """
    return _KEY.sub(r"--\1", text) if flow is None else _KEY_OF_VALUE.sub(rf"--set flow.{flow}.\g<0>", text)


_KEY = re.compile(r"\bencode\.(size|fps|codec|gop|bframes)\b")
_KEY_OF_VALUE = re.compile(rf"{_KEY.pattern}(?==)")


def start(encoder: av.VideoCodecContext) -> None:
    """Open an encoder. The threads of SVT-AV1 are given the scheduling policy SCHED_BATCH.

    - As root, SVT-AV1 takes real-time priority (SCHED_FIFO, 99). This would delay the pacer of a live session.
    - On a busy machine, SVT-AV1 4.1 may lose a picture if its threads preempt others when they wake up. Its caller then
      waits forever (in 1 of 50 short clips). Threads under SCHED_BATCH do not preempt others when they wake up.
    """
    try:
        _start(encoder)
    except av.error.FFmpegError as error:
        what = f"{encoder.width}x{encoder.height} at {encoder.framerate} pictures per second"
        problem = f"this FFmpeg's {encoder.codec.name} refuses {what} ({error.strerror})"
        remedy = "take another encode.size, encode.fps or encode.codec"
        raise UserError("encode.codec", problem, remedy) from error


def _start(encoder: av.VideoCodecContext) -> None:
    if encoder.codec.name != "libsvtav1" or not hasattr(os, "SCHED_BATCH"):
        return encoder.open()
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    if policy == os.SCHED_OTHER:  # the threads of the encoder inherit the policy
        os.sched_setscheduler(0, os.SCHED_BATCH, parameters)
    try:
        encoder.open()
    finally:
        for task in map(int, os.listdir("/proc/self/task")):
            # Ignore a thread that has ended in the meantime.
            with suppress(ProcessLookupError):
                if os.sched_getparam(task).sched_priority == _SVT_PRIORITY:
                    os.sched_setscheduler(task, os.SCHED_BATCH, os.sched_param(0))
        os.sched_setscheduler(0, policy, parameters)


_SVT_PRIORITY = 99

_MPEG = ("mpeg4", "mpeg2video", "h263p")
_UNBOUND = 1_000_000_000
"""A bit rate in bit/s that no stream reaches."""


_MPEG_OPTIONS = {
    "flags": "+cgop+bitexact",
    # Disable scene-cut detection. FFmpeg refuses closed GOPs together with it.
    "sc_threshold": "1000000000",
    # Set the Lagrangian multiplier. With the multiplier that rate control chooses, coarse rungs would be 50 % larger.
    "lmin": "{multiplier}",
    "lmax": "{multiplier}",
    "i_qfactor": "1",
    "i_qoffset": "0",
    "b_qfactor": "1",
    "b_qoffset": "0",
}
_VPX_OPTIONS = {
    "crf": "{q}",
    "lag-in-frames": "0",
    "auto-alt-ref": "0",
    "deadline": "realtime",
    "cpu-used": "5",
    # Make each frame independent of the state that the entropy coder has after other frames.
    "error-resilient": "default",
}
_OPTIONS: dict[str, dict[str, str]] = {
    **dict.fromkeys(_MPEG, _MPEG_OPTIONS),
    "libx264": {
        "qp": "{q}",
        # The preset "medium" takes three times as long. A live sender has only one frame interval per picture.
        "preset": "veryfast",
        "forced-idr": "1",
        # With `stitchable`, the parameter sets before each IDR frame are identical at all quantizers.
        "x264-params": "keyint={gop}:min-keyint={gop}:scenecut=0:open-gop=0:b-adapt=0:b-pyramid=none"
        ":stitchable=1:repeat-headers=1:annexb=1:threads=1",
    },
    "libx265": {
        "qp": "{q}",
        "preset": "veryfast",
        "forced-idr": "1",
        # With frame threads and wavefront rows, the output would depend on the machine, so they are off. Temporal
        # motion prediction is off, because it costs 4 dB or more when the quantizer changes between GOPs.
        "x265-params": "keyint={gop}:min-keyint={gop}:scenecut=0:open-gop=0:bframes=0:b-adapt=0:repeat-headers=1"
        ":no-temporal-mvp=1:aq-mode=0:cutree=0:pools=none:frame-threads=1:wpp=0:info=0:log-level=none",
    },
    **dict.fromkeys(("libvpx", "libvpx-vp9"), _VPX_OPTIONS),
    "libsvtav1": {
        "qp": "{q}",
        "preset": "11",
        "svtav1-params": "rc=0:aq-mode=0:pred-struct=1:keyint={gop}:lp=1:enable-tf=0:scd=0:force-key-frames=1",
    },
}
"""The options of each encoder. Names in braces are replaced by values."""


_PATIENCE_S = (60.0, 120.0, 240.0)
"""Time limit per picture for SVT-AV1, in seconds. Each attempt to encode a rung has its own limit."""


def _encode_rung(raw: RawVideo, codec: Codec, bframes: int, gop: int, q: int, stop: Event) -> _Coded:
    """Encode the clip at one quantizer. An SVT-AV1 encoder that hangs (see `start`) is replaced by a new one."""
    if codec.encoder != "libsvtav1":
        return _coded(raw, codec, bframes, gop, q, stop, lambda: None)
    for patience in _PATIENCE_S:
        try:
            return _watched(lambda beat: _coded(raw, codec, bframes, gop, q, stop, beat), patience)
        except TimeoutError:
            continue
    raise RuntimeError(f"{codec.encoder} stood still in each of {len(_PATIENCE_S)} tries at quantizer {q}")


def _watched(work: Callable[[Callable[[], None]], _Coded], patience: float) -> _Coded:
    """Run ``work`` in a thread. ``work`` gets a function as its argument, and must call it regularly.

    Raises:
        TimeoutError: there was no call for `patience` seconds. The thread continues until the process ends.

    """
    done: Future[_Coded] = Future()
    heard = time.monotonic()

    def beat() -> None:
        nonlocal heard
        heard = time.monotonic()

    def run() -> None:
        try:
            done.set_result(work(beat))
        except BaseException as error:  # the waiting thread raises it again
            done.set_exception(error)

    # A hung encoder can't be stopped. So use a daemon thread, which does not keep the process from ending.
    Thread(target=run, daemon=True).start()
    while not wait([done], timeout=1.0).done:
        if time.monotonic() - heard > patience:
            raise TimeoutError
    return done.result()


def _coded(
    raw: RawVideo, codec: Codec, bframes: int, gop: int, q: int, stop: Event, beat: Callable[[], None]
) -> _Coded:
    encoder = open_encoder(codec, (raw.width, raw.height), raw.fps, bframes, gop, q)
    start(encoder)
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
        beat()
    # Flush the encoder.
    take(None)
    display = np.array(places, dtype=np.uint32)
    # Find the B frames: a B frame is displayed before a frame that precedes it in coding order.
    shown_before = np.maximum.accumulate(display) > display
    kinds = np.where(shown_before, Kind.B, Kind.P).astype(np.uint8)
    kinds[opens] = Kind.I
    offsets = np.concatenate([[0], np.cumsum([len(unit) for unit in units])]).astype(np.uint64)
    data = np.frombuffer(b"".join(units), dtype=np.uint8)
    return _Coded(Rung(q, data, offsets, bytes(encoder.extradata or b"")), kinds, display)


def _store(path: Path, table: FrameTable, about: About) -> None:
    told = json.dumps({**about, "rate": str(table.fps)})

    def fill(file: IO[bytes]) -> None:
        # Use a zip archive, because its checksums detect damaged files.
        np.savez_compressed(
            file,
            about=np.frombuffer(told.encode(), dtype=np.uint8),
            kinds=table.kinds,
            display=table.display,
            sizes=table.sizes,
        )

    cache.write(path, fill)


DAMAGE = (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile, NotImplementedError, zlib.error)
"""Exceptions that are raised if a file is missing or damaged. Such a file is written again."""


_READING = Lock()
"""NumPy parses array headers as Python code. In two threads, CPython 3.11 may then raise SystemError."""


def read_arrays(path: Path, *names: str) -> list[npt.NDArray[Any]]:
    """Return the named arrays of a cache file. A damaged file raises one of `DAMAGE`."""
    with _READING, np.load(path, allow_pickle=False) as archive:
        return [archive[name] for name in names]


def _load(path: Path, label: str) -> tuple[FrameTable, About] | None:
    try:
        written, kinds, display, sizes = read_arrays(path, "about", "kinds", "display", "sizes")
        about = json.loads(written.tobytes())
        qs = [int(q) for q in about["qs"]]
        return FrameTable(Fraction(about["rate"]), int(about["gop"]), kinds, qs, sizes, display, label), about
    except DAMAGE:
        return None


def _known(facts: About, source: Source, codec: Codec) -> tuple[FrameTable, About] | None:
    """Return the precomputed frame sizes, or `None` if they do not apply.

    They apply if they were computed with the same settings, and if this encoder encodes the first group of pictures to
    the same sizes at the coarsest quantizer. `Ladder.need` compares all sizes of the quantizers that it encodes.
    """
    for found in (_load(place, source.label) for place in KNOWN):
        if found is not None and all(found[1].get(key) == value for key, value in facts.items()):
            table = found[0]
            pictures = source.pictures(facts["size"], facts["fps"])
            samples = np.stack(list(itertools.islice(pictures.frames, table.gop)))
            raw = RawVideo(pictures.width, pictures.height, pictures.fps, samples, tuple(pictures.warnings))
            probe = _encode_rung(raw, codec, facts["bframes"], table.gop, table.qs[-1], Event())
            return found if probe.begins(table) else None
    return None


def _rung_path(path: Path, q: int) -> Path:
    return path.with_name(f"{path.stem}-{q}.rung")


def _store_rung(path: Path, rung: Rung) -> None:
    extradata = np.frombuffer(rung.extradata, dtype=np.uint8)
    cache.write(_rung_path(path, rung.q), lambda file: np.savez(file, data=rung.data, extradata=extradata))


def _read_rung(path: Path, q: int, sizes: U32) -> Rung | None:
    try:
        data, extra = read_arrays(_rung_path(path, q), "data", "extradata")
    except DAMAGE:
        return None
    offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.uint64)]).astype(np.uint64)
    return Rung(q, data, offsets, extra.tobytes()) if int(offsets[-1]) == len(data) else None
