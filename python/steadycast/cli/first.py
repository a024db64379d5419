"""First steps: run a scenario or the demo, list the built-in files, and check the machine."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from steadycast.builtin import scenario_at
from steadycast.cli import base
from steadycast.cli.base import argument, option
from steadycast.errors import UserError
from steadycast.exits import Exit


@base.command(
    "Run a scenario.",
    "steadycast run home",
    "steadycast run home.toml -o home",
    "steadycast run home.toml --set flow.video.controller=tfrc -o home-tfrc",
    "steadycast run home --clip bunny",
    "steadycast run home --network wifi-bad",
    "steadycast run ci.toml --json",
    "steadycast run home.toml --seeds 1-5 -o home-5",
    cls=base.Scenario,
)
def run(
    file: base.File,
    out: base.Out = None,
    seed: base.Seed = None,
    seeds: Annotated[str | None, base.SEEDS] = None,
    sets: Annotated[
        list[str] | None,
        option("--set PATH=VALUE", base.SET_HELP),
    ] = None,
    clip: base.ClipName = None,
    network: base.Network = None,
    as_json: base.AsJson = False,
    force: base.Force = False,
    vmaf: base.Vmaf = False,
    film: base.Film = True,
    video: base.SaveVideo = None,
) -> None:
    """Run a scenario, and show each flow's rate and what the viewers saw.

    Without -o the results go to runs/NAME; with --json alone they are only printed.
    """
    from steadycast.progress import Terminal

    if seed is not None and seeds is not None:
        raise UserError("--seeds", "--seed is given as well", "give one of the two")
    if video is not None:
        if seeds is not None:
            raise UserError("--save-video", "--seeds is given as well", "run one seed: --seed N")
        base.module("steadycast.received").checked(video)
    many = base.seed_list(seeds) if seeds is not None else None
    file = scenario_at(file)
    sets = base.changes(sets, clip, network)
    if video is not None:
        loaded = base.module("steadycast.loading").load(file, sets)
        base.module("steadycast.viewing").with_pixels(loaded.videos(), file)
        sets += base.module("steadycast.received_audio").record_changes(loaded.videos(), video)
    with ExitStack() as stack:
        otherwise = None if as_json else Path("runs") / file.stem
        place = stack.enter_context(base.place_of(out, otherwise, force=force))
        # Start the prefetcher first, so that its process loads the drawing libraries during the other imports.
        prefetcher = (
            None
            if place is None or many
            else stack.enter_context(base.module("steadycast.figure_prefetch").FigurePrefetcher(place))
        )
        runner = base.module("steadycast.run")
        common = {"set": sets, "out": place, "force": force, "vmaf": vmaf}
        with base.interruptible() as left, Terminal() as progress:
            if many is not None:
                summary = runner.run_seeds(file, seeds=many, progress=progress, **common)
            else:
                common["film"], common["recorded"] = (
                    film and place is not None,
                    prefetcher and prefetcher.draw,
                )
                done = runner.run(file, seed=seed, progress=progress, **common)
                summary = done.summary
                if video is not None:
                    base.module("steadycast.received").save(done.held(), video, progress)
            if place is not None:
                left.append(f"the results are whole, without their report: steadycast report {place}")
            report = (
                base.write_report(place, prefetcher and prefetcher.drawings) if place is not None else None
            )
    base.finish(summary, as_json=as_json, report=report)


@base.command(
    "Run a small example, and write a report with pictures.",
    "steadycast demo",
    "steadycast demo --open",
    "steadycast demo -o first",
)
def demo(
    out: base.Out = None,
    browse: Annotated[bool, option("--open", "Show the report in the browser.")] = False,
    force: base.Force = False,
) -> None:
    """Run a video beside TCP on a link that is too small for both, and write a report with pictures.

    The command runs the built-in scenario demo. Without -o the results go to runs/demo, and replace the results of an
    earlier demo.
    """
    import time

    from steadycast.progress import Terminal
    from steadycast.report import terminal

    began = time.monotonic()
    with base.interruptible(), Terminal() as progress:
        summary, page = base.module("steadycast.demo").demo(
            out or Path("runs") / "demo", force=force or out is None, progress=progress
        )
    base.show(terminal.flows(summary))
    base.warn(summary["warnings"])
    print(f"\n{time.monotonic() - began:.0f} s; report: {page}")
    if browse:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


@base.command(
    "List the built-in scenarios, or copy them.",
    "steadycast scenarios",
    "steadycast scenarios --copy home",
    "steadycast scenarios --all",
)
def scenarios(
    copied: Annotated[
        list[str] | None, option("--copy NAME", "Copy this scenario, so that you can change it. Repeatable.")
    ] = None,
    every: Annotated[bool, option("--all", "Copy all scenarios.")] = False,
    out: Annotated[Path, option("-o --out DIR", "The folder for the copies.")] = Path(),
) -> None:
    """List the scenarios that come with the program, or copy them into a folder.

    `steadycast run NAME` runs one. A file NAME or NAME.toml in the current folder takes precedence over the built-in
    one.
    """
    from steadycast import builtin

    if copied or every:
        for path in builtin.copy(builtin.names() if every else dict.fromkeys(copied or ()), out):
            print(path)
        return
    if out != Path():
        raise UserError("-o", "nothing is copied", "add --copy NAME or --all")
    base.listed([(name, builtin.about(name)) for name in builtin.names()], "name", "what it is")


@base.command(
    "List the named networks, or copy them.",
    "steadycast networks",
    "steadycast networks --show wifi-bad",
    "steadycast networks --copy wifi-bad",
    "steadycast run home --network wifi-bad+cubic",
    "steadycast sweep home --over network=standard",
)
def networks(
    shown: Annotated[str | None, option("--show NAME", "Print the file of this network.")] = None,
    copied: Annotated[
        list[str] | None, option("--copy NAME", "Copy this network, so that you can change it. Repeatable.")
    ] = None,
    out: Annotated[Path, option("-o --out DIR", "The folder for the copies.")] = Path(),
    as_json: base.AsJson = False,
) -> None:
    """List the networks that a scenario can use by name (network = "NAME"), and sets of networks for sweeps.

    +cubic, +2cubic, +newreno, +bbr or +web after a name adds TCP flows.
    """
    from steadycast import builtin
    from steadycast import networks as known

    if shown is not None:
        print(builtin.path_of(shown, builtin.NETWORKS).read_text(encoding="utf-8"), end="")
        return
    if copied:
        for path in builtin.copy(dict.fromkeys(copied), out, builtin.NETWORKS):
            print(path)
        return
    if out != Path():
        raise UserError("-o", "nothing is copied", "add --copy NAME")
    found = [known.find(name) for name in known.names()]
    if as_json:
        from dataclasses import asdict

        base.print_json({"networks": [asdict(each) for each in found], "sets": known.sets()})
        return
    base.listed([(each.name, each.about) for each in found], "name", "what it is like")
    print()
    base.listed([(name, ", ".join(of)) for name, of in known.sets().items()], "set", "networks")


@base.command(
    "List the clips that can be used by name.",
    'pip install "steadycast[clips]"',
    "steadycast clips",
    "steadycast run home --clip bunny",
)
def clips(as_json: base.AsJson = False) -> None:
    """List the clips that can be used by name.

    These are the clips of the extra `clips`, and those in the folder that the environment variable STEADYCAST_CLIPS
    names. `run`, `sweep`, `emulate`, `send`, `serve` and `lab` accept the names. A clip's licence may require a notice
    wherever its pictures are shown; the warnings of a run contain the notice.
    """
    from steadycast.clips import known

    found = [(clip, clip.size()) for clip in known()]
    if as_json:
        rows: list[dict[str, object]] = [
            {
                "name": clip.name,
                "path": clip.path and str(clip.path),
                "licence": clip.licence,
                "notice": clip.notice,
                **{key: facts and facts[n] for n, key in enumerate(("size", "fps", "frames"))},
            }
            for clip, facts in found
        ]
        base.print_json(rows)
        return
    lines = [
        (clip.name, *map(str, facts or ("not here", "", "")), clip.licence, clip.notice)
        for clip, facts in found
    ]
    base.listed(lines, "name", "size", "frames/s", "frames", "licence", "notice")
    base.show("\nWithout --clip a drawn film plays, 352x288 or 1280x720, 25 frames/s: no licence is needed.")
    if any(facts is None for _, facts in found):
        print('The others are brought by: pip install "steadycast[clips]"')


@base.command(
    "Check what works on this machine.",
    "steadycast doctor",
    "steadycast doctor emulate",
    "steadycast doctor --json",
)
def doctor(
    purpose: Annotated[
        str, argument("[COMMAND]", "The command to check: run, emulate, judge, send, receive or lab.")
    ] = "run",
    as_json: base.AsJson = False,
) -> None:
    """Report what works on this machine, and how to fix the rest.

    The exit code is 0 if COMMAND (by default run) works here, 3 if a permission or a tool is missing, and 4 if the
    cache can't be written.
    """
    doctor = base.module("steadycast.doctor")
    doctor.need(purpose)
    examined = doctor.examine()
    lacking = examined.code(purpose)
    if as_json:
        base.print_json(examined.json())
    else:
        print(f"{examined.program}\n")
        base.listed(examined.rows(), "", "", "what is there, and the remedy")
    if lacking != Exit.DONE:
        raise typer.Exit(lacking)
