"""Each JSON type in place of each value in a run's files: an error with place, problem and remedy, or an answer."""

from __future__ import annotations

import json
import random
import shutil
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from steadycast import cli, record, shape
from steadycast.errors import UserError
from steadycast.folder import Folder
from steadycast.report import page, run_comparison, terminal
from steadycast.run import run, run_seeds

BUILT_IN = Path(shape.__file__).parent / "scenarios"
HOME = BUILT_IN / "home.toml"
PAPERS = Path(__file__).parents[2] / "papers" / "scenarios"
VALUES: tuple[Any, ...] = (
    *(None, True, 0, 3, -1.5, 1e300, 10**400, "", "text", "\ud800", [], [1], ["a"], [{}], [[]], {}, {"a": 1}),
    *(float("nan"), float("inf"), {"mean": 1, "ci95": None, "min": 1, "max": 1, "n": 1}, {"mean": "x"}),
)
REMEDY = "run the scenario again"


def stem(file: Path) -> str:
    """Return a file's name without its suffix, as a test's id."""
    return file.stem


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run and with a run of two seeds."""
    made = tmp_path_factory.mktemp("runs")
    sets = ["duration=4s", "warmup=1s"]
    run(HOME, set=sets, out=made / "one", film=True)
    run_seeds(HOME, seeds=[1, 2], set=sets, out=made / "seeds", quality=False)
    return made


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value within another one; in a list, only of the first and the last element."""
    yield path
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(dict([(0, value[0]), (len(value) - 1, value[-1])]).items()) if value else []
    for key, each in inner:
        yield from places(each, (*path, key))


def put(whole: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a copy with another value at a path. The parts beside the path are shared with the original."""
    if not path:
        return value
    found = whole.copy()
    found[path[0]] = put(whole[path[0]], path[1:], value)
    return found


FILES = [("one", "summary.json"), ("seeds", "seeds.json"), ("one", "cost.json"), ("one", "film.json")]


def kinds() -> list[Path]:
    """Return a scenario for each combination of tables and kinds of flows in the scenarios that we have."""
    found: dict[frozenset[str], Path] = {}
    for file in (*sorted(BUILT_IN.glob("*.toml")), *sorted(PAPERS.glob("*.toml"))):
        told = tomllib.loads(file.read_text(encoding="utf-8"))
        tables = [key for key, value in told.items() if isinstance(value, list)]
        found.setdefault(frozenset([*tables, *(flow["kind"] for flow in told["flow"])]), file)
    return list(found.values())


@pytest.mark.parametrize("file", kinds(), ids=stem)
def test_the_folder_of_a_run_of_each_kind_of_scenario_is_read(tmp_path: Path, file: Path) -> None:
    run(file, set=["duration=3s", "warmup=1s"], out=tmp_path / "run", quality=False)
    assert Folder.open(tmp_path / "run").summary["flows"]


@pytest.mark.parametrize(("folder", "name"), FILES)
def test_a_value_of_another_type_is_refused_with_its_place_and_a_remedy_or_is_one_that_readers_take(
    folders: Path, folder: str, name: str
) -> None:
    whole = json.loads((folders / folder / name).read_text())
    assert refusal(whole, name) is None
    refused = 0
    for path, _, error in tried(folders / folder / name):
        if error is None:
            continue
        refused += 1
        assert error.place.startswith(name)
        assert error.problem.startswith("damaged: ")
        assert error.remedy == REMEDY
        assert str(error).encode()
        assert len(str(error)) < 200
        # The error names this value, or one within it.
        assert not path or str(path[0]) in error.place
    assert refused > 5 * len([*places(whole)])


@cache
def tried(file: Path) -> list[tuple[tuple[Any, ...], Any, UserError | None]]:
    """Return changes of a file, as path and value, with the check's refusal. Several tests use them.

    Each place gets every second value, and the next place the others.
    """
    whole = json.loads(file.read_text())
    changes = ((path, value) for n, path in enumerate(places(whole)) for value in VALUES[n % 2 :: 2])
    return [(path, value, refusal(put(whole, path, value), file.name)) for path, value in changes]


def refusal(whole: Any, name: str) -> UserError | None:
    """Return the error of the check of a file's content; `None` if it passes."""
    of = {"cost.json": shape.cost(), "film.json": shape.FILM}.get(name, shape.summary())
    try:
        shape.check(whole, of, name, REMEDY, several=name == "seeds.json")
    except UserError as error:
        return error.with_traceback(None)  # which would keep the content
    return None


def taken(file: Path) -> list[tuple[tuple[Any, ...], Any]]:
    """Return all changes that pass the check and change something."""
    whole = json.loads(file.read_text())
    return [
        (path, value)
        for path, value, error in tried(file)
        if error is None and path and path[0] != "format" and put(whole, path, value) != whole
    ]


@pytest.mark.parametrize("seed", range(4))
def test_what_the_check_lets_pass_is_shown_and_compared_without_a_fault(
    folders: Path, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    folder, name = FILES[seed % 2]
    place = tmp_path / "changed"
    shutil.copytree(folders / folder, place)
    whole = json.loads((place / name).read_text())
    changes = taken(folders / folder / name)
    assert len(changes) > 300
    for path, value in draw.sample(changes, 40):
        try:
            whole = put(whole, path, value)
        except (AttributeError, KeyError, TypeError, IndexError):
            continue  # an earlier change has removed this place
    (place / name).write_text(json.dumps(whole))
    try:
        seen = run_comparison.read(place)
    except UserError:
        return
    _ = page.page(seen.folders[0]) if folder == "one" else run_comparison.write_seeds_report(place)
    terminal.console().print(terminal.flows(seen.summary))
    comparison = import_module("steadycast.compare")
    runs = comparison.read([place, folders / "one"])
    _ = [comparison.tables(runs, None, []), comparison.answer(runs), comparison.as_json(runs, None, [])]


BROKEN = (
    b"",
    b"{",
    b"[]",
    b"3",
    b'"text"',
    b"null",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"format": ' + b"9" * 5000 + b"}",
)


@pytest.mark.parametrize("command", [["report"], ["compare"], ["export", "--csv"]])
@pytest.mark.parametrize("content", BROKEN, ids=[str(n) for n in range(len(BROKEN))])
def test_a_file_that_is_no_object_is_one_line_and_exit_code_2(
    folders: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    content: bytes,
) -> None:
    shutil.copytree(folders / "one", tmp_path / "one")
    (tmp_path / "one" / "summary.json").write_bytes(content)
    monkeypatch.setattr("sys.argv", ["steadycast", command[0], str(tmp_path / "one"), *command[1:]])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    told = capsys.readouterr().err.strip()
    assert told.count("\n") == 0
    assert "summary.json" in told


def test_a_table_without_a_column_or_with_another_type_is_refused(folders: Path, tmp_path: Path) -> None:
    for table in ("rates", "links", "decisions", "frames", "tcp"):
        place = tmp_path / table
        shutil.copytree(folders / "one", place)
        found = pl.read_parquet(place / f"{table}.parquet")
        for column in found.columns:
            if column not in record.columns(table):
                continue
            may_lack = (table, column) in shape.OPTIONAL
            wrong = pl.lit(1.5) if found.schema[column] == pl.String else pl.lit("text")
            nested = pl.lit(pl.Series([[1]])).first()
            for changed in (
                *(() if may_lack else (found.drop(column),)),
                found.with_columns(wrong.alias(column)),
                found.with_columns(nested.alias(column)),
            ):
                changed.write_parquet(place / f"{table}.parquet")
                with pytest.raises(UserError, match=column):
                    Folder.open(place).table(table)
