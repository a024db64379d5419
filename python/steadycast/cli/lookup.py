"""Commands that give information: about controllers, mistakes in a scenario, and the scenario format."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from steadycast.builtin import scenario_at
from steadycast.cli import base
from steadycast.cli.base import argument, option
from steadycast.errors import Problems, UserError
from steadycast.exits import Exit

_FEEDBACK = {"none": "none", "periodic": "by RTCP's timer", "clocked": "by packets or round trips"}


@base.command(
    "List the rate controllers, or show one.", "steadycast controllers", "steadycast controllers asmp"
)
def controllers(
    name: Annotated[str | None, argument("NAME", "The controller to show.")] = None,
    as_json: base.AsJson = False,
) -> None:
    """List the rate controllers, or show one with its parameters."""
    from steadycast.controllers import USES, find, registry
    from steadycast.controllers import text as written

    chosen = [find(name)] if name is not None else list(registry())
    if as_json:
        from dataclasses import asdict

        base.print_json([asdict(c) for c in chosen])
        return
    if name is None:
        base.listed(
            [(use.towards, use.controller, use.why) for use in USES], "receivers", "controller", "reason"
        )
        print()
        rows = [(c.name, c.cast, c.feedback, c.about) for c in chosen]
        base.listed(rows, "name", "cast", "feedback", "what it is")
        base.show("\nParameters of one: steadycast controllers NAME")
        return
    one = chosen[0]
    needs = "".join(f"\nRequirement: {need} ({about})" for need, about in one.needs)
    base.show(f"{one.name}: {one.about}\nUse it {one.when}.")
    serves = "one receiver" if one.cast == "unicast" else "one receiver or a group"
    base.show(f"Source: {one.source}. It serves {serves}; feedback: {_FEEDBACK[one.feedback]}.{needs}\n")
    if one.promises:
        base.listed(one.promises, "promise", "what is checked in every run")
        print()
    if not one.params:
        base.show("It has no parameters.")
        return
    params = [(p.name, written(p.default), p.about) for p in one.params]
    base.listed(params, "parameter", "default", "what it does")
    base.show("\nRange and source of one: steadycast check --explain PARAMETER")


@base.command(
    "Check a scenario for mistakes, or explain a key.",
    "steadycast check home.toml",
    "steadycast check home.toml --set flow.video.controller=tfrc",
)
def check(
    file: Annotated[
        Path | None, argument("FILE", base.SCENARIO, autocompletion=base.completed, show_default=False)
    ] = None,
    sets: base.Sets = None,
    explain: Annotated[
        str | None,
        option("--explain KEY", 'Explain this key and its values, for example "flow.playout" or "playout".'),
    ] = None,
) -> None:
    """Check a scenario and the files that it names without running it, or explain a key."""
    from steadycast import run_pipeline
    from steadycast.loading import folder_of, load

    if explain is not None:
        from steadycast import reference

        print(reference.explain(explain))
        return
    if file is None:
        raise UserError("check", "no scenario is named", "write steadycast check FILE, or --explain KEY")
    file = scenario_at(file)
    try:
        loaded = load(file, sets or ())
    except Problems as problems:
        print(problems, file=sys.stderr)
        raise typer.Exit(Exit.MISUSED) from None
    # Print the warnings that `run` would print before it sends the first packet.
    base.warn(loaded.warnings())
    run_pipeline.Plan.of(loaded, str(file), folder_of(file)).need_flows()
    if files := [video for video in loaded.videos() if video.get("paths")]:
        from steadycast.media import prepare

        for video in files:
            prepare.opened(video)
    print(f"{file}: no mistakes found")


@base.command(
    "Print the format of scenarios, or of experiments, as a JSON Schema.",
    "steadycast schema > scenario.schema.json",
    "steadycast schema --experiment > experiment.schema.json",
)
def schema(
    experiment: Annotated[
        bool, option("--experiment", "Print the format of experiment files instead.")
    ] = False,
) -> None:
    """Print the scenario format as a JSON Schema, for editors."""
    import json

    from steadycast.core import core

    text = core.experiment_schema() if experiment else core.schema()
    print(json.dumps(json.loads(text), indent=2, ensure_ascii=base.is_limited(sys.stdout)))
