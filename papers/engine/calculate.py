"""Calculations that check a paper's statement independently of our simulator.

`python scripts/reproduction.py --calculate` prints them. Each is an equation or a short Monte Carlo calculation under
the paper's own conditions. Values that the paper leaves open are varied, with three seeds each. A statement that our
runs don't reproduce counts as refuted only if two conditions are met. First, no calculated value keeps the statement's
bound, under any condition or seed. Second, none of our own runs with a change keeps the bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from papers.engine.experiment import Calculation
from papers.engine.take import rank_correlation

# ---------------------------------------------------------------- TFRC on a lossy link

_WEIGHTS = (1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2)
_CAPACITY = 125.0
"""Capacity of the link in packets of 1000 B per second; this is 1 Mb/s."""
_LEAST_RTT = 0.168
_PERIOD = 20.0


def tfrc_rate(p: float, rtt: float) -> float:
    """Return TFRC's rate in packets per second (RFC 5348, 3.1, with t_RTO = 4 R and b = 1).

    ::

                                1
        X = ─────────────────────────────────────────
            R (√(2p/3) + 12 √(3p/8) p (1 + 32 p²))
    """
    return 1.0 / (rtt * (math.sqrt(2 * p / 3) + 12 * math.sqrt(3 * p / 8) * p * (1 + 32 * p * p)))


class History:
    """Average loss interval (RFC 5348, 5.4) over the last 8 · `times` intervals."""

    def __init__(self, times: int = 1) -> None:
        self.weights = [w for w in _WEIGHTS for _ in range(times)]
        self.closed: list[float] = []
        self.current = 0.0
        self._means = (0.0, 0.0, 1.0)

    def close(self) -> None:
        """Close the current loss interval, because a loss event has begun."""
        self.closed = [self.current, *self.closed][: len(self.weights)]
        self.current = 0.0
        w, k = self.weights, len(self.closed)
        late = [*w[1:k], *w[k : k + 1]]
        self._means = (
            sum(a * b for a, b in zip(w, self.closed, strict=False)) / sum(w[:k]),
            sum(a * b for a, b in zip(late, self.closed, strict=False)),
            w[0] + sum(late),
        )

    @property
    def p(self) -> float:
        """The loss event rate, as a fraction of packets; 0 before the first event."""
        if not self.closed:
            return 0.0
        old, rest, weight = self._means
        return 1.0 / max(1.0, old, (self.weights[0] * self.current + rest) / weight)


class Connection:
    """A TFRC connection: its loss history and its rate, updated once per round trip."""

    def __init__(self, rtt: float, times: int = 1, eager: float = 1.0) -> None:
        self.history = History(times)
        self.eager = eager
        self.rate = 2.0 / rtt
        self.hidden = 0.0
        """Number of packets at the start of the next round trip that belong to the last loss event (RFC 5348, 5.2).

        A loss among these packets is not a new loss event.
        """

    def advance(self, packets: float, p: float, rtt: float, arrives: float, random: Random) -> None:
        """Simulate one round trip: draw its losses, and compute the rate for the next round trip."""
        history = self.history
        seen = packets - self.hidden
        first = math.log(1.0 - random.random()) / math.log1p(-p) if p > 0.0 and seen > 0.0 else math.inf
        if first < seen:
            at = self.hidden + first
            history.current += at
            if not history.closed:
                history.current = max(history.current, _interval_for(self.rate / 2.0, rtt))
            history.close()
            history.current, self.hidden = packets - at, at
        else:
            history.current += packets
            self.hidden = max(0.0, -seen)
        known = history.p
        self.rate = min(self.eager * tfrc_rate(known, rtt) if known else 2.0 * self.rate, 2.0 * arrives)


def _interval_for(rate: float, rtt: float) -> float:
    """Return the loss interval at which the equation gives this rate (RFC 5348, 6.3.1)."""
    low, high = 1.0, 1e7
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if tfrc_rate(1.0 / middle, rtt) < rate else (low, middle)
    return high


@dataclass(frozen=True)
class Law:
    """The rule that sets the number of connections n from the round-trip time (MULTFRC paper, eq. 1 and 2).

    The fields after the first are the values that the paper leaves open.
    """

    multiplicative: bool
    """On congestion, n falls to βn + α/n if true (eq. 2), or to n − β if false (eq. 1)."""
    alpha: float
    beta: float
    gamma: float
    queue: float = 50.0
    """The length of the queue, in packets."""
    times: int = 1
    """Number of loss intervals that are averaged, in multiples of eight."""
    eager: float = 1.0
    """A connection's rate divided by the rate of the equation. In ns-2 it is about 1.1."""


