"""The scenario's keys, the commands and the controllers as text, read from what the program itself uses.

`steadycast check --explain KEY` prints one key's entry; `scripts/docs.py` makes the pages of docs/reference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from steadycast.errors import UserError

Node = Mapping[str, Any]

# One more level than this is another table's business: the schema repeats a link's keys under "back".
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
    """A key of a scenario file, with what its declaration says of it."""

    path: str  # "flow.encode.codec"; a list of tables is named like one of them
    kind: str  # what may stand there: "text such as "10ms"", "one of a, b", "number, 0 to 1"
    about: str
    table: bool


@cache
def keys() -> tuple[Key, ...]:
    """All keys of a scenario file, those of a controller's parameters left out, in the order of the alphabet."""
    from steadycast.controllers import core

    schema: Node = json.loads(core().schema())
    return tuple(sorted(_walk(schema, schema, ""), key=lambda key: key.path))


@cache
def _explained() -> tuple[Key, ...]:
    """All keys, and the controllers' parameters under `flow.params`."""
    from steadycast.controllers import core

    schema: Node = json.loads(core().schema())
    flow = _resolved(schema["properties"]["flow"]["items"], schema)
    params = _resolved(flow["properties"]["params"], schema)
    return (*keys(), *_walk(params, schema, "flow.params"))


def explain(path: str) -> str:
    """Explain a key or a controller's parameter: its entry, and of a table the keys in it.

    Raises:
        UserError: there is no such key; the message names the nearest ones.

    """
    wanted = path.replace("[]", "").replace("[[", "").replace("]]", "").strip(".")
    found = [key for key in _explained() if key.path == wanted]
    # "rate" alone is a key of several tables: all of them are meant.
    # As --set names it: flow.NAME.KEY, link.NAME.KEY.
    table, _, rest = wanted.partition(".")
    found = found or [key for key in _explained() if key.path == f"{table}.{rest.partition('.')[2]}"]
    found = found or [key for key in _explained() if key.path.rpartition(".")[2] == wanted]
    if not found:
        import difflib

        names = {name for key in _explained() for name in (key.path, key.path.rpartition(".")[2])}
        near = difflib.get_close_matches(wanted, sorted(names), n=3)
        remedy = f"did you mean {' or '.join(near)}?" if near else "`steadycast schema` has all of them"
        raise UserError(
            f"--explain {path}", "no key of a scenario and no parameter of a controller has this name", remedy
        )
    # A queue is a queue wherever it stands: equal entries are printed once.
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
    """Return what the schema says of a key, with its default."""
    said = str(node.get("description", ""))
    return f"{said.rstrip('.')}; default {json.dumps(node['default'])}." if "default" in node else said


def _kind(node: Node, schema: Node) -> str:
    if "enum" in node:
        return "one of " + ", ".join(json.dumps(value).strip('"') for value in node["enum"])
    for either in ("anyOf", "oneOf"):
        if either in node:
            kinds = dict.fromkeys(_kind(_resolved(each, schema), schema) for each in node[either])
            return ", or ".join(kinds)
    if node.get("type") == "array":
        return "list of " + _plural(_kind(_resolved(node.get("items", {}), schema), schema))
    kind = _KINDS.get(str(node.get("type")), "value")
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


def scenario_page() -> str:
    """Write the page of all keys."""
    lines = [
        "# Keys of a scenario file",
        "",
        "Each key with what may stand there and what it does. Made with the site from the format's own declaration",
        "(`steadycast schema`); `steadycast check --explain KEY` prints an entry in the terminal.",
        "",
        "Rates are written `4Mbps` (kbps, Mbps, Gbps; powers of ten, bits of IP packets), spans `10ms` (us, ms, s,",
        "min, h), sizes `1018B`, `64kB` or `64KiB`, limits of queues `50p`, `64kB` or `100ms`. Probabilities and",
        "shares are numbers from 0 to 1.",
        "Names are made of a-z, 0-9, `.` and `-`; `r[1-45]` is a range of names.",
    ]
    tables = [
        key for key in keys() if key.table and any(k.path.rpartition(".")[0] == key.path for k in keys())
    ]
    groups = [("At the top", "")] + [(f"`{key.path}`", key.path) for key in tables]
    for title, path in groups:
        inside = [key for key in keys() if key.path.rpartition(".")[0] == path]
        if not inside:
            continue
        about = next((key.about for key in tables if key.path == path), "")
        lines += ["", f"## {title}", ""]
        lines += [about, ""] if about else []
        lines += ["| key | what may stand there | what it does |", "|---|---|---|"]
        lines += [f"| `{k.path.rpartition('.')[2]}` | {_cell(k.kind)} | {_cell(k.about)} |" for k in inside]
    lines += [
        "",
        "Under `flow.params` stands a table for each controller: [their parameters](controllers.md).",
    ]
    return "\n".join(lines) + "\n"


