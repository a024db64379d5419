"""The ECN field of a live session over emulated links: one link marks, one clears the field."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.live.conftest import needs_networks, run
from tests.live.network import READY, Emulated, emulate

WORDS = ("--controller", "scream", "--ecn", "ect1")
# A sender without a report for 3 s tries packets without ECN, so the receiver starts first.
SCRIPT = """
nsenter --net=$STEADYCAST_NET_R $STEADYCAST receive session.sdp --json > received.json 2> seen.txt & there=$!
{ready}
$STEADYCAST send greedy --to $STEADYCAST_R:5004 --port 6004 {words} --for {seconds}s \\
    --sdp s.sdp --events events.jsonl --json > sent.json 2> said.txt
wait $there
"""


def described(folder: Path, words: Sequence[str]) -> None:
    """Writes a description of such a session, with the address of the emulated receiver."""
    folder.mkdir()
    path = folder / "session.sdp"
    run("send", "greedy", "--to", "127.0.0.1:5004", *words, "--for", "100ms", "--sdp", path)
    path.write_text(path.read_text().replace("IP4 127.0.0.1", "IP4 10.0.0.2"))


@needs_networks
def test_ecn_is_used_on_a_path_that_keeps_it_and_given_up_on_one_that_clears_it(tmp_path: Path) -> None:
    def over(bleach: bool) -> Emulated:
        link = 'queue = { kind = "dualpi2" }' + ("\nbleach = true" if bleach else "")
        described(tmp_path / str(bleach), WORDS)
        script = SCRIPT.format(seconds=9, ready=READY, words=" ".join(WORDS))
        return emulate(tmp_path / str(bleach), script, link=link)

    with ThreadPoolExecutor(2) as pool:
        kept, cleared = pool.map(over, (False, True))
    description = (kept.folder / "s.sdp").read_text()
    assert "a=ecn-capable-rtp: leap mode=setonly; ect=1" in description.splitlines()
    assert "a=rtcp-fb:* ack ccfb" in description.splitlines()

    def told(done: Emulated) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
        lines = (done.folder / "events.jsonl").read_text().splitlines()
        events = [event["path"] for event in map(json.loads, lines) if event["event"] == "ecn"]
        return done.sent(), done.sent("received")["receivers"][0], events

    sent, received, events = told(kept)
    assert (sent["ecn_path"], events[-1]) == ("kept", "kept")
    assert sent["ecn_sent_packets"] == sent["sent_packets"] > 200
    assert received["ecn_capable_packets"] > 0.9 * sent["sent_packets"]
    # SCReAM fills the link until DualPI2 marks; its reports include nearly all marks.
    assert 10 < received["ecn_marked_packets"] < 0.5 * sent["sent_packets"]
    assert (
        0.9 * received["ecn_marked_packets"] - 5
        < sent["ecn_marked_packets"]
        <= received["ecn_marked_packets"]
    )

    # Each end prints a status every five seconds. The session lasted six, and a receiver that started late printed
    # nothing.
    assert "packets marked" in (kept.folder / "said.txt").read_text()
    assert "packets marked" in (kept.folder / "seen.txt").read_text()

    sent, received, events = told(cleared)
    assert (sent["ecn_path"], events[-1]) == ("cleared", "cleared")
    assert 20 <= sent["ecn_sent_packets"] < 100 < sent["sent_packets"]
    assert sent["ecn_marked_packets"] == 0
    assert "ecn_capable_packets" not in received
    assert "the path clears the ECN field" in (cleared.folder / "said.txt").read_text()


def test_ecn_without_reports_that_tell_of_it_is_refused_with_what_to_do() -> None:
    for words in (["--controller", "asmp"], ["--controller", "scream", "--feedback", "twcc"]):
        done = run("send", "greedy", "--to", "127.0.0.1:5004", "--ecn", "ect0", *words, code=2)
        assert "take --feedback rfc8888" in done.stderr
    done = run("send", "greedy", "--to", "127.0.0.1:5004", "--ecn", "ce", code=2)
    assert 'write "off", "ect0" (true) or "ect1"' in done.stderr
