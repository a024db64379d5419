"""Formats the results of a judgement as text and as JSON, and checks bounds."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steadycast import shape
from steadycast.compare import Condition, Verdict
from steadycast.errors import UserError, meant
from steadycast.folder import Json, number, read_json, within
from steadycast.judge.cell import Outcome
from steadycast.judge.figures import COLUMNS, FIGURES, figures_now, renamed
from steadycast.judge.pair import Pair
from steadycast.judge.score import BY

FORMAT = 1
NOTHING, NEVER = "–", "never"


@dataclass(frozen=True)
class Judgement:
    """The outcomes of all runs of a pair."""

    pair: Pair
    networks: Mapping[str, str]
    """The SHA-256 of each network's definition. The networks are in the order of display."""
    outcomes: Sequence[Outcome]
    volatile: Json
    """Data that differ between judgements of the same programs, such as times."""
    anyway: bool = False
    """Whether untrusted figures are judged as well."""

    def of(self, network: str) -> list[Outcome]:
        """Return the outcomes of a network's runs."""
        return sorted((o for o in self.outcomes if o.network == network), key=lambda o: o.run)

    def failed(self, network: str) -> Mapping[str, Any] | None:
        """Return the failure of the first failed run on a network. Return `None` if no run failed."""
        return next((o.failed for o in self.of(network) if o.failed is not None), None)

    def values(self, network: str, key: str) -> list[Any]:
        """Return the values of a figure in the runs on a network. Runs that lack the figure are left out."""
        return [o.figures[key] for o in self.of(network) if key in o.figures]

    def worst(self, network: str) -> Json:
        """Return one value of each figure for a network.

        It is the value of the worst run. For a figure without a column, it is the mean over the runs.
        """
        found: Json = {}
        if self.failed(network) is not None:
            return found
        for key in dict.fromkeys(key for o in self.of(network) for key in o.figures):
            values = self.values(network, key)
            if key in COLUMNS:
                found[key] = FIGURES[key].worst(values)
            elif all(number(value) is not None for value in values):
                found[key] = sum(values) / len(values)
        return found

    def spread(self, network: str, key: str) -> float:
        """Return the difference between the largest and the smallest value of a figure over the runs."""
        known = [value for value in self.values(network, key) if number(value) is not None]
        return max(known) - min(known) if known else 0.0

    def trusted(self, network: str) -> bool:
        """Whether all runs on a network are known to be undisturbed."""
        return not any(o.doubts or o.unknown for o in self.of(network))

    def known(self, network: str, key: str) -> float | None:
        """Return the value of a figure for conditions and expectations. Return `None` if the figure is not trusted."""
        if not (self.trusted(network) or self.anyway):
            return None
        return number(self.worst(network).get(key))


# ---------------------------------------------------------------- the text


def text(judged: Judgement, old: str | None = None) -> str:
    """Return the judgement as text.

    Numbers of the earlier text ``old`` are repeated if the new value differs by at most the tolerance of `Column` or
    the spread over the runs.
    """
    kept = _lines(old) if old is not None else {}
    runs = max((len(judged.of(network)) for network in judged.networks), default=1)
    pair = judged.pair
    head = f"# steadycast judge {FORMAT}; pair {pair.name}; networks {pair.networks}; {pair.seconds:g} s"
    lines = [head + (f"; worst of {runs}" if runs > 1 else ""), _MASKED]
    heads = ["network", *(column.head for column in COLUMNS.values()), "by", "trust"]
    rows = [heads, *(cells(judged, network, kept.get(network)) for network in judged.networks)]
    wide = max(len(row[0]) for row in rows)
    widths = [max(len(row[n]) for row in rows if len(row) > 2) for n in range(1, len(heads))]
    for row in rows:
        if len(row) == 2:
            lines.append(f"{row[0]:<{wide}}  {row[1]}")
        else:
            told = "  ".join(f"{cell:>{width}}" for cell, width in zip(row[1:], widths, strict=True))
            lines.append(f"{row[0]:<{wide}}  {told}".rstrip())
    return "\n".join(lines) + "\n"


_MASKED = "# left out: dates, machine, versions, lateness (judge.json has them under volatile)"


