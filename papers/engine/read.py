"""Reads experiments from `papers/FAMILY/*.toml`, with the settings that a family shares in its `family.toml`.

The content of a file is checked when it is read. An unknown key, variant, number, combinator, unit or calculation is
an error that names its place. `papers/README.md` describes the format of the files.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from steadycast.errors import UserError
from steadycast.files import readable

from papers.engine.calculate import ALL
from papers.engine.experiment import (
    UNITS,
    Another,
    Bound,
    Calculation,
    Cell,
    Change,
    Curve,
    Experiment,
    Figure,
    Kind,
    Line,
    PaperTable,
    RealTime,
    Statement,
    Unit,
    Variant,
    Way,
    World,
    about,
)
from papers.engine.matrix import crossed
from papers.engine.quantity import Term, quantity, term
from papers.engine.sets import spread
from papers.engine.take import Take

ROOT = Path(__file__).resolve().parents[2]
"""The root folder of the checkout."""
PAPERS_FOLDER = ROOT / "papers"
SCENARIOS = Path("papers/scenarios")
SHARED = "family.toml"
VALUES = "values.toml"
OPEN = "(open)"
"""Text for the published value if no value was published."""

Table = Mapping[str, Any]
T = TypeVar("T")


def family(folder: Path, others: Sequence[Change] = ()) -> tuple[Experiment, ...]:
    """Return the experiments of a family, by their ids.

    Args:
        folder: the folder of the family's files.
        others: changes that replace values of the scenarios.

    Raises:
        UserError: a file is not TOML, or names something that does not exist.

    """
    shared = _Shared(folder / SHARED)
    found = tuple(
        _Reader(path, shared, others).experiment()
        for path in sorted(folder.glob("*.toml"))
        if path.name not in (SHARED, VALUES)
    )
    if shared.world is not None:
        _check_world(shared, found, others)
    return found


def _check_world(shared: _Shared, experiments: Sequence[Experiment], others: Sequence[Change]) -> None:
    """Raise an error if the joint setting names something unknown, or two things that exclude each other."""
    assert shared.world is not None
    read = {o.name for e in experiments for s in e.statements for o in s.others}
    known = {c.name: c for c in others}
    place = f"{_short(shared.path)}: world"
    owner: dict[tuple[str, str], str] = {}
    for name in shared.world.takes:
        if name not in known and name not in read:
            raise UserError(place, f'there is no value or reading "{name}"', "name one of values.toml")
        for scenario, sets in known[name].networks.items() if name in known else ():
            for path in sets:
                first = owner.setdefault((scenario, path), name)
                if first != name:
                    raise UserError(place, f'"{first}" and "{name}" exclude each other', "take one")


class _Shared:
    """Settings that the experiments of a family share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        table = _toml(path)
        reader = Keys(path, "", table, "paper", "world", "variant", "change")
        self.paper: str = reader("paper")
        self.world = world(path, table["world"]) if "world" in table else None
        self.variants = {v.name: v for v in _list(path, table, "variant", variant)}
        self.changes = {c.name: c for c in _list(path, table, "change", change)}


