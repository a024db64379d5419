"""Sends y4m as VP8 over RTP, at the rate of rtpgccbwe or of Steadycast's element: send.py Y4M HOST [steady]."""

import sys
from contextlib import suppress

import gi

gi.require_version("Gst", "1.0")
from gi.repository import GLib, Gst  # noqa: E402

TWCC = "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01"
ELEMENTS = {
    "gcc": "rtpgccbwe estimated-bitrate=1000000",
    "steady": "rtpsteadycastbwe",
}
"""The estimator elements, by the last argument."""
ENCODER = """
vp8enc name=encoder deadline=1 cpu-used=-16 end-usage=cbr keyframe-mode=disabled max-intra-bitrate=250
    buffer-initial-size=100 buffer-optimal-size=120 buffer-size=150 target-bitrate=950000 !
"""
"""The settings of webrtcsink, which follow an estimate. With the default buffer of 6 s, the encoder first fills the
buffer after each rise of the rate, and for that time produces a fraction of the rate."""
PIPELINE = """
rtpsession name=s rtp-profile=avpf
filesrc location={y4m} ! y4mdec ! {encoder} rtpvp8pay mtu=1200 ! application/x-rtp,extmap-1=(string){twcc}
    ! {element} name=estimate min-bitrate=150000 max-bitrate=4000000
    ! s.send_rtp_sink s.send_rtp_src ! udpsink host={host} port=5004 sync=false async=false
udpsrc port=5005 caps=application/x-rtcp ! s.recv_rtcp_sink
s.send_rtcp_src ! udpsink host={host} port=5005 sync=false async=false
"""

Gst.init(None)
y4m, host, *words = sys.argv[1:]
element = ELEMENTS[words[0] if words else "gcc"]
pipeline = Gst.parse_launch(PIPELINE.format(y4m=y4m, host=host, twcc=TWCC, element=element, encoder=ENCODER))
encoder, estimate = pipeline.get_by_name("encoder"), pipeline.get_by_name("estimate")


def told(*_):
    """Set the encoder's rate to the estimate minus headers."""
    rate = int(0.95 * estimate.get_property("estimated-bitrate"))
    encoder.set_property("target-bitrate", rate)
    print(rate, flush=True)


estimate.connect("notify::estimated-bitrate", told)
pipeline.set_state(Gst.State.PLAYING)
with suppress(KeyboardInterrupt):
    GLib.MainLoop().run()
