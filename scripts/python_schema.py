"""Generates the stub `python/steadycast/scenario.pyi`: the classes of scenarios with their keys, from the schema.

    .venv/bin/python scripts/python_schema.py            # writes them
    .venv/bin/python scripts/python_schema.py --check    # exit code 1 if they differ from the schema

`steadycast schema` has each key's name, type, default and description. Only the classes' names, and the keys that all
tables of a kind have, are here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadycast import reference
from steadycast.core import core
from steadycast.scenario import _LISTS

ROOT = Path(__file__).resolve().parent.parent
STUB = ROOT / "python" / "steadycast" / "scenario.pyi"
HEAD = '''"""What editors know of the classes of scenarios. Made by `make python-schema`: change the schema instead."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Value = str | int | float | bool | Sequence["Value"] | Mapping[str, "Value"]


@dataclass(kw_only=True)
class Part:
    """Anything that is written as a table of keys."""

    extra: Mapping[str, Value] = field(default_factory=dict)
    """Keys that have no field here, as they are written in a file."""

    def plain(self) -> dict[str, Any]:
        """Return the keys and values as a scenario file has them."""
'''
TAIL = '''
    def to_toml(self) -> str:
        """Return the scenario in the format of a scenario file."""

    def to_json(self) -> str:
        """Return the scenario as JSON, with the same keys."""

    def save(self, path: Path | str) -> Path:
        """Write the scenario to a file, and return the file's path."""
