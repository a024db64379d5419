"""Sends a test picture by webrtcsink (gst-plugin-webrtc), whose bitrate `rtpsteadycastbwe` decides.

GST_PLUGIN_PATH has to name the folders of both plugins. Then:

    /usr/bin/python3 examples/webrtcsink.py
    gst-launch-1.0 webrtcsrc signaller::uri=ws://127.0.0.1:8443 connect-to-first-producer=true name=s \
        s. ! video/x-raw ! videoconvert ! autovideosink
"""

import sys
import time

import gi

gi.require_version("Gst", "1.0")
from gi.repository import GLib, Gst  # noqa: E402

PIPELINE = """
videotestsrc is-live=true pattern=zone-plate kx2=20 ky2=20 kt=5 ! video/x-raw,width=640,height=360,framerate=30/1
! webrtcsink name=sink run-signalling-server=true video-caps=video/x-vp8 min-bitrate=100000 max-bitrate=4000000
"""


def main() -> int:
    """Send until the program is interrupted, and print each change of the estimate."""
    Gst.init(None)
    element = Gst.ElementFactory.make("rtpsteadycastbwe")
    if element is None:
        print("rtpsteadycastbwe was not found; GST_PLUGIN_PATH has to name its folder", file=sys.stderr)
        return 1
    # webrtcsink creates its estimator by this name.
    Gst.Element.register(None, "rtpgccbwe", Gst.Rank.NONE, element.__gtype__)
    pipeline = Gst.parse_launch(PIPELINE)
    begun = time.monotonic()

    def changed(estimator: Gst.Element, _: object) -> None:
        print(
            f"{time.monotonic() - begun:.2f} s: {estimator.get_property('estimated-bitrate')} bit/s",
            flush=True,
        )

    def added(_bin: Gst.Bin, _child: Gst.Bin, made: Gst.Element) -> None:
        if made.__gtype__ == element.__gtype__:
            made.connect("notify::estimated-bitrate", changed)

    sink = pipeline.get_by_name("sink")
    sink.connect("consumer-added", lambda _, __, webrtcbin: webrtcbin.connect("deep-element-added", added))
    pipeline.set_state(Gst.State.PLAYING)
    loop = GLib.MainLoop()
    try:
        loop.run()
    except KeyboardInterrupt:
        loop.quit()
    pipeline.set_state(Gst.State.NULL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
