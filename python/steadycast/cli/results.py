"""Commands for run folders and clips: reports, comparisons, measurements, and tables for other programs."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from steadycast.cli import base
from steadycast.cli.base import argument, option
from steadycast.errors import UserError
from steadycast.exits import Exit
from steadycast.live.flow import CODECS


@base.command(
    "Write a run's report.html again, or save one of its figures.",
    "steadycast report home",
    "steadycast report home --pictures 250",
    "steadycast report home/seed-1 --film",
    "steadycast report home --figure rates -o rates.png",
)
def report(
    directory: base.RunFolder,
    pictures: Annotated[
        int | None, option("--pictures FRAME", "Add this frame as sent and as received, side by side.", min=0)
    ] = None,
    film: Annotated[
        bool,
        option("--film", "Add the film of the worst ten seconds, if the report has none yet."),
    ] = False,
    figure: Annotated[
        str | None,
        option(
            "--figure NAME",
            "Save one figure of the report: rates, delay, mos, quality, why, queue, tcp, jitter, "
            "cumulative-jitter or fairness.",
        ),
    ] = None,
    out: Annotated[Path | None, option("-o --out FILE", "The figure's file: .png, .svg or .pdf.")] = None,
) -> None:
    """Write a run's report.html again, or save one of its figures."""
    from steadycast.folder import Folder, is_seeds
    from steadycast.report import figures
    from steadycast.report.page import write_report

    if figure is not None:
        target = out or Path(f"{directory.resolve().name}-{figure}.png")
        figures.save(Folder.open(directory), figure, target)
        print(target)
        return
    if out is not None:
        raise UserError(
            "-o",
            "a report is always written into its run folder; only a figure can be written elsewhere",
            "add --figure NAME, or leave -o out",
        )
    if is_seeds(directory):
        if pictures is not None or film:
            raise UserError(
                str(directory),
                "this folder holds several seeds",
                f"name one of them, for example {directory}/seed-1",
            )
        print(base.write_report(directory))
        return
    folder = Folder.open(directory)
    for name in folder.absent():
        table = folder.path / f"{name}.parquet"
        print(f"warning: {table}: missing: the report does without; run the scenario again", file=sys.stderr)
    if film and folder.film is None:
        from steadycast.progress import Terminal
        from steadycast.report.film import add

        with Terminal() as progress:
            add(folder, progress)
    shown = None
    if pictures is not None:
        from steadycast.report.pictures import side_by_side

        shown = side_by_side(folder, pictures)
    print(write_report(folder, pictures=shown))


@base.command(
    "Compare runs with each other, or with a baseline.",
    "steadycast compare home home-tfrc",
    "steadycast compare home home-tfrc --figures figures",
    "steadycast compare new --baseline main --fail-if 'flows.tcp.share_of_fair<-10%'",
    "steadycast compare new --baseline main --fail-if 'flows.video.receivers.video.dst1.psnr_db.raw.y<-1'",
)
def compare(
    directories: Annotated[list[Path], argument("DIR...", "Run folders, of one seed or of several.")],
    baseline: Annotated[
        Path | None, option("--baseline DIR", "The run with which the others are compared.")
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        option(
            "--fail-if CONDITION",
            "Exit with code 1 if a figure has changed by more than this, against the baseline: PATH<CHANGE or "
            "PATH>CHANGE. A CHANGE is -10% or, in the figure's unit, -1. Repeatable.",
        ),
    ] = None,
    out: Annotated[Path, option("-o --out FILE", "The file of the page.")] = Path("compare.html"),
    figures: Annotated[
        Path | None,
        option("--figures DIR", "Save figures with all runs: PDF, SVG, PNG, and their data as CSV."),
    ] = None,
    anyway: Annotated[
        bool, option("--anyway", "Also compare interrupted runs, and runs of different scenarios.")
    ] = False,
    as_json: base.AsJson = False,
) -> None:
    """Compare runs in a table and on a page with shared scales."""
    # Import the module by its full name, because the package exports a function with the same name.
    comparison = import_module("steadycast.compare")

    if fail_if and baseline is None:
        raise UserError("--fail-if", "there is nothing to measure against", "add --baseline DIR")
    conditions = [comparison.Condition.read(text) for text in fail_if or []]
    once = {directory.resolve(): directory for directory in directories}
    if len(once) < len(directories):
        base.warn(["a run that is named twice is compared once"])
        directories = list(once.values())
    # Read the baseline together with the runs, so that runs with equal names get different labels.
    runs = comparison.read([*directories, *([baseline] if baseline is not None else [])])
    against = runs.pop() if baseline is not None else None
    doubts = comparison.doubts(runs, against)
    if conditions and doubts and not anyway:
        raise UserError("--fail-if", "; ".join(doubts), "run them again, or add --anyway")
    base.warn(doubts)
    verdicts = comparison.judge(runs, against, conditions) if against is not None else []
    if as_json:
        base.print_json(comparison.as_json(runs, against, verdicts))
    else:
        every = comparison.with_base(runs, against)
        base.show(*comparison.notes(every), style="bold red")
        if said := comparison.answer(every):
            base.show(said, "")
            base.show(comparison.said_rule(every), "", style="dim")
        for table in comparison.tables(runs, against, verdicts):
            base.show(table, "")
        print(f"page: {comparison.write_page(runs, against, verdicts, out)}")
    if figures is not None:
        for path in comparison.save_figures(runs, against, figures):
            print(path, file=sys.stderr if as_json else sys.stdout)
    if any(verdict.fails for verdict in verdicts):
        raise typer.Exit(Exit.FAILED)


