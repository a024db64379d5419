"""Creates an experiment from C4's scenarios: python scripts/c4.py DIR, a git directory of private-octopus/c4.

Only numbers are taken from C4, neither text nor code. Cases that a scenario's keys can't express are reported.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import cycle
from operator import itemgetter
from pathlib import Path

OUT = Path(__file__).resolve().parent.parent / "python" / "steadycast" / "experiments" / "c4"
TCP, MEDIA = ("newreno", "cubic", "bbr", "bbr1"), ("steady", "gcc", "scream", "nada", "tfrc")
HEAD = f"""
question = "Do a file's bytes, or a call's frames, arrive by the time that C4's own simulator asks for?"
seeds = "1-10"
over = "each"

[[variant]]
name = {json.dumps(TCP)}
set = {{ "flow.video*.count" = 0, "flow.tcp*.count" = 1, "flow.tcp*.congestion" = "${{variant}}" }}

[[variant]]
name = {json.dumps(MEDIA)}
set = {{ "flow.video*.controller" = "${{variant}}" }}

[[table]]
title = "C4's scenarios, and their own targets"
kind = "bounds"
write = "test-cases-c4.csv"
"""
# Length in seconds and rate factor of each part of a link's periodic change. A third value replaces the file's Wi-Fi
# jitter in µs (picoquic d199d45b, picohttp/picoquic_ns.c).
LIVES: Mapping[str, list[tuple[float, ...]]] = {
    "": [(1e9, 1)],
    "black_hole": [(2, 1), (2, 0), (1e9, 1)],
    "drop_and_back": [(1.5, 1), (2, 0.5), (1e9, 1)],
    "low_and_up": [(2.5, 0.5), (1e9, 1)],
    "wifi_fade": [(1, 1, 999), (2, 0.9, 12000), (1e9, 1, 999)],
    "wifi_suspension": [(1.8, 1), (0.2, 0)],
}
STREAM = re.compile(r"=(\w+):([ds])(\d+):p\d+:S:n(\d+):(\d+)(?::G(\d+):I(\d+))?")
UNSAID = ('"0ms"', '{ kind = "none" }')
Spec = Mapping[str, str]


def left_out(spec: Spec) -> str | None:
    """Return the reason why a file cannot be run here, or `None`."""
    main = spec["main_cc_algo"]
    reasons = {
        "no TCP here is CUBIC by delay": main == "dcubic",
        "no TCP here carries frames": "media_stats_start" in spec and main != "c4",
        "no media controller takes up a remembered window": "seed_cwin" in spec and main == "c4",
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def network(spec: Spec, end: float) -> str:
    """Return the bottleneck with its changes until `end`.

    The queue's limit is the file's longest queueing delay at the highest rate.
    """
    link = spec.get("link_scenario", "")
    if ":" in link:  # times in µs, rates up and down in Gb/s; B of every P packets are lost
        life = [
            {key: float(x) for key, x in re.findall(r"([A-Z]?)([\d.]+)", part)} for part in link.split(";")
        ]
    else:
        rate, latency, wait = (
            float(spec[key]) for key in ("data_rate_in_gbps", "latency", "queue_delay_max")
        )
        life = [
            {"": lasts * 1e6, "U": rate * share, "D": rate * share, "L": latency, "Q": wait, "J": jitter}
            for lasts, share, jitter in ((*part, float(spec.get("jitter", 0)))[:3] for part in LIVES[link])
        ]
    size = max(part["D"] for part in life) * max(part["Q"] for part in life) * 125
    told = [*map(behaviour, life)]
    at, now, events = 0.0, told[0], ""
    for part, new in cycle(zip(life, told, strict=True)):
        change = "".join(f", {key} = {new[key]}" for key in new if new[key] != now[key])
        events += (
            f'  {{ at = "{at / 1e6:g}s", set = {{ link = "bottleneck"{change} }} }},\n' if change else ""
        )
        at, now = at + part[""], new
        if at >= end * 1e6:
            break
    up = life[0]["U"]
    back = f', back = {{ rate = "{up * 1e3:g}Mbps" }}' if up != life[0]["D"] else ""
    queue = f'queue = {{ kind = "droptail", limit = "{size:.0f}B" }}'
    link = ", ".join(f"{key} = {value}" for key, value in told[0].items() if value not in UNSAID)
    link += f", {queue}{back}"
    return f'topology = {{ shape = "dumbbell", bottleneck = {{ {link} }} }}\nevent = [\n{events}]\n'


def behaviour(part: Mapping[str, float]) -> dict[str, str]:
    """Return the keys of a link for one part of its changes.

    A loss that picoquic triggers by packet numbers becomes random loss.
    """
    rate, jitter, lost = part["D"], part.get("J", 0), part.get("B", 0)
    loss = (
        f'{{ kind = "gilbert", p_bad = {1 / part["P"]:.4f}, p_good = {1 / lost:g} }}' if lost else UNSAID[1]
    )
    return {
        "rate": f'"{rate * 1e3:g}Mbps"' if rate else '"0bps"',
        "delay": f'"{part["L"] / 1e3:g}ms"',
        "jitter": f'{{ mean = "{jitter / 1e3:g}ms", dist = "wifi" }}' if jitter else UNSAID[0],
        "loss": loss,
    }


def sender(spec: Spec, role: str) -> Iterator[str]:
    """Yield the flows of a role as TOML, for a transfer of a fixed size.

    If a media controller can replace the TCP, the video comes first, and the TCP has ``count = 0``, which a variant
    changes. The main role's video has no end; the bound counts its bytes.
    """
    first, named, size = role == "main", spec[f"{role}_cc_algo"], amount(spec[f"{role}_scenario_text"])
    start = f'start = "{int(spec[f"{role}_start_time"]) / 1e6:g}s"'
    tcp = f'kind = "tcp", preset = "linux", bytes = "{size}B", {start}'
    if first and "seed_cwin" in spec:  # the sender starts at half of the remembered window
        tcp += f', initial_window = "{int(spec["seed_cwin"]) // 3000}p", window = "50000p"'
    if first or named == "c4":
        suffix, whole = ("", "") if first else ("-rival", f', bytes = "{wire(size)}B"')
        media = f'controller = "steady", media = "greedy", packet = "1500B"{whole}'
        yield f'name = "video{suffix}", kind = "video", {media}, {start}'
        yield f'name = "tcp{suffix}", count = 0, congestion = "cubic", {tcp}'
    else:
        yield f'name = "rival", congestion = "{named}", {tcp}'


def amount(text: str) -> int:
    """Return the size of a transfer in bytes, from C4's notation."""
    return int(text.rstrip(";").rpartition(":")[2])


