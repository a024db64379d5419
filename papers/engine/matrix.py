"""Experiments that are cross products: a file in papers/ writes once what applies to each combination of some axes.

    [[axis]]
    name = "loss"
    values = [
      { name = "bernoulli", title = "independent" },
      { name = "run", title = "run-length", sets = { "topology.bottleneck.loss" = { kind = "run", mean = "200p" } } },
    ]

    [[matrix]]
    over = ["other", "loss", "gamma"]            # the axes; the last one changes first
    without = [["web", "run"]]                   # combinations that have all of these values are left out
    variant = "{other} {loss} {gamma}"           # a variant's name; without it no variant
    title = "γ = {gamma}, {loss.title} loss"
    reported = [["{other}-{loss}-{gamma}-rate", "ASMP's rate", "{other} {loss} {gamma}.video.rate", "Mb/s"]]

In a template, `{loss}` is the name of a value of the axis "loss", and `{loss.title}` is another text of this value. The
other keys of a value apply to its variants: `sets` are merged in the order of the axes, and `scenario` and `seeds` are
copied unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NoReturn

Table = Mapping[str, Any]
Wrong = Callable[[str, str], Exception]
OF_VARIANTS = ("scenario", "seeds", "pixels", "sizes", "changed")
"""Keys of a value that are copied to its variants, in addition to `sets`."""


class Value(dict[str, Any]):
    """A value of an axis.

    Formatted as text, a value is its name; a template reads the value's other texts as attributes.
    """

    def __format__(self, spec: str) -> str:
        """Return the value's name."""
        return format(self["name"], spec)

    def __getattr__(self, key: str) -> Any:
        """Return another text of the value, by its key."""
        try:
            return self[key]
        except KeyError:
            raise AttributeError(key) from None


def crossed(table: Table, wrong: Wrong) -> dict[str, Any]:
    """Return an experiment's table with the variants and reported numbers of its matrices appended.

    Raises:
        Exception: the one that `wrong` makes from a problem and its remedy.

    """
    made = {key: value for key, value in table.items() if key not in ("axis", "matrix")}
    axes = {axis["name"]: [Value(value) for value in axis["values"]] for axis in table.get("axis", [])}
    for matrix in table.get("matrix", []):
        if unknown := [name for name in matrix.get("over", ()) if name not in axes]:
            raise wrong(f'matrix: there is no axis "{unknown[0]}"', f"there are: {', '.join(axes)}")
        for values in combinations(matrix, axes):
            if "variant" in matrix:
                made["variant"] = [*made.get("variant", []), _variant(matrix, values, wrong)]
            reported = [[_filled(cell, values, wrong) for cell in row] for row in matrix.get("reported", ())]
            made["reported"] = [*made.get("reported", []), *reported]
    return made


def combinations(matrix: Table, axes: Mapping[str, Sequence[Value]]) -> Iterator[dict[str, Value]]:
    """Yield the combinations of a matrix's axes, except those that `without` leaves out."""
    left_out = [set(names) for names in matrix.get("without", ())]
    for values in product(*(axes[name] for name in matrix["over"])):
        names = {value["name"] for value in values}
        if not any(some <= names for some in left_out):
            yield dict(zip(matrix["over"], values, strict=True))


def _variant(matrix: Table, values: Mapping[str, Value], wrong: Wrong) -> dict[str, Any]:
    sets: dict[str, Any] = dict(matrix.get("sets", {}))
    made: dict[str, Any] = {}
    for value in values.values():
        sets |= value.get("sets", {})
        made |= {key: value[key] for key in OF_VARIANTS if key in value}
    name, title = (_filled(matrix[key], values, wrong) for key in ("variant", "title"))
    return {"name": name, "title": title, "sets": sets, **made}


def _filled(text: str, values: Mapping[str, Value], wrong: Wrong) -> str:
    def fail(what: object) -> NoReturn:
        raise wrong(
            f'matrix: "{text}" names {what}', f"there are: {', '.join(values)}, and texts of their values"
        )

    try:
        return text.format(**values)
    except (KeyError, AttributeError) as error:
        fail(error)
    except (ValueError, IndexError) as error:
        fail(f"nothing that can be filled in ({error})")
