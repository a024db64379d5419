"""A paper's experiments and their reported results, as data.

An experiment is a scenario file, a few variants of it, and the paper's statements. A variant is a named set of
changes that the paper compares. A statement is one number per seed, and a bound for the mean of these numbers.

The paper leaves some values open. A `Change` repeats the same runs with one value different, which shows whether a
statement depends on that value. A sentence of the paper may also allow another reading. Such a reading is a `Change`
that quotes the sentence, or another number taken from the same runs (`Another`). A statement is judged as printed and
with each reading, and both verdicts are kept.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

from papers.engine.quantity import DECISIONS, DRAWN, GRADES, Quantity, Term
from papers.engine.take import Take

Sets = Mapping[str, object]


class Kind(Enum):
    """How reliably a statement can be checked."""

    MEASURED = "measured"
    """The statement is checked against the paper's own numbers or claims."""
    CLIP = "clip"
    """The statement depends on a clip that is not available; a substitute is measured."""
    REPORTED = "reported"
    """Our number is measured and shown beside the paper's number, without a bound."""
    IMPOSSIBLE = "impossible"
    """The statement can't be checked, because it needs people or hardware that are no longer available."""
    CERTAIN = "by construction"
    """The statement can't fail, because it follows from arithmetic, conservation or our own definitions.

    It is shown, but not counted.
    """

    @property
    def judged(self) -> bool:
        """Whether the verdict depends on a bound."""
        return self in (Kind.MEASURED, Kind.CLIP, Kind.CERTAIN)


class Way(Enum):
    """How a change differs from the set-up."""

    PLACEBO = "placebo"
    """The same run without the event that the statement is about."""
    CHANGE = "change"
    """A difference that contradicts the paper or is newer than it: another queue discipline, or today's TCP."""
    VALUE = "value"
    """Another value for a quantity that the paper does not give, within the range that it allows."""
    READING = "reading"
    """Another reading of a sentence in the paper; the change quotes the sentence."""


class Verdict(Enum):
    """The outcome of a statement."""

    COMES_OUT = "comes out"
    FAILS = "does not come out"
    WOULD = "does not come out, but would with"
    """The bound is kept only with a change that contradicts the paper or is newer than it."""
    UNTESTED = "can't be tested this way"
    """The bound is kept without the event as well, so the event is not tested."""
    UNJUDGED = "can't be judged"
    """The seeds scatter across the bound, the flows don't load the network enough, or people or hardware are
    unavailable."""
    REPORTED = "reported"
    CERTAIN = "by construction"
    """No other outcome was possible."""

    @staticmethod
    def of(words: str) -> Verdict:
        """Return the verdict whose text `words` begins with."""
        return max((v for v in Verdict if words.startswith(v.value)), key=lambda v: len(v.value))


@dataclass(frozen=True)
class Bound:
    """A lower and an upper bound for a mean, each optional. The ends are allowed values unless `strict` is set."""

    least: float | None = None
    most: float | None = None
    strict: bool = False

    def holds(self, value: float) -> bool:
        """Whether a value is within the bound."""
        if self.strict:
            return (self.least is None or value > self.least) and (self.most is None or value < self.most)
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def decides(self, low: float, high: float) -> bool:
        """Whether either all values from `low` to `high` are within the bound, or none is."""
        if self.holds(low) or self.holds(high):
            return self.holds(low) and self.holds(high)
        below = self.least is not None and not (high > self.least if self.strict else high >= self.least)
        above = self.most is not None and not (low < self.most if self.strict else low <= self.most)
        return below or above


WITHIN = 0.15
"""Our number counts as equal to a published one if their relative difference is at most this (`about`)."""


def about(number: float) -> Bound:
    """Return the bound for a number that equals the published one within `WITHIN`."""
    low, high = sorted(((1 - WITHIN) * number, (1 + WITHIN) * number))
    return Bound(low, high)


@dataclass(frozen=True)
class Unit:
    """The format of a measured number: a factor, the number of decimals, and a suffix."""

    factor: float = 1.0
    digits: int = 2
    suffix: str = ""

    def text(self, value: float) -> str:
        """Format a number without its suffix."""
        return f"{value * self.factor:.{self.digits}f}".replace("-", "−")


