"""Offers a call, and sends the pictures that it reads as y4m: send.py FOLDER Y4M [steady]."""

import asyncio
import json
import os
import sys
import threading
import time
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import numpy as np
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription, VideoStreamTrack
from av import VideoFrame


class Clip(VideoStreamTrack):
    """A track that sends the newest picture; pictures that arrive while one is encoded are dropped."""

    def __init__(self, path):
        super().__init__()
        self.path, self.newest, self.came = path, None, asyncio.Event()
        self.began, self.loop = time.monotonic(), asyncio.get_running_loop()

    def read(self):
        """Read the file until it ends, in a thread."""
        with open(self.path, "rb") as file:
            words = {word[:1]: word[1:] for word in file.readline().split()}
            width, height = int(words[b"W"]), int(words[b"H"])
            while file.readline().startswith(b"FRAME"):
                samples = np.frombuffer(file.read(width * height * 3 // 2), np.uint8)
                self.loop.call_soon_threadsafe(self.take, samples.reshape(height * 3 // 2, width))

    def take(self, samples):
        """Keep the newest picture, with its arrival time."""
        self.newest = VideoFrame.from_ndarray(samples, format="yuv420p")
        self.newest.pts, self.newest.time_base = (
            int((time.monotonic() - self.began) * 90000),
            Fraction(1, 90000),
        )
        self.came.set()

    async def recv(self):
        """Return the next picture."""
        await self.came.wait()
        self.came.clear()
        return self.newest


def peer(configuration):
    """Return a peer with aiortc's own estimator, or with Steadycast's (integrations/aiortc)."""
    if sys.argv[3:] != ["steady"]:
        return RTCPeerConnection(configuration)
    from steadycast_aiortc import PeerConnection

    return PeerConnection(configuration, floor_bps=250e3, cap_bps=1.5e6)


async def main(folder, path):
    """Offer the call, and send until the process is ended."""
    call = peer(RTCConfiguration(iceServers=[]))
    clip = Clip(path)
    sender = call.addTrack(clip)
    video = next(each for each in call.getTransceivers() if each.sender == sender)
    video.setCodecPreferences([c for c in sender.getCapabilities("video").codecs if c.name in ("VP8", "rtx")])
    await call.setLocalDescription(await call.createOffer())
    offer, answer = folder / "offer.json", folder / "answer.json"
    offer.with_suffix(".part").write_text(json.dumps({"sdp": call.localDescription.sdp, "type": "offer"}))
    os.replace(offer.with_suffix(".part"), offer)
    while not answer.exists():
        await asyncio.sleep(0.02)
    await call.setRemoteDescription(RTCSessionDescription(**json.loads(answer.read_text())))
    threading.Thread(target=clip.read, daemon=True).start()
    await asyncio.Event().wait()


with suppress(KeyboardInterrupt):
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
