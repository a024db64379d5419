"""A remedy that a message names works when it is typed: as an option, as a scenario's key, or as an argument."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import steadycast as sc
from steadycast import encode
from steadycast.errors import UserError
from steadycast.live.encoder import Encoder, Shape
from steadycast.live.source import plan
from steadycast.media.ladder import CODECS, open_encoder, start

from tests.live.conftest import steadycast
from tests.live.test_audio import flashing
from tests.media.test_reader import SIDES, y4m

PATTERN = {"source": "testsrc", "codec": "mpeg4", "size": "clip", "fps": "clip"}
BLANK = [np.full(SIDES[0] * SIDES[1] * 3 // 2, 100)] * 3


def film(folder: Path, rate: str) -> Path:
    path = y4m(folder / f"film-{rate.replace(':', '-')}.y4m", "Ip", BLANK)
    path.write_bytes(path.read_bytes().replace(b"F25:1", f"F{rate}".encode()))
    return path


def sends(options: dict[str, Any]) -> None:
    made = plan(**options, gop=12, loop=False, ladder=False)
    # A valid source is read as far as its first frame.
    made.work._encoder.unit(made.work._pictures.picture(0)[1], first=True, quantizer=25)


def encodes(options: dict[str, str]) -> None:
    encode.steps(
        [Path(options["source"])], codec=options["codec"], size=options["size"], fps=options["fps"], gop=2
    )


SCENARIO = """
duration = "200ms"
nodes = ["s", "r"]
[[link]]
between = ["s", "r"]
rate = "2Mbps"
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
media = "clip"
clip = "{source}"
from = "s"
to = "r"
encode = {{ codec = "{codec}", size = "{size}", q = "20", gop = 2{fps} }}
"""


def runs(options: dict[str, str]) -> None:
    fps = ", fps = " + ('"clip"' if options["fps"] == "clip" else options["fps"])
    place = Path(options["source"]).with_suffix(".toml")
    place.write_text(SCENARIO.format(**{**options, "fps": fps}))
    sc.run(place)


def cured(do: Callable[[dict[str, str]], None], options: dict[str, str], name: str) -> list[str]:
    """Return the remedies of the error that these options cause. Each was tried successfully."""
    with pytest.raises(UserError) as caught:
        do(options)
    remedies = re.findall(rf"{name}(size|fps|codec) (\w+)", caught.value.remedy)
    assert remedies, str(caught.value)
    for key, value in remedies:
        do({**options, key: value})
    return [f"{name}{key}" for key, _ in remedies]


@pytest.mark.parametrize("rate", ["1:2", "480:1", "90000:1"])
@pytest.mark.parametrize(("do", "name"), [(sends, "--"), (encodes, "--"), (runs, r"encode\.")])
def test_a_film_of_a_rate_that_cannot_be_sent_can_be_given_one(
    tmp_path: Path, rate: str, do: Callable[[dict[str, str]], None], name: str
) -> None:
    options = {**PATTERN, "source": str(film(tmp_path, rate))}
    assert cured(do, options, name) == [f"{name}fps"]


@pytest.mark.parametrize(
    ("codec", "size"), [("h263", "2304x1296"), ("mpeg2", "4096x64"), ("h263", "16x2000"), ("av1", "32x32")]
)
def test_sizes_beyond_a_codec_are_refused_before_it_is_opened(codec: str, size: str) -> None:
    with pytest.raises(UserError, match=r"^--size"):
        sends({**PATTERN, "codec": codec, "size": size})


@pytest.mark.parametrize(("codec", "size"), [("h263", "2304x1296"), ("mpeg2", "4096x64")])
def test_a_size_beyond_a_codec_is_answered_by_one_that_it_has_and_by_another_codec(
    codec: str, size: str
) -> None:
    assert cured(sends, {**PATTERN, "codec": codec, "size": size}, "--") == ["--size", "--codec"]


def test_arguments_are_named_as_a_program_has_them() -> None:
    def opens(options: dict[str, Any]) -> None:
        width, _, height = options["size"].partition("x")
        sc.Sender("127.0.0.1:9", size=(int(width), int(height)), codec=options["codec"]).close()

    assert cured(opens, {"size": "2304x1296", "codec": "h263"}, r"\b") == [r"\bsize", r"\bcodec"]


@pytest.mark.parametrize("codec", list(CODECS))
def test_every_size_and_rate_that_is_accepted_can_be_opened(codec: str) -> None:
    from steadycast.media.clip import parse_fps

    kind = CODECS[codec]
    least = -(-max(16, kind.least) // kind.multiple) * kind.multiple
    most = [min(side, 4096) for side in kind.most]
    for width, height in ((least, least), (least, most[1]), (most[0], least)):
        kind.need_size("size", width, height)
        start(open_encoder(kind, (width, height), Fraction(25), 0, 12, kind.quantizers[5]))
    for text in ("1", "240", "29.97", "119.881", "239.999", "1.001", "23.9999", "59.9"):
        rate = parse_fps(text, Fraction(25))
        assert abs(kind.rate(rate) / rate - 1) < 1e-4 or kind.rates is not None
        Encoder(kind, Shape(352, 288, rate), 12)
        start(open_encoder(kind, (352, 288), rate, 0, 12, kind.quantizers[5]))


@pytest.mark.parametrize("source", ["testsrc", "-", "/dev/video0"])
def test_a_source_that_is_no_file_has_no_ladder(source: str) -> None:
    with pytest.raises(UserError) as refused:
        plan(source, codec="mpeg4", size="clip", fps="clip", gop=12, loop=False, ladder=True)
    assert str(refused.value) == (
        f"--ladder: {source} is no file, so it can't be encoded before the session; leave --ladder out, or name a file"
    )


def test_a_pipe_with_a_broken_picture_goes_on_and_says_so(tmp_path: Path) -> None:
    """One of 30 Motion JPEG pictures has no header; the other 29 reach the encoder."""
    import av

    path = tmp_path / "film.mkv"
    with av.open(str(path), "w") as file:
        stream = file.add_stream("mjpeg", rate=25)
        stream.width, stream.height = SIDES
        stream.pix_fmt = "yuvj420p"
        for number in range(30):
            frame = av.VideoFrame(*SIDES, "yuvj420p")
            for plane in frame.planes:
                plane.update(bytes([100]) * plane.buffer_size)
            frame.pts = number
            for packet in stream.encode(frame):
                if number == 10:
                    packet.update(bytes(packet.size))
                file.mux(packet)
    words = steadycast("send", "-", "--to", "127.0.0.1:9", "--codec", "h264", "--floor", "1Mbps", "--json")
    done = subprocess.run(words, input=path.read_bytes(), capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    summary = __import__("json").loads(done.stdout)
    (flow,) = summary["flows"]
    # On a busy machine, the encoder leaves pictures out.
    assert flow["coded_frames"] + flow["left_out_frames"] == 29
    assert flow["coded_frames"] > 0
    assert any("could not be decoded" in warning for warning in summary["warnings"])


def test_a_warning_says_that_sound_on_standard_input_is_not_sent(tmp_path: Path) -> None:
    film = flashing(tmp_path / "film.mkv", Fraction(25), 2)
    silent = y4m(tmp_path / "silent.y4m", "Ip", BLANK)
    options: dict[str, Any] = {**PATTERN, "source": "-"}
    for source, audio, warned in ((film, True, True), (film, False, False), (silent, True, False)):
        own = os.dup(0)
        with source.open("rb") as file:
            os.dup2(file.fileno(), 0)
        try:
            made = plan(**options, gop=12, loop=False, ladder=False, audio=audio)
        finally:
            os.dup2(own, 0)
            os.close(own)
        warning = "standard input: its sound is not sent; to send sound, name a file"
        assert (warning in made.warnings) == warned, made.warnings


def test_a_program_ends_though_a_pipe_that_it_reads_goes_on(tmp_path: Path) -> None:
    # When the interpreter ends, a camera's thread is waiting for the next picture.
    took = "from steadycast.live.source import Camera; Camera('-', 'clip', 'clip').picture(0); import time; "
    took += "time.sleep(0.1)"
    process = subprocess.Popen([sys.executable, "-c", took], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(film(tmp_path, "25:1").read_bytes())
    process.stdin.flush()
    assert process.wait(30) == 0, process.stderr.read()
    process.stdin.close()
    process.stderr.close()


def test_a_pipe_that_ends_in_an_error_ends_the_session_with_a_line_and_a_code(tmp_path: Path) -> None:
    """A header, then endless invalid data."""
    whole = y4m(tmp_path / "film.y4m", "Ip", BLANK).read_bytes()
    words = steadycast("send", "-", "--to", "127.0.0.1:9", "--controller", "fixed")
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as sender:
        assert sender.stdin is not None
        assert sender.stderr is not None
        sender.stdin.write(whole + os.urandom(1 << 16))
        sender.stdin.close()
        said = sender.stderr.read().decode()
        assert sender.wait(60) == 1, said
    assert "Traceback" not in said
    assert "standard input: reading it ended in an error" in said
