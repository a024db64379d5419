"""Measures the quality of received pictures by comparing them with the clip that was sent."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import av.error
import numpy as np

from steadycast.errors import UserError
from steadycast.media import metrics
from steadycast.media.clip import Clip
from steadycast.media.decode import decode_units, decoder_of, packet_of
from steadycast.media.ladder import Codec, codec_of
from steadycast.media.metrics import Picture
from steadycast.media.splice import Unit

_LONGEST = 1500
"""The largest number of pictures that are measured. They last for one minute at 25 pictures per second."""


def measure(
    reference: Path,
    codec: str,
    config: bytes,
    ticks: Sequence[int],
    units: Sequence[bytes],
    size: tuple[int, int] | None,
) -> dict[str, Any]:
    """Measure the PSNR, SSIM and opinion score of a receiver's pictures.

    The keys of the result are paths in a receiver's summary, such as ``psnr_db.raw.y``. The result is empty if there
    are no pictures.

    One picture is searched for in the clip. The positions of the other pictures follow from their time stamps, modulo
    the length of the clip. A missing picture is replaced by the picture before it. Pictures are scaled to ``size``, or
    to the size of the first picture.
    """
    kind = codec_of(codec)
    # Leave out empty access units. An access unit without usable data would flush the decoder.
    came = [(t, unit) for t, unit in zip(ticks, units, strict=True) if unit][:_LONGEST]
    ticks, units = [t for t, _ in came], [unit for _, unit in came]
    first = _size(kind, config, units)
    size = first and (size or first)
    if size is None:
        return {}
    width, height = size
    pictures = Clip.of(reference).pictures(f"{width}x{height}", "clip")
    clip = [
        Picture.of(samples, width, height)
        for samples, _ in zip(pictures.frames, range(_LONGEST), strict=False)
    ]
    if not clip:
        raise UserError(str(reference), "no picture could be read", "give the clip that was sent")
    slots = [round(Fraction(t, 90_000) * pictures.fps) for t in ticks]
    given = [Unit(slot, data) for slot, data in zip(slots, units, strict=True)]
    decoded = decode_units(kind, given, config, width, height, scale=True)
    shown = [slot for slot in slots if slot in decoded]
    if not shown:
        return {}
    # Search for the picture in the middle, which is probably intact. The first pictures may be damaged.
    probe = shown[len(shown) // 2]
    found = max(range(len(clip)), key=lambda n: metrics.psnr_db(clip[n].y, decoded[probe].y))
    psnr, ssim = [], []
    last: Picture | None = None
    for slot in range(shown[0], shown[-1] + 1):
        last = decoded.get(slot, last)
        if last is None:
            continue
        original = clip[(found + slot - probe) % len(clip)]
        psnr.append(metrics.picture_psnr_db(original, last))
        ssim.append(metrics.picture_ssim(original, last))
    planes = np.array(psnr)
    return metrics.figures(planes, None, np.array(ssim), metrics.opinion_classes(planes[:, 0]))


def _size(codec: Codec, config: bytes, units: Sequence[bytes]) -> tuple[int, int] | None:
    decoder = decoder_of(codec, config)
    for data in units:
        try:
            for frame in decoder.decode(packet_of(data, 0, Fraction(1, 25))):
                return frame.width, frame.height
        except (av.error.FFmpegError, EOFError, ValueError):
            continue
    return None