UNITS = {
    "": Unit(),
    "Mb/s": Unit(1e-6, 2, " Mb/s"),
    "kb/s": Unit(1e-3, 0, " kb/s"),
    "ms": Unit(1.0, 0, " ms"),
    "s": Unit(1.0, 1, " s"),
    "%": Unit(100.0, 2, " %"),
    "points": Unit(100.0, 2, " points"),
    "frames": Unit(1.0, 0, " frames"),
    "packets": Unit(1.0, 2, " packets"),
    "dB": Unit(1.0, 1, " dB"),
    "times": Unit(1.0, 0, " times"),
    "per 100": Unit(1.0, 0, " per 100"),
    "decisions": Unit(1.0, 0, " decisions"),
    "ns/B": Unit(1e6, 0, " ns/B"),
    "/s": Unit(1.0, 1, " /s"),
    "· 10⁻⁶": Unit(1e6, 1, " · 10⁻⁶"),
}
"""Formats of measured numbers, by unit."""


@dataclass(frozen=True)
class Calculation:
    """The check of a statement by an equation or a short Monte Carlo calculation, without our simulator."""

    name: str
    title: str
    """What is calculated. The calculated number has the same unit as the statement."""
    of: Callable[[], Mapping[str, float]]

    @cached_property
    def values(self) -> Mapping[str, float]:
        """The calculated number for each of the conditions that the paper leaves open."""
        return self.of()

    def contradicts(self, bound: Bound) -> bool:
        """Whether the calculated number is outside a bound under every condition."""
        return not any(bound.holds(value) for value in self.values.values())


@dataclass(frozen=True)
class Another:
    """Another number from the same runs that the statement's words also allow."""

    name: str
    says: str
    """The paper's sentence."""
    measure: Take


@dataclass(frozen=True)
class Statement:
    """A statement of the paper, and how the statement is checked."""

    id: str
    """The statement's id, which is unique within its experiment, for example "thr-ratio"."""
    text: str
    """What is measured, in a few words."""
    says: str
    """The paper's sentence; empty if the statement comes from a table or a figure."""
    published: str
    """What the paper reports, as a number or a claim."""
    measure: Take
    """Computes the number from the runs of one seed."""
    bound: Bound = Bound()
    unit: Unit = UNITS[""]
    kind: Kind = Kind.MEASURED
    pixels: bool = False
    """Whether the statement needs decoded pictures. A statement without this flag needs only frame sizes."""
    why: str = ""
    """The mechanism behind the result, in a sentence that is true for every verdict."""
    calculation: Calculation | None = None
    """An independent calculation that the statement is compared with if our runs don't reproduce it."""
    others: tuple[Another, ...] = ()
    """Other numbers that the statement's words allow."""

    @property
    def asked(self) -> str:
        """The bound for the mean over the seeds, as text."""
        b, unit = self.bound, self.unit
        low, high = ("> ", "< ") if b.strict else ("≥ ", "≤ ")
        if b.least is not None and b.most is not None:
            return f"{unit.text(b.least)} … {unit.text(b.most)}{unit.suffix}"
        if b.least is not None:
            return f"{low}{unit.text(b.least)}{unit.suffix}"
        if b.most is not None:
            return f"{high}{unit.text(b.most)}{unit.suffix}"
        return "–"


@dataclass(frozen=True)
class Variant:
    """A run that an experiment compares."""

    name: str
    title: str
    sets: Sets
    pixels: bool = True
    sizes: bool = True
    """Whether the variant is part of the runs with frame sizes only.

    `pixels` says whether it is part of the runs with pictures.
    """
    changed: bool = True
    """Whether the variant is also run with each change."""
    scenario: str = ""
    """A scenario file to use instead of the experiment's own; empty: the experiment's own."""
    seeds: int | None = None
    """Number of seeds, counted from the first, for a variant whose runs take minutes; `None`: all seeds."""


@dataclass(frozen=True)
class Change:
    """One difference that applies to all variants.

    A change is another value for a quantity that the paper leaves open, another reading of the paper's words, or a
    difference that contradicts the paper.
    """

    name: str
    sets: Sets
    says: str = ""
    """The paper's sentence that allows this reading; empty if the paper says nothing about it."""
    networks: Mapping[str, Sets] = field(default_factory=dict)
    """Additional settings for the scenarios with these file names, because their links have different names."""
    pixels: bool = False
    """Whether the change applies to the runs with pictures, instead of the runs with frame sizes only."""
    only: tuple[str, ...] = ()
    """The ids of the statements that may be evaluated with this change. If empty, all may be."""
    variants: tuple[str, ...] = ()
    """Names of the variants that the change applies to; empty: all."""
    way: Way = Way.CHANGE
    experiments: tuple[str, ...] = ()
    """Ids of the experiments that the change applies to; empty: all."""

    def concerns(self, statement: Statement) -> bool:
        """Whether a statement may be evaluated with this change."""
        return not self.only or statement.id in self.only

    def sets_in(self, scenario: Path) -> Sets:
        """Return the settings for one scenario."""
        return {**self.sets, **self.networks.get(scenario.name, {})}


