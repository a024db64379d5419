"""A paper's experiments and their reported results as data: experiments, their runs, their statements.

An experiment is a scenario file, a few variants of it (the named changes that the paper compares) and the paper's
statements about them. A statement is one number per seed and a bound that its mean must keep. What the paper left open
is a `Change`: the same runs with one thing different, which shows on what a statement depends. Where the paper's words
allow another reading, that is a change which quotes them, or another number of the same runs (`Another`). A statement
is judged as printed and by each reading, and both verdicts stay.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

from papers.engine.quantity import DRAWN, GRADES, Quantity, Term
from papers.engine.take import Take

Sets = Mapping[str, object]


class Kind(Enum):
    """The strength with which a statement can be checked."""

    MEASURED = "measured"
    """From the paper's own numbers or claims."""
    CLIP = "clip"
    """Depends on a clip that is not to be had: a substitute is measured."""
    REPORTED = "reported"
    """Measured and shown beside the paper's; no bound."""
    IMPOSSIBLE = "impossible"
    """People or hardware that nobody can bring back."""
    CERTAIN = "by construction"
    """Cannot fail: it follows from arithmetic, conservation or our own definitions. Shown, and not counted."""

    @property
    def judged(self) -> bool:
        """Whether a bound decides."""
        return self in (Kind.MEASURED, Kind.CLIP, Kind.CERTAIN)


class Way(Enum):
    """How a change differs from the set-up."""

    PLACEBO = "placebo"
    """The same run without its event."""
    CHANGE = "change"
    """Something that is none of the paper's words, or later than it: another queue discipline, today's TCP."""
    VALUE = "value"
    """Another value of something that the paper does not tell, in the range that it allows."""
    READING = "reading"
    """Another sense of the paper's sentence, which it quotes."""


class Verdict(Enum):
    """The outcome of a statement."""

    COMES_OUT = "comes out"
    FAILS = "does not come out"
    WOULD = "does not come out, but would with"
    """With something that is none of the paper's words, or later than it."""
    UNTESTED = "can't be tested this way"
    """The bound is kept without the event as well."""
    UNJUDGED = "can't be judged"
    """The seeds scatter across the bound, the runs ask too little, or people and hardware are lost."""
    REPORTED = "reported"
    CERTAIN = "by construction"
    """It could not have come out otherwise."""

    @staticmethod
    def of(words: str) -> Verdict:
        """Return the verdict that is said in words, which begin with its name."""
        return max((v for v in Verdict if words.startswith(v.value)), key=lambda v: len(v.value))


@dataclass(frozen=True)
class Bound:
    """Two-sided bound of a mean, either side of which may be missing; both ends belong to it unless `strict`."""

    least: float | None = None
    most: float | None = None
    strict: bool = False

    def holds(self, value: float) -> bool:
        """Whether a value keeps it."""
        if self.strict:
            return (self.least is None or value > self.least) and (self.most is None or value < self.most)
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def decides(self, low: float, high: float) -> bool:
        """Whether all values from `low` to `high` keep it, or none does."""
        if self.holds(low) or self.holds(high):
            return self.holds(low) and self.holds(high)
        below = self.least is not None and not (high > self.least if self.strict else high >= self.least)
        above = self.most is not None and not (low < self.most if self.strict else low <= self.most)
        return below or above


WITHIN = 0.15
"""Share of a published number within which ours is taken as the same (`about`)."""


def about(number: float) -> Bound:
    """Return the bound of a published number."""
    low, high = sorted(((1 - WITHIN) * number, (1 + WITHIN) * number))
    return Bound(low, high)


@dataclass(frozen=True)
class Unit:
    """The format of a measured number: a factor, decimals, a suffix."""

    factor: float = 1.0
    digits: int = 2
    suffix: str = ""

    def text(self, value: float) -> str:
        """Write a number without its suffix."""
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
"""How measured numbers are written, by their units."""


@dataclass(frozen=True)
class Calculation:
    """The check of a statement by an equation or a short Monte Carlo calculation, without our simulator."""

    name: str
    title: str
    """What is calculated, in the statement's unit."""
    of: Callable[[], Mapping[str, float]]

    @cached_property
    def values(self) -> Mapping[str, float]:
        """The number, by the conditions that the paper leaves open."""
        return self.of()

    def contradicts(self, bound: Bound) -> bool:
        """Whether no condition keeps a bound."""
        return not any(bound.holds(value) for value in self.values.values())


@dataclass(frozen=True)
class Another:
    """Another number that a statement's words allow, of the same runs."""

    name: str
    says: str
    """The paper's sentence."""
    measure: Take


