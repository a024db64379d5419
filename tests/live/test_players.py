"""Standard players play what is sent, and what they report steers the sender."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.live.conftest import FRAMES, caps, description, needs, run

DECODERS = {
    "mpeg4": "rtpmp4vdepay ! mpeg4videoparse ! avdec_mpeg4",
    "mpeg2": "rtpmpvdepay ! mpegvideoparse ! avdec_mpeg2video",
    "h264": "rtph264depay ! h264parse ! avdec_h264",
}


def end(player: subprocess.Popen[str]) -> str:
    """Ends a player as Ctrl-C does, and returns what it said."""
    player.send_signal(signal.SIGINT)
    try:
        said, _ = player.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        player.kill()
        said, _ = player.communicate()
    return said


@needs("gst-launch-1.0")
@pytest.mark.parametrize("codec", DECODERS)
def test_gstreamer_shows_every_frame_and_its_reports_come_back(
    clip: Path, codec: str, port: int, tmp_path: Path
) -> None:
    sdp = description(clip, codec, f"127.0.0.1:{port}", tmp_path)
    own = port + 1000
    words = (
        f"gst-launch-1.0 -v -e rtpbin name=r latency=200 udpsrc port={port} caps=CAPS ! r.recv_rtp_sink_0 "
        f"r. ! {DECODERS[codec]} ! fakesink silent=false sync=false udpsrc port={port + 1} ! "
        f"r.recv_rtcp_sink_0 r.send_rtcp_src_0 ! udpsink host=127.0.0.1 port={own + 1} sync=false async=false"
    ).split()
    words[words.index("caps=CAPS")] = f"caps={caps(sdp)}"
    player = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        time.sleep(2)
        sent = run(
            *("send", clip, "--to", f"127.0.0.1:{port}", "--codec", codec, "--controller", "fixed"),
            *("--max-rate", "1500kbps", "--port", str(own), "--json"),
        )
        time.sleep(1)
    finally:
        said = end(player)
    shown = len(re.findall(r"fakesink.*last-message = chain", said))
    flow = json.loads(sent.stdout)["flows"][0]
    # A machine that is busy leaves some out before they are coded.
    assert 0.9 * FRAMES <= flow["coded_frames"] == FRAMES - flow["left_out_frames"]
    assert shown == flow["coded_frames"]
    # Frames of 1.5 Mb/s have 7 packets each: it was no matter of whole ones.
    assert 1_000 < flow["sent_packets"] < 3_000
    (receiver,) = flow["receivers"]
    assert receiver["standard"]
    assert receiver["loss_frac"] == 0
    # GStreamer reports every 2.4 to 5 s.
    assert 1 <= receiver["feedback_packets"] <= 6


@needs("ffmpeg")
@pytest.mark.parametrize(
    ("codec", "to"), [*((codec, "127.0.0.1") for codec in DECODERS), ("mpeg4", "239.255.7.1")]
)
def test_ffmpeg_shows_nearly_every_frame(clip: Path, codec: str, to: str, port: int, tmp_path: Path) -> None:
    sdp = description(clip, codec, f"{to}:{port}", tmp_path)
    words = [
        "-protocol_whitelist",
        "file,udp,rtp",
        "-analyzeduration",
        "500000",
        "-i",
        "SDP",
        "-f",
        "null",
        "-",
    ]
    words[words.index("SDP")] = str(sdp)
    player = subprocess.Popen(
        ["ffmpeg", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    try:
        time.sleep(1.5)
        run(
            *("send", clip, "--to", f"{to}:{port}", "--codec", codec, "--controller", "fixed"),
            *("--max-rate", "1500kbps", "--json"),
        )
        time.sleep(0.5)
    finally:
        said = end(player)
    counts = [int(n) for n in re.findall(r"frame= *(\d+)", said)]
    assert counts, said
    assert 0.98 * FRAMES <= counts[-1] <= FRAMES


@needs("ffmpeg")
@pytest.mark.parametrize("codec", ["mpeg4", "mpeg2video", "libx264"])
def test_what_ffmpeg_sends_is_received_whole(clip: Path, codec: str, port: int, tmp_path: Path) -> None:
    sdp = tmp_path / "ffmpeg.sdp"
    sender = ["ffmpeg", "-re", "-i", clip, "-an", "-c:v", codec, "-g", "12", "-bf", "0", "-b:v", "1M"]
    sender += ["-f", "rtp", "-sdp_file", sdp, f"rtp://127.0.0.1:{port}?pkt_size=1000"]
    # Once for the description, which ffmpeg writes when it begins to send.
    short = [*map(str, sender[:2]), "-t", "0.2", *map(str, sender[2:])]
    subprocess.run([*short, "-y"], capture_output=True, timeout=30, check=True)
    text = sdp.read_text()
    sdp.write_text(text[text.index("v=0") :])
    out = tmp_path / "received.mkv"
    import threading

    def play() -> None:
        time.sleep(2.5)
        subprocess.run([*map(str, sender), "-y"], capture_output=True, timeout=60, check=True)

    playing = threading.Thread(target=play)
    playing.start()
    done = run("receive", sdp, "--for", "16s", "--out", out, "--json")
    playing.join()
    (receiver,) = json.loads(done.stdout)["flows"][0]["receivers"]
    assert receiver["loss_frac"] == 0
    assert FRAMES - 1 <= receiver["frames"]["ok"] <= FRAMES
    assert receiver["frames"]["lost"] <= 1
    # Its sender reports are no whole compounds, and are read all the same.
    assert receiver["feedback_packets"] > 0
