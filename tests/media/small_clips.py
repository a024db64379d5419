"""Small clips to read, and FFmpeg's own filters as references for PSNR and SSIM."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np


def write_clip(
    path: Path, frames: int = 40, codec: str = "mpeg4", rate: int = 25, size: str = "176x144"
) -> Path:
    """A video file made from the synthetic clip."""
    # Imported here, because the stand-in for the compiled module must be installed first.
    from steadycast.media.synthetic import Synthetic

    pictures = Synthetic(frames).pictures(size, 25)
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=rate)
        stream.width, stream.height, stream.pix_fmt = pictures.width, pictures.height, "yuv420p"
        stream.bit_rate = 400_000
        for index, samples in enumerate(pictures.frames):
            shape = (pictures.height * 3 // 2, pictures.width)
            frame = av.VideoFrame.from_ndarray(samples.reshape(shape), format="yuv420p")
            frame.pts, frame.time_base = index, Fraction(1, rate)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def judged(name: str, a, b) -> dict[str, str]:
    """Return the result of FFmpeg's filter ``name`` (psnr or ssim) for two pictures: 2-D arrays, or `Picture`s."""
    planes = not isinstance(a, np.ndarray)
    height, width = (a.y if planes else a).shape
    form = "yuv420p" if planes else "gray"
    graph = av.filter.Graph()
    arguments = f"video_size={width}x{height}:pix_fmt={form}:time_base=1/25:pixel_aspect=1/1"
    inputs = [graph.add("buffer", arguments) for _ in range(2)]
    compare, sink = graph.add(name), graph.add("buffersink")
    for index, source in enumerate(inputs):
        source.link_to(compare, 0, index)
    compare.link_to(sink)
    graph.configure()
    for source, picture in zip(inputs, (a, b), strict=True):
        if planes:
            flat = np.concatenate([plane.reshape(-1) for plane in (picture.y, picture.u, picture.v)])
            picture = flat.reshape(height * 3 // 2, width)
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format=form)
        frame.pts, frame.time_base = 0, Fraction(1, 25)
        source.push(frame)
    return dict(sink.pull().metadata)
