"""Use of the package as a library."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from base64 import b64decode
from pathlib import Path
from types import ModuleType

import numpy as np
import polars as pl
import pytest
import steadycast as sc
from steadycast import _core
from steadycast.folder import Folder
from steadycast.quality import measure

from tests.api.conftest import ROOT
from tests.conftest import bounded, ran, started


def test_import_loads_nothing_that_is_not_needed() -> None:
    program = (
        "import sys, steadycast, steadycast.run, steadycast.controllers\n"
        "heavy = ('numpy', 'polars', 'av', 'matplotlib')\n"
        "print([m for m in heavy if m in sys.modules])\n"
        "print(callable(steadycast.run), callable(steadycast.controllers), steadycast.controllers()[0].name)"
    )
    said = ran([sys.executable, "-c", program], check=True).stdout
    assert said.splitlines() == ["[]", "True True fixed"]


def test_every_exported_name_is_there() -> None:
    for name in sc.__all__:
        assert getattr(sc, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        sc.nothing  # noqa: B018


def test_the_stub_names_what_the_module_has() -> None:
    stub = (ROOT / "python" / "steadycast" / "_core.pyi").read_text()
    for name in (n for n in dir(_core) if not n.startswith("_")):
        kind = getattr(_core, name)
        if not isinstance(kind, type):
            assert f"def {name}(" in stub
        else:
            found = re.search(rf"^class {name}(\(\w+\))?:(.*?)(?=^class |\Z)", stub, re.MULTILINE | re.DOTALL)
            assert found is not None, name
            base = kind.__base__
            assert (found[1] or "(object)") == f"({base and base.__name__})"
            body = found[2]
            for member in (m for m in vars(kind) if not m.startswith("_")):
                assert f"def {member}(" in body, f"{name}.{member}"


def test_a_table_is_a_pandas_frame_with_nothing_where_a_value_is_absent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places = np.array([0, 0xFFFF_FFFF], dtype="<u4").tobytes()
    table = sc.Table(
        [
            ("t_s", "f64", np.array([0.5, np.nan]).tobytes()),
            ("q", "i64 or none", np.array([3, -1]).tobytes()),
            ("fate", "text", (places, ["ok"])),
        ]
    )
    stand_in = ModuleType("pandas")
    stand_in.DataFrame = dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", stand_in)
    frame = table.to_pandas()
    assert list(frame) == ["t_s", "q", "fate"]
    assert np.array_equal(frame["t_s"], [0.5, np.nan], equal_nan=True)
    assert np.array_equal(frame["q"], [3.0, np.nan], equal_nan=True)
    assert frame["fate"].tolist() == ["ok", None]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(sc.MissingError, match="to_pandas: pandas is not installed; pip install 'pandas'"):
        table.to_pandas()


def test_a_run_has_tables_and_a_summary(scenario: Path, tmp_path: Path) -> None:
    run = sc.run(scenario)
    rates = run.rates.to_polars()
    assert rates["flow"].unique().sort().to_list() == ["noise", "tcp", "video"]
    assert pl.DataFrame(run.rates).equals(rates)  # by Arrow's stream interface
    assert {"psnr_y_db", "ssim", "mos"} <= set(run.frames.to_polars().columns)
    assert run.summary["flows"][0]["name"] == "video"
    assert list(run.cost) == [
        "format", "cpu_s", "wall_s", "media_s", "quality_s", "packet_hops", "peak_memory_bytes",
    ]  # fmt: skip
    assert run.cost["packet_hops"] > 1000
    shown = run._repr_html_()
    assert "<td>video (tfrc)</td>" in shown
    assert shown.count("<tr>") == 4
    picture = re.search(r'<img alt="throughput over time" src="data:image/svg\+xml;base64,([^"]+)">', shown)
    assert picture is not None
    assert b64decode(picture[1]).startswith(b"<svg ")
    written = repr(run).splitlines()
    assert [line.split()[0] for line in written[1:]] == ["flow", "video", "tcp", "noise"]
    assert repr(run.rates).startswith(f"shape: ({len(run.rates)}, ")
    video = run.flows["video"]
    receiver = video["receivers"][0]
    assert video.receivers[receiver["name"]].delay_ms.p95 == receiver["delay_ms"]["p95"]
    with pytest.raises(AttributeError, match=r"there is no figure 'throughput': there are .*throughput_bps"):
        _ = video.throughput
    with pytest.raises(KeyError, match=r"there is no 'vide': there are video, tcp, noise"):
        _ = run.flows["vide"]
    with pytest.raises(KeyError, match="rates"):
        run.table("rate")
    page = run.report()
    assert page.read_text().startswith("<!")
    assert run.save(tmp_path / "kept") == tmp_path / "kept"
    assert Folder.open(tmp_path / "kept").summary == run.summary


def test_no_object_of_the_package_prints_as_an_address(scenario: Path) -> None:
    public = [getattr(sc, name) for name in sc.__all__] + [getattr(_core, name) for name in dir(_core)]
    classes = {cls for cls in public if isinstance(cls, type)}
    assert len(classes) > 40
    assert [cls.__name__ for cls in classes if cls.__repr__ is object.__repr__] == []
    read = _core.Scenario(str(scenario), [])
    assert re.fullmatch(r"Scenario\(.+, seed=\d+, flows=3\)", repr(read))


def test_a_run_draws_each_figure_of_its_report_without_being_written(scenario: Path, tmp_path: Path) -> None:
    run = sc.run(scenario, quality=False)
    for name in ("rates", "delay", "why", "queue", "tcp"):
        shown = run.plot(name)._repr_svg_()
        assert shown.startswith("<svg ")
        assert "var(--" not in shown, "a notebook has no colours of the report's page"
        assert shown == run.plot(name)._repr_svg_()
    for ending in ("png", "svg", "pdf"):
        run.plot("why").save(tmp_path / f"why.{ending}")
        assert (tmp_path / f"why.{ending}").stat().st_size > 2000
    with pytest.raises(sc.UserError, match="no such figure; there are: rates"):
        run.plot("rate")
    with pytest.raises(sc.UserError, match='nothing that the figure "quality" could show'):
        run.plot("quality")  # a source that always has data has no frames
    assert run.folder is None


def test_a_file_that_is_not_there_is_told_as_the_command_line_does(tmp_path: Path) -> None:
    for path, what in ((tmp_path / "nope.toml", "no such file"), (tmp_path, "this is a folder")):
        with pytest.raises(sc.UserError, match=f"{path}: {what}; give the path of a scenario"):
            sc.run(path)


def test_a_scenario_from_python_is_the_one_from_a_file(scenario: Path, tmp_path: Path) -> None:
    pipe, access = sc.Pipe(rate="1Mbps", delay="10ms"), sc.Pipe(rate="10Mbps", delay="5ms")
    made = sc.Scenario(
        name="small",
        duration="5s",
        topology=sc.Topology(shape="dumbbell", bottleneck=pipe, access=access),
        flows=[sc.Flow(name="tcp", kind="tcp", preset="linux", congestion="sack")],
    )
    from_file = sc.run(made.save(tmp_path / "made.toml"))
    assert sc.run(made).summary["record_sha256"] == from_file.summary["record_sha256"]
    assert sc.run(made, seed=2).summary["scenario"]["seed"] == 2
    spread = sc.run_seeds(made, seeds=[1, 2])
    assert spread["flows"][0]["throughput_bps"]["n"] == 2


def pinned() -> dict[str, str]:
    path = ROOT / "crates" / "sim" / "tests" / "records.txt"
    if not path.exists():
        return {}
    # One line per scenario, followed by an indented line per flow.
    rows = (line.split() for line in path.read_text().splitlines() if not line.startswith(("#", " ")))
    return {name: sha for name, _, sha in rows}


def as_in_rust() -> dict[str, object]:
    """The frame sizes in `crates/sim/tests/all/record.rs`."""
    n = np.arange(120)
    sizes = [(np.where(n % 12 == 0, 60_000, 15_000) + n * 7919 % 5_000) // q for q in range(2, 32)]
    return {
        "fps": (25, 1),
        "gop": 12,
        "doubling": None,
        "qs": bytes(range(2, 32)),
        "kinds": np.where(n % 12 == 0, 0, 1).astype(np.uint8),
        "display": n.astype(np.uint32),
        "sizes": np.array(sizes, dtype=np.uint32),
    }


@pytest.mark.skipif(not pinned(), reason="the core's records are not pinned")
@pytest.mark.parametrize("name", ["scenarios/ci.toml", "validation/scenarios/tcp-lossy.toml"])
def test_python_and_rust_give_the_same_record(name: str) -> None:
    scenario = _core.Scenario(str(ROOT / name), ["duration=8s", "warmup=0s"])
    ladders = {v["flow"]: as_in_rust() for v in scenario.videos() if v["media"] != "greedy"}
    simulation = _core.Simulation(scenario, ladders, {})
    assert simulation.run(None)
    assert json.loads(simulation.summary(True))["record_sha256"] == pinned()[name]


def test_quality_measures_what_the_run_measured(tmp_path: Path) -> None:
    changes = {
        "duration": "8s",
        "warmup": "2s",
        "flow.video.playout": "200ms",
        "flow.video.controller": "tfrc",
        "topology.bottleneck.queue.limit": "8p",
    }
    run = sc.run(ROOT / "scenarios" / "ci.toml", out=tmp_path / "run", set=changes)
    receiver = run.summary["flows"][0]["receivers"][0]
    assert (
        receiver["frames"]["ok"] < receiver["frames"]["sent"]
    )  # damage, so that the comparison is not trivial
    again = measure(Folder.open(tmp_path / "run"))
    assert again == [{key: receiver[key] for key in again[0]}]
    whole = sc.run(ROOT / "scenarios" / "ci.toml", set={**changes, "warmup": "0s"})
    without = whole.summary["flows"][0]["receivers"][0]
    assert without["mos"] != receiver["mos"]  # the means don't include the warm-up
    assert (
        whole.frames.to_polars()["mos"].len() == run.frames.to_polars()["mos"].len()
    )  # the series includes the warm-up


def test_ctrl_c_stops_a_run_and_leaves_a_part_that_says_so(tmp_path: Path) -> None:
    scenario = tmp_path / "long.toml"
    scenario.write_text(
        'name = "long"\nduration = "100000s"\n[topology]\nshape = "dumbbell"\n'
        'bottleneck = { rate = "10Mbps" }\n'
        '[[flow]]\nname = "noise"\nkind = "cbr"\nrate = "5Mbps"\n'
    )
    program = (
        "import steadycast as sc, sys\n"
        "def told(*_):\n    print('on its way', flush=True)\n"
        "try:\n    sc.run(sys.argv[1], out=sys.argv[2], progress=told)\n"
        "except KeyboardInterrupt:\n    print('interrupted', flush=True)\n"
    )
    words = [sys.executable, "-c", program, str(scenario), str(tmp_path / "run")]
    with bounded(started(words)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "on its way\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    # The signal can arrive before the progress line has ended, so the text may be anywhere in the output.
    assert out.endswith("interrupted\n")
    assert err == ""
    part = json.loads((tmp_path / "run.part" / "summary.json").read_text())
    assert part["complete"] is False
    assert (tmp_path / "run.part" / "rates.parquet").exists()
    assert not (tmp_path / "run").exists()


def test_vmaf_is_measured_when_it_is_asked_for(tmp_path: Path) -> None:
    from steadycast.media import vmaf

    if vmaf.program() is None:
        with pytest.raises(sc.MissingError, match="imageio-ffmpeg"):
            sc.run(ROOT / "scenarios" / "ci.toml", vmaf=True)
        pytest.skip("there is no FFmpeg with libvmaf")
    run = sc.run(ROOT / "scenarios" / "ci.toml", set={"duration": "3s", "warmup": "0s"}, vmaf=True)
    assert 20 < run.summary["flows"][0]["receivers"][0]["vmaf"] <= 100
