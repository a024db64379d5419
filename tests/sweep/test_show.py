"""The presentation of a sweep."""

from __future__ import annotations

import re
import shlex
import statistics
from pathlib import Path

import polars as pl
import pytest
import steadycast as sc
from steadycast.experiment.formula import Formula
from steadycast.folder import student_t95
from steadycast.sweep.plan import axis
from steadycast.sweep.show import idle, number_of, warning

from tests.sweep.test_sweep import CONTROLLER, OVER, RATE, Say

SHARE = "flows.video.share_of_fair"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> sc.Sweep:
    from tests.conftest import SMALL

    place = tmp_path_factory.mktemp("show")
    (place / "small.toml").write_text(SMALL)
    return sc.sweep(place / "small.toml", OVER, seeds=range(1, 5), out=place / "done")


def values(done: sc.Sweep, controller: str, rate: str) -> list[float]:
    chosen = done.results.filter((pl.col(CONTROLLER) == controller) & (pl.col(RATE) == rate))
    return chosen.sort("seed")[SHARE].to_list()


def test_a_point_is_the_mean_over_its_seeds_with_student_s_interval(done: sc.Sweep) -> None:
    point = done.points(SHARE).row(1, named=True)
    assert (point[CONTROLLER], point[RATE], point["n"]) == ("asmp", "1Mbps", 4)
    seen = values(done, "asmp", "1Mbps")
    assert point["mean"] == pytest.approx(statistics.fmean(seen), rel=1e-12)
    half = student_t95(3) * statistics.stdev(seen) / 2
    assert point["ci95"] == pytest.approx(half, rel=1e-12)


def test_differences_are_paired_by_seed(done: sc.Sweep) -> None:
    found = done.differences(SHARE, f"{CONTROLLER}=tfrc")
    assert found.select(CONTROLLER, RATE).rows() == [("asmp", "500kbps"), ("asmp", "1Mbps")]
    pairs = zip(values(done, "asmp", "1Mbps"), values(done, "tfrc", "1Mbps"), strict=True)
    apart = [a - b for a, b in pairs]
    assert found["mean"][1] == pytest.approx(statistics.fmean(apart), rel=1e-9)
    assert found["ci95"][1] == pytest.approx(student_t95(3) * statistics.stdev(apart) / 2, rel=1e-9)


def test_a_metric_with_an_asterisk_is_the_mean_of_what_fits(done: sc.Sweep) -> None:
    shares = [f"flows.{flow}.share_of_fair" for flow in ("video", "tcp")]
    mean = statistics.fmean(done.points(share)["mean"][0] for share in shares)
    assert done.points("flows.*.share_of_fair")["mean"][0] == pytest.approx(mean, rel=1e-12)
    with pytest.raises(sc.UserError, match="no run has this figure"):
        done.points("flows.*.nothing")


def test_errors_of_a_sweep_s_methods_name_arguments(done: sc.Sweep) -> None:
    with pytest.raises(sc.UserError, match=r"^metric flows\.nothing: no run has this figure"):
        done.points("flows.nothing")
    with pytest.raises(sc.UserError, match=r"^baseline x=1: this is not an axis of the sweep"):
        done.differences(SHARE, "x=1")


@pytest.mark.parametrize("figure", ["psnr_db.raw.y", "ssim", "picture_score", "mos.mean"])
@pytest.mark.parametrize("receiver", ["*", "video.dst1"])
def test_without_pixels_the_remedy_for_a_figure_of_pictures_is_to_measure_them(
    done: sc.Sweep, figure: str, receiver: str
) -> None:
    path = f"flows.video.receivers.{receiver}.{figure}"
    with pytest.raises(sc.UserError, match="did not measure their pictures; add pixels=True"):
        done.points(path)
    with pytest.raises(sc.UserError, match="experiments do not measure pictures"):
        Formula.read(f"mean({path})", "here").check(["flows.video.receivers.video.dst1.frames.ok"], "here")


def test_the_page_is_whole_by_itself_and_its_commands_run(done: sc.Sweep, say: Say) -> None:
    page = done.report(baseline=f"{CONTROLLER}=tfrc", figures=True)
    text = page.read_text()
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*"|url\((?!#)', text) == []
    assert done.metrics() == [SHARE, "flows.video.receivers.*.loss_frac", "flows.tcp.share_of_fair"]
    assert len(list((done.folder / "figures").glob("*.png"))) == 3
    commands = re.findall(r"<code>(steadycast run [^<]*)</code>", text)
    assert len(commands) == 4
    words = shlex.split(commands[3].replace("&#x27;", "'"))
    assert words[-2:] == ["--seeds", "1-4"]
    assert say(*words[1:], "-o", "again").code == 0
    again = sc.run_seeds(
        done.plan.file, seeds=range(1, 5), set=dict(zip(OVER, ("tfrc", "1Mbps"), strict=True))
    )
    assert (
        again["record_sha256"]
        == done.results.filter((pl.col(CONTROLLER) == "tfrc") & (pl.col(RATE) == "1Mbps"))[
            "record_sha256"
        ].to_list()
    )


