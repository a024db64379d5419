"""The test cases as data: their scenarios, variants, and expectations of a controller."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from steadycast.cases.radio import CELLS
from steadycast.errors import UserError
from steadycast.files import write_text
from steadycast.folder import within

_DATA = resources.files("steadycast.cases")
SUITES = {
    "rfc8867": (
        "RFC 8867's test cases, and RFC 8869's cellular ones",
        "The RFCs say in words what they expect; the bounds are ours, written before the first run. "
        "Sources are RFC 8593's synthetic codec from 150 kb/s to 1.5 Mb/s.",
    ),
    "c4": ("The scenarios of C4's simulator", "The bounds are the files' own targets."),
}
"""The suites by name, with their content and notes for the reader."""
TCPS = ("newreno", "cubic", "bbr", "bbr1")
"""The TCPs that can take the place of a controller."""


@dataclass(frozen=True)
class Bound:
    """An expectation: a bound on a measure."""

    measure: str
    why: str
    """The meaning of the bound, in a few words."""
    of: tuple[str, ...] = ()
    than: tuple[str, ...] = ()
    """The flows with which those of ``of`` are compared."""
    during: tuple[float, float] | None = None
    """The begin and the end of the measurement, in seconds since the run's start."""
    bytes: int | None = None
    """The amount of data that must have arrived, in bytes of IP packets."""
    against: str | None = None
    """The variant by whose value the measure is divided."""
    min: float | None = None
    max: float | None = None
    source: str = ""
    """The source of the bound's value; empty if it was chosen for this project."""

    def holds(self, value: float | None) -> bool:
        """Whether a value is within the bound; false for a missing value."""
        return within(value, self.min, self.max)


@dataclass(frozen=True)
class Variant:
    """A variant of a case, with a changed parameter."""

    name: str
    scenario: str
    """The name of its scenario file, without the suffix."""
    sets: Mapping[str, str]


@dataclass(frozen=True)
class Case:
    """A test case."""

    id: str
    title: str
    expects: str
    """The source's expectation, paraphrased."""
    variants: tuple[Variant, ...]
    bounds: tuple[Bound, ...]
    links: tuple[str, ...] = ("bottleneck",)
    """The names of the bottleneck links."""
    parameter: str | None = None
    """A parameter that a controller must have to take part."""
    takes: tuple[str, ...] = ("video",)
    """The participants: the media controllers as `video`, the TCPs as `tcp`, or a TCP by its name."""
    suite: str = "rfc8867"

    @property
    def rfc(self) -> str:
        """The document with the section, or the file."""
        if self.suite == "c4":
            return f"sim_specs/{self.id}.txt"
        document, _, section = self.id.rpartition("-")
        return f"RFC {document or '8867'}, {section}"

    def variant(self, name: str) -> Variant:
        """Return the variant of this name."""
        return next(variant for variant in self.variants if variant.name == name)

    def judges(self, bound: Bound, variant: Variant) -> bool:
        """Whether a bound applies to this variant; the reference variant of a bound is not judged by it."""
        references = {each.against for each in self.bounds if each.against is not None}
        return variant.name not in references and bound in self.bounds


def sets(variant: Variant, controller: str) -> list[str]:
    """Return the changes of a variant's scenario for a controller, in the format of `steadycast run --set`."""
    if controller in TCPS:
        return ["flow.video*.count=0", "flow.tcp*.count=1", f"flow.tcp*.congestion={controller}"]
    changes = [f"{path.replace('CONTROLLER', controller)}={value}" for path, value in variant.sets.items()]
    return [f"flow.video*.controller={controller}", *changes]


@cache
def cases(suite: str = "rfc8867") -> tuple[Case, ...]:
    """Return all cases of a suite, those of the RFCs in the order of the documents."""
    place = _DATA if suite == "rfc8867" else _DATA.joinpath(suite)
    told = tomllib.loads(place.joinpath("cases.toml").read_text(encoding="utf-8"))
    return tuple(_case({**entry, "suite": suite}) for entry in told["case"])


def chosen(ids: Sequence[str], suite: str = "rfc8867") -> list[Case]:
    """Return the cases with these ids; all without ids."""
    known = {case.id: case for case in cases(suite)}
    for name in ids:
        if name not in known:
            raise UserError(f"--case {name}", "there is no such case", f"there are: {', '.join(known)}")
    return [case for case in known.values() if not ids or case.id in ids]


LONGEST_S = 125.0
"""The longest duration in seconds of the cases that are emulated by default."""


def lasts_s(case: Case) -> float:
    """Return the duration of a case's longest variant, in seconds."""
    told = (tomllib.loads(_content(variant.scenario)) for variant in case.variants)
    return max(float(str(each["duration"]).removesuffix("s")) for each in told)


def _content(name: str) -> str:
    if (place := _DATA.joinpath("c4", f"{name}.toml")).is_file():
        return place.read_text(encoding="utf-8")
    document, _, section = name.rpartition("-") if name.startswith("8869") else ("8867", "", name)
    return _DATA.joinpath(f"rfc{document}", f"{section}.toml").read_text(encoding="utf-8")


def write_scenarios(folder: Path, suite: str = "rfc8867") -> None:
    """Write the scenarios of all cases, and the traces that they name."""
    for case in cases(suite):
        for name in dict.fromkeys(variant.scenario for variant in case.variants):
            write_text(folder / f"{name}.toml", _content(name))
    for name, cell in CELLS.items() if suite == "rfc8867" else ():
        write_text(folder / f"{name}.mahi", cell.trace())
    for layer in _DATA.joinpath("c4").iterdir() if suite == "c4" else ():
        if layer.name.endswith(".csv"):
            write_text(folder / layer.name, layer.read_text(encoding="utf-8"))


def _case(entry: Mapping[str, Any]) -> Case:
    scenario = str(entry.get("scenario", entry["id"]))
    variants = tuple(
        Variant(each["name"], str(each.get("scenario", scenario)), dict(each.get("set", {})))
        for each in entry.get("variant", [{"name": ""}])
    )
    fields = {key: entry[key] for key in ("id", "title", "expects", "parameter", "suite") if key in entry}
    fields |= {key: tuple(entry[key]) for key in ("links", "takes") if key in entry}
    return Case(**fields, variants=variants, bounds=tuple(_bound(each) for each in entry["bound"]))


def _bound(entry: Mapping[str, Any]) -> Bound:
    fields = dict(entry)
    for key in ("of", "than", "during"):
        if key in fields:
            fields[key] = tuple(fields[key])
    return Bound(**fields)
