"""Executes one request of the lab's page in a worker process: a run, a film or a report."""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadycast import record, style, units
from steadycast.core import core
from steadycast.errors import UserError
from steadycast.folder import Folder, Json, number
from steadycast.lab import text as scenario_text
from steadycast.lab.watch import why
from steadycast.lazy_import import pl
from steadycast.media.prepare import MediaKept
from steadycast.progress import Progress
from steadycast.report import choice, say, series
from steadycast.report.answer import answer, counted, title
from steadycast.report.rank import alike, ranked_receivers
from steadycast.report.terminal import heading
from steadycast.result import Held, Run
from steadycast.run_pipeline import Keep, Plan, Ready, conduct

_KEPT = 2
"""The number of flows whose media, including pictures, a process keeps in memory."""
_MOST_SCORES = 200_000
"""The number of picture scores per clip that a process keeps. It is enough for about a hundred runs."""
_MOST_ROWS = 4000
"""The largest number of decisions, and of frames per receiver, that are sent to the page."""
_MOST_STEPS = 1500
"""The largest number of steps of a series. Longer runs have a longer recording interval."""
_FATES = ("ok", *style.FATE)


class CancelledError(Exception):
    """The page has sent a newer request, which replaces this one."""


@dataclass(frozen=True)
class Setup:
    """The settings that the worker processes share."""

    board: Path
    clips: Path | None


@dataclass(frozen=True)
class Task:
    """A request of the page for a worker process."""

    what: str
    """What is requested: "run", "film" or "report"."""
    base: scenario_text.Base
    text: str
    sets: tuple[str, ...]
    others: tuple[tuple[str, ...], ...]
    """The changes for each further run. The film shows these runs beside the run with the changes ``sets``."""
    place: int
    """The place of the browser tab on the `Board`."""
    ticket: int
    pictures: bool = False
    receiver: str | None = None
    kind: str = "mp4"


class Board:
    """Memory that the server and the workers share.

    It has one place for the runs of each tab, and one for the tab's films and reports. A place contains the number of
    the newest request (the ticket), and the progress of this request.
    """

    PLACES = 128
    _SIZE = 96
    _TEXT = 64

    def __init__(self, file: Path) -> None:
        if not file.exists():
            file.write_bytes(bytes(self.PLACES * self._SIZE))
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), self.PLACES * self._SIZE)

    def newest(self, place: int) -> int:
        """Return the newest ticket of a place."""
        return int.from_bytes(self._map[place * self._SIZE : place * self._SIZE + 8], "little")

    def next(self, place: int) -> int:
        """Issue a new ticket for a place. This ends the work on older tickets of the place."""
        ticket = self.newest(place) + 1
        start = place * self._SIZE
        self._map[start : start + self._SIZE] = ticket.to_bytes(8, "little").ljust(self._SIZE, b"\0")
        return ticket

    def tell(self, place: int, ticket: int, what: str, done: int, of: int) -> None:
        """Write the progress of the work on a ticket."""
        start = place * self._SIZE + 8
        told = b"".join(min(each, 2**31).to_bytes(8, "little") for each in (ticket, done, of))
        self._map[start : start + 24 + self._TEXT] = told + what.encode()[: self._TEXT].ljust(
            self._TEXT, b"\0"
        )

    def told(self, place: int) -> tuple[str, int, int]:
        """Return the progress of the newest ticket: a description, the number of finished parts, and their total."""
        start = place * self._SIZE + 8
        part = self._map[start : start + 24 + self._TEXT]
        ticket, done, of = (int.from_bytes(part[at : at + 8], "little") for at in (0, 8, 16))
        # Ignore the progress of an older ticket. Its worker has not noticed yet that it was cancelled.
        if ticket != self.newest(place):
            return "", 0, 0
        # Ignore errors, because the text may be cut inside a character.
        return part[24:].rstrip(b"\0").decode(errors="ignore"), done, of

    def over(self, place: int, ticket: int) -> None:
        """Clear the progress of a ticket whose work has ended. Do nothing if there is a newer ticket."""
        if self.newest(place) == ticket:
            self.tell(place, ticket, "", 0, 0)