@pytest.mark.parametrize(
    ("over", "figures"),
    [
        ({RATE: ["500kbps", "1Mbps"]}, 1),
        ({CONTROLLER: ["asmp", "tfrc"]}, 1),
        ({CONTROLLER: ["asmp", "tfrc"], RATE: ["1Mbps"], "duration": ["2s", "3s"]}, 2),
        ({}, 0),
    ],
)
def test_one_axis_is_a_curve_and_more_are_heat_maps(
    done: sc.Sweep, tmp_path: Path, over: dict[str, list[str]], figures: int
) -> None:
    some = sc.sweep(done.plan.file, over, seeds=[1, 2], out=tmp_path / "some")
    some.report([SHARE], figures=True)
    assert len(list((tmp_path / "some" / "figures").glob("*.svg"))) == figures


def test_what_compares_nothing_is_marked_in_table_heat_map_and_page_and_said(tmp_path: Path) -> None:
    from tests.conftest import SMALL

    # The codec uses at most 1 Mb/s, a hundredth of the faster link. At 500 kb/s the network is the limit.
    video = 'media = "rfc8593"\nrfc8593 = { r_max = "1Mbps" }'
    (tmp_path / "small.toml").write_text(SMALL.replace('media = "greedy"', video).replace('"3s"', '"30s"'))
    over = {CONTROLLER: ["steady", "tfrc"], RATE: ["500kbps", "100Mbps"]}
    wide = sc.sweep(tmp_path / "small.toml", over, seeds=[1], out=tmp_path / "wide")
    marked = idle(wide)
    assert ("steady", "100Mbps") in marked
    assert not {point for point in marked if point[1] == "500kbps"}
    said = warning(wide) or ""
    assert f"{len(marked)} of 4 runs, at {len(marked)} of 4 points (†), compare nothing" in said
    text = wide.report([SHARE]).read_text()
    assert text.count('class="idle"') == len(marked)
    assert "compare nothing" in text
    assert text.count(" †</td>") == 2 * len(marked), "in the heat map, and in the table"


@pytest.mark.parametrize("lost", ["topology.bottleneck.loss", "topology.bottleneck.back.loss"])
def test_a_link_that_loses_all_is_no_encoder_and_no_start_phase(tmp_path: Path, lost: str) -> None:
    from tests.conftest import SMALL

    (tmp_path / "small.toml").write_text(SMALL)
    dead = sc.sweep(tmp_path / "small.toml", {lost: ["0", "1"]}, seeds=[1], out=tmp_path / "dead")
    assert set(idle(dead)) == {("1",)}
    said = warning(dead) or ""
    assert "in 1 of them no packet of a video arrived, or no report reached its sender" in said
    assert "encoder" not in said


def test_a_page_that_would_be_the_same_stays_and_one_that_would_not_is_written_again(
    done: sc.Sweep,
) -> None:
    page = done.report([SHARE])
    before = page.stat().st_mtime_ns
    assert done.report([SHARE]).stat().st_mtime_ns == before
    done.report([SHARE], f"{CONTROLLER}=tfrc")
    assert page.stat().st_mtime_ns > before


def test_a_metric_is_drawn_for_a_notebook(done: sc.Sweep, tmp_path: Path) -> None:
    shown = done.plot("flows.video.share_of_fair")._repr_svg_()
    assert shown.startswith("<svg ")
    assert "var(--" not in shown
    assert "bottleneck rate" in shown
    done.plot("flows.video.share_of_fair").save(tmp_path / "share.png")
    assert (tmp_path / "share.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(sc.UserError, match="nothing"):
        done.plot("nothing")


def test_the_terminal_shows_the_metrics_that_are_asked_for(done: sc.Sweep, say: Say) -> None:
    said = say("sweep", "--collect", "--metric", "flows.tcp.throughput_bps", "-o", done.folder)
    assert said.out.startswith("At rate 500kbps: ")
    lines = said.out.splitlines()
    lines = lines[next(n for n, line in enumerate(lines) if "flows.tcp.throughput_bps" in line) :]
    assert lines[0].strip() == "tcp: throughput (flows.tcp.throughput_bps)"
    assert lines[1].split()[:2] == ["controller", "rate"]
    assert [line.split()[:2] for line in lines[2:4]] == [["asmp", "500kbps"], ["asmp", "1Mbps"]]
    assert all(len(line) <= 80 for line in lines if not line.startswith("report:"))


def test_values_are_divided_at_commas_that_stand_in_no_bracket_or_quote() -> None:
    assert axis('a.b=[1, 2],{ x = "1,2", y = 3 },"p,q", r') == (
        "a.b",
        ["[1, 2]", '{ x = "1,2", y = 3 }', '"p,q"', "r"],
    )


def test_values_with_units_are_numbers() -> None:
    told = ["500kbps", "1Mbps", "20ms", "1.5s", "3", '"4ms"', "asmp", "50p"]
    assert [number_of(each) for each in told] == [5e5, 1e6, 0.02, 1.5, 3, 0.004, None, None]
