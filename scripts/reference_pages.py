"""Generates the reference pages of the site and the manual page, from the data that the program itself uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from steadycast.reference import keys


def scenario_page() -> str:
    """Write the page of all keys."""
    lines = [
        "# Keys of a scenario file",
        "",
        "All keys with their values and meanings, from the declaration of the format (`steadycast schema`).",
        "`steadycast check --explain KEY` prints an entry in the terminal.",
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
        lines += ["| key | values | meaning |", "|---|---|---|"]
        lines += [f"| `{k.path.rpartition('.')[2]}` | {_cell(k.kind)} | {_cell(k.about)} |" for k in inside]
    lines += [
        "",
        "The table `flow.params` has a table for each controller: [their parameters](controllers.md).",
    ]
    return "\n".join(lines) + "\n"


def controllers_page() -> str:
    """Write the page of all controllers with their parameters."""
    from steadycast.controllers import USES, registry
    from steadycast.controllers import text as written

    lines = [
        "# Controllers and their parameters",
        "",
        "| receivers | controller | reason |",
        "|---|---|---|",
        *(f"| {use.towards} | `{use.controller}` | {use.why} |" for use in USES),
        "",
        "By default `send` uses one of the first two. [Choose a controller](../which-controller.md) has measurements.",
        "",
        "The controllers are from the registry that scenario files, commands and Python read;",
        "`steadycast controllers NAME` prints the same. A parameter is set by `params.NAME = { key = value }` in a",
        "flow, or by `--param key=value` of `send`. Where a column *in paper mode* has a value, it is the default with",
        '`mode = "paper"` or `--mode paper` ([mode](../glossary.md)).',
    ]
    for one in registry():
        lines += [
            "",
            f"## {one.name}",
            "",
            f"{one.about[0].upper()}{one.about[1:]}. Use it {one.when}. Source: {one.source}.",
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
        "All commands with their options; `steadycast COMMAND --help` prints the same, with examples.",
        "[Exit codes](../exit-codes.md) are on their own page.",
    ]
    for one in _commands():
        lines += ["", f"## {one.name}", "", f"`steadycast {one.name} {one.usage}`", ""]
        lines += [line for part in one.about for line in (part, "")]
        rows = [f"| `{shown}` | {_cell(about)} |" for shown, about in one.options]
        if rows:
            lines += ["| option | what it does |", "|---|---|", *rows]
    return "\n".join(line.rstrip() if not line.startswith("|") else line for line in lines) + "\n"


def metrics_page() -> str:
    """Write the page of the metrics that `--metrics` exports."""
    from steadycast.live.outlets import PEERS, RECEIVER, SENDER, VIEWERS

    lines = [
        "# Metrics",
        "",
        "The metrics that `send --metrics` and `receive --metrics` export to Prometheus. `serve --metrics` exports",
        "those of `send` for each viewer, and the number of viewers",
        "(`python/steadycast/live/outlets.py`). Each has the label `session`: the address to which the session sends,",
        f"or the receiver's name. At most {PEERS} receivers have their own metrics: the one that sets the rate, and",
        "those with the highest loss. [How to use them](../operating.md).",
    ]
    for command, metrics in (("send", SENDER), ("receive", RECEIVER), ("serve", (VIEWERS,))):
        lines += ["", f"## {command}", "", "| metric | kind | labels | meaning |", "|---|---|---|---|"]
        for metric in metrics:
            name = metric.name + ("_total" if metric.kind == "counter" else "")
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            lines.append(f"| `{name}` | {metric.kind} | {labels} | {_cell(metric.about)} |")
    return "\n".join(lines) + "\n"


def man_page() -> str:
    """Write the manual page steadycast(1) in the format of man(7)."""
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
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq").replace("…", "...")
    return rf"\&{escaped}" if escaped.startswith(".") else escaped


@dataclass(frozen=True)
class _Command:
    name: str
    usage: str
    about: list[str]
    options: list[tuple[str, str]]


def _commands() -> Iterator[_Command]:
    import typer.main
    from steadycast.cli import app

    # Typer's command group has the methods of click's, which is not imported.
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