def wire(size: int) -> int:
    """Return the bytes on the wire when a TCP sends this amount."""
    return -(-size // 1448) * 1500


def frames(name: str, group: str) -> str:
    """Return the name of the file with the frame sizes of a group of pictures of a layer."""
    return f"{name}.csv" if group == "30" else f"{name}-{group}.csv"


def layers(text: str) -> Iterator[str]:
    """Yield audio at a constant rate, and a flow for each layer of a video."""
    for name, kind, fps, count, size, group, _ in STREAM.findall(text):
        packet, stop = int(size) + 28, f'stop = "{int(count) / int(fps):g}s"'
        if kind == "d":
            yield f'name = "{name}", kind = "cbr", rate = "{packet * 8 * int(fps)}bps", packet = "{packet}B", {stop}'
        else:
            label = "video" if name == "vlow" else f"video-{name}"
            media = f'controller = "steady", media = "trace", trace = "{frames(name, group)}"'
            media += f", encode = {{ fps = {fps} }}"
            yield f'name = "{label}", kind = "video", {media}, repair = "auto", {stop}'


def converted(name: str, text: str) -> tuple[str, str]:
    """Return the scenario of a file of C4, and its case. If the file is left out, return "" and the reason."""
    spec = {key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    if reason := left_out(spec):
        return "", reason
    sent, target, main = spec["main_scenario_text"], int(spec["main_target_time"]) / 1e6, spec["main_cc_algo"]
    if since := spec.get("media_stats_start"):
        end, takes, flows = target, MEDIA, list(layers(sent))
        why = "all frames of the base layer have arrived, and none is late"
        average, most = (int(spec[f"media_latency_{key}"]) / 1e3 for key in ("average", "max"))
        span = f"{int(since) / 1e6}, {end}, video"
        bounds = [
            f'measure = "mean delay of frames", unit = "ms", value = "frames(mean, {span})", max = {average}',
            f'measure = "largest delay of frames", unit = "ms", value = "frames(max, {span})", max = {most}',
        ]
    else:
        end, takes = 2 * target, (*TCP, *MEDIA) if main == "c4" else (main,)
        flows, size = list(sender(spec, "main")), amount(sent)
        why = f"{size / 1e6:g} MB have arrived {target:g} s after the run's start"
        value = f"first(arrived({wire(size)}, video), arrived({wire(size)}, tcp1))"
        bounds = [f'measure = "all is there after", unit = "s", value = "{value}", max = {target}']
    flows += sender(spec, "background") if "background_cc_algo" in spec else []
    head = f'format = 1\nname = "{name.replace("_", "-")}"\nduration = "{end:g}s"\nrecord = {{ interval = "50ms" }}\n'
    listed = "".join(f"  {{ {flow} }},\n" for flow in flows)
    case = f'[[scenario]]\nname = "{name}"\nfile = "c4/{name}.toml"\nvariant = {json.dumps(takes)}\n'
    told = "".join(f'  {{ {bound}, why = "{why}", source = "the file" }},\n' for bound in bounds)
    return f"{head}{network(spec, end)}flow = [\n{listed}]\n", f"{case}bound = [\n{told}]\n"


def main(where: str) -> None:
    """Write all scenarios and the experiment."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", where, *words], check=True, capture_output=True, text=True).stdout

    commit, cases, reasons = git("rev-parse", "HEAD").strip(), "", ""
    for path in git("ls-tree", "--name-only", commit, "sim_specs/").split():
        scenario, case = converted(Path(path).stem, git("show", f"{commit}:{path}"))
        if scenario:
            (OUT / f"{Path(path).stem}.toml").write_text(scenario, encoding="utf-8")
            for name, *_, size, group, first in filter(
                itemgetter(5), STREAM.findall(git("show", f"{commit}:{path}"))
            ):
                rows = [f"0,I,1,{first}", *(f"{n},P,1,{size}" for n in range(1, int(group)))]
                listed = "".join(f"{row}\n" for row in ("frame,type,q,size", *rows))
                (OUT / frames(name, group)).write_text(listed, encoding="utf-8")
            cases += f"\n{case}"
        else:
            reasons += f"#   {Path(path).stem}: {case}\n"
    source = f"# From sim_specs of private-octopus/c4 at {commit} (MIT), by scripts/c4.py.\n# Left out:\n"
    OUT.with_suffix(".toml").write_text(source + reasons + HEAD + cases, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