IIMD = Law(multiplicative=True, alpha=0.25, beta=0.75, gamma=0.5)
IIAD = Law(multiplicative=False, alpha=1.0, beta=1.0, gamma=0.25)


@cache
def share(law: Law, p: float, *, one: bool, seed: int = 1, end: float = 2000.0) -> float:
    """Return the share of 1 Mb/s that arrives.

    With `one`, a single connection sends n times its rate. Otherwise there are n connections, each with its own loss
    history. The queue is a fluid model with one step per round trip. The calculation starts near the n that fills the
    link, so that the initial increase does not count.
    """
    random = Random(seed)
    n = _CAPACITY / (law.eager * tfrc_rate(p, _LEAST_RTT))
    flows = [Connection(_LEAST_RTT, law.times, law.eager)]
    time = queue = arrived = measured = waits = 0.0
    rounds, decide, rtt = 0, _PERIOD, _LEAST_RTT
    while time < end:
        number = 1 if one else max(1, math.floor(n + 0.5))
        while len(flows) < number:
            flows.append(Connection(rtt, law.times, law.eager))
        del flows[number:]
        now = _LEAST_RTT + queue / _CAPACITY
        # As in RFC 5348, a new sample of the round-trip time has the weight 0.1.
        rtt += 0.1 * (now - rtt)
        offered = sum(f.rate for f in flows) * (n if one else 1.0) * now
        full = max(0.0, queue + offered - _CAPACITY * now - law.queue)
        served = min(queue + offered - full, _CAPACITY * now)
        # The random loss and the loss at the full queue are independent.
        loss = 1.0 - (1.0 - p) * (1.0 - full / offered)
        for flow in flows:
            flow.advance(flow.rate * now, loss, rtt, flow.rate * min(1.0, served / offered), random)
        queue += offered - full - served
        time, waits, rounds = time + now, waits + now - _LEAST_RTT, rounds + 1
        # The first 300 s are not measured.
        if time > 300.0:
            arrived, measured = arrived + served * (1.0 - p), measured + now
        if time >= decide:
            decide += _PERIOD
            n = _next(law, n, congested=waits / rounds > law.gamma * _LEAST_RTT)
            waits, rounds = 0.0, 0
    return arrived / measured / _CAPACITY


def _next(law: Law, n: float, *, congested: bool) -> float:
    if not congested:
        return n + law.alpha / n
    return max(1.0, law.beta * n + law.alpha / n if law.multiplicative else n - law.beta)


_SEEDS = (1, 2, 3)


def _conditions(law: Law) -> dict[str, tuple[Law, Law]]:
    """Return the conditions that the paper leaves open, each as two laws.

    The first law is for n connections, and the second for one connection that sends n times its rate.

    The conditions are the length of the queue, and a rate of the connections as in RFC 5348 or as in ns-2. The
    multiplicative law is also tried with other values of α and β, and with other values of γ for n connections,
    because the paper gives γ = 0.5 for EAIO-TFRC alone.
    """
    found = {
        "as decided": (law, law),
        "25 packets of queue": (replace(law, queue=25.0),) * 2,
        "100 packets of queue": (replace(law, queue=100.0),) * 2,
        "connections as eager as ns-2's": (replace(law, eager=1.1),) * 2,
    }
    if not law.multiplicative:
        return found
    for gamma in (0.25, 0.2, 0.15, 0.1):
        many = replace(law, gamma=gamma)
        found[f"γ = {gamma:g} for n connections"] = (many, law)
        found[f"γ = {gamma:g} for n connections, as eager as ns-2's"] = (
            replace(many, eager=1.1),
            replace(law, eager=1.1),
        )
    for alpha in (0.5, 0.1):
        other = replace(law, alpha=alpha, beta=1.0 - alpha)
        found[f"α = {alpha:g}, β = {1 - alpha:g}"] = (other, other)
        found[f"α = {alpha:g}, β = {1 - alpha:g}, γ = 0.25 for n connections"] = (
            replace(other, gamma=0.25),
            other,
        )
    return found


def _gain(law: Law, p: float) -> Callable[[], Mapping[str, float]]:
    """Return the link share of one connection that sends n times its rate, minus the share of n connections."""
    return lambda: {
        f"{name}, seed {seed}": share(single, p, one=True, seed=seed) - share(many, p, one=False, seed=seed)
        for name, (many, single) in _conditions(law).items()
        for seed in _SEEDS
    }


