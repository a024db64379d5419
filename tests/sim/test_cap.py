"""A flow's cap applies to all packets of a session, for every controller and every kind of media."""

from __future__ import annotations

import itertools
from pathlib import Path

import polars as pl
import pytest
import steadycast as sc
from steadycast.controllers import controllers
from steadycast.errors import UserError

CAPS_BPS = (300e3, 4e6)
MEDIA = {
    "greedy": 'media = "greedy"',
    "synthetic": 'media = "synthetic"',
    "by frame": 'media = "synthetic"\nvbr = "frame"\nrepair = "auto"',
    "table2": 'media = "table2"',
    "rfc8593": 'media = "rfc8593"\nrfc8593 = { r_max = "8Mbps" }',
    "repaired": 'media = "greedy"\nrepair = "auto"',
}
WINDOW_S = 2.0
PACKET_BITS = 1200 * 8
BURST_S = 0.25
"""Data that a source of frames may send ahead, in seconds at the cap (`CAP_BURST` of the session)."""
START_S = 1.0


def scenario(controller: str, media: str, cap_bps: float) -> str:
    """Return one flow on an idle link, with 1 % loss if the controller has repair."""
    loss = ', loss = { kind = "bernoulli", p = 0.01 }' if "repair" in MEDIA[media] else ""
    return (
        'format = 1\nname = "cap"\nduration = "6s"\nwarmup = "1s"\n[topology]\nshape = "dumbbell"\n'
        f'bottleneck = {{ rate = "40Mbps", delay = "20ms", queue = "100ms"{loss} }}\n'
        f'[[flow]]\nname = "f"\nkind = "video"\ncontroller = "{controller}"\ncast = "unicast"\n{MEDIA[media]}\n'
        f'cap = "{cap_bps / 1e3:g}kbps"\n[record]\ninterval = "100ms"\n'
    )


def test_no_controller_sends_more_than_its_cap_and_one_burst_in_any_two_seconds(tmp_path: Path) -> None:
    """The bound is that of a token bucket: cap · (2 s + 0.25 s) for frames, cap · 2 s and two packets for greedy media.

    A window of whole intervals of the record may hold one packet more.
    """
    ran, over = set(), []
    for controller, media, cap in itertools.product([each.name for each in controllers()], MEDIA, CAPS_BPS):
        file = tmp_path / "cap.toml"
        file.write_text(scenario(controller, media, cap))
        try:
            run = sc.run(file, quality=False)
        except UserError:  # it needs another kind of media
            continue
        ran.add((controller, media))
        rates = run.rates.to_polars().filter((pl.col("node") == "f.src") & (pl.col("t_s") >= START_S))
        sent = (rates["throughput_bps"] * 0.1).to_list()
        n = round(WINDOW_S / 0.1)
        most = max(sum(sent[k : k + n]) for k in range(len(sent) - n + 1))
        greedy = "greedy" in MEDIA[media]
        bound = (
            cap * WINDOW_S
            + (2 * PACKET_BITS if greedy else max(cap * BURST_S, 2 * PACKET_BITS))
            + PACKET_BITS
        )
        if most > bound:
            over.append(
                f"{controller}, {media}, cap {cap:g}: {most / WINDOW_S:.0f} b/s of {bound / WINDOW_S:.0f}"
            )
    assert len({controller for controller, _ in ran}) >= 20, ran
    assert {media for _, media in ran} == set(MEDIA)
    assert not over, "\n".join(over)


@pytest.mark.parametrize("cap", [1e6, 10e6])
def test_scream_with_greedy_media_fills_its_cap_and_no_more(cap: float, tmp_path: Path) -> None:
    file = tmp_path / "cap.toml"
    file.write_text(scenario("scream", "greedy", cap).replace('"6s"', '"20s"').replace('"1s"', '"8s"'))
    got = sc.run(file, quality=False).flows["f"].throughput_bps
    assert 0.9 * cap <= got <= 1.001 * cap
