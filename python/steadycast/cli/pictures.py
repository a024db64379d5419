"""Commands for video files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from steadycast.cli import base
from steadycast.cli.base import argument, option
from steadycast.errors import UserError


@base.command(
    "Measure a video file against its original.",
    "steadycast psnr original.yuv received.yuv --size cif --fps 25",
    "steadycast psnr original.mkv received.mkv --out frames.csv",
    "steadycast psnr original_cif.yuv received_cif.yuv --fps 25 --by index",
)
def psnr(
    original: Annotated[Path, argument("ORIGINAL", "The original video.")],
    received: Annotated[Path, argument("RECEIVED", "The received video.")],
    by: base.By = "time",
    size: base.Size = "clip",
    fps: base.Fps = "clip",
    pixels: base.Pixels = None,
    out: Annotated[
        Path | None, option("-o --out FILE", "Save each frame's figures: .csv or .parquet.")
    ] = None,
    vmaf: base.Vmaf = False,
    as_json: base.AsJson = False,
) -> None:
    """Compare two video files frame by frame: PSNR of Y, U, V and all samples, SSIM, opinion class."""
    from steadycast.media.ladder import as_options
    from steadycast.progress import Terminal

    comparing = base.module("steadycast.psnr")
    with as_options(), Terminal() as progress:
        told = {"size": None if size == "clip" else size, "fps": None if fps == "clip" else fps}
        compared = comparing.compare(
            original, received, by, **told, pixels=pixels, vmaf=vmaf, progress=progress
        )
    base.warn(compared.warnings)
    if as_json:
        base.print_json(compared.json())
    else:
        base.show(comparing.table(compared))
        print(comparing.grades(compared))
    if out is not None:
        written = comparing.save(compared, out)
        if not as_json:
            print(written)


@base.command(
    "Measure what a receiver saw over another network, from packet traces.",
    "steadycast received clip.mp4 --trace st --sent sd --received rd --original clip_cif.yuv --fps 25",
    "steadycast received clip.mp4 --trace st --sent out.tr --flow 'fid 1' --playout 150ms --save-video seen.y4m",
    "steadycast received clip.mp4 --payload 1024 --sent sender.pcap --received receiver.pcap --hist hist.csv",
)
def received(
    clip: Annotated[Path, argument("CLIP", "The encoded video that was sent.")],
    sent: Annotated[
        Path,
        option(
            "--sent FILE",
            "The sender's packets: EvalVid's sd, ns-2, ns-3, tcpdump -tt -n -v, a capture, or a table.",
        ),
    ],
    came: Annotated[
        Path | None,
        option("--received FILE", "The receiver's packets; not needed if --sent has both ends (ns-2, ns-3)."),
    ] = None,
    trace: Annotated[
        Path | None, option("--trace FILE", "EvalVid's st: each frame's type, bytes, packets and time.")
    ] = None,
    payload: Annotated[
        int | None,
        option(
            "--payload BYTES",
            "The maximum number of a frame's bytes in a packet, in place of --trace.",
            min=1,
            max=65_507,
        ),
    ] = None,
    original: Annotated[Path | None, option("--original FILE", "The video before it was encoded.")] = None,
    flow: Annotated[
        str | None, option("--flow PART", "If there are several flows, the one with this text in its name.")
    ] = None,
    receiver: Annotated[
        str | None,
        option("--receiver NODE", "If there are several receivers, the node of the one to measure."),
    ] = None,
    playout: Annotated[
        str | None,
        option("--playout SPAN", "The play-out delay, for example 150ms; a frame that takes longer is late."),
    ] = None,
    clock_offset: Annotated[
        float, option("--clock-offset SECONDS", "The receiver's clock minus the sender's.")
    ] = 0.0,
    by: base.By = "time",
    fps: base.Fps = "clip",
    pixels: base.Pixels = None,
    interval: Annotated[
        int | None,
        option(
            "--interval FRAMES",
            "The length of the intervals in which the worst one (miv) is searched; by default one second.",
            min=1,
        ),
    ] = None,
    video: Annotated[
        Path | None, option("--save-video FILE", "Save what was seen: .yuv, .y4m, .mkv, .mp4 or .webm.")
    ] = None,
    hist: Annotated[
        Path | None, option("--hist FILE", "Save histograms of PSNR and opinion: .csv or .parquet.")
    ] = None,
    out: Annotated[
        Path | None, option("-o --out FILE", "Save each frame's fate and figures: .csv or .parquet.")
    ] = None,
    as_json: base.AsJson = False,
) -> None:
    """Match a sender's packets with a receiver's, decode the frames that arrived, and measure what was on screen."""
    from steadycast.evalvid import clip as clips
    from steadycast.evalvid import evaluation, matching, packets
    from steadycast.media import sender_trace
    from steadycast.media.ladder import as_options
    from steadycast.progress import Terminal
    from steadycast.psnr import save_table
    from steadycast.units import SPAN, read

    if (trace is None) == (payload is None):
        raise UserError(
            "--trace",
            f"{'neither --trace nor --payload is' if trace is None else 'both --trace and --payload are'} given",
            "give one of them, because it says which packets belong to a frame",
        )
    limit_s = None if playout is None else read(playout, SPAN)
    if playout is not None and limit_s is None:
        raise UserError(f"--playout {playout}", "this is not a time", "write for example 150ms")
    joined = matching.exchange(
        packets.read_packets(sent),
        None if came is None else packets.read_packets(came),
        flow=flow,
        receiver=receiver,
        clock_offset_ns=round(clock_offset * 1e9),
    )
    with as_options(), Terminal() as progress:
        encoded = clips.EncodedClip.read(clip, fps)
        doubts: list[str] = []
        if trace is not None:
            traced = sender_trace.read_sender_trace(trace, sender_trace.text_of(trace))
            doubts = evaluation.check_trace(encoded, traced, trace)
        else:
            traced = evaluation.by_payload(encoded, payload or 1)
        seen = evaluation.evaluate(
            encoded,
            traced,
            joined,
            original=original,
            pixels=pixels,
            playout_ns=None if limit_s is None else round(limit_s * 1e9),
            by=by,
            interval=interval,
            video=video,
            progress=progress,
        )
    base.warn([*doubts, *seen.warnings])
    if as_json:
        base.print_json(seen.json())
    else:
        base.show(evaluation.table(seen))
        print("\n".join(evaluation.sentences(seen)))
    saved = [(out, seen.frame_table), (hist, seen.histogram)]
    written = [save_table(table(), path) for path, table in saved if path is not None]
    if not as_json:
        for path in written:
            print(path)
