"""A run and its record, held in memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast.folder import SOMETIMES, Draft, Folder, Json
from steadycast.lazy_import import pl

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

    from steadycast.report.canvas import Drawing
    from steadycast.table import Table


class Figures(dict[str, Any]):
    """The figures of a flow, a link or a receiver.

    A figure can be read as an attribute or by its key. An element of a list is found by its name:

    run.flows["video"].receivers["viewer"].psnr_db.raw.y
    """

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"there is no figure {name!r}: there are {', '.join(self)}")
        found = self[name]
        if isinstance(found, list) and all(isinstance(each, dict) and "name" in each for each in found):
            return ByName((each["name"], Figures(each)) for each in found)
        return Figures(found) if isinstance(found, dict) else found

    @property
    def score(self) -> float | None:
        """The picture score of a receiver, or for a flow, of its median receiver.

        If the pictures were not measured, it is the rate score. docs/viewing-score.md defines both scores.
        """
        from steadycast import record

        thing = self if "receivers" in self else {"receivers": [self]}
        seen = record.of_flow(thing, "picture_score")
        return record.of_flow(thing, "rate_score") if seen is None else seen

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]


class ByName(dict[str, Figures]):
    """The figures of flows, links or receivers. The keys are their names."""

    def __missing__(self, name: str) -> Figures:
        raise KeyError(f"there is no {name!r}: there are {', '.join(self)}")


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A run and its record. The record consists of the summary and the tables."""

    summary: Json
    """The content of summary.json."""
    cost: Json
    """The content of cost.json: processor time, wall-clock time and memory."""
    tables: dict[str, Table]
    """The tables of the record. The keys are their names."""
    scenario: str
    """The scenario as TOML. Defaults are written out."""
    folder: Path | None = None
    """The folder of the run, or `None` if no folder was written."""
    captures: dict[str, Path] = field(default_factory=dict)
    """The pcapng files of links whose packets were captured. The keys are the names of the links."""
    film: tuple[Json, bytes] | None = None
    """Film of the worst ten seconds, or `None` if there is no film.

    The first value describes it, the second is the film in WebM.
    """
    _scratch: TemporaryDirectory[str] | None = None
    """Temporary folder for files of the run. It is deleted together with this object."""

    def table(self, name: str) -> Table:
        """Return the table that has this name.

        The tables are rates, decisions, frames, missing, audio, links, tcp, moves, packets and wire.
        """
        if name not in self.tables:
            raise KeyError(f"no table {name!r}: there are {', '.join(self.tables)}")
        return self.tables[name]

    @property
    def flows(self) -> ByName:
        """The figures of each flow. The keys are the names of flows: ``run.flows["video"].throughput_bps``."""
        return ByName((flow["name"], Figures(flow)) for flow in self.summary["flows"])

    @property
    def rates(self) -> Table:
        """Throughput, loss and delay in each interval."""
        return self.table("rates")

    @property
    def frames(self) -> Table:
        """Arrival, delay and quality of each frame at each receiver."""
        return self.table("frames")

    @property
    def decisions(self) -> Table:
        """The decisions of the controllers, each with its reason."""
        return self.table("decisions")

    @property
    def links(self) -> Table:
        """Load, queue and drops of each link in each interval."""
        return self.table("links")

    @property
    def tcp(self) -> Table:
        """Window, threshold and RTT of each TCP flow in each interval."""
        return self.table("tcp")

    @property
    def moves(self) -> Table:
        """When simulcast receivers moved from one group to another, and why."""
        return self.table("moves")

    @property
    def packets(self) -> Table:
        """One row for each packet. Only flows are included whose packets the scenario records."""
        return self.table("packets")

    def save(self, path: Path | str, *, force: bool = False) -> Path:
        """Write the folder of the run, and return the folder's path.

        Raises:
            UserError: the folder can't be written, or it exists and ``force`` is not given.

        """
        with Draft(path, force=force) as draft:
            for name, file in self.captures.items():
                draft.copy(f"pcap/{name}.pcapng", file)
            self.fill(draft)
            return draft.finish(self.summary)

    def report(self) -> Path:
        """Write report.html, and return its path.

        The report is in the run's folder. If there is none, it is in a temporary folder, which is deleted together with
        this object.
        """
        from tempfile import TemporaryDirectory

        from steadycast.report.page import write_report

        if self.folder is not None:
            return write_report(self.folder)
        scratch = self._scratch
        if scratch is None:
            scratch = TemporaryDirectory(prefix="steadycast-")
            object.__setattr__(self, "_scratch", scratch)
        return write_report(self.save(Path(scratch.name) / "run", force=True))

    def plot(self, name: str = "rates") -> Drawing:
        """Draw a figure of the report: rates, delay, mos, quality, why, queue or tcp. A notebook shows it.

        Raises:
            UserError: there is no figure that has this name, or the run has no data for it.

        """
        from steadycast.report.figures import drawing

        return drawing(self.held(), name)

    def held(self) -> Folder:
        """Return this run as a `Folder`, for reports and figures. No files are written."""
        return Held(self.folder or Path(str(self.summary["scenario"]["name"])), self.summary, self)

    def fill(self, draft: Draft) -> None:
        """Write all files of the run except the summary into an unfinished folder."""
        self.fill_tables(draft)
        self.fill_rest(draft)

    def fill_rest(self, draft: Draft) -> None:
        """Write the cost and the film into an unfinished folder."""
        draft.json("cost.json", self.cost)
        if self.film is not None:
            draft.film(*self.film)

    def fill_tables(self, draft: Draft) -> None:
        """Write the scenario and the tables into an unfinished folder. All figures are drawn from these data."""
        draft.text("scenario.toml", self.scenario)
        for name, table in self.tables.items():
            if len(table) or name not in SOMETIMES:
                draft.table(name, table.to_polars())

    def __repr__(self) -> str:
        caption, rows = self._flows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        return "\n".join([f"Run of {caption}", *lines])

    def _repr_html_(self) -> str:
        from base64 import b64encode

        from steadycast.report.canvas import drawn
        from steadycast.report.figures import draw_rates
        from steadycast.report.markup import element
        from steadycast.report.page import table

        caption, (heads, *rows) = self._flows()
        shown = element("p", caption) + table(heads, rows)
        figure = drawn(lambda: draw_rates(self.held()))
        if figure is None:
            return shown
        # Use an image instead of inline SVG. Inline drawings of a notebook would share the ids of their elements.
        code = b64encode(figure._repr_svg_().encode()).decode()
        return f'{shown}<img alt="throughput over time" src="data:image/svg+xml;base64,{code}">'

    def _flows(self) -> tuple[str, list[tuple[str, ...]]]:
        from steadycast import record
        from steadycast.report import say
        from steadycast.report.answer import title
        from steadycast.report.terminal import heading

        columns = record.table("terminal")
        heads = ("flow", *(heading(column) for column in columns))
        rows = [(title(flow), *say.flow_cells(columns, flow)) for flow in self.summary["flows"]]
        caption = str(self.summary["scenario"]["name"]) + (
            "" if self.summary["complete"] else " (interrupted)"
        )
        return caption, [heads, *rows]


def moved(run: Run, folder: Path) -> Run:
    """Return a run whose paths are in ``folder``, which is the new name of the run's folder."""
    captures = {name: folder / "pcap" / path.name for name, path in run.captures.items()}
    return replace(run, folder=folder, captures=captures)


@dataclass(frozen=True, eq=False)
class Held(Folder):
    """A run in memory that has the interface of a run folder."""

    run: Run

    @property
    def scenario_text(self) -> str:
        """The scenario as TOML. Defaults are written out."""
        return self.run.scenario

    @property
    def film(self) -> tuple[Json, bytes] | None:
        """Film of the worst ten seconds: its description, and the film in WebM."""
        return self.run.film

    def has(self, name: str) -> bool:
        """Whether a run folder would contain the table that has this name."""
        return name in self.run.tables and (name not in SOMETIMES or self.table(name).height > 0)

    def table(self, name: str) -> pl.DataFrame:
        """Return the table that has this name."""
        return self.run.table(name).frame
