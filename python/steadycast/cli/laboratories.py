"""The command `lab` opens a page with sliders. The command `reproduce` repeats the experiments of the papers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from steadycast.cli import base
from steadycast.cli.base import argument, option
from steadycast.errors import MissingError, UserError
from steadycast.exits import Exit

_CHECKOUT = Path(__file__).resolve().parents[3]
"""The checkout that contains the package, the scenarios and the papers."""


@base.command(
    "Change a scenario's values in the browser, and see the effect.",
    "steadycast lab",
    "steadycast lab home.toml lte.toml",
    "steadycast lab --network steps --clip film.mp4",
    "steadycast lab runs/bad-call",
    "steadycast lab film.toml --allow-clips films",
    "steadycast lab --no-browser --port 9000",
    "steadycast lab --watch sent.jsonl --watch received.jsonl",
    "steadycast lab 'http://127.0.0.1:8765/#s=fVJ…'",
)
def lab(
    files: Annotated[
        list[str] | None,
        argument(
            "[FILE]...",
            "Scenarios (TOML), folders of steadycast call, or a shared link; by default home.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int | None,
        option(
            "--port N", "The port to listen on; by default the first free one from 8765 on.", min=1, max=65535
        ),
    ] = None,
    no_browser: Annotated[
        bool, option("--no-browser", "Print the page's address without opening a browser.")
    ] = False,
    allow_clips: Annotated[
        Path | None, option("--allow-clips DIR", "A folder whose clips can be chosen on the page.")
    ] = None,
    network: base.Network = None,
    clip: base.ClipName = None,
    watch: Annotated[
        list[Path] | None,
        option(
            "--watch STATUS",
            "Show a live session instead, from the file that send --status or receive --status writes. "
            "Repeatable once.",
        ),
    ] = None,
) -> None:
    """Serve a page, on this machine only, with sliders for a scenario's values and charts of the result.

    The page compares two controllers: the frames that a viewer saw, the film, and the reason for each rate. It needs
    the extra: pip install "steadycast[lab]". Ctrl-C ends it.
    """
    server = base.module("steadycast.lab.server")
    others = [each for each in (allow_clips, network, clip) if each is not None]
    if watch and (files or others or len(watch) > 2):
        raise UserError(
            "--watch", "it takes at most two files, and no scenario, network or clip", "leave the others out"
        )
    for each in watch or ():
        if not each.is_file():
            what = "this is no file" if each.exists() else "there is no such file"
            remedy = f"start send or receive with --status {each} first, and name its file here"
            raise UserError(f"--watch {each}", what, remedy)
    links = [each.partition("#")[2] for each in files or () if "#s=" in each]
    bases = [server.Base.read(Path(each), network, clip) for each in files or () if "#s=" not in each]
    server.serve(
        bases or ([] if watch else [server.Base.read(_home(), network, clip)]),
        port=port,
        watched=watch or (),
        clips=allow_clips,
        link=f"&{links[0]}" if links else "",
        opens=not no_browser,
        told=lambda address: print(f"lab: {address}", flush=True),
    )


def _home() -> Path:
    checkout = _CHECKOUT / "scenarios" / "home.toml"
    return checkout if checkout.is_file() else Path("home")


def papers() -> Any | None:
    """Return the package `papers` from this program's checkout or from the current folder."""
    for place in (_CHECKOUT, Path.cwd()):
        if (place / "papers" / "engine" / "suite.py").is_file():
            sys.path.insert(0, str(place))
            return base.module("papers")
    return None


def _laboratory() -> Any:
    if (found := papers()) is not None:
        return found
    raise MissingError(
        "reproduce",
        "the papers' experiments are not part of the installed package",
        "run this in a checkout of the repository, where papers/ is",
    )


@base.command(
    "Run a paper's experiments.",
    "steadycast reproduce",
    "steadycast reproduce K-A",
    "steadycast reproduce K --seeds 1-5 -o reproduced",
    "steadycast reproduce all",
    "steadycast reproduce B --values",
    "steadycast reproduce M H-L C-F --emulated",
)
def reproduce(
    ids: Annotated[
        list[str] | None,
        argument(
            "[ID]...",
            'Experiments ("K-A"), families ("K"), or "all", which excludes the family Q. Without it, they are listed.',
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        str,
        option(
            "--seeds A-B",
            "The seeds from A to B, or a list; by default 6-10, and 1-5 for families without a joint setting.",
        ),
    ] = "",
    clip: Annotated[
        list[Path] | None,
        option(
            "--clip FILE",
            "A video in place of the papers' videos, which are lost; by default a synthetic one. Repeatable.",
        ),
    ] = None,
    emulated: Annotated[
        bool,
        option(
            "--emulated",
            "Run the experiments that can be emulated in real time with the kernel's TCP, and also "
            "simulated; needs root.",
        ),
    ] = False,
    at_once: Annotated[
        int, option("--at-once N", "The number of emulated runs at a time.", min=1, max=64)
    ] = 4,
    values: Annotated[
        bool,
        option(
            "--values", "List the scenarios' values with their ranges and sources: the paper, or chosen here."
        ),
    ] = False,
    out: base.Out = None,
    force: base.Force = False,
) -> None:
    """Run a paper's experiments, and compare published and measured values, with a verdict for each statement.

    The exit code is 0 even if a statement is not reproduced. Finished runs are kept; if the command is repeated, it
    makes only the runs that have changed.
    """
    if values:
        _laboratory().list_values(ids or ())
        return
    try:
        _laboratory().main(
            ids or (),
            base.seed_list(seeds) if seeds else (),
            out,
            clip or (),
            emulated=emulated,
            at_once=at_once,
            force=force,
        )
    except KeyboardInterrupt:
        base.left.append("finished runs are kept")
        raise typer.Exit(Exit.INTERRUPTED) from None