@dataclass(frozen=True)
class World:
    """The joint setting of a paper: the values and readings that its words allow, and with which most statements hold.

    In tables and settings it is called "joint setting".
    """

    takes: tuple[str, ...]
    """Names of the values and readings that differ from the set-up."""
    why: str


DRAWINGS = (
    *("rates", "delay", "cj", "ji", "psnr", "sizes", "mos", "sweep", "series", "ranks"),
    *("psnr by index", "mos by index", "ladder"),
)
"""The kinds of figures that can be drawn."""


@dataclass(frozen=True)
class Curve:
    """A line of a figure whose x axis is a quantity that differs between variants."""

    label: str
    points: tuple[tuple[float, str], ...]
    """Pairs of the quantity's value and the name of the variant that was run with it."""
    measure: Quantity
    scale: float = 1.0
    """Factor by which a measured number is multiplied before it is drawn."""


@dataclass(frozen=True)
class Line:
    """A line of a figure whose x axis is time."""

    label: str
    variant: str
    flow: str
    series: str
    receiver: str = ""
    """Name of the receiver; empty: the flow's first."""


@dataclass(frozen=True)
class Figure:
    """A figure of the paper, drawn from our runs on the axes that its text describes."""

    number: str
    """The paper's number of the figure, for example "Figure 3"."""
    title: str
    kind: str
    """The kind of the figure, one of `DRAWINGS`."""
    variants: tuple[str, ...]
    pixels: bool = False
    marks: tuple[tuple[float, str], ...] = ()
    """Horizontal lines, each with its value on the y axis and its name."""
    curves: tuple[Curve, ...] = ()
    """The lines of a figure of kind "sweep"."""
    axes: tuple[str, str] = ("", "")
    """Labels of the x and y axis of a sweep."""
    log: bool = False
    """Whether the x axis of a sweep is logarithmic."""
    top: float = 4.2
    """Upper end of the axis of rates, in Mb/s."""
    lines: tuple[Line, ...] = ()
    """The lines of a figure of kind "series"; lines with the same unit share a panel."""
    apart: bool = False
    """Whether each line of a series has its own panel."""
    until: float | None = None
    """End of the time axis of a series in seconds; `None`: the end of the run."""
    ranks: tuple[tuple[str, str, str], ...] = ()
    """Each item is a controller, the id of the statement by which it is ranked, and what the paper says about it."""
    differs: str = ""
    """Features of the paper's figure that our figure does not show, with the reason; empty if none is known.

    They are known from the paper's text.
    """


@dataclass(frozen=True)
class Cell:
    """A cell of a paper's table."""

    published: str
    measure: Take | None = None
    """Computes our number for this cell."""
    unit: Unit = UNITS[""]
    ours: str = ""
    """The text that is shown as our value if no run has a number for this cell."""
    statement: str = ""
    """Id of the statement whose number is shown in this cell."""


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper, cell by cell."""

    number: str
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...] = ()
    made: str = ""
    """Key of `tables.MADE`, whose function computes the rows if no run has them."""


@dataclass(frozen=True)
class RealTime:
    """The part of an experiment that is run in real time: its emulated form."""

    sets: Sets
    """Settings that make the run short enough for real time."""
    seeds: int = 1
    """Number of seeds, which are repetitions of the emulated run."""
    changes: tuple[Change, ...] = ()
    """Changes that apply to the emulated runs, in place of the experiment's changes."""
    pictures: Sets | None = None
    """Settings for one additional run with the user's clip; `None` if the experiment has no such run."""
    statements: tuple[Statement, ...] = ()
    """Statements about the run with the user's clip. They replace the experiment's statements."""