'''

LINK = "link.items"


@dataclass(frozen=True)
class Class:
    """A class and the table of a scenario file that it represents."""

    name: str
    at: str
    """The path of its table in the schema's properties; "" is the whole file."""
    needed: tuple[str, ...] = ()
    base: str = "Part"
    only: tuple[str, ...] | None = None
    """The keys that the class itself has, if a base class has the others; `None`: all."""
    about: str = ""
    """The description of the class; empty: the table's description in the schema."""


CLASSES = [
    Class("Uniform", "flow.items.start.anyOf.1", ("uniform",)),
    Class("Jitter", f"{LINK}.jitter", ("mean",)),
    Class("Arq", f"{LINK}.arq", ("tries", "per_try")),
    Class("Loss", f"{LINK}.loss", ("kind",)),
    Class("Reorder", f"{LINK}.reorder", ("p",)),
    Class("Policer", f"{LINK}.policer.anyOf.1", ("rate", "burst")),
    Class("Shaper", f"{LINK}.shaper.anyOf.1", ("rate", "burst")),
    Class("Queue", f"{LINK}.queue"),
    Class("Pipe", LINK, about="A link's properties, in both directions unless `back` differs."),
    Class("Link", LINK, ("between",), "Pipe", ("between", "name")),
    Class("Leg", "topology.legs.items", (), "Pipe", ("count", "name")),
    Class("Level", "topology.levels.items", ("fanout",), "Pipe", ("fanout",)),
    Class("Topology", "topology"),
    Class("Encode", "flow.items.encode"),
    Class("Buffer", "flow.items.buffer", ("size",)),
    Class("Playout", "flow.items.playout.anyOf.2", ("kind",)),
    Class("Rtcp", "flow.items.rtcp"),
    Class("Period", "flow.items.on", ("dist", "mean")),
    Class("Clock", "flow.items.clock"),
    Class("Numbers", "flow.items.rtp"),
    Class("Table2", "flow.items.table2"),
    Class("Map001", "flow.items.map001"),
    Class("Rfc8593", "flow.items.rfc8593"),
    Class("Flow", "flow.items", ("name", "kind")),
    Class("Change", "event.items.set", ("link",)),
    Class("Event", "event.items", ("at",)),
    Class("Record", "record"),
    Class("Simulcast", "simulcast.items", ("name", "flows")),
    Class("Expect", "expect.items", ("that",)),
    Class("Scenario", "", ("name", "duration")),
]
# Fields that can't be named after their keys: a Python keyword, or a list of tables.
FIELDS = {"from": "from_"}
LISTS = {key: name for name, key in _LISTS.items()}
# FILES: keys whose values are file names. PAIRS: classes and keys that the schema only calls a list.
FILES = {"clip", "trace", "delay_trace", "loss_trace", "network"}
PAIRS = {("Uniform", "uniform"), ("Link", "between")}
# The class of the table at a key, wherever the key occurs.
TABLES = {
    **{re.sub(r"\.(items|anyOf\.\d)", "", one.at).rpartition(".")[2]: one.name for one in CLASSES},
    **dict.fromkeys(("access", "back", "bottleneck", "hops", "legs"), "Pipe"),
    "levels": "Level | Mapping[str, Value]",
    "link": "Link",
    "off": "Period",
    "params": "Mapping[str, Mapping[str, Value]]",
    "set": "Change | Mapping[str, Value]",
}


def at(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the table of the schema at a path."""
    for step in filter(None, path.split(".")):
        if step in ("items", "anyOf"):
            schema = schema[step]
        elif step.isdigit():
            schema = schema[int(step)]  # type: ignore[index]
        else:
            schema = schema["properties"][step]
    return schema


def kind(schema: dict[str, Any], key: str) -> str:
    """Return the Python type of the value at a key."""
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(" | ".join(kind(one, key) for one in schema["anyOf"]).split(" | ")))
    if "enum" in schema or "const" in schema:
        return "str"
    match schema.get("type", "object"):
        case list(several):
            return " | ".join(kind({**schema, "type": one}, key) for one in several)
        case "array":
            return f"Sequence[{kind(schema['items'], key)}]"
        case "object":
            return TABLES[key]
        case plain:
            return {"string": "str", "boolean": "bool", "integer": "int", "number": "float"}[plain]


def doc(text: str) -> str:
    """Return a text as an indented docstring."""
    text = text.replace("\\", "\\\\").strip()
    text = text if text.endswith((".", "…")) else f"{text}."
    lines = textwrap.wrap(text, 100)
    if len(lines) == 1:
        return f'    """{text}"""\n'
    return '    """' + "\n    ".join(lines) + '\n    """\n'


def field(one: Class, key: str, schema: dict[str, Any]) -> str:
    """Return a field with its docstring."""
    name = FIELDS.get(key, LISTS.get(key, key) if one.name == "Scenario" else key)
    of = kind(schema, key)
    if (one.name, key) in PAIRS:
        of = "tuple[str, str]"
    if key in FILES and one.name != "Change":
        of = of.replace("str", "str | Path")
    if key in one.needed:
        value = ""
    elif key == "params":
        value = " = field(default_factory=dict)"
    elif of.startswith("Sequence["):
        value = " = ()"
    elif key == "format":
        value = " = 1"
    else:
        of += " | None"
        value = " = None"
    return f"    {name}: {of}{value}\n" + doc(reference.about(schema))


def classes(schema: dict[str, Any]) -> str:
    """Return the text of all classes.

    A table's required keys come first, then the optional ones in alphabetical order.
    """
    text = ""
    for one in CLASSES:
        table = at(schema, one.at)
        # A derived class has these keys.
        others = {
            key
            for other in CLASSES
            if other.base == one.name and other.at == one.at
            for key in other.only or ()
        }
        keys = {k: v for k, v in table["properties"].items() if k not in others and k in (one.only or (k,))}
        about = one.about or re.sub("^[a-z, ]+: ", "", table["description"])
        text += f"\n\n@dataclass(kw_only=True)\nclass {one.name}({one.base}):\n"
        summary = about[:1].upper() + about.partition(". ")[0][1:]
        text += doc(summary) + "\n"

        def place(key: str, needed: tuple[str, ...] = one.needed) -> tuple[int, str]:
            if key in needed:
                return needed.index(key), key
            return len(needed) + (key not in ("kind", "name")), key

        for key in sorted(keys, key=place):
            text += field(one, key, keys[key])
    return text


def made() -> str:
    """Return the stub."""
    text = HEAD + classes(json.loads(core.schema())) + TAIL
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(STUB), "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


def main() -> int:
    """Write the stub, or with `--check` compare it with the schema."""
    text = made()
    if "--check" in sys.argv[1:]:
        return int(text != STUB.read_text(encoding="utf-8"))
    STUB.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
