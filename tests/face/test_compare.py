from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from steadycast.compare import Condition, Verdict, answer, doubts, read
from steadycast.errors import UserError
from steadycast.report.choice import RULE
from steadycast.report.markup import plain
from steadycast.report.run_comparison import Run, draw_delays, draw_overlay, measures, videos

from tests.conftest import Say
from tests.face.made_up import make


def fails(condition: str, was: float | None, now: float | None) -> bool:
    return Verdict("run", Condition.read(condition), was, now).fails


@pytest.mark.parametrize(
    ("condition", "was", "now", "failing"),
    [
        ("x<-10%", 1.0, 0.89, True),
        ("x<-10%", 1.0, 0.90, False),
        ("x<-10%", 1.0, 1.5, False),
        ("x>+10%", 1.0, 1.11, True),
        ("x>10%", 1.0, 1.10, False),
        ("x<-1", 36.0, 34.9, True),
        ("x<-1", 36.0, 35.0, False),
        ("x>0", 0.0, 0.0, False),
        ("x>5%", 0.0, 0.1, True),
        ("x<-10%", -2.0, -2.5, True),
        ("x<-10%", None, 1.0, True),
        ("x<-10%", 1.0, None, True),
    ],
)
def test_a_condition_fails_beyond_its_change_and_not_at_it(
    condition: str, was: float | None, now: float | None, failing: bool
) -> None:
    assert fails(condition, was, now) is failing


@pytest.mark.parametrize("text", ["x", "x<", "x<ten", "x<=1", "<1", "x<1%%", "x<nan"])
def test_what_is_no_condition_is_told_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match="write for example"):
        Condition.read(text)


def test_a_worse_run_fails_the_baseline_with_a_table(say: Say, tmp_path: Path) -> None:
    make(tmp_path / "main", receivers=2, seconds=64)
    make(tmp_path / "greedy", receivers=2, seconds=64, greed=1.4)
    worse = say(
        "compare", "greedy", "--baseline", "main", "--fail-if", "flows.tcp.share_of_fair<-10%", code=1
    )
    assert "fails" in worse.out
    say("compare", "main", "--baseline", "main", "--fail-if", "flows.tcp.share_of_fair<-10%", code=0)
    assert all(len(line) <= 80 for line in worse.out.splitlines())


def test_changes_are_those_against_the_baseline_wherever_it_is_listed(say: Say, tmp_path: Path) -> None:
    for name, greed in (("a", 1.4), ("b", 1.0), ("c", 1.2)):
        make(tmp_path / name, receivers=2, seconds=64, greed=greed)
    said = [say("compare", *listed, "--baseline", "b") for listed in (["a", "c"], ["a", "b", "c"])]
    assert said[0].out == said[1].out
    lines = [" ".join(line.split()) for line in said[1].out.splitlines()]
    assert "b a c" in lines
    assert "tcp: share of fair 106 % 73 % (-32 points) 88 % (-17 points)" in lines


def test_a_baseline_of_the_same_name_is_called_by_its_path(say: Say, tmp_path: Path) -> None:
    for place in ("old", "new"):
        make(tmp_path / place / "ci", receivers=1, seconds=64)
    value = json.loads(say("compare", "new/ci", "--baseline", "old/ci", "--json").out)
    assert [run["name"] for run in value["runs"]] == ["old/ci", "new/ci"]
    assert value["baseline"] == "old/ci"
    same = json.loads(say("compare", "new/ci", "--baseline", "new/ci", "--json").out)
    assert [run["name"] for run in same["runs"]] == ["ci"]


def test_the_page_shows_all_runs_to_one_scale(say: Say, tmp_path: Path, seeds_folder: Path) -> None:
    make(tmp_path / "asmp", receivers=2, seconds=64)
    make(tmp_path / "tfmcc", receivers=2, seconds=64, controller="tfmcc")
    say("compare", "asmp", "tfmcc", seeds_folder, code=0)
    text = (tmp_path / "compare.html").read_text()
    assert text.count('<svg role="img"') == 5
    for name in ("asmp", "tfmcc", "seeds"):
        assert f"{name}: throughput (Mb/s)" in text
    assert "±" in text


def test_json_has_each_runs_quantities_and_the_verdicts(say: Say, tmp_path: Path) -> None:
    make(tmp_path / "a", receivers=1, seconds=64)
    said = say("compare", "a", "--baseline", "a", "--fail-if", "flows.video.rate_cov>5%", "--json")
    value = json.loads(said.out)
    assert value["baseline"] == "a"
    assert value["conditions"][0]["ok"] is True
    assert math.isclose(value["runs"][0]["tcp: share of fair"], 1.0, abs_tol=0.5)


def test_many_runs_are_split_into_tables_that_fit(say: Say, tmp_path: Path) -> None:
    for n in range(7):
        make(tmp_path / f"a-rather-long-name-{n}", receivers=1, seconds=62, seed=n)
    said = say("compare", *[f"a-rather-long-name-{n}" for n in range(7)], code=0)
    lines = said.out.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert all(any(f"a-rather-long-name-{n}" in line for line in lines) for n in range(7))