def cells(judged: Judgement, network: str, old: Mapping[str, str] | None = None) -> list[str]:
    """Return the cells of a network's line: its name, and its figures or the reason of a failure."""
    if (failed := judged.failed(network)) is not None:
        program = f"{failed['program']}: " if failed["program"] else ""
        return [network, f"failed: {failed['reason']} ({program}{failed['detail']})"]
    figures = judged.worst(network)
    runs = judged.of(network)
    doubt = "" if judged.trusted(network) else "?"
    row = [network]
    for key, column in COLUMNS.items():
        if key not in figures:
            row.append(NOTHING)
            continue
        value = figures[key]
        said = NEVER if value is None else column.say(value)
        before = (old or {}).get(column.head, "").rstrip("?")
        if value is not None and (was := _value(before)) is not None:
            # Convert to the unit of the text, which shows fractions in per cent.
            now = value * column.scale
            near = max(column.floor + column.share * abs(was), judged.spread(network, key) * column.scale)
            said = before if abs(now - was) <= near else said
        row.append(said + doubt)
    by = "".join(dict.fromkeys(BY[o.by] for o in runs if o.by))
    return [*row, by, f"{sum(not (o.doubts or o.unknown) for o in runs)}/{len(runs)}"]


def _lines(old: str) -> dict[str, dict[str, str]]:
    """Parse the text of an earlier judgement. Return each network's cells by their heading."""
    rows = [line.split() for line in old.splitlines() if line.strip() and not line.startswith("#")]
    if not rows or rows[0][0] != "network":
        raise UserError("--keep", "this is not a judge.txt", "name a judge.txt")
    return {row[0]: dict(zip(rows[0], row, strict=True)) for row in rows[1:] if len(row) == len(rows[0])}


def _value(said: str) -> float | None:
    found = re.fullmatch(r"(-?\d+(?:\.\d+)?)(M|k|ms|s)?", said)
    return float(found[1]) * {"M": 1e6, "k": 1e3}.get(found[2] or "", 1.0) if found else None


def check(networks: Sequence[str], fail_if: Sequence[str], baseline: Path | None) -> None:
    """Raise an error if a bound is invalid, before the first run."""
    if fail_if and baseline is None:
        remedy = "add --baseline judge.json; a bound on the value itself is an [[expect]] of the pair"
        raise UserError("--fail-if", "it needs a baseline, and none is given", remedy)
    for condition in map(_condition, fail_if):
        network, _, figure = condition.path.rpartition(".")
        place = f"--fail-if {condition.text}"
        _ = _named(networks, network, place)
        if figure not in FIGURES:
            raise UserError(place, f"there is no figure {figure!r}", meant(figure, FIGURES))
    if baseline is not None:
        _ = _baseline(baseline)


def _condition(text: str) -> Condition:
    """Parse a condition. Convert a former name of a figure to the present name and unit."""
    condition = Condition.read(text)
    network, dot, key = condition.path.rpartition(".")
    name, factor = renamed(key)
    change = condition.change if condition.relative else condition.change * factor
    return replace(condition, path=f"{network}{dot}{name}", change=change)


def _baseline(path: Path) -> Json:
    told = read_json(path, "name a judge.json")
    shape.check(told, shape.JUDGED, path, "name a judge.json")
    return told


def conditions(judged: Judgement, fail_if: Iterable[str], baseline: Path | None) -> list[Json]:
    """Check the conditions of ``--fail-if`` against a baseline.

    A condition such as "cable-5.throughput_bps<-10%" consists of a network, a figure, and a limit for the change since
    the baseline. A change beyond the limit fails. "*" stands for all networks.
    """
    if baseline is None:
        return []
    told = _baseline(baseline)
    was = {cell["network"]: figures_now(cell.get("worst") or {}) for cell in told.get("cells") or ()}
    found = []
    for condition in map(_condition, fail_if):
        pattern, _, key = condition.path.rpartition(".")
        for network in _named([*judged.networks], pattern, "--fail-if"):
            # A condition for all networks ("*") skips those without the figure. For example, `tcp_bps` needs TCP flows.
            if pattern == "*" and key not in was.get(network, {}) and key not in judged.worst(network):
                continue
            before, now = number(was.get(network, {}).get(key)), judged.known(network, key)
            verdict = Verdict(network, condition, before, now)
            change = verdict.change if verdict.change is not None and math.isfinite(verdict.change) else None
            row = {"network": network, "fail_if": condition.text, "was": before, "now": now}
            found.append({**row, "change": change, "ok": not verdict.fails})
    return found