@dataclass(frozen=True)
class Statement:
    """Something a paper says, and how it is checked."""

    id: str
    """Unique in its experiment: "thr-ratio"."""
    text: str
    """What is measured, in a few words."""
    says: str
    """The paper's sentence; empty: a table or a figure says it."""
    published: str
    """What the paper says, a number or a claim."""
    measure: Take
    """The number, from one seed's runs."""
    bound: Bound = Bound()
    unit: Unit = UNITS[""]
    kind: Kind = Kind.MEASURED
    pixels: bool = False
    """Whether the statement needs decoded pictures. A statement without this flag needs only frame sizes."""
    why: str = ""
    """The mechanism, in a sentence that holds whatever the verdict."""
    calculation: Calculation | None = None
    """What it is held against where our runs don't show it."""
    others: tuple[Another, ...] = ()
    """Other numbers that its words allow."""

    @property
    def asked(self) -> str:
        """The bound of the mean."""
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
    """Whether it is run with pictures, and with frame sizes only."""
    changed: bool = True
    """Whether it is run with each change as well."""
    scenario: str = ""
    """Another scenario file, beside the experiment's own."""
    seeds: int | None = None
    """Run with only the first so many seeds, where one costs minutes; `None`: with all."""


@dataclass(frozen=True)
class Change:
    """One thing different in all variants: what the paper left open, or another reading of its words."""

    name: str
    sets: Sets
    says: str = ""
    """The paper's sentence that allows this reading; empty: the paper says nothing, and this is tried."""
    networks: Mapping[str, Sets] = field(default_factory=dict)
    """What it sets besides in scenarios of these file names, whose links have names of their own."""
    pixels: bool = False
    """For the runs with pictures, rather than those with frame sizes only."""
    only: tuple[str, ...] = ()
    """The ids of the statements that may be evaluated with this change. If empty, all may be."""
    variants: tuple[str, ...] = ()
    """Variants that have what it changes; empty: all."""
    way: Way = Way.CHANGE
    experiments: tuple[str, ...] = ()
    """Experiments that it may be held against, by id; empty: all."""

    def concerns(self, statement: Statement) -> bool:
        """Whether a statement means the same with this change."""
        return not self.only or statement.id in self.only

    def sets_in(self, scenario: Path) -> Sets:
        """Return what it sets in a scenario."""
        return {**self.sets, **self.networks.get(scenario.name, {})}


@dataclass(frozen=True)
class World:
    """The joint setting, allowed by a paper's words, in which most of its statements hold."""

    takes: tuple[str, ...]
    """Names of values and readings; everything else is as set up."""
    why: str


DRAWINGS = (
    *("rates", "delay", "cj", "ji", "psnr", "sizes", "mos", "sweep", "series", "ranks"),
    *("psnr by index", "mos by index", "ladder"),
)
"""How a figure may be drawn."""


@dataclass(frozen=True)
class Curve:
    """A line of a figure over a quantity that differs from variant to variant."""

    label: str
    points: tuple[tuple[float, str], ...]
    """The quantity, and the variant that was run with it."""
    measure: Quantity
    scale: float = 1.0
    """What the number is multiplied by to be drawn."""


@dataclass(frozen=True)
class Line:
    """A line of a figure over time."""

    label: str
    variant: str
    flow: str
    series: str
    receiver: str = ""
    """Whose; empty: the flow's first."""


@dataclass(frozen=True)
class Figure:
    """A figure of the paper, drawn from our runs on the axes that its text describes."""

    number: str
    """As the paper numbers it: "Figure 3"."""
    title: str
    kind: str
    """Which of `DRAWINGS`."""
    variants: tuple[str, ...]
    pixels: bool = False
    marks: tuple[tuple[float, str], ...] = ()
    """Thin lines across: a value on the y axis and its name."""
    curves: tuple[Curve, ...] = ()
    """The lines of a sweep."""
    axes: tuple[str, str] = ("", "")
    """What a sweep's axes are called."""
    log: bool = False
    """Whether a sweep's quantity is drawn by its logarithm."""
    top: float = 4.2
    """Upper end of the axis of rates, in Mb/s."""
    lines: tuple[Line, ...] = ()
    """The lines of a series; those with one unit share a panel."""
    apart: bool = False
    """Whether each line of a series has a panel of its own."""
    until: float | None = None
    """Where a series' time axis ends, in seconds; `None`: with the run."""
    ranks: tuple[tuple[str, str, str], ...] = ()
    """Who is ranked, by which statement, and what the paper calls it."""
    differs: str = ""
    """What of the paper's figure, by its text, is not to be seen in ours, and why; empty: nothing that is known."""


