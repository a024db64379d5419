"""Judgement, counting and printing of the cells of docs/steady.md."""

from __future__ import annotations

import pytest

from validation import page, steady
from validation.steady import CUBIC, SHOWN, Found, Seen, cells, counts, figures, seen_of

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


def test_each_cell_has_a_line_with_a_column_for_each_figure() -> None:
    every = {cell.key: cell for cell in cells()}
    chosen = [every["A1 1 Mb/s 20 ms"], every[NAME]]
    runs = {
        ("steady", chosen[0].key, 1): {"used": 0.98, "loss": 0.0, "queue_ms": 17.0},
        ("steady", NAME, 1): {"video": 0.95, "tcp": 0.86, "loss": 0.003, "queue_ms": 20.0},
    }
    heads, alone, beside = page.plain(seen_of(Found(runs), chosen, {"steady": range(1, 2)}))
    assert heads[:5] == ["row", "cell", "unseen", "controller", "holds"]
    told = dict(zip(heads, alone, strict=True))
    assert (told["used"], told["loss, %"], told["queue p95, ms"], told["video"]) == ("0.98", "0.00", "17", "")
    told = dict(zip(heads, beside, strict=True))
    assert (told["video"], told["beside"], told["used"]) == ("0.95", "0.86", "")


def test_a_picture_is_drawn_where_all_that_its_rows_have_was_run(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [cell for cell in cells() if cell.row in steady.DRAWN and cell.stricter is None][:1]
    chosen += [cell for cell in cells() if cell.row == "B3" and "newreno" not in cell.name][:1]
    monkeypatch.setattr(page, "save", lambda *_: None)
    monkeypatch.setattr(
        page, "merged", lambda name, made, keys: page.table((), [("B1", "steady"), ("B3", "tfrc")])
    )
    drawn: list[object] = []
    monkeypatch.setattr(steady, "draw", drawn.append)
    seen: Seen = {"video": 1.0, "tcp": 0.9, "loss": 0.0, "queue_ms": 20.0}
    for controllers in (["steady"], [CUBIC, "steady"], ["tfrc"], ["steady", "tfrc"]):
        runs = {(who, cell.key, 1): seen for who in [*controllers, CUBIC] for cell in chosen}
        steady.write(Found(runs), chosen, dict.fromkeys(controllers, range(1, 2)))
    assert drawn == [{("B1", "steady"): [(20.0, 0.9)], ("B3", "tfrc"): [(20.0, 0.9)]}]