def expectations(judged: Judgement) -> list[Json]:
    """Check the expectations of the pair's file."""
    found = []
    for each in judged.pair.expect:
        for network in judged.networks if each.network == "*" else {each.network} & set(judged.networks):
            value = judged.known(network, each.that)
            if each.network == "*" and each.that not in judged.worst(network):
                continue
            row = {"network": network, "that": each.that, "min": each.least, "max": each.most}
            found.append({**row, "value": value, "ok": within(value, each.least, each.most)})
    return found


def bound(expected: Json) -> str:
    """Describe the values that an expectation allows."""
    return ", ".join(f"{k} {expected[k]:g}" for k in ("min", "max") if expected[k] is not None)


def _named(networks: Sequence[str], pattern: str, place: str) -> Sequence[str]:
    if pattern == "*":
        return networks
    if pattern in networks:
        return [pattern]
    raise UserError(place, f"there is no network {pattern!r} here", meant(pattern, [*networks, "*"]))


def as_json(judged: Judgement, changes: Sequence[Json], expected: Sequence[Json]) -> Json:
    """Return the whole judgement as JSON for other programs."""
    pair = judged.pair
    return {
        "format": FORMAT,
        "pair": pair.name,
        "set": {"asked": pair.networks, "sha256": dict(judged.networks)},
        "lead_s": pair.lead_s,
        "seconds": pair.seconds,
        "cells": [_cell(judged, network) for network in judged.networks],
        "conditions": list(changes),
        "expect": list(expected),
        "volatile": judged.volatile,
    }


def _cell(judged: Judgement, network: str) -> Json:
    runs = judged.of(network)
    failed = judged.failed(network)
    return {
        "network": network,
        "runs": [
            {
                "run": o.run,
                "failed": o.failed,
                "by": o.by,
                "doubts": list(o.doubts),
                "unknown": list(o.unknown),
                **o.figures,
            }
            for o in runs
        ],
        "worst": judged.worst(network),
        "spread": {key: judged.spread(network, key) for key in COLUMNS if judged.values(network, key)},
        "failed": dict(failed) if failed else None,
        "by": next((o.by for o in runs if o.by), None),
        "trusted": judged.trusted(network),
    }


def fails(judged: Judgement, changes: Iterable[Json], expected: Iterable[Json]) -> list[str]:
    """Return a line for each failure."""
    lines = []
    for network in judged.networks:
        if (failed := judged.failed(network)) is not None:
            last = "".join(f": {line}" for line in failed["log"][-1:])
            lines.append(" ".join(cells(judged, network)) + last)
    for each in (each for each in (*changes, *expected) if not each["ok"]):
        network, value = each["network"], each["now" if "fail_if" in each else "value"]
        unknown = "not known" if judged.trusted(network) else "not to be trusted (--anyway judges it)"
        now = unknown if value is None else f"{value:.4g}"
        if "fail_if" in each:
            was = "None" if each["was"] is None else f"{each['was']:.4g}"
            lines.append(f"{network}: fails if {each['fail_if']}: {now}, and it was {was}")
        else:
            lines.append(f"{network}: {each['that']} is {now}, expected {bound(each)}")
    return lines


def doubted(judged: Judgement) -> list[str]:
    """Return a line for each network with untrusted figures. It contains the first reason."""
    lines = []
    for network in judged.networks:
        runs = judged.of(network)
        if doubts := [doubt for o in runs for doubt in o.doubts]:
            lines.append(f"{network} is not to be trusted: {doubts[0]}")
        elif unknown := [each for o in runs for each in o.unknown]:
            lines.append(f"{network}: it is not known whether the figures can be trusted: {unknown[0]}")
    return lines
