"""Creates `python/steadycast/media/synthetic*.npz`: the sizes of the synthetic film at every quantizer.

    .venv/bin/python scripts/known_sizes.py

The files serve scenarios without encoder settings and built-in ones such as scenarios/home.toml, at the picture sizes
of 3 and 20 Mb/s. Such a scenario runs before anything is encoded, and then needs only the quantizers that were seen.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from steadycast.loading import load
from steadycast.media import ladder
from steadycast.media.prepare import media_of

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Encode the clip, and store its sizes."""
    with tempfile.TemporaryDirectory() as folder:
        # An empty cache, so that this machine's FFmpeg encodes the clip.
        os.environ["STEADYCAST_CACHE"] = folder
        known, ladder.KNOWN = ladder.KNOWN, ()
        encoders = ("{}", '{ codec = "h264", bframes = 0 }')
        settings = [(encode, rate) for encode in encoders for rate in ("3Mbps", "20Mbps")]
        for place, (encode, rate) in zip(known, settings, strict=True):
            sets = [f"flow.video.encode={encode}", f"topology.bottleneck.rate={rate}"]
            scenario = load(ROOT / "scenarios" / "home.toml", sets)
            media_of(scenario.videos()[0], scenario.seed)
            (made,) = Path(folder).glob("*.ladder")
            shutil.move(made, place)
            print(f"{place}: {place.stat().st_size} B")
    return 0


if __name__ == "__main__":
    sys.exit(main())
