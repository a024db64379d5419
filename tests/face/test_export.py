from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from steadycast import export
from steadycast.errors import UserError
from steadycast.folder import Folder
from steadycast.run import run

from tests.conftest import SMALL, Said
from tests.face.made_up import make


def test_csv_has_the_columns_of_the_logs(run_folder: Path, tmp_path: Path) -> None:
    written = {p.name for p in export.csv(Folder.open(run_folder), tmp_path)}
    assert written == {*(f"{path.stem}.csv" for path in run_folder.glob("*.parquet")), "control.csv"}
    with (tmp_path / "packets.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert ",".join(rows[0]) == "t,dir,flow,node,seq,stream,size,frame,ftype,q,ecn,owd"
    got = next(r for r in rows if r["dir"] == "r")
    assert 0.02 < float(got["owd"]) < 0.07
    with (tmp_path / "control.csv").open() as file:
        step = next(csv.DictReader(file))
    assert list(step) == ["t", "ctrl", "node", "r", "p", "rtt", "state", "extra"]
    assert step["ctrl"] == "asmp"
    assert 1e3 < float(step["r"]) < 1e6  # bytes per second


def test_every_table_of_a_run_is_a_csv_file_with_its_columns_and_rows(tmp_path: Path) -> None:
    scenario = SMALL.replace('media = "greedy"', 'media = "synthetic"').replace(
        '"1Mbps", delay', '"200kbps", delay'
    )
    (tmp_path / "small.toml").write_text(scenario)
    run(tmp_path / "small.toml", out=tmp_path / "run", quality=False)
    folder = Folder.open(tmp_path / "run")
    export.csv(folder, tmp_path / "csv")
    tables = [path.stem for path in folder.path.glob("*.parquet")]
    assert {"missing", "decisions"} <= {*tables}
    for name in tables:
        read, table = pl.read_csv(tmp_path / "csv" / f"{name}.csv", infer_schema=False), folder.table(name)
        assert (read.columns, read.height) == (table.columns, table.height)


def test_classic_traces_join_by_packet_number(run_folder: Path, tmp_path: Path) -> None:
    written = export.classic(Folder.open(run_folder), tmp_path)
    assert [p.name for p in written] == ["sd_be_0", *[f"rd_be_{n}" for n in range(25)]]
    sent = [line.split() for line in (tmp_path / "sd_be_0").read_text().splitlines()]
    got = [line.split() for line in (tmp_path / "rd_be_0").read_text().splitlines()]
    assert sent[0] == ["0.000000", "id", "0", "udp", "990", "5", "1"]
    assert [float(row[0]) for row in got] == sorted(float(row[0]) for row in got)
    times = {row[2]: float(row[0]) for row in sent}
    assert len(got) < len(sent)
    assert all(row[1] == "id" and row[3] == "udp" and row[4] == "990" for row in got)
    assert all(0.02 < float(row[0]) - times[row[2]] < 0.07 for row in got)


def test_classic_traces_need_recorded_packets_and_say_how(tmp_path: Path) -> None:
    make(tmp_path / "run", receivers=1, seconds=62)
    with pytest.raises(UserError, match=r'put `packets = "all"` into \[record\]'):
        export.classic(Folder.open(tmp_path / "run"), tmp_path / "out")


def test_an_export_of_both_formats_without_packets_writes_nothing(
    tmp_path: Path, say: Callable[..., Said]
) -> None:
    make(tmp_path / "run", receivers=1, seconds=62)
    said = say("export", "run", "--csv", "--classic", "-o", "out", code=2)
    assert "packets.parquet" in said.err
    assert not (tmp_path / "out").exists()