@base.command(
    "Encode clips at every quantizer.",
    "steadycast encode film.mkv",
    "steadycast encode foreman.yuv --size cif --fps 25 --trace foreman.csv --clips foreman",
)
def encode(
    clips: Annotated[list[str], argument("CLIP...", "Videos, played one after the other: files or names.")],
    codec: Annotated[str, option("--codec", f"The codec: {CODECS}")] = "mpeg4",
    size: base.Size = "clip",
    fps: base.Fps = "clip",
    pixels: base.Pixels = None,
    gop: Annotated[int, option("--gop", "The number of frames from one I frame to the next.", min=1)] = 12,
    bframes: Annotated[
        int | None, option("--bframes", "The number of B frames between two other frames.", min=0)
    ] = None,
    out: Annotated[Path | None, option("-o --out FILE", "Save the figure: .png, .svg or .pdf.")] = None,
    trace: Annotated[
        Path | None,
        option(
            "--trace FILE",
            "Save each frame's type, size and PSNR at each quantizer (.csv), or Evalvid-RA's form.",
        ),
    ] = None,
    clip_folder: Annotated[Path | None, option("--clips DIR", "Save the clip at each quantizer.")] = None,
) -> None:
    """Encode clips at every quantizer, and show quantizer, rate and quality."""
    from steadycast import encode as encoding
    from steadycast.progress import Terminal

    with Terminal() as progress:
        steps = encoding.steps(
            list(map(base.module("steadycast.clips").find, clips)),
            codec=codec,
            size=size,
            fps=fps,
            gop=gop,
            bframes=bframes,
            pixels=pixels,
            progress=progress,
        )
    base.warn(steps.ladder.warnings)
    base.show(encoding.table(steps))
    if trace is not None:
        print(encoding.write_trace(steps, trace))
    if clip_folder is not None:
        encoding.write_clips(steps, clip_folder)
        print(clip_folder)
    if out is not None:
        encoding.draw(steps, out)
        print(out)


@base.command(
    "Measure again what each receiver saw.",
    "steadycast quality home",
    "steadycast quality home --by index",
    "steadycast quality home --save-video received.y4m",
)
def quality(
    directory: base.RunFolder,
    as_json: base.AsJson = False,
    vmaf: base.Vmaf = False,
    by: base.By = "time",
    video: base.SaveVideo = None,
) -> None:
    """Decode and measure again what each receiver received. The folder is not changed."""
    from steadycast import quality as measuring
    from steadycast.folder import Folder
    from steadycast.progress import Terminal

    folder = Folder.open(directory)
    with Terminal() as progress:
        rows = measuring.measure(folder, progress, by=by, vmaf=vmaf)
        if video is not None:
            base.module("steadycast.received").save(folder, video, progress)
    if as_json:
        base.print_json(rows)
    else:
        base.show(measuring.table(rows))


@base.command(
    "Write a run's tables for other programs.",
    "steadycast export home --csv",
    "steadycast export home --classic -o traces",
)
def export(
    directory: base.RunFolder,
    csv: Annotated[
        bool,
        option(
            "--csv", "Write all tables as CSV, packets.csv and control.csv with the columns of classic logs."
        ),
    ] = False,
    classic: Annotated[
        bool, option("--classic", "Write the files sd_be_0 and rd_be_N of Multi-Evalvid-RA.")
    ] = False,
    out: Annotated[
        Path | None, option("-o --out DIR", "The folder for the tables; by default the run's folder.")
    ] = None,
) -> None:
    """Write a run's tables for other programs."""
    from steadycast import export as writing
    from steadycast.folder import Folder

    if not csv and not classic:
        raise UserError("export", "no format is named", "add --csv, --classic or both")
    folder = Folder.open(directory)
    if classic:
        # Check before the CSV files are written, so that a failed command leaves no files.
        writing.need_videos(folder)
    written: list[Path] = []
    if csv:
        written += writing.csv(folder, out or folder.path / "csv")
    if classic:
        written += writing.classic(folder, out or folder.path / "classic")
    for path in written:
        print(path)