@dataclass(frozen=True)
class Cell:
    """A cell of a paper's table."""

    published: str
    measure: Take | None = None
    """Our number beside it."""
    unit: Unit = UNITS[""]
    ours: str = ""
    """What stands beside it where no run has it."""
    statement: str = ""
    """Id of the statement whose number stands beside it."""


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper, cell by cell."""

    number: str
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...] = ()
    made: str = ""
    """Which of `tables.MADE` has its rows, where no run has them."""


@dataclass(frozen=True)
class RealTime:
    """The part of an experiment that is run in real time: its emulated form."""

    sets: Sets
    """What makes it short enough."""
    seeds: int = 1
    """How many of the seeds: repetitions."""
    changes: tuple[Change, ...] = ()
    """Instead of the experiment's."""
    pictures: Sets | None = None
    """Changes with which a clip of the user's is sent as well, once; `None`: it never is."""
    statements: tuple[Statement, ...] = ()
    """What is told of those pictures, instead of the experiment's."""


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
    """What is none of the paper's words, or later than it."""
    alternatives: tuple[Change, ...] = ()
    """Other values of its scenarios that the paper allows."""
    placebos: tuple[Change, ...] = ()
    """The same runs without their event, for the statements that `only` names."""
    world: World | None = None
    """Its paper's joint setting; `None`: it has none."""
    figures: tuple[Figure, ...] = ()
    tables: tuple[PaperTable, ...] = ()
    """Those of the paper's tables that it has the numbers of."""
    sizes: Sets | None = None
    """Changes that make it run with frame sizes only; `None` when it always needs pictures."""
    ladder: str = "Table 2's ladder, no pictures"
    """What those sizes are."""
    source: str = ""
    """What its video flows send where it is neither a clip nor a ladder: then that is the only medium."""
    drawn: bool = False
    """Whether its pictures are the drawn film's even where clips are given."""
    notes: tuple[str, ...] = ()
    real_time: RealTime | None = None
    """How it is emulated; `None` when it is simulated only."""
    seconds: float = 0.0
    """CPU time of the whole experiment with five seeds, in core-seconds; 0 if it was not measured."""

    @property
    def tried(self) -> tuple[Change, ...]:
        """Everything that its runs are tried with."""
        return (*self.alternatives, *self.changes, *self.placebos)

    @property
    def in_world(self) -> tuple[Change, ...]:
        """What the one world sets in its scenarios."""
        taken = self.world.takes if self.world is not None else ()
        return tuple(c for c in self.alternatives if c.name in taken)

    def scenario_of(self, variant: Variant) -> Path:
        """Return the scenario file of a variant."""
        return self.scenario.with_name(variant.scenario) if variant.scenario else self.scenario

    def has(self, change: Change) -> bool:
        """Whether a change concerns it: one of its variants' scenarios has what it changes."""
        return (not change.experiments or self.id in change.experiments) and any(
            change.sets_in(self.scenario_of(v)) for v in self.variants
        )

    @property
    def grades(self) -> bool:
        """Whether a statement or a figure takes grades against what was sent, or by index."""
        return any(q.name in GRADES for q in self._quantities()) or any(
            "by index" in f.kind for f in self.figures
        )

    @property
    def jitters(self) -> bool:
        """Whether a statement or a figure takes RFC 3550's jitter, the one number that needs each packet."""
        return any("jitter" in str(arg) for q in self._quantities() for arg in q.args) or any(
            line.series == "jitters" for f in self.figures for line in f.lines
        )

    def _quantities(self) -> Iterator[Quantity]:
        takes = (t for s in self.statements for t in (s.measure, *(o.measure for o in s.others)))
        return (part.quantity for t in takes for row in t.rows for part in row if isinstance(part, Term))

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Names that stand for nothing and names that stand twice, each with a remedy."""
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
    """table2 (frame sizes only), source, synthetic, clip, or pictures (a clip in place of the paper's rates)."""
    label: str
    sets: Sets
    pixels: bool

    def variants(self, experiment: Experiment) -> list[Variant]:
        """Variants that are run with it."""
        return [v for v in experiment.variants if (v.pixels if self.pixels else v.sizes)]

    def statements(self, experiment: Experiment) -> list[Statement]:
        """Statements about it."""
        if not self.pixels:
            return [s for s in experiment.statements if not s.pixels]
        return [s for s in experiment.statements if s.pixels or experiment.sizes is None]

    def tells(self, experiment: Experiment, statement: Statement) -> bool:
        """Whether a statement is about it, and all its variants run with it."""
        there = {v.name for v in self.variants(experiment)}
        return statement in self.statements(experiment) and there >= set(statement.measure.variants)


def media_of(experiment: Experiment, clips: tuple[Path, ...]) -> list[Medium]:
    """Return the media of an experiment: frame sizes, and pictures where it needs them, of clips or drawn."""
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
    """Return the experiment's emulated form: with each medium, and how many seeds."""
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
"""What the papers' clips are encoded in where a scenario does not say it: their own size and rate are others."""


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