def test_flows_that_would_look_alike_are_told_apart() -> None:
    from steadycast import style

    tcp = {"kind": "tcp", "congestion": "cubic"}
    video = {"kind": "video", "controller": "asmp"}
    looks = style.looks([tcp, video, tcp, tcp])
    assert looks[0] == style.look(tcp)
    assert looks[1].dashes == style.look(video).dashes
    assert len(set(looks)) == 4
    assert {look.dashes for look in looks if look != looks[1]} == {looks[0].dashes}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"complete": False}, "new was interrupted"),
        ({"scenario": {"name": "another", "seed": 1}}, "another instead of"),
        ({"flows": []}, "other flows"),
    ],
)
def test_the_gate_judges_no_interrupted_run_and_no_other_scenario_unless_asked(
    say: Say, tmp_path: Path, change: dict[str, object], said: str
) -> None:
    make(tmp_path / "old", receivers=2, seconds=64)
    make(tmp_path / "new", receivers=2, seconds=64)
    place = tmp_path / "new" / "summary.json"
    summary = json.loads(place.read_text())
    place.write_text(json.dumps({**summary, **change}))
    gate = ("compare", "new", "--baseline", "old", "--fail-if", "links.bottleneck.forward.drop_frac>+900%")
    refused = say(*gate, code=2)
    assert said in refused.err
    assert "--anyway" in refused.err
    judged = say(*gate, "--anyway", code=0)
    assert f"warning: {said.partition(' instead')[0]}" in judged.err or said in judged.err


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("format = 1", '# Over the network "lte".\nformat = 1', "another network"),
        ('media = "synthetic"', 'media = "clip"\nclip = ["a.mkv"]', "other clips"),
        ('limit = "50p"', 'limit = "20p"', ""),
    ],
)
def test_runs_over_another_network_or_of_another_clip_are_doubted_and_one_with_a_changed_value_is_not(
    tmp_path: Path, was: str, now: str, said: str
) -> None:
    for name in ("old", "new"):
        make(tmp_path / name, receivers=2, seconds=64)
    text = tmp_path / "new" / "scenario.toml"
    text.write_text(text.read_text().replace(was, now))
    found = doubts(read([tmp_path / "old", tmp_path / "new"]))
    assert found == ([f"new is not a run of old's scenario: {said}"] if said else [])


def test_each_value_of_the_network_that_differs_is_named_before_the_verdict(tmp_path: Path) -> None:
    make(tmp_path / "old", receivers=2, seconds=64)
    make(tmp_path / "new", receivers=2, seconds=64)
    text = tmp_path / "new" / "scenario.toml"
    whole = text.read_text()
    topology = whole[whole.index("[topology]") : whole.index("[[flow]]")]
    values = [*re.finditer(r'(\w+) = "([^"]*)"', topology)]
    assert len(values) >= 4
    for value in values:
        changed = f"{topology[: value.start(2)]}changed{topology[value.end(2) :]}"
        text.write_text(whole.replace(topology, changed))
        said = answer(read([tmp_path / "old", tmp_path / "new"]))
        assert said.startswith("new ran over another network than old (topology."), said
        assert f"{value[1]} changed instead of {value[2]}). The networks are compared" in said
        assert "Use " not in said
    text.write_text(whole.replace('controller = "', 'controller = "other-'))
    assert "network" not in answer(read([tmp_path / "old", tmp_path / "new"]))


def test_the_comparison_begins_with_which_run_to_take_and_says_nothing_of_a_single_one(
    say: Say, tmp_path: Path
) -> None:
    make(tmp_path / "kind", receivers=1, seconds=64)
    make(tmp_path / "greedy", receivers=1, seconds=64, greed=1.8)
    for name, score in (("kind", 3.5), ("greedy", 4.5)):
        place = tmp_path / name / "summary.json"
        summary = json.loads(place.read_text())
        summary["flows"][0]["receivers"][0].update(rate_score=score, picture_score=None, frozen_frac=0.0)
        tcp = next(flow for flow in summary["flows"] if flow["kind"] == "tcp")
        tcp["share_of_fair"] = 0.9 if name == "kind" else 0.2
        place.write_text(json.dumps(summary))
    said = " ".join(say("compare", "greedy", "kind").out.split())
    assert said.startswith("Use kind")
    summary = json.loads((tmp_path / "kind" / "summary.json").read_text())
    summary["flows"][0]["limited_by_frac"] = {"encoder": 0.9, "network": 0.1}
    (tmp_path / "kind" / "summary.json").write_text(json.dumps(summary))
    warned = " ".join(say("compare", "greedy", "kind").out.split())
    assert warned.startswith("kind: This run does not compare controllers: for 90 % of the time")
    assert "Use kind: greedy leaves tcp 20 % of its fair share" in warned
    assert said.startswith(
        "Use kind: greedy leaves tcp 20 % of its fair share, kind 90 %. One seed is one sample"
    )
    assert "--seeds 1-5" in said
    assert " ".join(RULE.split()) in said
    found = json.loads(say("compare", "greedy", "kind", "--json").out)["verdict"]
    assert (found["take"], found["recommended"], found["reason"]) == (["kind"], "kind", "decided")
    assert found["rule"] == RULE
    assert found["decided_by"][0]["figure"] == "others_share"
    assert found["decided_by"][0]["n"] == 1
    text = (tmp_path / "compare.html").read_text()
    assert (
        text.index("Use kind") < text.index("The rule has six criteria, in this order") < text.index("<table")
    )
    assert answer(read([tmp_path / "kind"])) == ""