@base.command(
    "Show why a call went bad, and what other controllers would have sent.",
    "steadycast call event_log_20261126_1519_6_1.log",
    "steadycast call capture.pcapng --stream 305419896 -o bad-call",
    "steadycast call event_log_20261126_1519_6_1.log --controllers gcc,steady --paths 40",
    "steadycast call sender.pcapng --other-end receiver.pcapng",
    "steadycast lab bad-call",
)
def call(
    files: Annotated[
        list[Path],
        argument(
            "FILE...",
            "Event logs or dumps of a browser (chrome://webrtc-internals), packet captures or run "
            "folders. Each is a separate call.",
        ),
    ],
    out: base.Out = None,
    stream: Annotated[
        int | None,
        option("--stream SSRC", "If a capture has several calls, the call with this stream.", min=0),
    ] = None,
    other_end: Annotated[
        Path | None,
        option(
            "--other-end FILE", "The receiver's log or capture of the same call; FILE is then the sender's."
        ),
    ] = None,
    side: Annotated[
        str | None,
        option("--side SIDE", "If a file has both directions, the one to read: sender or receiver."),
    ] = None,
    beside: Annotated[
        str | None,
        option(
            "--beside KIND:N",
            "The TCP flows that shared the call's queue, if you know them: N flows of KIND cubic, "
            "newreno, bbr or web; several with commas.",
        ),
    ] = None,
    key_file: Annotated[
        Path | None, option("--key-file FILE", "The key of a captured session (send --key-file).")
    ] = None,
    send_time_id: Annotated[
        int | None,
        option(
            "--send-time-id N",
            "The identifier of the header extension abs-send-time, from a=extmap in the SDP.",
            min=1,
            max=255,
        ),
    ] = None,
    controllers: Annotated[
        str, option("--controllers A,B", "The controllers that are run on paths that fit the call.")
    ] = "steady,gcc,scream,nada,tfrc",
    paths: Annotated[
        int, option("--paths N", "The number of such paths; with 0 no controller is run.", min=0, max=1000)
    ] = 20,
    seed: Annotated[int, option("--seed N", "The seed with which the paths are drawn.", min=0)] = 1,
    require_path: Annotated[
        bool, option("--require-path", "Exit with code 1 if the path of a call can't be determined.")
    ] = False,
    force: base.Force = False,
    as_json: base.AsJson = False,
) -> None:
    """Report what the log or capture of a call shows: the received media, the path, and the rates of controllers.

    The controllers are simulated on paths that fit the measurements of the call. Without -o the results go to
    runs/NAME; with --json alone they are only printed. If several files are given, each gets a folder there.
    """
    calls = import_module("steadycast.call")

    if other_end is not None and len(files) > 1:
        raise UserError(
            "--other-end",
            "it belongs to one call, but several files are given",
            "give one FILE, the sender's",
        )
    asked = controllers.split(",")
    names = [file.stem for file in files]
    if len(set(names)) < len(names):
        raise UserError("call", "two of these files have the same name", "read them one by one")
    read = {}
    wrong: dict[str, UserError] = {}
    for file, name in zip(files, names, strict=True):
        try:
            read[name] = calls.read(file, stream, side, other_end, asked, beside, key_file, send_time_id)
        except UserError as problem:
            if problem.code is not Exit.MISUSED:
                raise
            # A file that can't be read must not discard the results of the others.
            wrong[str(problem)] = problem
    if not read:
        *others, last = wrong.values()
        for error in others:
            base.tell(error)
        raise last
    if paths:
        with base.module("steadycast.progress").shown() as told:
            for each in read.values():
                each["replay"] = calls.replay.replay(each, asked, paths, seed, told)
    otherwise = None if as_json else Path("runs") / (names[0] if len(files) == 1 else "calls")
    with base.place_of(out, otherwise, force=force) as place:
        for name, each in read.items():
            if not as_json:
                base.show(*calls.sentences(each))
                if calls.replay.is_compared(each):
                    base.show(
                        "", base.module("steadycast.report.terminal").filled(*calls.replay.table(each)), ""
                    )
                    base.show(calls.replay.verdict(each))
            if place is not None:
                report = calls.write(each, place if len(files) == 1 else place / name)
                if not as_json:
                    print(f"\nreport: {report}")
    if as_json:
        found = list(read.values())
        base.print_json(found[0] if len(files) == 1 else found)
    for error in wrong.values():
        base.tell(error)
    if wrong:
        raise typer.Exit(Exit.MISUSED)
    if require_path and any(each["path"]["refusals"] for each in read.values()):
        raise typer.Exit(Exit.FAILED)