@dataclass(frozen=True)
class Experiment:
    """One experiment of a paper."""

    id: str
    title: str
    paper: str
    section: str
    scenario: Path
    variants: tuple[Variant, ...]
    statements: tuple[Statement, ...]
    changes: tuple[Change, ...] = ()
    """Changes that contradict the paper or are newer than it."""
    alternatives: tuple[Change, ...] = ()
    """Other values that the paper allows in the experiment's scenarios."""
    placebos: tuple[Change, ...] = ()
    """Changes that remove the event from the runs; each applies to the statements in its `only`."""
    world: World | None = None
    """The joint setting of the experiment's paper; `None` if the paper has none."""
    figures: tuple[Figure, ...] = ()
    tables: tuple[PaperTable, ...] = ()
    """The tables of the paper whose numbers come from this experiment."""
    sizes: Sets | None = None
    """Settings for a run with frame sizes only; `None` if the experiment always needs pictures."""
    ladder: str = "Table 2's ladder, no pictures"
    """Description of the frame sizes that runs without pictures use."""
    source: str = ""
    """Description of the video source if it is neither a clip nor a ladder. The experiment then has no other medium."""
    drawn: bool = False
    """Whether runs with pictures use the synthetic film even if the user gives clips."""
    notes: tuple[str, ...] = ()
    real_time: RealTime | None = None
    """How the experiment is emulated; `None` if it is only simulated."""
    seconds: float = 0.0
    """CPU time of the whole experiment with five seeds, in core-seconds; 0 if it was not measured."""

    @property
    def tried(self) -> tuple[Change, ...]:
        """All changes with which the experiment's runs are repeated."""
        return (*self.alternatives, *self.changes, *self.placebos)

    @property
    def in_world(self) -> tuple[Change, ...]:
        """The changes that belong to the paper's joint setting."""
        taken = self.world.takes if self.world is not None else ()
        return tuple(c for c in self.alternatives if c.name in taken)

    def scenario_of(self, variant: Variant) -> Path:
        """Return the scenario file of a variant."""
        return self.scenario.with_name(variant.scenario) if variant.scenario else self.scenario

    def has(self, change: Change) -> bool:
        """Whether a change sets something in the scenario of at least one variant."""
        return (not change.experiments or self.id in change.experiments) and any(
            change.sets_in(self.scenario_of(v)) for v in self.variants
        )

    @property
    def grades(self) -> bool:
        """Whether any result needs scores relative to the encoded pictures, or compares frames by index."""
        return any(q.name in GRADES for q in self._quantities()) or any(
            "by index" in f.kind for f in self.figures
        )

    @property
    def jitters(self) -> bool:
        """Whether a statement or a figure needs RFC 3550's jitter.

        It is the only number that needs a record of each packet.
        """
        return any("jitter" in str(arg) for q in self._quantities() for arg in q.args) or any(
            line.series == "jitters" for f in self.figures for line in f.lines
        )

    @property
    def decides(self) -> bool:
        """Whether a statement or a figure needs each decision of the sender."""
        return any(q.name in DECISIONS for q in self._quantities()) or any(
            line.series == "p" for f in self.figures for line in f.lines
        )

    def _quantities(self) -> Iterator[Quantity]:
        takes = (t for s in self.statements for t in (s.measure, *(o.measure for o in s.others)))
        return (part.quantity for t in takes for row in t.rows for part in row if isinstance(part, Term))

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Yield each undefined name and each name that is defined twice, with a remedy."""
        forms = self.real_time
        lists = (
            ("statement", [s.id for s in self.statements]),
            ("variant", [v.name for v in self.variants]),
            ("change", [c.name for c in self.tried]),
            ("figure", [f.number for f in self.figures]),
            ("real_time.statement", [s.id for s in forms.statements] if forms else []),
        )
        for what, names in lists:
            for name in dict.fromkeys(n for n in names if names.count(n) > 1):
                yield f'{what} "{name}" stands twice', "give each a name of its own"
        variants, statements = [v.name for v in self.variants], [s.id for s in self.statements]
        figures = [(f"figure {f.number}", f) for f in self.figures]
        named = (
            *((where, "variant", used, variants) for where, used in self._named_variants()),
            *((f"change {c.name}", "statement", c.only, statements) for c in (*self.changes, *self.placebos)),
            *((where, "statement", [id for _, id, _ in f.ranks], statements) for where, f in figures),
            *(
                (f"table {t.number}", "statement", [c.statement for c in row if c.statement], statements)
                for t in self.tables
                for row in t.rows
            ),
            *((where, "drawing", [f.kind], DRAWINGS) for where, f in figures),
            *((where, "series", [line.series for line in f.lines], DRAWN) for where, f in figures),
        )
        for where, what, used, known in named:
            for name in used:
                if name not in known:
                    yield f'{where}: there is no {what} "{name}"', f"there are: {', '.join(known)}"
        for s in self.statements:
            if s.kind is not Kind.IMPOSSIBLE and not any(m.tells(self, s) for m in media_of(self, ())):
                yield (
                    f"statement {s.id}: no medium has all its variants",
                    "let them be run with the same medium",
                )

    def _named_variants(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        forms = self.real_time
        for s in (*self.statements, *(forms.statements if forms else ())):
            for measure in (s.measure, *(other.measure for other in s.others)):
                yield f"statement {s.id}", measure.variants
        for c in (*self.changes, *self.placebos, *(forms.changes if forms else ())):
            yield f"change {c.name}", c.variants
        for f in self.figures:
            yield f"figure {f.number}", f.variants
            for each in f.curves:
                yield f"figure {f.number}, {each.label}", tuple(name for _, name in each.points)


@dataclass(frozen=True)
class Medium:
    """The video flow's media."""

    name: str
    """"table2" (frame sizes only), "source", "synthetic", "clip" or "pictures" (a clip for the paper's rates)."""
    label: str
    sets: Sets
    pixels: bool

    def variants(self, experiment: Experiment) -> list[Variant]:
        """Return the variants that are run with this medium."""
        return [v for v in experiment.variants if (v.pixels if self.pixels else v.sizes)]

    def statements(self, experiment: Experiment) -> list[Statement]:
        """Return the statements that are measured with this medium."""
        if not self.pixels:
            return [s for s in experiment.statements if not s.pixels]
        return [s for s in experiment.statements if s.pixels or experiment.sizes is None]

    def tells(self, experiment: Experiment, statement: Statement) -> bool:
        """Whether the statement is about this medium, and all its variants are run with this medium."""
        there = {v.name for v in self.variants(experiment)}
        return statement in self.statements(experiment) and there >= set(statement.measure.variants)


