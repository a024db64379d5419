"""Describes the keys of scenarios, the commands and the controllers as text. The program's own data are the source."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from steadycast.errors import UserError

Node = Mapping[str, Any]

# Keys of these tables are not listed, because "back" has the same keys as a link.
_TABLES = {"back"}
_KINDS = {
    "string": "text",
    "number": "number",
    "integer": "whole number",
    "boolean": "true or false",
    "array": "list",
    "object": "table",
}


@dataclass(frozen=True)
class Key:
    """A key of a scenario file, as the schema describes it."""

    path: str  # for example "flow.encode.codec", also if "flow" is a list of tables
    kind: str  # for example "one of a, b" or "number, 0 to 1"
    about: str
    table: bool


@cache
def keys() -> tuple[Key, ...]:
    """Return all keys of a scenario file, in alphabetical order. Parameters of controllers are left out."""
    from steadycast.core import core

    schema: Node = json.loads(core.schema())
    return tuple(sorted(_walk(schema, schema, ""), key=lambda key: key.path))


@cache
def _explained() -> tuple[Key, ...]:
    """Return all keys. The parameters of controllers are included, under `flow.params`."""
    from steadycast.core import core

    schema: Node = json.loads(core.schema())
    flow = _resolved(schema["properties"]["flow"]["items"], schema)
    params = _resolved(flow["properties"]["params"], schema)
    return (*keys(), *_walk(params, schema, "flow.params"))


_MEANT = {
    "bandwidth": "a link's bandwidth is its rate: --explain link.rate",
    "bufferbloat": "bufferbloat is a long queue: --explain link.queue",
    "latency": "a link's latency is its delay: --explain link.delay",
    "sound": "for a video's sound use flow.audio, for another program's a flow of kind cbr: --explain flow.audio",
    "wifi": "Wi-Fi is a link with jitter, loss and retransmission: --explain link.jitter, link.loss or link.arq",
}
"""Remedies for terms that are not keys. They say which keys to look up instead."""


def explain(path: str) -> str:
    """Return the explanation of a key or a controller's parameter. For a table, it also explains the table's keys."""
    wanted = path.replace("[]", "").replace("[[", "").replace("]]", "").strip(".")
    found = [key for key in _explained() if key.path == wanted]
    # Also accept paths in the form that --set has: flow.NAME.KEY and link.NAME.KEY.
    table, _, rest = wanted.partition(".")
    found = found or [key for key in _explained() if key.path == f"{table}.{rest.partition('.')[2]}"]
    # Also accept a key without its table, for example "rate". Several tables may have such a key.
    found = found or [key for key in _explained() if key.path.rpartition(".")[2] == wanted]
    if not found:
        import difflib

        names = {name for key in _explained() for name in (key.path, key.path.rpartition(".")[2])}
        near = difflib.get_close_matches(wanted, sorted(names), n=3)
        remedy = f"did you mean {' or '.join(near)}?" if near else "`steadycast schema` prints all of them"
        meant = difflib.get_close_matches(wanted.lower().replace("-", ""), _MEANT, n=1, cutoff=0.8)
        remedy = _MEANT[meant[0]] if meant else remedy
        raise UserError(
            f"--explain {path}", "no key of a scenario and no parameter of a controller has this name", remedy
        )
    # Group the paths that have the same explanation, because tables such as a queue's occur at several paths.
    entries: dict[str, list[str]] = {}
    for key in found:
        entries.setdefault(_entry(key), []).append(key.path)
    return "\n\n".join(f"{', '.join(paths)}: {entry}" for entry, paths in entries.items())


def _entry(key: Key) -> str:
    lines = [key.kind, f"  {key.about}"]
    if key.table:
        inside = [k for k in _explained() if k.path.rpartition(".")[0] == key.path]
        names = [k.path.rpartition(".")[2] for k in inside]
        width = max((len(name) for name in names), default=0)
        lines += [f"    {name:{width}}  {k.about}" for name, k in zip(names, inside, strict=True)]
    return "\n".join(lines)


def _walk(node: Node, schema: Node, path: str) -> Iterator[Key]:
    for name, value in node.get("properties", {}).items():
        here = f"{path}.{name}".lstrip(".")
        value = _resolved(value, schema)
        inner = _resolved(value.get("items", {}), schema) if value.get("type") == "array" else value
        # Some keys accept either a word or a table, for example `policer`. Explain the keys of the table.
        inner = next((each for each in inner.get("anyOf", ()) if "properties" in each), inner)
        table = bool(inner.get("properties"))
        yield Key(here, _kind(value, schema), about(value), table)
        if table and name not in _TABLES and here != "flow.params":
            yield from _walk(inner, schema, here)


def _resolved(node: Node, schema: Node) -> Node:
    target = node.get("$ref")
    if target is None:
        return node
    name = str(target).rpartition("/")[2]
    return {**schema["$defs"][name], **{key: value for key, value in node.items() if key != "$ref"}}


def about(node: Node) -> str:
    """Return the schema's description of a key, followed by the key's default."""
    said = str(node.get("description", ""))
    default = f" Default: {json.dumps(node['default'])}." if "default" in node else ""
    return f"{said.rstrip('.')}.{default}" if said else default.strip()


def _kind(node: Node, schema: Node) -> str:
    if "enum" in node:
        return "one of " + ", ".join(json.dumps(value).strip('"') for value in node["enum"])
    for either in ("anyOf", "oneOf"):
        if either in node:
            kinds = dict.fromkeys(_kind(_resolved(each, schema), schema) for each in node[either])
            return ", or ".join(kinds)
    if node.get("type") == "array":
        return "list of " + _plural(_kind(_resolved(node.get("items", {}), schema), schema))
    types = node.get("type")
    if isinstance(types, list):
        return ", or ".join(_KINDS[each] for each in types)
    kind = _KINDS.get(str(types), "value")
    if examples := node.get("examples"):
        kind += " such as " + ", ".join(json.dumps(example) for example in examples)
    low, high = node.get("minimum"), node.get("maximum")
    if low is not None and high is not None:
        kind += f", {low:.10g} to {high:.10g}"
    elif low is not None:
        kind += f", at least {low:.10g}"
    elif high is not None:
        kind += f", at most {high:.10g}"
    return kind


def _plural(kind: str) -> str:
    head, _, rest = kind.partition(" such")
    plain = {"table": "tables", "text": "texts", "number": "numbers", "whole number": "whole numbers"}
    return plain.get(head, head) + (f" such{rest}" if rest else "")