def begin(setup: Setup) -> Callable[[Task], bytes]:
    """Return a function that executes tasks. It returns a run as JSON, the bytes of a film, or the HTML of a report."""
    board = Board(setup.board)
    kept = MediaKept(_KEPT)

    def made(task: Task, sets: Sequence[str], pictures: bool) -> Done:
        """Run the page's scenario without writing a record. A newer request cancels the run."""

        def told(what: str, done: int, of: int) -> None:
            if board.newest(task.place) != task.ticket:
                raise CancelledError
            board.tell(task.place, task.ticket, what, done, of)

        def media(video: Mapping[str, Any], seed: int, progress: Progress | None) -> Any:
            found = kept.of(video, seed, progress)
            scores = getattr(found, "scores", {})
            # Limit the number of scores. The scores of all settings that a user tries would fill the memory.
            if len(scores) > _MOST_SCORES:
                scores.clear()
            return found

        loaded = _loaded(task, setup.clips, sets)
        kept.most = max(_KEPT, len(loaded.videos()))
        plan = Plan.of(loaded, str(task.base.place), task.base.place.parent)
        told("starting", 0, 1)
        ready = Ready.of(plan, told, made=media)
        return Done(ready, conduct(ready, told, Keep(quality=pictures)), told)

    def one(task: Task) -> bytes:
        if task.what == "film":
            return _film(task, [made(task, sets, False) for sets in (task.sets, *task.others)])
        done = made(task, task.sets, task.pictures)
        if task.what == "report":
            done.told("drawing the report", 0, 1)
            return done.run.report().read_bytes()
        pixels = any(each["media"] in ("clip", "synthetic") for each in done.ready.plan.loaded.videos())
        content = {"pixels": pixels, **shown(done.run)}
        return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()

    return one


@dataclass(frozen=True)
class Done:
    """A finished run that the page has requested."""

    ready: Ready
    run: Run
    told: Progress


def _loaded(task: Task, clips: Path | None, sets: Sequence[str]) -> core.Scenario:
    """Load the scenario from the page's text. Give a long run a longer recording interval."""
    tree, loaded = scenario_text.checked(task.base, task.text, clips, sets)
    interval = units.read((tree.get("record") or {}).get("interval"), units.SPAN) or 1.0
    if loaded.duration_s / interval > _MOST_STEPS:
        stretched = f"record.interval={math.ceil(loaded.duration_s / _MOST_STEPS * 1000)}ms"
        _, loaded = scenario_text.checked(task.base, task.text, clips, [*sets, stretched])
    return loaded


def _film(task: Task, runs: Sequence[Done]) -> bytes:
    from steadycast.film import film
    from steadycast.viewing import FRAMES, MISSING, Record, Rows

    viewers = []
    for done in runs:
        ladders, tables = done.ready.ladders, done.run.tables
        flow = next((f for f in done.run.summary["flows"] if f["name"] in ladders), None)
        if flow is None:
            raise UserError(
                "film", "no video of this scenario has pixels", 'choose media "synthetic" or a clip'
            )
        frames = Rows.of_core(tables["frames"].columns, FRAMES)
        missing = Rows.of_core(tables["missing"].columns, MISSING)
        found = Record(done.ready.plan.loaded.videos(), ladders, frames, missing)
        names = [receiver["name"] for receiver in flow["receivers"]]
        name = str(task.receiver) if task.receiver in names else ranked_receivers(flow)[0]["name"]
        viewer = found.viewer(flow["name"], name)
        if viewer is None:
            raise UserError("film", "no frame of this video was recorded", "run it for longer")
        viewers.append(viewer)
    told = runs[0].told
    made = film(viewers, task.kind, lambda at, of: told("filming", at, of))
    assert made is not None  # `film` returns `None` only if there is a size limit
    return made


def shown(run: Run) -> Json:
    """Return the page's content for a run as plain values."""
    held = run.held()
    summary = run.summary
    assert isinstance(held, Held)
    return {
        "to_s": summary["to_s"],
        "from_s": summary["from_s"],
        "cpu_s": _short(run.cost["cpu_s"]),
        "says": answer(summary),
        "judged": choice.judged(summary),
        "warnings": summary["warnings"],
        "expect": summary["expect"],
        "numbers": _numbers(summary),
        "charts": {
            "rates": _rates(held),
            "delay": _lines(held, "delay_ms"),
            "queue": _queues(held),
            "loss": _lines(held, "loss_frac", 100.0),
        },
        "events": [[t, what] for t, what in series.events.__wrapped__(held)],
        "decisions": _decisions(held),
        "strips": _strips(held),
    }


def _short(value: object) -> float | None:
    known = number(value)
    return None if known is None or not math.isfinite(known) else float(f"{known:.5g}")