def media_of(experiment: Experiment, clips: tuple[Path, ...]) -> list[Medium]:
    """Return the media of an experiment.

    These are frame sizes, and, if the experiment needs pictures, the user's clips or the synthetic film.
    """
    if experiment.source:
        return [Medium("source", experiment.source, {}, pixels=False)]
    media = []
    if experiment.sizes is not None:
        media.append(Medium("table2", experiment.ladder, experiment.sizes, pixels=False))
    if any(s.pixels for s in experiment.statements):
        drawn = Medium("synthetic", "synthetic clip", {"flow.video.media": "synthetic"}, pixels=True)
        media.append(_clip(clips, {}, experiment.scenario) if clips and not experiment.drawn else drawn)
    return media


def in_real_time(experiment: Experiment, clips: tuple[Path, ...]) -> list[tuple[Experiment, Medium, int]]:
    """Return the emulated form of an experiment: for each medium, the experiment and the number of seeds."""
    form = experiment.real_time
    if form is None:
        return []
    plain = replace(experiment, changes=form.changes, alternatives=(), placebos=(), world=None)
    forms = [(plain, replace(m, sets={**m.sets, **form.sets}), form.seeds) for m in media_of(plain, ())]
    if clips and form.pictures is not None:
        seen = replace(plain, statements=form.statements)
        medium = replace(_clip(clips, {**form.sets, **form.pictures}, experiment.scenario), name="pictures")
        forms.append((seen, medium, 1))
    return forms


_ENCODED: Sets = {"size": "cif", "fps": 25}
"""Frame size and frame rate of the papers' clips, used if the scenario gives none.

A user's clip keeps its own size and rate.
"""


def _clip(clips: tuple[Path, ...], sets: Sets, scenario: Path) -> Medium:
    flows = tomllib.loads(scenario.read_text(encoding="utf-8"))["flow"]
    said: Sets = next((flow.get("encode", {}) for flow in flows if flow["name"] == "video"), {})
    assumed = {f"flow.video.encode.{key}": value for key, value in _ENCODED.items() if key not in said}
    names = ", ".join(clip.name for clip in clips)
    if len(clips) > 3:
        names = f"{clips[0].name} to {clips[-1].name}, {len(clips)} files"
    sent: dict[str, Any] = {
        "flow.video.media": "clip",
        "flow.video.clip": [str(clip.resolve()) for clip in clips],
    }
    return Medium("clip", f"clip ({names})", {**assumed, **sets, **sent}, pixels=True)
