"""Answers a call, and writes the decoded pictures as y4m: receive.py FOLDER Y4M [steady]."""

import asyncio
import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError


async def show(track, path):
    """Write the decoded pictures until the track ends."""
    with open(path, "wb") as file, suppress(MediaStreamError):
        sides = None
        while True:
            frame = await track.recv()
            if sides != (frame.width, frame.height):
                sides = frame.width, frame.height
                file.write(b"YUV4MPEG2 W%d H%d F30:1 Ip A1:1 C420jpeg\n" % sides)
            file.write(b"FRAME\n" + frame.to_ndarray(format="yuv420p").tobytes())
            file.flush()


def peer(configuration):
    """Return a peer of aiortc, or Steadycast's, which reports transport-wide numbers (integrations/aiortc)."""
    if sys.argv[3:] != ["steady"]:
        return RTCPeerConnection(configuration)
    from steadycast_aiortc import PeerConnection

    return PeerConnection(configuration, floor_bps=250e3, cap_bps=1.5e6)


async def main(folder, path):
    """Answer the call, and write pictures until the process is ended."""
    call = peer(RTCConfiguration(iceServers=[]))
    track = asyncio.get_running_loop().create_future()
    call.on("track", track.set_result)
    offer, answer = folder / "offer.json", folder / "answer.json"
    print("waiting", flush=True)
    while not offer.exists():
        await asyncio.sleep(0.02)
    await call.setRemoteDescription(RTCSessionDescription(**json.loads(offer.read_text())))
    await call.setLocalDescription(await call.createAnswer())
    answer.with_suffix(".part").write_text(json.dumps({"sdp": call.localDescription.sdp, "type": "answer"}))
    os.replace(answer.with_suffix(".part"), answer)
    await show(await track, path)


with suppress(KeyboardInterrupt):
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