def _many(law: Law, p: float) -> Callable[[], Mapping[str, float]]:
    return lambda: {
        f"{name}, seed {seed}": share(many, p, one=False, seed=seed)
        for name, (many, _) in _conditions(law).items()
        for seed in _SEEDS
    }


def _averaged(law: Law) -> Callable[[], Mapping[str, float]]:
    """Return the share of one connection that sends n times its rate, minus the share of n connections.

    The keys are two loss rates, and the number of loss intervals that the one connection averages.
    """
    return lambda: {
        f"p_w = {p:g}, {8 * times} intervals": share(replace(law, times=times), p, one=True)
        - share(law, p, one=False)
        for p, n in ((0.02, 3), (0.08, 9))
        for times in (1, n)
    }


# ---------------------------------------------------------------- a sender capped above its player's rate

_CAP, _PLAYED, _CLIENT = 64e3, 8e3, 8.0 * 16_384
_CROWD = (0, 8, 16, 24, 32, 40, 48)
_SECONDS = 100.0


def overall_loss(share_bps: float, lost: float = 0.0) -> float:
    """Return the share of packets that is lost in the network or in a full client buffer.

    The rate is at most 64 kb/s, and the player consumes 8 kb/s.

    ::

        loss  ≥  1 − (8 kb/s · t + 16 KiB) / (x t),    x = min(64 kb/s, rate that the competing TCPs leave)
    """
    rate = min(_CAP, share_bps)
    kept = min(rate * (1.0 - lost), _PLAYED + _CLIENT / _SECONDS)
    return 1.0 - kept / rate


def _loss_trend() -> Mapping[str, float]:
    """Return the rank correlation between the overall loss and the number of TCPs.

    The TFRC sender sends as many packets as each TCP. The loss rate in the network is that at which TFRC's equation
    gives this rate for packets of 160 B. The paper leaves open the link, the round-trip time and the size of TCP's
    packets, so these three are varied.
    """
    found = {}
    for link in (0.25e6, 0.5e6, 1e6):
        for rtt in (0.024, 0.1, 0.3):
            for packet in (160.0, 1040.0):
                losses = []
                for n in _CROWD:
                    fair = link * 160.0 / (160.0 + n * packet)
                    network = (
                        1.0 / _interval_for(min(_CAP, fair) / (8.0 * 160.0), rtt) if fair < _CAP else 0.0
                    )
                    losses.append(overall_loss(fair / (1.0 - network), network))
                name = f"{link / 1e6:g} Mb/s, {rtt * 1e3:.0f} ms, TCP's packets of {packet:g} B"
                found[name] = rank_correlation([float(n) for n in _CROWD], losses) or 0.0
    return found


# ---------------------------------------------------------------- the list

ALL: tuple[Calculation, ...] = (
    Calculation(
        "gain-iimd-0.02",
        "EAIO-TFRC's share of the link less E-MULTFRC's at 2 % of loss: one loss history times n against n of them",
        _gain(IIMD, 0.02),
    ),
    Calculation("gain-iimd-0.08", "the same at 8 %", _gain(IIMD, 0.08)),
    Calculation("many-iimd-0.02", "E-MULTFRC's share of the link at 2 %", _many(IIMD, 0.02)),
    Calculation("gain-iiad-0.02", "AIO-TFRC's share of the link less MULTFRC's at 2 %", _gain(IIAD, 0.02)),
    Calculation("gain-iiad-0.08", "the same at 8 %", _gain(IIAD, 0.08)),
    Calculation(
        "averaged",
        "EAIO-TFRC's share less E-MULTFRC's when the one history averages as many intervals as n histories have",
        _averaged(IIMD),
    ),
    Calculation(
        "loss-trend",
        "rank correlation with the number of TCPs of what a TFRC loses that is capped at 64 kb/s before a player of 8",
        _loss_trend,
    ),
)


def calculation(name: str) -> Calculation:
    """Return the calculation with this name."""
    return next(c for c in ALL if c.name == name)


def show(names: Sequence[str]) -> None:
    """Print calculations, one condition per line."""
    for each in [calculation(name) for name in names] or ALL:
        print(f"{each.name}: {each.title}")
        for condition, value in each.values.items():
            print(f"  {condition:<32} {value:7.3f}")