def _numbers(summary: Json) -> Json:
    columns = record.table("terminal")
    rows = []
    for flow, look in zip(summary["flows"], style.looks(summary["flows"]), strict=True):
        cells = say.flow_cells(columns, flow)
        rows.append({"flow": flow["name"], "title": counted(flow), "cells": cells, "colour": look.colour})
    return {"heads": [[heading(column), column.figure.about] for column in columns], "rows": rows}


def _lines(folder: Folder, column: str, times: float = 1.0) -> list[Json]:
    lines = series.grouped(series.series(folder, column))
    found = []
    for one, look in zip(lines, style.looks([one.flow for one in lines]), strict=True):
        y = [None if v != v else _short(v * times) for v in one.mid]
        found.append(
            {
                "flow": one.flow["name"],
                "label": one.label.replace("\n", ", "),
                "colour": look.colour,
                "t": [_short(t) for t in one.t],
                "y": y,
            }
        )
    return found


def _rates(folder: Folder) -> Json:
    limit = series.capacity(folder)
    return {
        "lines": _lines(folder, "throughput_bps"),
        "capacity": None
        if limit is None
        else {"name": limit[0], "t": [_short(t) for t in limit[1]], "y": [_short(v) for v in limit[2]]},
        "shares": [[_short(value), whose] for value, whose in series.fair_shares(folder.summary)],
    }


def _queues(folder: Folder) -> list[Json]:
    links = folder.table("links")
    ranked = (
        links.group_by("link", "direction", maintain_order=True)
        .agg(pl.col("queue_ms").max())
        .filter((pl.col("queue_ms") > 1.0) & (pl.col("queue_ms") > 0.05 * pl.col("queue_ms").max()))
        .sort("queue_ms", descending=True)
        .head(2)
    )
    step = series.interval(links)
    found: list[Json] = []
    for link, direction in ranked.select("link", "direction").iter_rows():
        mine = links.filter((pl.col("link") == link) & (pl.col("direction") == direction)).sort("t_s")
        found.append(
            {
                "flow": f"{link} {direction}",
                "label": say.link(link, direction),
                "colour": style.INK if not found else "#0072b2",
                "t": [_short(t + step / 2) for t in mine["t_s"]],
                "y": [_short(v) for v in mine["queue_ms"]],
            }
        )
    return found


def _decisions(folder: Folder) -> list[Json]:
    from steadycast.report.figures import decided

    rows = decided(folder)
    found = []
    for flow in folder.summary["flows"]:
        mine = rows.filter(pl.col("flow") == flow["name"])
        if not mine.height:
            continue
        mine = mine.gather_every(math.ceil(mine.height / _MOST_ROWS))
        found.append(
            {
                "flow": flow["name"],
                "title": title(flow),
                "t": [_short(t) for t in mine["t_s"]],
                "target": [say.rate(v) for v in mine["target_bps"]],
                "why": [why(*row) for row in mine.select("rule", "loss", "rtt_ms").iter_rows()],
                "limit": mine["limit"].to_list(),
                "by": mine["by"].to_list(),
            }
        )
    return found


def _strips(folder: Folder) -> list[Json]:
    frames = folder.table("frames").sort("display")
    found = []
    for flow in folder.summary["flows"]:
        order = ranked_receivers(flow) if flow.get("kind") == "video" else []
        if not order:
            continue
        wanted = (
            {"": order[0]}
            if len(order) == 1 or alike(order)
            else {"worst": order[0], "median": order[len(order) // 2]}
        )
        for place, receiver in wanted.items():
            mine = frames.filter((pl.col("flow") == flow["name"]) & (pl.col("node") == receiver["name"]))
            if not mine.height:
                continue
            mine = mine.gather_every(math.ceil(mine.height / _MOST_ROWS))
            found.append(
                {
                    "flow": flow["name"],
                    "receiver": receiver["name"],
                    "label": " ".join(filter(None, [place, receiver["name"]]))
                    + (f" ({len(order)} alike)" if len(order) > 1 and not place else ""),
                    "t": [_short(t) for t in mine["pts_s"]],
                    "fate": [_FATES.index(f) if f in _FATES else 0 for f in mine["fate"].fill_null("ok")],
                    "q": mine["q"].to_list(),
                    "kind": "".join((k or "?")[:1] for k in mine["kind"]),
                    "psnr": [_short(v) for v in mine["psnr_y_db"]],
                    "mos": mine["mos"].to_list(),
                }
            )
    return found