def _run(name: str, score: object, tcp: object) -> Run:
    receivers = [{"name": "dst", "rate_score": score}]
    flows = [
        {"name": "video", "kind": "video", "share_of_fair": 0.9, "receivers": receivers},
        {"name": "tcp", "kind": "tcp", "share_of_fair": tcp, "receivers": [{"name": "dst"}]},
        {"name": "last", "kind": "tcp", "share_of_fair": 2.0, "receivers": [{"name": "dst"}]},
    ]
    return Run(name, Path(name), {"flows": flows}, ())


def test_only_intervals_over_seeds_mark_best_and_worst() -> None:
    def spread(mean: float, ci95: float | None = 0.6) -> dict[str, object]:
        return {"mean": mean, "ci95": ci95, "min": mean, "max": mean, "n": 3}

    def marks(*scores: object) -> tuple[str, ...]:
        [found] = [
            m for m in measures([_run("a", each, 1) for each in scores]) if plain(m.head) == "rate score"
        ]
        return found.marks()

    assert marks(4.0, 2.0) == ("", ""), "one seed each"
    assert marks(spread(4.0, None), spread(2.0, None)) == ("", "")
    assert marks(spread(4.0), spread(3.5)) == ("", "")
    assert marks(spread(4.0), spread(2.0)) == ("best", "worst")
    assert marks(spread(4.0), spread(3.9), spread(1.0)) == ("best", "best", "worst")
    assert marks(spread(4.0), spread(2.5), spread(1.0)) == ("best", "", "worst"), "the middle is near neither"
    assert marks(spread(4.0, 1.2), spread(3.0, 1.2), spread(1.0, 1.2)) == ("best", "", "worst"), (
        "it is near both"
    )
    assert marks(spread(4.0), None, spread(2.0)) == ("best", "", "worst")
    by = {plain(m.head): m for m in measures([_run("a", 4.0, 0.5), _run("b", 4.0, 0.9)])}
    assert by["TCP: share of fair"].values == (0.5, 0.9)
    assert by["video: share of fair"].better is None


def test_the_table_with_a_line_per_run_stands_before_all_others(say: Say, tmp_path: Path) -> None:
    make(tmp_path / "kind", receivers=2, seconds=64)
    make(tmp_path / "greedy", receivers=2, seconds=64, greed=1.4)
    said = say("compare", "greedy", "kind")
    lines = said.out.splitlines()
    heads = [n for n, line in enumerate(lines) if line.startswith("one seed each, so nothing is marked")]
    assert len(heads) == 1
    assert heads[0] < next(n for n, line in enumerate(lines) if line.startswith("video: "))
    assert max(len(line) for line in lines) <= 80
    text = (tmp_path / "compare.html").read_text()
    assert "▲" not in text
    assert "One seed each, so nothing is marked." in text


def test_the_distribution_of_delays_leaves_the_warm_up_out(tmp_path: Path) -> None:
    make(tmp_path / "a", receivers=1, seconds=64)
    [run] = read([tmp_path / "a"])
    for begin in (0.0, 10.0, 63.0, 64.0):
        run.summary["from_s"] = begin
        [one] = videos([run], "delay_ms")
        after = [v for t, v in zip(one.t, one.values, strict=True) if t - 0.5 >= begin and not math.isnan(v)]
        assert one.counted() == sorted(after)
        assert (draw_delays([run]) is None) == (not after)


def test_a_figure_of_one_of_two_videos_names_it(tmp_path: Path) -> None:
    make(tmp_path / "a", receivers=1, seconds=64)
    runs = [*read([tmp_path / "a"]), *read([tmp_path / "a"])]

    def titles() -> list[str]:
        figures = (draw_overlay(runs, "throughput_bps", "throughput"), draw_delays(runs))
        return [figure.axes[0].get_title() for figure in figures if figure]

    assert [title.count("the video") for title in titles()] == [1, 1]
    for run in runs:
        run.summary["flows"].append({"name": "other", "kind": "video", "receivers": []})
    runs[1].summary["flows"][0]["controller"] = "other"
    assert [title.count("the video") for title in titles()] == [0, 0]
    assert [title.count(" video ") for title in titles()] == [1, 1], titles()
