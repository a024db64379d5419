from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from steadycast import shape
from steadycast.errors import UserError
from steadycast.folder import OTHERS, Draft, Folder, aggregate, find, judge, number, spread, student_t95
from steadycast.shape import check

from tests.face.made_up import make


def summary_of(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((path / "summary.json").read_text())
    return value


def test_a_finished_draft_is_a_complete_folder_and_leaves_no_part(tmp_path: Path) -> None:
    make(tmp_path / "run", receivers=1, seconds=62)
    assert summary_of(tmp_path / "run")["complete"] is True
    assert not (tmp_path / "run.part").exists()
    assert Folder.open(tmp_path / "run").table("rates").height > 0


def test_an_interrupted_draft_stays_a_part_that_says_it_is_not_complete(tmp_path: Path) -> None:

    def interrupted() -> None:
        with Draft(tmp_path / "run") as draft:
            draft.table("rates", pl.DataFrame({"t_s": [0.0]}))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not (tmp_path / "run").exists()
    assert summary_of(tmp_path / "run.part")["complete"] is False
    with pytest.raises(UserError, match="interrupted"):
        Folder.open(tmp_path / "run")


def test_what_stands_at_part_goes_only_when_this_program_wrote_it(tmp_path: Path) -> None:
    part = tmp_path / "run.part"
    part.mkdir()
    (part / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="no results of this program"), Draft(tmp_path / "run", force=True):
        pass
    assert (part / "notes.txt").read_text() == "mine"
    (part / "summary.json").write_text("{}")
    with Draft(tmp_path / "run") as draft:
        draft.begin()
        assert sorted(each.name for each in part.iterdir()) == ["summary.json"]


@pytest.mark.parametrize("dies_in", ["replace_folder", "write_json"])
def test_complete_is_never_true_where_finish_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_in: str
) -> None:
    """If finish fails at any step, no summary in either place says complete."""
    from steadycast import folder

    real = getattr(folder, dies_in)
    calls = []

    def dies(*arguments: Any) -> None:
        calls.append(arguments)
        # The last write is the summary with `complete`.
        if dies_in == "write_json" and arguments[1].get("complete") is not True:
            real(*arguments)
            return
        raise KeyboardInterrupt

    def finished() -> None:
        with Draft(tmp_path / "run") as draft:
            monkeypatch.setattr(folder, dies_in, dies)
            draft.finish({"format": 1, "complete": True, "flows": []})

    with pytest.raises(KeyboardInterrupt):
        finished()
    assert calls
    found = list(tmp_path.glob("*/summary.json"))
    assert found
    assert all(json.loads(path.read_text())["complete"] is False for path in found)


def test_an_existing_folder_needs_force_and_then_is_replaced_whole(tmp_path: Path) -> None:
    make(tmp_path / "run", receivers=1, seconds=62)
    (tmp_path / "run" / "old").write_text("old")
    with pytest.raises(UserError, match="force=True"):
        make(tmp_path / "run", receivers=1, seconds=62)
    make(tmp_path / "run", receivers=1, seconds=62, force=True)
    assert not (tmp_path / "run" / "old").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]


