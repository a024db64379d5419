"""Makes test cases of C4's scenarios: python scripts/c4.py DIR, a git directory of private-octopus/c4.

Numbers are taken, neither text nor code. What no key of a scenario can say is left out, with the reason.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

OUT = Path(__file__).resolve().parent.parent / "python" / "steadycast" / "cases" / "c4"
# Parts of a link's life, again and again: seconds and factor of the rate (picoquic d199d45b, picohttp/picoquic_ns.c).
LIVES: Mapping[str, list[tuple[float, float]]] = {
    "": [(1e9, 1)],
    "black_hole": [(2, 1), (2, 0), (1e9, 1)],
    "drop_and_back": [(1.5, 1), (2, 0.5), (1e9, 1)],
    "low_and_up": [(2.5, 0.5), (1e9, 1)],
    "wifi_suspension": [(1.8, 1), (0.2, 0)],
}
STREAM = re.compile(r"=(\w+):([ds])(\d+):p\d+:S:n(\d+):(\d+)(?::G(\d+):I(\d+))?")
Told = dict[str, Any]


def left_out(spec: Mapping[str, str]) -> str | None:
    """Return why a file cannot be run here, or nothing."""
    link, main = spec.get("link_scenario", ""), spec["main_cc_algo"]
    reasons = {
        "no link here has its Wi-Fi jitter": "wifi_jitter" in spec or link == "wifi_fade" or ":J" in link,
        "no TCP here is CUBIC by delay": main == "dcubic",
        "no TCP here carries frames": "media_stats_start" in spec and main != "c4",
        "no media controller takes up a remembered window": "seed_cwin" in spec and main == "c4",
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def network(spec: Mapping[str, str], end: float) -> Told:
    """Return the bottleneck until the end; its queue is the longest that the file has, at its highest rate."""
    link = spec.get("link_scenario", "")
    if ":" in link:  # seconds, up, down (Gb/s), one way, queue (all times in µs)
        life = [[float(number) for number in re.findall(r"[\d.]+", part)] for part in link.split(";")]
    else:
        rate, *times = (float(spec[key]) for key in ("data_rate_in_gbps", "latency", "queue_delay_max"))
        life = [[lasts * 1e6, rate * share, rate * share, *times] for lasts, share in LIVES[link]]
    size = max(part[2] for part in life) * max(part[4] for part in life) * 125
    parts, at, events = cycle(life), 0.0, list[Told]()
    first: Told = {}
    there: Told = {}
    while at < end * 1e6:
        lasts, up, down, one_way, _ = next(parts)
        new: Told = {"rate": f"{down * 1e3:g}Mbps" if down else "0bps", "delay": f"{one_way / 1e3:g}ms"}
        first = first or new | ({"back": {"rate": f"{up * 1e3:g}Mbps"}} if up != down else {})
        change = {key: value for key, value in new.items() if there.get(key) != value}
        if at and change:
            events.append({"at": f"{at / 1e6:g}s", "set": {"link": "bottleneck", **change}})
        there, at = new, at + lasts
    bottleneck = {**first, "queue": {"kind": "droptail", "limit": f"{size:.0f}B"}}
    return {"topology": {"shape": "dumbbell", "bottleneck": bottleneck}, "event": events}


def sender(spec: Mapping[str, str], role: str) -> Iterator[Told]:
    """Yield who sends an amount: a TCP, and a video where a media controller may be in its place."""
    first, named = role == "main", spec[f"{role}_cc_algo"]
    text, start = spec[f"{role}_scenario_text"], f"{int(spec[f'{role}_start_time']) / 1e6:g}s"
    tcp: Told = {"kind": "tcp", "start": start, "preset": "linux", "bytes": f"{amount(text)}B"}
    if first and "seed_cwin" in spec:  # half of the remembered window at once
        tcp |= {"initial_window": f"{int(spec['seed_cwin']) // 3000}p", "window": "50000p"}
    if first or named == "c4":
        suffix, whole = ("", {}) if first else ("-rival", {"bytes": f"{wire(text)}B"})
        media = {"controller": "steady", "media": "greedy", "packet": "1500B", **whole}
        yield {"name": f"video{suffix}", "kind": "video", "start": start, **media}
        yield {"name": f"tcp{suffix}", "count": 0, "congestion": "cubic", **tcp}
    else:
        yield {"name": "rival", "congestion": named, **tcp}


def amount(text: str) -> int:
    """Return the bytes of a transfer."""
    return int(text.rstrip(";").rpartition(":")[2])


def wire(text: str) -> int:
    """Return the bytes of the packets that a TCP sends a transfer in."""
    return -(-amount(text) // 1448) * 1500


def layers(text: str, files: dict[str, str]) -> Iterator[Told]:
    """Yield audio at a constant rate, and a flow for each layer of a video, whose frames are a file."""
    for name, kind, fps, count, size, group, first in STREAM.findall(text):
        stop, packet = {"stop": f"{int(count) / int(fps):g}s"}, int(size) + 28
        if kind == "d":
            yield {
                "name": name,
                "kind": "cbr",
                "rate": f"{packet * 8 * int(fps)}bps",
                "packet": f"{packet}B",
                **stop,
            }
        else:
            rows = [f"{n},{'P' if n else 'I'},1,{size if n else first}" for n in range(int(group))]
            files[f"{name}.csv"] = "\n".join(["frame,type,q,size", *rows, ""])
            media = {"controller": "steady", "media": "trace", "trace": f"{name}.csv", "repair": "auto"}
            label = "video" if name == "vlow" else f"video-{name}"
            yield {"name": label, "kind": "video", **media, "encode": {"fps": int(fps)}, **stop}


def converted(name: str, text: str) -> tuple[dict[str, str], Told]:
    """Return the files that one of C4's becomes, and the case; none, with the reason alone, where it is left out."""
    spec = {key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    if reason := left_out(spec):
        return {}, {"left out": reason}
    files: dict[str, str] = {}
    sent, target, main = spec["main_scenario_text"], int(spec["main_target_time"]) / 1e6, spec["main_cc_algo"]
    if since := spec.get("media_stats_start"):
        end, takes, flows = target, ["video"], list(layers(sent, files))
        expects, during = "all frames of the base layer are there, and not late", [int(since) / 1e6, end]
        kinds = (("mean", "average"), ("max", "max"))
        most = {f"frame_{ours}_ms": int(spec[f"media_latency_{theirs}"]) / 1e3 for ours, theirs in kinds}
        bounds: list[Told] = [{"measure": each, "during": during, "max": most[each]} for each in most]
    else:
        end, takes, flows = (
            2 * target,
            ["video", "tcp"] if main == "c4" else [main],
            list(sender(spec, "main")),
        )
        expects = f"{amount(sent) / 1e6:g} MB are there {target:g} s after the run's start"
        bounds = [{"measure": "finish_s", "bytes": wire(sent), "max": target}]
    flows += sender(spec, "background") if "background_cc_algo" in spec else []
    head = {
        "format": 1,
        "name": name.replace("_", "-"),
        "duration": f"{end:g}s",
        "record": {"interval": "50ms"},
    }
    files[f"{name}.toml"] = toml({**head, **network(spec, end), "flow": flows})
    case = {"id": name, "title": name.replace("_", " "), "expects": expects, "takes": takes}
    return files, {**case, "bound": [{**bound, "why": expects, "source": "the file"} for bound in bounds]}


def toml(told: Told) -> str:
    """Write a line for each key, and for each table of a list."""

    def value(each: Any) -> str:
        if isinstance(each, dict):
            return f"{{ {', '.join(f'{key} = {value(inner)}' for key, inner in each.items())} }}"
        if isinstance(each, list):
            apart = "\n  " if isinstance(each[0], dict) else " "
            return f"[{apart.removeprefix(' ')}{f',{apart}'.join(map(value, each))}]"
        return json.dumps(each)

    return "".join(f"{key} = {value(each)}\n" for key, each in told.items() if each != [])


def main(where: str) -> None:
    """Write all of them."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", where, *words], check=True, capture_output=True, text=True).stdout

    commit = git("rev-parse", "HEAD").strip()
    told = f"# From sim_specs of private-octopus/c4 at {commit} (MIT), by scripts/c4.py.\n# Left out:\n"
    cases: list[Told] = []
    for path in git("ls-tree", "--name-only", commit, "sim_specs/").split():
        files, case = converted(Path(path).stem, git("show", f"{commit}:{path}"))
        cases += [case] if files else []
        told += "" if files else f"#   {Path(path).stem}: {case['left out']}\n"
        for name, content in files.items():
            (OUT / name).write_text(content, encoding="utf-8")
    (OUT / "cases.toml").write_text(told + toml({"case": cases}), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
