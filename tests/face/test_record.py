"""A run writes exactly the figures and columns that the list declares; summaries for the other tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from steadycast import record
from steadycast.folder import Folder, find, spread
from steadycast.report import say
from steadycast.run import run

from tests.face.made_up import SCENARIO

LISTS = {"flows", "links", "invariants", "expect", "receivers", "warnings", "simulcasts"}


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A shortened run of the scenario that the made-up folder imitates."""
    folder = tmp_path_factory.mktemp("real")
    values = {"name": "made", "seconds": 80, "seed": 1, "controller": "asmp", "receivers": 2}
    # The second receiver joins early enough to see something.
    text = SCENARIO.format(**values).replace('at = "50s"', 'at = "5s"')
    (folder / "made.toml").write_text(text, encoding="utf-8")
    sets = ["duration=15s", 'record.packets="all"']
    run(folder / "made.toml", set=sets, out=folder / "run")
    return Folder.open(folder / "run")


def _paths(thing: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """Yield the paths of all values of an object, except for those of objects in its lists."""
    for key, value in thing.items():
        if isinstance(value, Mapping):
            yield from _paths(value, f"{before}{key}.")
        else:
            yield before + key


def _things(summary: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield the objects of a summary: (kind, name, figures)."""
    yield "run", "", summary
    for flow in summary["flows"]:
        yield "flow", flow["name"], flow
        for receiver in flow["receivers"]:
            yield "receiver", flow["name"], receiver
    for link in summary["links"]:
        yield "link", "", link
    for invariant in summary["invariants"]:
        yield "invariant", "", invariant
    for expectation in summary["expect"]:
        yield "expectation", "", expectation


def _shape(folder: Folder) -> dict[tuple[str, str], set[str]]:
    """Return the keys of each kind of object, joined over all objects of that kind."""
    shape: dict[tuple[str, str], set[str]] = {("cost", ""): set(folder.cost)}
    for of, which, thing in _things(folder.summary):
        shape.setdefault((of, which), set()).update(_paths(thing))
    return shape


def test_a_run_writes_figures_of_the_list_alone(real: Folder) -> None:
    for (of, which), paths in _shape(real).items():
        unknown = [path for path in paths if record.find(of, path) is None]
        assert unknown == [], f"{of} {which}"


def test_what_every_thing_has_by_the_list_is_in_a_run(real: Folder) -> None:
    for (of, which), paths in _shape(real).items():
        always = [f for f in record.FIGURES if f.of == of and f.when == "" and not f.parts]
        assert [f.key for f in always if f.key not in paths] == [], f"{of} {which}"


def test_the_made_up_folder_has_the_keys_of_a_run(real: Folder, run_folder: Path) -> None:
    made, is_real = _shape(Folder.open(run_folder)), _shape(real)
    assert made == is_real


def test_tables_have_the_columns_of_the_list(real: Folder, run_folder: Path) -> None:
    for name in ("rates", "decisions", "frames", "links", "tcp", "packets"):
        listed = [*record.columns(name), *record.columns(name, measured=True)]
        assert real.table(name).columns == listed, name
        assert sorted(Folder.open(run_folder).table(name).columns) == sorted(listed), name
        for column in (c for c in record.COLUMNS if c.table == name):
            is_text = real.table(name).schema[column.name] == pl.String
            assert is_text == (column.unit == "text"), f"{name}.{column.name}"


def test_paths_of_all_numbers_lead_to_their_figures(real: Folder) -> None:
    for of, which, thing in _things(real.summary):
        head = {"flow": f"flows.{which}.", "receiver": f"flows.{which}.receivers.{thing.get('name')}."}
        if of not in ("run", *head):
            continue
        for path in _paths(thing):
            if path in LISTS:
                continue
            figure = record.at(head.get(of, "") + path)
            assert figure is not None, path
            assert (figure.of, figure.is_at(path)) == (of, True), path
            found = find(real.summary, head.get(of, "") + path)
            assert found == record.reach(thing, *path.split("."))


def test_a_number_is_said_in_the_unit_of_its_figure() -> None:
    assert say.by_unit("flows.a.b.share_of_fair")(0.5) == "50 %"
    assert say.by_unit("flows.a.receivers.b.dst1.delay_ms.p95")(12.3) == "12.3 ms"
    assert say.by_unit("flows.a.receivers.b.dst1.mos.share.5")(0.25) == "25 %"
    assert say.by_unit("links.a.back.queue_ms.max")(20_000) == "20.0 s"
    assert say.by_unit("fairness.jain_1s.p05")(0.93) == "0.93"


def test_a_figure_that_is_not_in_the_list_cannot_be_written() -> None:
    thing: dict[str, Any] = {}
    with pytest.raises(KeyError, match=r"figures\.rs"):
        record.put(thing, "receiver", {"mos.median": 4.0})
    with pytest.raises(KeyError, match="psnr"):
        record.put_unknown(thing, ["psnr"])
    record.put(thing, "receiver", {"psnr_db.raw.y": 40.0, "mos.share.5": 1.0})
    assert thing == {"psnr_db": {"raw": {"y": 40.0}}, "mos": {"share": {"5": 1.0}}}


def test_the_median_receiver_is_the_same_with_and_without_seeds() -> None:
    values = [4.0, 1.0, 3.0, 2.0]
    assert record.middle(values) == 2.5
    spreads = [spread([v - 0.5, v + 0.5]) for v in values]
    middle = record.middle(spreads)
    assert (middle["mean"], middle["min"], middle["max"], middle["n"]) == (2.5, 2.0, 3.0, 2)
    assert record.middle(values[:3]) == 3.0
    assert record.middle(spreads[:3]) == spreads[2]
    assert record.middle([]) is None
    assert record.median([]) is None


def test_the_summary_of_a_run_is_json(real: Folder) -> None:
    assert json.loads((real.path / "summary.json").read_text(encoding="utf-8")) == real.summary
