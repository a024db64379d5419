"""How the cells of docs/steady.md are judged, counted and printed."""

from __future__ import annotations

from validation.steady import CUBIC, SHOWN, Found, Seen, cells, counts, figures

NAME = "B3 newreno 4 Mb/s 120 ms 100p"


def test_b3_is_judged_by_the_videos_share_and_counted_again_with_the_tcps() -> None:
    every = {cell.key: cell for cell in cells()}
    cell = every[NAME]
    plan = {"steady": range(1, 2), CUBIC: range(1, 2)}

    def held(tcp: float, video: float = 0.95, loss: float = 0.003) -> list[str]:
        seen: Seen = {"video": video, "tcp": tcp, "loss": loss}
        runs = {("steady", NAME, 1): seen, (CUBIC, NAME, 1): {"video": 1.0, "tcp": 0.9, "loss": 0.0}}
        return [
            f"{row[3]}/{row[2]}" for row in counts(Found(runs), [cell], plan).rows if row[1] == "`steady`"
        ]

    # B3, B3 t and the sum, in which a cell counts once.
    assert held(0.86) == ["1/1", "1/1", "1/1"]
    assert held(0.85) == ["1/1", "0/1", "1/1"]
    assert held(0.95, video=0.89) == ["0/1", "0/1", "0/1"]
    assert held(0.95, loss=0.0031) == ["0/1", "0/1", "0/1"]


def test_a_share_that_is_not_known_is_not_printed() -> None:
    seen: Seen = {"bps": 3.96e6, "loss": 0.0, "queue_ms": 26.0}
    assert figures([seen], SHOWN["rates"]) == "rate 3.96 Mb/s, loss 0.00 %, queue p95 26 ms"
