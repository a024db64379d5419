"""Two Chromiums as a pair. One sends the clip as its camera, the other shows it. They exchange descriptions in files.

    python -m steadycast.judge.browser answer CELL
    python -m steadycast.judge.browser offer CELL --clip CLIP.y4m
    python -m steadycast.judge.browser offer CELL --clip CLIP.y4m --cap 4000000

Both browsers run until a signal ends them. They write files to the folder CELL.

The results of getStats are written to `stats.jsonl` (for the offering browser: `stats-send.jsonl`), one line per
second. `look.tsv` has a line per displayed picture, with the number that is read from the picture's mark.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from steadycast.errors import MissingError
from steadycast.judge import mark

WAIT_S = 60.0
"""How long a browser waits for the other browser's description, in seconds."""
_ORIGIN = "http://127.0.0.1/"
"""The address of the page, which Playwright serves.

It is on this machine, because browsers permit cameras only in a secure context (W3C Secure Contexts, 3.1).
"""
_ACROSS, _DOWN = 64, 8
"""The size in which the page returns the mark of a picture. The mark has 16 by 2 cells, each of 4 by 4 samples."""
_PAGE = """<!doctype html><video autoplay muted playsinline></video><script>
const pc = new RTCPeerConnection(), seen = [];
const video = document.querySelector("video"), canvas = document.createElement("canvas");
[canvas.width, canvas.height] = [ACROSS, DOWN];
const pen = canvas.getContext("2d", {willReadFrequently: true});
pc.ontrack = (e) => { video.srcObject = new MediaStream([e.track]); video.requestVideoFrameCallback(look); };
function look(now) {
  pen.drawImage(video, 0, 0, video.videoWidth, video.videoHeight / 6, 0, 0, ACROSS, DOWN);
  const data = pen.getImageData(0, 0, ACROSS, DOWN).data, luma = [];
  for (let i = 0; i < data.length; i += 4) luma.push(0.299 * data[i] + 0.587 * data[i + 1] + 0.114 * data[i + 2]);
  seen.push([now, btoa(String.fromCharCode(...luma))]);
  video.requestVideoFrameCallback(look);
}
async function told(described) {
  await pc.setLocalDescription(described);
  while (pc.iceGatheringState !== "complete") await new Promise((done) => setTimeout(done, 50));
  return JSON.stringify(pc.localDescription);
}
async function offer(cap) {
  const camera = await navigator.mediaDevices.getUserMedia({video: true});
  for (const track of camera.getTracks()) {
    const sender = pc.addTrack(track, camera), parameters = sender.getParameters();
    if (cap) parameters.encodings[0].maxBitrate = cap;
    await sender.setParameters(parameters);
  }
  return told(await pc.createOffer());
}
async function answer(other) {
  await pc.setRemoteDescription(JSON.parse(other));
  return told(await pc.createAnswer());
}
async function stats() {
  return {state: pc.connectionState, stats: [...(await pc.getStats()).values()], seen: seen.splice(0)};
}
</script>""".replace("ACROSS", str(_ACROSS)).replace("DOWN", str(_DOWN))


def strip_number(encoded: str) -> int | None:
    """Decode the mark of a picture from the strip that a page has returned."""
    strip = np.frombuffer(base64.b64decode(encoded), np.uint8).reshape(_DOWN, _ACROSS)
    return mark.read(np.vstack([strip, np.zeros(((mark.PART - 1) * _DOWN, _ACROSS), np.uint8)]))


def _exchanged(page: Any, what: str, cell: Path, cap_bps: int | None) -> None:
    """Send this page's description to the other browser, and apply the other browser's description in this page."""
    own, theirs = cell / f"{what}.json", cell / ("answer.json" if what == "offer" else "offer.json")
    if what == "offer":
        _put(own, page.evaluate("offer", cap_bps))
        page.evaluate("(other) => pc.setRemoteDescription(JSON.parse(other))", _taken(theirs))
    else:
        _put(own, page.evaluate("answer", _taken(theirs)))


def _put(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def _taken(path: Path) -> str:
    until = time.monotonic() + WAIT_S
    while not path.exists():
        if time.monotonic() > until:
            raise SystemExit(f"{path.name}: the other one has not written it in {WAIT_S:g} s")
        time.sleep(0.05)
    return path.read_text(encoding="utf-8")


def _noted(page: Any, offset_s: float, stats: Any, look: Any) -> None:
    told = page.evaluate("stats()")
    seen = told.pop("seen")
    stats.write(json.dumps({"t": time.monotonic(), **told}) + "\n")
    for at, encoded in seen:
        number = strip_number(encoded)
        look.write(f"{at / 1e3 + offset_s:.5f}\t{'' if number is None else number}\t\t\t\n")


def run(what: str, cell: Path, clip: Path | None, program: str | None, cap_bps: int | None = None) -> None:
    """Run the offering or the answering browser until a signal ends it."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise MissingError.package("steadycast.judge.browser", "Playwright", "steadycast[judge]") from error
    words = ["--autoplay-policy=no-user-gesture-required", "--disable-features=WebRtcHideLocalIpsWithMdns"]
    words += ["--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"]
    words += [f"--use-file-for-fake-video-capture={clip}"] if clip is not None else []
    # Disable the sandbox for root, because Chromium refuses to run as root with its sandbox.
    words += ["--no-sandbox"] if os.geteuid() == 0 else []
    sends = what == "offer"
    with (
        sync_playwright() as playwright,
        (cell / ("stats-send.jsonl" if sends else "stats.jsonl")).open("w", buffering=1) as stats,
        (cell / ("look-send.tsv" if sends else "look.tsv")).open("w", buffering=1) as look,
    ):
        browser = playwright.chromium.launch(executable_path=program, args=words, handle_sigint=False)
        page = browser.new_page()
        page.route("**/*", lambda route: route.fulfill(body=_PAGE, content_type="text/html"))
        page.goto(_ORIGIN)
        offset_s = time.monotonic() - page.evaluate("performance.now()") / 1e3
        print("ready", flush=True)
        _exchanged(page, what, cell, cap_bps)
        try:
            while True:
                time.sleep(1)
                _noted(page, offset_s, stats, look)
        except KeyboardInterrupt:
            browser.close()


def main() -> int:
    """Parse the command line, and run the browser that it specifies."""
    import shutil

    parser = argparse.ArgumentParser(prog="steadycast.judge.browser", description=__doc__)
    parser.add_argument("what", choices=("offer", "answer"))
    parser.add_argument("cell", type=Path)
    parser.add_argument("--clip", type=Path)
    parser.add_argument(
        "--program", default=shutil.which("chromium"), help="without it Playwright's own, if none is in PATH"
    )
    parser.add_argument(
        "--cap",
        type=int,
        metavar="BPS",
        help="the encoder's highest rate, in bit/s; without it Chromium's own for the size of the pictures",
    )
    given = parser.parse_args()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    # Close the browser after SIGTERM in the same way as after Ctrl-C.
    signal.signal(signal.SIGTERM, stop)
    try:
        run(given.what, given.cell, given.clip, given.program, given.cap)
    except KeyboardInterrupt:
        return 0
    except MissingError as error:
        print(error, file=sys.stderr)
        return int(error.code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
