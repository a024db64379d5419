"""The IETF's test cases for controllers of real-time media, with the measures of RFC 8868.

The cases of RFC 8867, the cellular ones of RFC 8869, and those of C4 are scenarios in this package (``rfc8867/``,
``rfc8869/``, ``c4/``); `cases.toml` has the expectations. Each combination of case, variant, controller and seed is a
separate run, without pictures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from steadycast.cases.case import LONGEST_S, SUITES, TCPS, Case, chosen, lasts_s, write_scenarios
from steadycast.cases.suite import NAME, Suite, takes_part
from steadycast.cases.work import Done, Task
from steadycast.controller import is_outside
from steadycast.controllers import find, registry
from steadycast.errors import UserError
from steadycast.files import folder
from steadycast.folder import Draft
from steadycast.progress import Progress, shown


def run_cases(
    controllers: Sequence[str] = (),
    *,
    suite: str = "rfc8867",
    seeds: Iterable[int] = (1,),
    case: Sequence[str] = (),
    jobs: int | None = None,
    emulated: bool = False,
    out: Path | str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Suite:
    """Run test cases with controllers and seeds, on all processors.

    Args:
        controllers: names of the registry, or ``FILE.py:Class``; by default the whole registry. In C4's cases also
            the TCPs newreno, cubic, bbr and bbr1.
        suite: rfc8867 or c4.
        seeds: the seeds; each is a separate run.
        case: ids such as ``5.1``; by default all cases, or with ``emulated`` those of up to 125 s.
        jobs: processes; by default one per processor, or with ``emulated`` a single one.
        emulated: run in real time with the kernel's TCP; needs the permissions of `steadycast emulate`.
        out: the folder of scenarios, cases.json and report.html; without it nothing is written.
        force: replace an existing folder.
        progress: callback that receives the progress; by default a progress bar, if stderr is a terminal.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed; nothing is kept.

    """
    if suite not in SUITES:
        raise UserError(suite, "there are no test cases of this name", f"write {' or '.join(SUITES)}")
    names = list(dict.fromkeys(controllers)) or [entry.name for entry in registry()]
    for name in names:
        if not is_outside(name) and not (suite == "c4" and name in TCPS):
            find(name)
    from steadycast.loading import seeds_of

    wanted, given = chosen(case, suite), list(dict.fromkeys(seeds_of(seeds)))
    if emulated:
        wanted = [each for each in wanted if case or lasts_s(each) <= LONGEST_S]
        jobs = jobs or 1
    tasks = [replace(task, emulated=emulated) for task in _tasks(wanted, names, given)]
    with ExitStack() as stack:
        place = Path(out) if out is not None else None
        draft = None
        if place is None:
            home = Path(stack.enter_context(TemporaryDirectory(prefix="steadycast-")))
        else:
            draft = stack.enter_context(Draft(place, force=force, mark=NAME))
            draft.begin()
            home = draft.part
        told = progress or stack.enter_context(shown())
        scenarios = home / "scenarios"
        try:
            folder(scenarios)
            write_scenarios(scenarios, suite)
            came = Suite(tuple(wanted), tuple(names), tuple(given), _work(scenarios, tasks, jobs, told), home)
            if draft is not None:
                from steadycast.cases.show import write_report

                write_report(came, told)
                draft.finish(came.json())
        except BaseException:
            if draft is not None:
                draft.discard()
            raise
        return replace(came, folder=place)


def _tasks(cases: Sequence[Case], controllers: Sequence[str], seeds: Sequence[int]) -> Iterator[Task]:
    for seed in seeds:
        for case in cases:
            for controller in controllers:
                if takes_part(case, controller):
                    for place, variant in enumerate(case.variants):
                        drawn = seed == seeds[0] and place == 0
                        yield Task(case.id, variant.name, controller, seed, drawn)


def _work(
    scenarios: Path, tasks: Sequence[Task], jobs: int | None, progress: Progress
) -> dict[Task, Done | str]:
    from steadycast.workers import Workers, cores

    if not tasks:
        remedy = "leave --case out, or name another one"
        raise UserError("--case", "none of these controllers takes part in it", remedy)
    found: dict[Task, Done | str] = {}
    progress("runs", 0, len(tasks))
    try:
        with (
            Workers("steadycast.cases.work:begin", scenarios, min(jobs or cores(), len(tasks))) as workers,
            closing(workers.do(tasks)) as outcomes,
        ):
            for index, outcome in outcomes:
                task = tasks[index]
                found[task] = f"{task}: {outcome}" if isinstance(outcome, Exception) else outcome
                progress("runs", len(found), len(tasks))
    except KeyboardInterrupt as stop:
        stop.add_note(f"{len(found)} of {len(tasks)} runs were done; none is kept")
        raise
    return found
