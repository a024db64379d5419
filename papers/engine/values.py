"""Every value of a paper's scenarios: given by the paper, or chosen by us within the range that the paper allows.

    [[value]]
    name = "size of the video's packets"
    keys = ["flow.video.packet"]       # where it stands in the family's scenarios; * stands for any text
    ours = "The paper gives none."     # the reason; or given = the paper's sentence
    range = "500 to 1000 B: ns-2's examples"
    others = [{ name = "video packets of 500 B", to = "500B" }]

`others` are the values that are tried instead. Each is another value in the range, or another reading of a sentence of
the paper. In the latter case `says` quotes the sentence. `to` is the new value of each key. A value that no scenario
contains is changed by `sets`, which has paths and values. `in` limits the change to the named scenarios. If we chose
the value and don't vary it, `kept` gives the reason.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from steadycast.errors import UserError

from papers.engine.experiment import Change, Sets, Way
from papers.engine.read import PAPERS_FOLDER, VALUES, Keys
from papers.engine.sets import spread

LABELS = ("format", "name", "seed")
"""Keys of a scenario that are not values of the experiment."""
_ENTRY = ("name", "keys", "given", "ours", "range", "kept", "in", "others")
_OTHER = ("name", "to", "sets", "says", "only", "experiments")


@dataclass(frozen=True)
class Value:
    """A value, its source or reason, and the alternatives that are tried."""

    name: str
    keys: tuple[str, ...]
    given: str
    """The paper's sentence that gives the value; empty if we chose the value."""
    ours: str
    """Why this value was chosen."""
    range: str
    """The range that is plausible by the paper's sentences and the time when it was written."""
    kept: str
    """Why no alternative value is tried."""
    scenarios: tuple[str, ...]
    """Names of the scenario files that contain the value."""
    here: str
    """The value as text.

    If the value differs between scenarios, each one is listed once, with the names of its scenarios.
    """
    others: tuple[Change, ...]


def flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, object]]:
    """Yield the paths and values of a scenario.

    Flows and links are identified by name, and a link without a name by its two ends.
    """
    for key, value in table.items():
        path = f"{before}.{key}" if before else key
        if isinstance(value, dict):
            yield from flat(value, path)
        elif isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
            for number, each in enumerate(value):
                ends = "~".join(each.get("between", [str(number)]))
                rest = {k: v for k, v in each.items() if k != "name"}
                yield from flat(rest, f"{path}.{each.get('name', ends)}")
        else:
            yield path, value


def scenario_keys(family: str) -> dict[str, dict[str, object]]:
    """Return the paths and values of each scenario, by file name."""
    return {
        path.name: {
            key: value
            for key, value in flat(tomllib.loads(path.read_text(encoding="utf-8")))
            if key not in LABELS
        }
        for path in sorted((PAPERS_FOLDER / "scenarios").glob(f"{family.lower()}-*.toml"))
    }


def values(family: str) -> tuple[Value, ...]:
    """Return the values of a family's scenarios; empty if the family has no list.

    Raises:
        UserError: a key is in no scenario, a key belongs to two values, or a value has neither `given` nor `ours`.

    """
    path = PAPERS_FOLDER / family.lower() / VALUES
    if not path.is_file():
        return ()
    known = scenario_keys(family)
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    found = tuple(_value(path, entry, known) for entry in table.get("value", []))
    owners: dict[tuple[str, str], str] = {}
    for value in found:
        for scenario in value.scenarios:
            for key in _matching(known[scenario], value.keys):
                if (other := owners.setdefault((scenario, key), value.name)) != value.name:
                    raise UserError(
                        f"{path.name}: {value.name}",
                        f'"{key}" of {scenario} stands in "{other}" too',
                        "leave it in one",
                    )
    return found


def unlisted(family: str) -> list[tuple[str, str]]:
    """Return the keys of scenarios that belong to no value, with their scenarios."""
    listed = values(family)
    return [
        (scenario, key)
        for scenario, keys in scenario_keys(family).items()
        for key in keys
        if not any(scenario in v.scenarios and _matching({key: None}, v.keys) for v in listed)
    ]