def controllers_page() -> str:
    """Write the page of all controllers with their parameters."""
    from steadycast.controllers import registry
    from steadycast.controllers import text as written

    lines = [
        "# Controllers and their parameters",
        "",
        "Made with the site from the registry that scenario files, commands and Python read;",
        "`steadycast controllers NAME` prints the same. A parameter is set by `params.NAME = { key = value }` in a",
        "flow, or by `--param key=value` of `send`. Where a column *in paper mode* has a value, it is the default with",
        '`mode = "paper"` or `--mode paper` ([mode](../glossary.md)).',
    ]
    for one in registry():
        lines += [
            "",
            f"## {one.name}",
            "",
            f"{one.about[0].upper()}{one.about[1:]}. Take it {one.when}. Source: {one.source}.",
        ]
        needs = "".join(f" Needs {need}: {about}" for need, about in one.needs)
        lines += ["", f"Serves {one.cast}; feedback: {one.feedback}.{needs}"]
        if one.promises:
            lines += ["", "Checked in every run ([promises](../record.md)):", ""]
            lines += [f"- `{name}`: {about}" for name, about in one.promises]
        if not one.params:
            lines += ["", "It has no parameters."]
            continue
        lines += [
            "",
            "| parameter | default | in paper mode | range | what it does | source |",
            "|---|---|---|---|---|---|",
        ]
        for p in one.params:
            paper = written(p.paper) if p.paper != p.default else ""
            lines.append(
                f"| `{p.name}` | {_cell(written(p.default))} | {_cell(paper)} | {_cell(p.range)} | {_cell(p.about)} "
                f"| {_cell(p.source)} |"
            )
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    """Write the page of all commands with their options."""
    lines = [
        "# Commands and their options",
        "",
        "Made with the site from the commands themselves; `steadycast COMMAND --help` prints the same, with",
        "examples. How each ends is in [exit codes](../exit-codes.md).",
    ]
    for one in _commands():
        lines += ["", f"## {one.name}", "", f"`steadycast {one.name} {one.usage}`", ""]
        lines += [line for part in one.about for line in (part, "")]
        rows = [f"| `{shown}` | {_cell(about)} |" for shown, about in one.options]
        if rows:
            lines += ["| option | what it does |", "|---|---|", *rows]
    return "\n".join(line.rstrip() if not line.startswith("|") else line for line in lines) + "\n"


def metrics_page() -> str:
    """Write the page of what `--metrics` tells."""
    from steadycast.live.outlets import PEERS, RECEIVER, SENDER

    lines = [
        "# Metrics",
        "",
        "What `send --metrics` and `receive --metrics` tell Prometheus. Made with the site from the list that",
        "they themselves use (`python/steadycast/live/outlets.py`). Each has the label `session`: the address that is",
        f"sent to, or the receiver's name. At most {PEERS} receivers have metrics of their own, those first that set",
        "the rate or lose most. [How to use them](../operating.md).",
    ]
    for command, metrics in (("send", SENDER), ("receive", RECEIVER)):
        lines += ["", f"## {command}", "", "| metric | kind | labels | what it is |", "|---|---|---|---|"]
        for metric in metrics:
            name = metric.name + ("_total" if metric.kind == "counter" else "")
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            lines.append(f"| `{name}` | {metric.kind} | {labels} | {_cell(metric.about)} |")
    return "\n".join(lines) + "\n"


def man_page() -> str:
    """Write the manual page steadycast(1), as man(7) has it."""
    from steadycast import exits
    from steadycast.cli import app

    lines = [
        '.\\" Made by scripts/docs.py from the commands themselves.',
        '.TH STEADYCAST 1 "" "Steadycast" "User Commands"',
        ".SH NAME",
        f"steadycast \\- {_roff('video that shares the network fairly with TCP, and a laboratory for it')}",
        ".SH SYNOPSIS",
        ".B steadycast",
        r".I COMMAND\fR [\fIOPTION\fR ...] [\fIARGUMENT\fR ...]",
        ".SH DESCRIPTION",
        _roff(str(app.info.help)),
        ".PP",
        "Begin with",
        r".B steadycast demo\fR, then",
        '.BR "steadycast run home" .',
        ".SH COMMANDS",
    ]
    for one in _commands():
        lines += [f".SS steadycast {_roff(one.name)} {_roff(one.usage)}"]
        lines += [line for part in one.about for line in (_roff(part), ".PP")]
        for shown, about in one.options:
            lines += [".TP", f"\\fB{_roff(shown)}\\fR", _roff(about)]
    lines += [".SH EXIT STATUS"]
    for code in exits.Exit:
        lines += [".TP", f".B {code.value}", _roff(code.about)]
    lines += [
        ".SH ENVIRONMENT",
        ".TP",
        ".B STEADYCAST_CACHE",
        "The folder for encoded clips; otherwise",
        r".I ~/.cache/steadycast\fR.",
        ".SH SEE ALSO",
        ".BR ffplay (1)",
    ]
    return "\n".join(lines) + "\n"


def _roff(text: str) -> str:
    """Write a text so that roff sets it as it is."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq").replace("…", "...")
    return rf"\&{escaped}" if escaped.startswith(".") else escaped


@dataclass(frozen=True)
class _Command:
    name: str
    usage: str
    about: list[str]
    options: list[tuple[str, str]]


def _commands() -> Iterator[_Command]:
    """Yield the commands as the command line declares them."""
    import typer.main

    from steadycast.cli import app

    # Typer's group of commands: it offers what click's groups do, without naming click.
    group: Any = typer.main.get_command(app)
    context = group.context_class(group, info_name="steadycast")
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        inner = command.context_class(command, info_name=name, parent=context)
        about = [" ".join(part.split()) for part in (command.help or "").strip().split("\n\n")]
        options = [told for each in command.params if (told := _parameter(each, inner))]
        yield _Command(name, " ".join(command.collect_usage_pieces(inner)), about, options)


def _parameter(parameter: Any, context: Any) -> tuple[str, str] | None:
    if parameter.name == "help" or getattr(parameter, "hidden", False):
        return None
    if parameter.param_type_name == "argument":
        shown, about = parameter.metavar or parameter.name.upper(), parameter.help or ""
    elif record := parameter.get_help_record(context):
        shown, about = record
    else:
        return None
    return " ".join(shown.split()), " ".join(about.split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