def test_force_never_replaces_a_folder_that_is_not_a_run(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("all of it")
    with pytest.raises(UserError, match="no results of this program"), Draft(tmp_path / "thesis", force=True):
        pass
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "all of it"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("summary.json", b"{", "damaged"),
        ("summary.json", b"[]", "not a JSON object"),
        ("summary.json", b"\xff\xfe\x00", "UTF-16"),
        ("summary.json", b'{"format": 2}', "format 2"),
        ("summary.json", b'{"format": 1, "complete": false}', "interrupted"),
        ("rates.parquet", b"PAR1 no more", "the table is damaged"),
    ],
)
def test_a_damaged_folder_is_told_by_file_problem_and_remedy(
    tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    make(tmp_path / "run", receivers=1, seconds=62)
    (tmp_path / "run" / name).write_bytes(content)
    with pytest.raises(UserError, match=says) as told:
        Folder.open(tmp_path / "run").table("rates")
    assert name in told.value.place or told.value.place == str(tmp_path / "run")
    assert told.value.remedy


@pytest.mark.parametrize(
    ("table", "column", "value", "says"),
    [
        ("rates", "throughput_bps", math.nan, "the column throughput_bps holds nan in row 2"),
        ("rates", "loss_frac", math.inf, "the column loss_frac holds inf in row 2"),
        ("decisions", "target_bps", -math.inf, "the column target_bps holds -inf in row 2"),
        ("links", "queue_ms", 1e300, r"the column queue_ms holds 1e\+300 in row 2"),
        ("frames", "psnr_y_db", math.inf, "the column psnr_y_db holds inf in row 2"),
    ],
)
def test_a_table_with_a_number_that_is_no_measurement_is_refused(
    run_folder: Path, tmp_path: Path, table: str, column: str, value: float, says: str
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run_folder, copy)
    found = pl.read_parquet(copy / f"{table}.parquet")
    cells = pl.when(pl.int_range(pl.len()) == 1).then(pl.lit(value)).otherwise(pl.col(column)).alias(column)
    found.with_columns(cells).write_parquet(copy / f"{table}.parquet")
    with pytest.raises(UserError, match=says) as told:
        Folder.open(copy).table(table)
    assert told.value.place == str(copy / f"{table}.parquet")
    assert told.value.remedy == "run the scenario again"


@pytest.mark.parametrize("mark", OTHERS)
def test_a_folder_of_another_command_is_told_as_that_with_what_to_look_at(tmp_path: Path, mark: str) -> None:
    command, page = OTHERS[mark]
    (tmp_path / mark).write_text("{}")
    with pytest.raises(UserError, match=f"of steadycast {command}") as told:
        Folder.open(tmp_path)
    assert told.value.remedy == f"look at {tmp_path / page}"


def test_students_t_is_the_tables() -> None:
    for freedom, quantile in (
        (1, 12.706),
        (4, 2.776),
        (20, 2.086),
        (21, 2.0796),
        (30, 2.0423),
        (120, 1.9799),
    ):
        assert math.isclose(student_t95(freedom), quantile, rel_tol=2e-4)


def test_a_spread_is_mean_and_student_interval() -> None:
    s = spread([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (s["mean"], s["min"], s["max"], s["n"]) == (3.0, 1.0, 5.0, 5)
    assert math.isclose(s["ci95"], 2.7764 * math.sqrt(2.5) / math.sqrt(5), rel_tol=1e-4)
    assert spread([7.0])["ci95"] is None


def test_seeds_join_by_name_count_what_is_null_and_judge_the_mean() -> None:
    def seed(n: int, share: float, mos: float | None) -> dict[str, Any]:
        flow = {
            "name": "tcp",
            "kind": "tcp",
            "share_of_fair": share,
            "mos": mos,
            "receivers": [{"name": "tcp.dst1"}],
        }
        entry = {
            "that": "flows.tcp.share_of_fair",
            "min": 0.8,
            "max": None,
            "value": share,
            "ok": share >= 0.8,
        }
        return {
            "format": 1,
            "complete": True,
            "warnings": ["w"],
            "scenario": {"name": "x", "seed": n},
            "flows": [flow],
            "expect": [entry],
        }

    whole = aggregate([seed(1, 0.7, None), seed(2, 1.0, 4.0), seed(3, 1.0, 4.2)])
    tcp = whole["flows"][0]
    assert len(whole["flows"]) == 1
    assert tcp["name"] == "tcp"
    assert tcp["share_of_fair"]["n"] == 3
    assert math.isclose(tcp["share_of_fair"]["mean"], 0.9)
    assert tcp["mos"]["n"] == 2
    assert whole["scenario"]["seed"] == [1, 2, 3]
    assert whole["format"] == 1
    assert whole["warnings"] == ["w"]
    expect = whole["expect"][0]
    assert expect["min"] == 0.8
    assert expect["ok"] is True  # one seed misses its bound, the mean does not
    assert json.loads(json.dumps(whole, allow_nan=False)) == whole


def test_paths_go_by_names_that_hold_dots(run_folder: Path) -> None:
    summary = summary_of(run_folder)
    receiver = summary["flows"][0]["receivers"][0]
    assert find(summary, "flows.video.receivers.video.dst1.psnr_db.raw.y") == receiver["psnr_db"]["raw"]["y"]
    assert find(summary, "flows.video.receivers.video.dst1.mos.share.5") == receiver["mos"]["share"]["5"]
    assert find(summary, "links.left.access.utilisation_frac") == 0.4
    assert find(summary, "fairness.jain_1s.p05") == 0.8


def test_a_links_direction_is_forward_where_none_is_named() -> None:
    links = [{"name": "air", "direction": d, "drop_frac": x} for d, x in (("back", 0.1), ("forward", 0.2))]
    assert find({"links": links}, "links.air.drop_frac") == 0.2
    assert find({"links": links}, "links.air.back.drop_frac") == 0.1


@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        ("flows.tpc.share_of_fair", 'did you mean "tcp"'),
        ("flows.tcp.share_of_fare", 'did you mean "share_of_fair"'),
        ("flow.tcp", 'did you mean "flows"'),
        ("flows.tcp.share_of_fair.x", "end the path there"),
    ],
)
def test_a_path_that_leads_nowhere_names_the_nearest(run_folder: Path, path: str, remedy: str) -> None:
    with pytest.raises(UserError, match=remedy):
        find(summary_of(run_folder), path)


def test_expectations_hold_within_their_bounds_and_absent_values_fail() -> None:
    summary = {"flows": [{"name": "tcp", "share_of_fair": 0.9, "vmaf": None}]}
    path = "flows.tcp.share_of_fair"
    results = judge(
        summary,
        [
            {"that": path, "min": 0.9},
            {"that": path, "max": 0.89},
            {"that": path, "min": 0.5, "max": 0.95},
            {"that": "flows.tcp.vmaf", "min": 0},
        ],
    )
    assert [r["ok"] for r in results] == [True, False, True, False]


def test_a_truth_value_is_not_a_number() -> None:
    assert number(True) is None
    assert number(spread([1.0, 3.0])) == 2.0


@pytest.mark.parametrize(
    ("by", "key"), [("pictures", "picture_score"), ("rate", "rate_score"), (None, "rate_score")]
)
def test_an_older_programs_score_is_read_under_the_name_of_today(
    tmp_path: Path, by: str | None, key: str
) -> None:
    place = tmp_path / "old"
    place.mkdir()
    receiver = {"name": "dst", "viewing_score": 3.5, **({"viewing_score_by": by} if by else {})}
    summary = {
        "format": 1,
        "complete": True,
        "flows": [
            {"name": "video", "kind": "video", "receivers": [receiver]},
            {"name": "tcp", "kind": "tcp", "receivers": []},
        ],
    }
    (place / "summary.json").write_text(json.dumps(summary))
    (read,) = Folder.open(place).summary["flows"][0]["receivers"]
    other = {"picture_score": "rate_score", "rate_score": "picture_score"}[key]
    assert (read[key], read.get(other), read["viewing_score"]) == (3.5, None, 3.5)


@pytest.mark.parametrize("unused", [[], [{"reason": "other_report", "packets": 1}]])
def test_the_reasons_of_discarded_packets_are_read(unused: list[dict[str, object]]) -> None:
    receiver = {"name": "r", "unused_packets": len(unused), "unused": unused}
    flow = {"name": "v", "kind": "video", "receivers": [receiver]}
    check({"flows": [flow], "warnings": []}, shape.summary(), "summary.json", "run it again")
    receiver["unused"] = ["other_report"]
    with pytest.raises(UserError, match="unused"):
        check({"flows": [flow], "warnings": []}, shape.summary(), "summary.json", "run it again")
