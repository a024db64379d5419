"""A browser behind a relay that loses one media packet in fifty, with each kind of report that it supports."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import CHROMIUM, needs_chromium
from tests.live.conftest import ports
from tests.live.test_browser import playing, serving

pytestmark = needs_chromium
NTH, LOST = 50, 10
RFC8888 = "--force-fieldtrials=WebRTC-RFC8888CongestionControlFeedback/Enabled,offer:true/"
VIA = """
const set = RTCPeerConnection.prototype.setRemoteDescription;
RTCPeerConnection.prototype.setRemoteDescription = function (answer) {
  window.pc = this;
  window.port = +/^a=candidate:\\S+ \\d+ udp \\d+ \\S+ (\\d+)/m.exec(answer.sdp)[1];
  return set.call(this, { ...answer, sdp: answer.sdp.replaceAll(` ${window.port} typ`, ' RELAY typ') });
};
"""


class Relay(threading.Thread):
    """Carries datagrams between a browser and a server's port, except every fiftieth media packet."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.lost = self.media = 0
        self.server: int | None = None
        (self.port,) = ports(1)
        self.sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        self.sockets[0].bind(("127.0.0.1", self.port))
        self.sockets[1].bind(("127.0.0.1", 0))
        self.over = threading.Event()

    def run(self) -> None:
        browser, server = self.sockets
        there: Any = None
        while not self.over.is_set():
            for each in select.select(self.sockets, [], [], 0.1)[0]:
                data, origin = each.recvfrom(2048)
                if each is browser:
                    there = origin
                    if self.server is not None:
                        server.sendto(data, ("127.0.0.1", self.server))
                elif not self.loses(data):
                    browser.sendto(data, there)

    def loses(self, data: bytes) -> bool:
        # RFC 7983; RFC 5761, section 4.
        if not 128 <= data[0] <= 191 or 64 <= data[1] & 0x7F <= 95:
            return False
        self.media += 1
        self.lost += self.media % NTH == 0
        return self.media % NTH == 0


@pytest.mark.claim
@pytest.mark.parametrize(("more", "feedback"), [([], "twcc"), ([RFC8888], "rfc8888")])
def test_what_is_lost_is_sent_again_by_either_report(
    browser: Any, tmp_path: Path, more: list[str], feedback: str
) -> None:
    relay = Relay()
    relay.start()
    own = browser.browser_type.launch(executable_path=CHROMIUM, args=["--no-sandbox", *more])
    with serving("127.0.0.1", tmp_path / "viewers") as served:
        page = own.new_page()
        page.add_init_script(VIA.replace("RELAY", str(relay.port)))
        page.goto(served.page)
        page.wait_for_function("() => window.port")
        relay.server = page.evaluate("() => window.port")
        playing(page)
        until = time.monotonic() + 120
        while relay.lost < LOST and time.monotonic() < until:
            page.wait_for_timeout(200)
        page.wait_for_timeout(1_000)
        stats = page.evaluate("async () => [...(await window.pc.getStats()).values()]")
        page.goto("about:blank")  # says DELETE
        folder = tmp_path / "viewers" / "viewer-1"
        while not folder.exists() and time.monotonic() < until + 60:
            time.sleep(0.2)
        own.close()
        served.process.terminate()
    relay.over.set()
    (seen,) = (each for each in stats if each["type"] == "inbound-rtp")
    flow = json.loads((folder / "summary.json").read_text())["flows"][0]
    print(f"\n{feedback}: {relay.lost} of {relay.media} lost, {json.dumps(seen)}")
    assert f'feedback = "{feedback}"' in (folder / "scenario.toml").read_text()
    assert flow["feedback_packets"] > LOST
    # The last retransmissions may still be in flight.
    assert LOST - 2 <= seen["retransmittedPacketsReceived"] <= flow["repair_packets"]