class Keys:
    """A table with a fixed set of valid keys. Any other key is an error."""

    def __init__(self, path: Path, place: str, table: Table, *known: str) -> None:
        self.path, self.place, self.table = path, place, table
        for key in table:
            if key not in known:
                raise self.wrong(f'unknown key "{key}"', f"there are: {', '.join(known)}")

    def __call__(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or the default. Without a default, a missing key is an error."""
        if key not in self.table and default is None:
            raise self.wrong(f'"{key}" is missing', "write it")
        return self.table.get(key, default)

    def wrong(self, problem: str, remedy: str) -> UserError:
        """Return an error that names the table's place in its file."""
        where = f"{_short(self.path)}{': ' if self.place else ''}{self.place}"
        return UserError(where, problem, remedy)


def _short(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def _toml(path: Path) -> Table:
    try:
        with readable(_short(path), "take it from the repository again"):
            return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UserError(_short(path), f"is not TOML ({error})", "mend it") from None


def _list(path: Path, table: Table, key: str, read: Callable[[Path, Table], T]) -> list[T]:
    return [read(path, each) for each in table.get(key, [])]


# ---------------------------------------------------------------- variants and changes


def variant(path: Path, table: Table) -> Variant:
    """Read a variant: one of the runs that an experiment compares."""
    place = f"variant {table.get('name', '')}"
    key = Keys(path, place, table, "name", "title", "sets", "pixels", "sizes", "changed", "scenario", "seeds")
    return Variant(
        key("name"),
        key("title"),
        spread(key("sets", {})),
        key("pixels", True),
        key("sizes", True),
        key("changed", True),
        key("scenario", ""),
        table.get("seeds"),
    )


def change(path: Path, table: Table) -> Change:
    """Read a change: one difference that applies to all variants."""
    key = Keys(path, f"change {table.get('name', '')}", table, "name", "sets", "pixels", "only", "variants")
    return Change(
        key("name"),
        spread(key("sets")),
        pixels=key("pixels", False),
        only=tuple(key("only", ())),
        variants=tuple(key("variants", ())),
    )


def placebo(path: Path, table: Table) -> Change:
    """Read a placebo: a change that removes the event from the runs, and the ids of the statements about that event."""
    key = Keys(path, f"placebo {table.get('without', '')}", table, "without", "of", "sets", "variants")
    return Change(
        f"without {key('without')}",
        spread(key("sets")),
        only=tuple(key("of")),
        variants=tuple(key("variants", ())),
        way=Way.PLACEBO,
    )


def world(path: Path, table: Table) -> World:
    """Read a paper's joint setting: the names of the values and readings that it takes."""
    key = Keys(path, "world", table, "takes", "why")
    return World(tuple(key("takes")), key("why"))


# ---------------------------------------------------------------- statements


_STATEMENT = (
    *("id", "text", "says", "published", "take", "of", "over", "least", "most", "above", "below", "about"),
    *("unit", "kind", "pixels", "why", "calculation", "reading"),
)


def statement(path: Path, table: Table) -> Statement:
    """Read a statement of the paper, and how the statement is checked."""
    key = Keys(path, f"statement {table.get('id', '')}", table, *_STATEMENT)
    bound = _bound(key)
    bounded = bound != Bound()
    try:
        kind = Kind(key("kind", (Kind.MEASURED if bounded else Kind.REPORTED).value))
    except ValueError:
        raise key.wrong(
            f'there is no kind "{key("kind")}"', f"there are: {_all(k.value for k in Kind)}"
        ) from None
    if bounded != kind.judged:
        remedy = "leave its bound out" if bounded else "give it a bound"
        raise key.wrong(f'a statement that is "{kind.value}"{"" if bounded else " and has no bound"}', remedy)
    return Statement(
        key("id"),
        key("text"),
        key("says", ""),
        key("published"),
        _take(key),
        bound,
        _unit(key, key("unit", "")),
        kind,
        key("pixels", False),
        key("why", ""),
        _calculation(key),
        tuple(_list(path, table, "reading", another)),
    )


def another(path: Path, table: Table) -> Another:
    """Read another number that the statement's words also allow."""
    key = Keys(path, f"reading {table.get('name', '')}", table, "name", "says", "take", "of", "over")
    return Another(key("name"), key("says"), _take(key))


def _bound(key: Keys) -> Bound:
    there = [word for word in ("least", "most", "above", "below") if word in key.table]
    if "about" in key.table:
        if there:
            raise key.wrong(f"a bound of about, {_all(there)}", "write one")
        return about(key("about"))
    strict = [word in ("above", "below") for word in there]
    if (any(strict) and not all(strict)) or len(there) > 2:
        raise key.wrong(f"a bound of {_all(there)}", "write least and most, or above and below")
    low = key.table.get("least", key.table.get("above"))
    high = key.table.get("most", key.table.get("below"))
    return Bound(low, high, strict=any(strict))


def _take(key: Keys) -> Take:
    of = key.table.get("of", [])
    name = key("take", "value" if of else "none")
    rows = [[of]] if isinstance(of, str) else of if of and isinstance(of[0], list) else [of] if of else []
    try:
        parts = tuple(tuple(_part(each) for each in row) for row in rows)
        return Take(name, parts, tuple(float(x) for x in key("over", ())))
    except UserError as error:
        raise key.wrong(f"{error.place}: {error.problem}", error.remedy) from None


def _part(said: str | float) -> Term | float:
    return term(said) if isinstance(said, str) else float(said)


def _unit(key: Keys, said: str) -> Unit:
    name, _, digits = said.partition(":")
    if name not in UNITS or not (digits == "" or digits.isdecimal()):
        raise key.wrong(
            f'there is no unit "{said}"', f"there are: {_all(UNITS)}, with :DIGITS behind the point"
        )
    return replace(UNITS[name], digits=int(digits)) if digits else UNITS[name]


def _calculation(key: Keys) -> Calculation | None:
    name = key("calculation", "")
    if not name:
        return None
    found = next((c for c in ALL if c.name == name), None)
    if found is None:
        raise key.wrong(f'there is no calculation "{name}"', f"there are: {_all(c.name for c in ALL)}")
    return found


def _all(words: Iterable[str]) -> str:
    return ", ".join(words)


# ---------------------------------------------------------------- figures


_FIGURE = (
    *("number", "title", "kind", "variants", "pixels", "marks", "curve", "axes", "log", "top"),
    *("series", "lines", "apart", "until", "ranks", "differs"),
)


def figure(path: Path, table: Table) -> Figure:
    """Read a figure of the paper."""
    key = Keys(path, f"figure {table.get('number', '')}", table, *_FIGURE)
    first, second = key("axes", ("", ""))
    variants = tuple(key("variants", ()))
    series, lines = key("series", ""), tuple(_line(key, row) for row in key("lines", ()))
    # With `series` in place of `lines`, the figure has one line for each variant.
    if series:
        lines += tuple(Line("", name, "video", series) for name in variants)
    return Figure(
        key("number"),
        key("title"),
        key("kind"),
        variants or tuple(dict.fromkeys(line.variant for line in lines)),
        key("pixels", False),
        tuple((float(y), name) for y, name in key("marks", ())),
        tuple(_list(path, table, "curve", curve)),
        (first, second),
        key("log", False),
        key("top", 4.2),
        lines,
        key("apart", False),
        table.get("until"),
        tuple((who, id, said) for who, id, said in key("ranks", ())),
        key("differs", ""),
    )


def _line(key: Keys, row: list[str]) -> Line:
    """Read a line over time: its label, VARIANT.FLOW.SERIES, and the receiver if it is not the first."""
    if len(row) not in (2, 3) or row[1].count(".") < 2:
        raise key.wrong(f"lines: {row}", 'write ["label", "VARIANT.FLOW.SERIES"], or with a receiver behind')
    variant, flow, series = row[1].rsplit(".", 2)
    return Line(row[0], variant, flow, series, *row[2:])


def curve(path: Path, table: Table) -> Curve:
    """Read a line of a figure."""
    key = Keys(path, f"curve {table.get('label', '')}", table, "label", "of", "points", "scale")
    try:
        number = quantity(key("of"))
    except UserError as error:
        raise key.wrong(f"{error.place}: {error.problem}", error.remedy) from None
    return Curve(
        key("label"), tuple((float(x), name) for x, name in key("points")), number, key("scale", 1.0)
    )


def paper_table(path: Path, given: Table) -> PaperTable:
    """Read a table of the paper. A cell is a text, or a published value with the number that we measured."""
    key = Keys(path, f"table {given.get('number', '')}", given, "number", "title", "heads", "rows", "made")
    heads = tuple(key("heads"))
    rows = tuple(tuple(_cell(key, each) for each in row) for row in key("rows", ()))
    if wrong := [row for row in rows if len(row) != len(heads)]:
        raise key.wrong(f"a row of {len(wrong[0])} cells", f"write {len(heads)}, as there are heads")
    return PaperTable(key("number"), key("title"), heads, rows, key("made", ""))


def _cell(whole: Keys, given: str | Table) -> Cell:
    if isinstance(given, str):
        return Cell(given)
    key = Keys(whole.path, whole.place, given, "published", "take", "of", "over", "unit", "statement")
    if "statement" in given:
        return Cell(key("published"), statement=key("statement"))
    return Cell(key("published"), _take(key), _unit(key, key("unit", "")))


# ---------------------------------------------------------------- experiments


_EXPERIMENT = (
    *("id", "title", "section", "scenario", "source", "drawn", "sizes", "ladder", "notes", "seconds"),
    *("variants", "changes", "reported", "variant", "change", "placebo", "statement", "figure", "table"),
    "real_time",
)


class _Reader:
    """One experiment's file."""

    def __init__(self, path: Path, shared: _Shared, others: Sequence[Change]) -> None:
        self.path = path
        self.shared = shared
        self.others = others
        self.table = crossed(_toml(path), lambda problem, remedy: UserError(_short(path), problem, remedy))
        self.key = Keys(path, "", self.table, *_EXPERIMENT)

    def experiment(self) -> Experiment:
        key, table = self.key, self.table
        variants = {v.name: v for v in _list(self.path, table, "variant", variant)}
        changes = {c.name: c for c in _list(self.path, table, "change", change)}
        found = Experiment(
            id=key("id"),
            title=key("title"),
            paper=self.shared.paper,
            section=key("section"),
            scenario=SCENARIOS / key("scenario"),
            variants=self._named("variants", variants, self.shared.variants),
            statements=(*_list(self.path, table, "statement", statement), *self._reported()),
            changes=self._named("changes", changes, self.shared.changes),
            figures=tuple(_list(self.path, table, "figure", figure)),
            tables=tuple(_list(self.path, table, "table", paper_table)),
            sizes=table.get("sizes"),
            ladder=key("ladder", "Table 2's ladder, no pictures"),
            source=key("source", ""),
            drawn=key("drawn", False),
            notes=tuple(key("notes", ())),
            real_time=self._real_time(),
            seconds=key("seconds", 0),
        )
        # `has` needs the experiment, so the alternatives are chosen after it was made.
        found = replace(
            found,
            alternatives=tuple(c for c in self.others if found.has(c)),
            placebos=tuple(_list(self.path, table, "placebo", placebo)),
            world=self.shared.world,
        )
        for problem, remedy in found.mistakes():
            raise key.wrong(problem, remedy)
        return found

    def _named(self, what: str, own: Mapping[str, T], shared: Mapping[str, T]) -> tuple[T, ...]:
        """Return the items that the file names, its own or the family's.

        If the file names none, all items that it defines are returned.
        """
        names = self.key(what, list(own))
        for name in names:
            if name not in own and name not in shared:
                known = _all([*own, *shared])
                raise self.key.wrong(f'{what}: there is no "{name}"', f"there are: {known}")
        if unused := [name for name in own if name not in names]:
            raise self.key.wrong(
                f"{what}: {_all(unused)} is described, but not named", "name it, or leave it out"
            )
        return tuple(own[name] if name in own else shared[name] for name in names)

    def _reported(self) -> list[Statement]:
        """Return the numbers without a bound, one per row: id, text, quantity, unit."""
        pixels = "sizes" not in self.table and "source" not in self.table
        rows = []
        for row in self.key("reported", ()):
            if len(row) != 4:
                raise self.key.wrong(f"reported: {row}", "write id, text, what it is taken of, and the unit")
            id, text, of, unit = row
            table = {"id": id, "text": text, "published": OPEN, "of": of, "unit": unit, "pixels": pixels}
            rows.append(statement(self.path, table))
        return rows

    def _real_time(self) -> RealTime | None:
        table = self.table.get("real_time")
        if table is None:
            return None
        key = Keys(self.path, "real_time", table, "sets", "seeds", "pictures", "change", "statement")
        return RealTime(
            spread(key("sets")),
            key("seeds", 1),
            tuple(_list(self.path, table, "change", change)),
            table.get("pictures"),
            tuple(_list(self.path, table, "statement", statement)),
        )
