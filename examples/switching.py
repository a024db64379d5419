"""The built-in switching rule, as a class and as a program: `switching.py:Hysteresis`, `exec:python3 switching.py`.

It is crates/media/src/rungs.rs with the same integers: nanoseconds, bit/s and bytes. It therefore makes the same
record.
"""

import json
import sys

SECOND = 1_000_000_000
FIRST_WAIT, START_WAIT, LONGEST_WAIT, TRIAL = 4 * SECOND, SECOND, 240 * SECOND, 120 * SECOND


def scaled(rate, share):
    return int(rate * share + 0.5)


def over(rate, ns):
    return rate * ns // (8 * SECOND)


class Hysteresis:
    def __init__(self):
        self.fits_since = None
        self.last_rates = 0, 0
        self.climbs = {}  # rung: the time of the last climb to it, and the wait before the next one
        self.has_fallen = False

    def choose(self, stream):
        def whole(values):
            return [round(value) for value in values]

        return self.decided(
            round(stream.at_s * SECOND),
            stream.rung,
            whole(stream.recent_bps),
            whole(stream.worst_bps),
            round(stream.rate_bps),
            stream.backlog_bytes,
            round(stream.group_s * SECOND),
        )

    def decided(self, at, rung, recent, worst, rate, backlog, group):
        if rung is None:
            self.__init__()
        last_rate, earlier = self.last_rates
        self.last_rates = rate, last_rate
        last, whole = len(recent) - 1, over(rate, group)
        room = max(whole - backlog, whole // 2) * 8 * SECOND // group

        def fitting(share):
            return next((n for n, need in enumerate(recent) if need <= scaled(room, share)), last)

        if rung is None:
            return fitting(0.75)
        left = max(backlog + over(recent[rung], group) - whole, 0)
        collapsed = rate < scaled(max(last_rate, earlier), 0.65) and recent[rung] > scaled(rate, 0.5)
        has_failed = self.is_on_trial(at, rung)
        if rung < last and (collapsed or rate < scaled(recent[rung], 0.9)):
            to = max(fitting(0.5 if collapsed and not has_failed else 0.75), rung + 1)
            return self.stepped_down(at, rung, to)
        if rung < last and left > over(rate, SECOND // 4):
            to = rung + 1 if has_failed else max(fitting(0.75), rung + 1)
            return self.stepped_down(at, rung, to)
        if rung > 0 and worst[rung - 1] <= scaled(room, 0.8):
            finest = next((n for n in range(rung) if worst[n] <= scaled(room, 0.5)), rung - 1)
            return self.climbed(at, rung, finest, rate < scaled(last_rate, 0.95))
        self.fits_since = None
        return rung

    def is_on_trial(self, at, rung):
        last, _ = self.climbs.get(rung, (None, FIRST_WAIT))
        return last is not None and at - last < TRIAL

    def stepped_down(self, at, rung, to):
        self.fits_since, self.has_fallen = None, True
        self.last_rates = self.last_rates[0], 0
        for left in range(rung, to):
            _, wait = self.climbs.get(left, (None, FIRST_WAIT))
            self.climbs[left] = (
                None,
                min(8 * wait, LONGEST_WAIT) if self.is_on_trial(at, left) else FIRST_WAIT,
            )
        return to

    def climbed(self, at, rung, finest, falls):
        if self.fits_since is None:
            self.fits_since = at
        _, wait = self.climbs.get(rung - 1, (None, FIRST_WAIT))
        if falls or at - self.fits_since < (wait if self.has_fallen else START_WAIT):
            return rung
        to = rung - 1 if self.has_fallen else finest
        for each in range(to, rung):
            self.climbs[each] = at, self.climbs.get(each, (None, FIRST_WAIT))[1]
        self.fits_since = None
        return to


if __name__ == "__main__":
    rule = Hysteresis()
    for line in sys.stdin:
        m = json.loads(line)
        if m["m"] == "end":
            break
        if m["m"] == "hello":
            print('{"v":1}', flush=True)
            continue
        values = (m[key] for key in ("t", "rung", "recent", "worst", "rate", "backlog", "group"))
        print(json.dumps({"rung": rule.decided(*values)}), flush=True)