def _matching(keys: Mapping[str, object], patterns: tuple[str, ...]) -> list[str]:
    return [key for key in keys if any(fnmatchcase(key, pattern) for pattern in patterns)]


def _value(path: Path, entry: Mapping[str, Any], known: Mapping[str, Mapping[str, object]]) -> Value:
    key = Keys(path, f"value {entry.get('name', '')}", entry, *_ENTRY)
    name, patterns = key("name"), tuple(key("keys", ()))
    given, ours = key("given", ""), key("ours", "")
    if bool(given) == bool(ours):
        raise key.wrong("it has neither given nor ours, or both", 'write "given" or "ours"')
    others = key("others", ())
    if ours and not (key("range", "") or key("kept", "")):
        raise key.wrong("one of ours without a range", 'write "range", or in "kept" why it is not varied')
    if ours and not others and not key("kept", ""):
        raise key.wrong("one of ours that is not varied", 'write "others", or in "kept" why not')
    inside = tuple(key("in", tuple(known)))
    if missing := [each for each in inside if each not in known]:
        raise key.wrong(f'there is no scenario "{missing[0]}"', f"there are: {', '.join(known)}")
    there = tuple(each for each in inside if _matching(known[each], patterns))
    for pattern in patterns:
        if not any(_matching(known[each], (pattern,)) for each in inside):
            raise key.wrong(f'"{pattern}" stands in no scenario', "mend the key")
    return Value(
        *(name, patterns, given, ours, key("range", ""), key("kept", ""), there or inside),
        _here(known, there, patterns),
        tuple(_other(key, each, patterns, inside, known) for each in others),
    )


def _here(
    known: Mapping[str, Mapping[str, object]], scenarios: tuple[str, ...], patterns: tuple[str, ...]
) -> str:
    """Format the content of the keys: "1000B", or "500kbps (b-c, b-f); 150kbps (b-a)" if it differs."""
    places: dict[str, list[str]] = {}
    for scenario in scenarios:
        for key in _matching(known[scenario], patterns):
            named = places.setdefault(_text(known[scenario][key]), [])
            if (short := scenario.removesuffix(".toml")) not in named:
                named.append(short)
    if len(places) == 1:
        return next(iter(places))
    if len(places) > 8:
        return f"{len(places)} values"
    return "; ".join(f"{text} ({', '.join(where)})" for text, where in places.items())


def _text(value: object) -> str:
    if isinstance(value, list):
        return " ".join(_text(each) for each in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _other(
    key: Keys,
    table: Mapping[str, Any],
    patterns: tuple[str, ...],
    inside: tuple[str, ...],
    known: Mapping[str, Mapping[str, object]],
) -> Change:
    """Return an alternative as a change: its settings for each scenario that has the value."""
    own = Keys(key.path, f"{key.place}: {table.get('name', '')}", table, *_OTHER)
    if ("to" in table) == ("sets" in table):
        raise own.wrong('it has neither "to" nor "sets", or both', "write one")
    networks: dict[str, Sets] = {}
    for scenario in inside:
        if "to" in table:
            sets: Sets = {each: table["to"] for each in _matching(known[scenario], patterns)}
        else:
            sets = dict(_placed(spread(own("sets")), known[scenario]))
        if sets:
            networks[scenario] = sets
    if not networks:
        raise own.wrong("it changes no scenario", "mend its keys")
    return Change(
        own("name"),
        {},
        own("says", ""),
        networks,
        only=tuple(own("only", ())),
        way=Way.READING if own("says", "") else Way.VALUE,
        experiments=tuple(own("experiments", ())),
    )


_PLACE = re.compile(r"^(flow|link|topology)\.([^.]+)\.")


def _placed(sets: Sets, keys: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield the changes whose flow, link or topology part exists in the scenario; * in a name matches any text."""
    there = {(m[1], m[2]) for key in keys if (m := _PLACE.match(key)) is not None}
    for path, value in sets.items():
        match = _PLACE.match(path)
        if match is None:
            yield path, value
            continue
        for kind, name in sorted(there):
            if kind == match[1] and fnmatchcase(name, match[2]):
                yield f"{kind}.{name}.{path[match.end() :]}", value
