"""The text of a scenario on the lab's page: its controls, how they change it, and the files to which it may refer."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from steadycast import toml
from steadycast.builtin import scenario_at
from steadycast.clips import files as named_clips
from steadycast.clips import find
from steadycast.controllers import registry
from steadycast.core import core
from steadycast.errors import MissingError, Problems, UserError
from steadycast.lab.recorded import path_of
from steadycast.loading import all_texts, load
from steadycast.networks import is_path
from steadycast.networks import names as networks
from steadycast.reference import keys
from steadycast.toml import inline

Json = dict[str, Any]
Where = Sequence[str | int]
"""A path into a scenario. It consists of keys of tables and indices of lists."""

MOST_TEXT = 64 << 10
"""The largest size of a text, in bytes."""
_MOST_LINKS = 3
"""The largest number of links that get controls."""
_NAMES_FILES = ("clip", "trace", "delay_trace", "loss_trace")
_SIMULATED = ("reno", "newreno", "sack", "cubic", "bbr", "bbr1", "dctcp", "prague")
"""Congestion controls of TCP that the simulator implements, so they do not need the kernel."""


@dataclass(frozen=True)
class Base:
    """A scenario file from the command line."""

    place: Path
    text: str
    names: frozenset[str]
    """The files to which the scenario refers, and its external controllers as "file.py:Class"."""

    @classmethod
    def read(cls, file: Path, network: str | None = None, clip: str | None = None) -> Base:
        """Read and check a scenario file.

        ``file`` may also be the folder of an analysed call. Then path.toml in this folder is read. ``network`` replaces
        the scenario's network, and ``clip`` replaces the clips of all its videos.
        """
        place = scenario_at(path_of(file)).absolute()
        named = {"network": network, "clip": clip}
        load(place, [f"{key}={value}" for key, value in named.items() if value is not None])
        text = place.read_text(encoding="utf-8")
        if network is not None:
            text = _over(text, str(Path(network).absolute()) if is_path(network) else network)
        if clip is not None:
            text = _playing(text, str(find(clip).resolve()))
        if len(text.encode()) > MOST_TEXT:
            raise UserError(
                str(file), f"has more than {MOST_TEXT >> 10} KiB", "the lab accepts only shorter files"
            )
        return cls(place, text, frozenset(name for _, name in _files(tomllib.loads(text))))

    @property
    def name(self) -> str:
        """The scenario's name on the page."""
        return self.place.stem


def problem(what: str, remedy: str, *, line: int | None = None, key: str = "") -> Problems:
    """Create an error about a scenario text, in the format of errors about a scenario file."""
    return Problems([{"file": "scenario", "line": line, "key": key, "what": what, "remedy": remedy}])


def parsed(text: str) -> Json:
    """Parse the TOML of a text, and return its plain values."""
    if len(text.encode(errors="replace")) > MOST_TEXT:
        raise problem(f"has more than {MOST_TEXT >> 10} KiB", "the lab accepts only shorter texts")
    try:
        return toml.read(text)
    except tomllib.TOMLDecodeError as error:
        where = re.search(r"\(at line (\d+), column \d+\)", str(error))
        what = re.sub(r" \(at .*\)$", "", str(error))
        line = int(where[1]) if where else text.count("\n") + 1
        raise problem(f"not TOML: {what[:1].lower()}{what[1:]}", "correct this line", line=line) from None


def checked(
    base: Base, text: str, clips: Path | None = None, sets: Sequence[str] = ()
) -> tuple[Json, core.Scenario]:
    """Parse and check a text from the page. Return its plain values, and the scenario.

    The text may refer only to the files of ``base``, to known clips by name, and to clips in the folder ``clips``.
    """
    tree = parsed(text)
    for key, name in _files(tree):
        allowed = key == "clip" and (
            name in named_clips()
            # Resolve the path, because it may contain ".." or be a link.
            or (clips is not None and (base.place.parent / name).resolve().is_relative_to(clips.resolve()))
        )
        if name not in base.names and not allowed:
            line = next((n for n, each in enumerate(text.splitlines(), 1) if name in each), None)
            remedy = f"name it in {base.place.name} and start the lab again"
            if key == "clip":
                remedy += ", or start it with --allow-clips DIR"
            raise problem(f'the page may not name the file "{name}"', remedy, line=line, key=key)
    return tree, load(base.place, sets, text)


def _files(tree: Json) -> Iterator[tuple[str, str]]:
    for key, value in all_texts(tree):
        named = (key in ("controller", "switching") and ":" in value) or (key == "network" and is_path(value))
        if key in _NAMES_FILES or named:
            yield key, value


# ---------------------------------------------------------------- edits


def edited(text: str, edits: Sequence[tuple[Where, object]]) -> str:
    """Change values of a text. The rest of the text, such as comments, stays unchanged."""
    if not edits:
        return text
    try:
        import tomlkit
        from tomlkit.exceptions import TOMLKitError
    except ImportError:
        raise MissingError.package("lab", "tomlkit", "steadycast[lab]") from None
    wanted = parsed(text)
    try:
        document = tomlkit.parse(text)
        for path, value in edits:
            for each, new in _consequences(wanted, path, value):
                _put(wanted, each, new)
                _put(document, each, new)
        changed = tomlkit.dumps(document)
        right = tomllib.loads(changed) == wanted
    except (TOMLKitError, KeyError, IndexError, TypeError, ValueError, AttributeError):
        right = False
    if not right:
        place = ".".join(map(str, edits[-1][0]))
        raise problem("this value can't be set from here", "change it in the text", key=place)
    return changed


def _over(text: str, network: str) -> str:
    """Return a text that uses the given network instead of its own network or topology."""
    if "network" not in parsed(text):
        import tomlkit

        document = tomlkit.parse(text)
        document.pop("topology", None)
        text = tomlkit.dumps(document)
    return edited(text, [(("network",), network)])


def _playing(text: str, clip: str) -> str:
    """Return a text whose videos play a clip.

    Remove size and frame rate from a video that had no clip before, so that it gets the size and rate of the clip.
    """
    import tomlkit

    document = tomlkit.parse(text)
    for flow in document.get("flow", []):
        if flow.get("kind") == "video":
            if "clip" not in flow and "encode" in flow:
                for key in ("size", "fps"):
                    flow["encode"].pop(key, None)
            flow["media"], flow["clip"] = "clip", clip
    return tomlkit.dumps(document)


_SHORT = ("queue", "loss", "jitter")
"""Keys whose value may be a table or, in short form, a word or a number."""


def _consequences(tree: Json, path: Where, value: object) -> Iterator[tuple[Where, object]]:
    """Yield a change and its consequences. For example, a new kind of queue removes the old kind's parameters."""
    if len(path) > 1 and path[-2] in _SHORT and isinstance(short := _at(tree, path[:-1]), str | int | float):
        yield path[:-1], _long(path[-2], short)
    if list(path[-2:]) == ["queue", "kind"]:
        old = _at(tree, path[:-1]) or {}
        limit = old.get("limit")
        keeps = isinstance(limit, str) and limit.endswith("p") and value != "dualpi2"
        yield path[:-1], {"kind": value, **({"limit": limit} if keeps else {})}
    elif list(path[-2:]) == ["loss", "p"] and _at(tree, path[:-1]) is None:
        yield path[:-1], {"kind": "bernoulli", "p": value}
    elif path[-1] == "clip" and "media" in (_at(tree, path[:-1]) or {}):
        yield path, value
        yield (*path[:-1], "media"), "clip"
    else:
        yield path, value


def _long(key: str | int, short: str | int | float) -> Json:
    """Return the table that a value in short form stands for."""
    text = str(short)
    if key == "queue":
        return {"limit" if text[:1].isdigit() else "kind": text}
    if key == "loss":
        return {"kind": "bernoulli", "p": float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)}
    return {"mean": text}


def _put(node: Any, path: Where, value: Any) -> None:
    """Set the value at a path, in plain dictionaries and lists or in a TOML document. Create missing tables."""
    *way, last = path
    for depth, key in enumerate(way):
        if isinstance(node, dict) and key not in node:
            for each in reversed(path[depth + 1 :]):
                value = {each: value}
            last = key
            break
        node = node[key]
    if not isinstance(node, dict) or not isinstance(last, str):
        raise KeyError(last)
    node[last] = value if type(node) is dict else _item(node, value)


def _item(table: Any, value: Any) -> Any:
    """Convert a value to an item for a table of a TOML document. The table may be inline, or have lines of its own."""
    import tomlkit
    from tomlkit.items import InlineTable

    item = tomlkit.parse(f"it = {inline(value)}")["it"]
    if not isinstance(table, InlineTable):
        item.trivia.trail = "\n"
    return item


def _at(node: Any, path: Where) -> Any:
    for key in path:
        try:
            node = node[key]
        except (KeyError, IndexError, TypeError):
            return None
    return node


# ---------------------------------------------------------------- knobs


@dataclass(frozen=True)
class Knob:
    """A control for one value of a scenario: a slider, a choice or a switch."""

    path: tuple[str | int, ...]
    group: str
    label: str
    kind: str
    """The kind of control: "rate", "span", "size", "share", "number", "whole", "choice" or "switch"."""
    value: object
    """The value in the text, or the default value. It is `None` if there is neither."""
    about: str
    min: object = None
    max: object = None
    of: tuple[str, ...] = ()


def knobs(tree: Json, resolved: Json, base: Base, b: str | None, clips: Sequence[str] = ()) -> list[Knob]:
    """Return the controls of a scenario. ``tree`` has the values in its text, ``resolved`` the values of all keys."""
    return [
        *_of_links(tree, resolved, base),
        *_of_traffic(tree, resolved),
        *_of_videos(tree, resolved, base, b, clips),
        _knob(tree, resolved, ("duration",), "Run", "duration", "span", min="10s", max="120s"),
        _knob(tree, resolved, ("seed",), "Run", "seed", "whole", min=1, max=50),
    ]


def _knob(tree: Json, resolved: Json, path: Where, group: str, label: str, kind: str, **more: Any) -> Knob:
    value = _at(tree, path)
    if value is None:
        value = _at(resolved, path)
    if isinstance(value, Mapping | list):
        value = None
    key = ".".join(each for each in path if isinstance(each, str))
    return Knob(tuple(path), group, label, kind, value, _about(key), **more)


@cache
def _about(key: str) -> str:
    found = {each.path: each.about for each in keys()}
    # Use the description of the outer key for a table within a table, such as `playout`.
    return found.get(key) or found.get(key.rpartition(".")[0], "")


def _of_links(tree: Json, resolved: Json, base: Base) -> Iterator[Knob]:
    if "network" in tree:
        of = (*networks(), *(name for name in base.names if is_path(name)))
        yield _knob(tree, resolved, ("network",), "Network", "network", "choice", of=of)
    found: list[tuple[tuple[str | int, ...], str]] = []
    if "network" in tree or _at(tree, ("topology", "bottleneck")) is not None:
        found.append((("topology", "bottleneck"), "bottleneck"))
    for where, singular in (("hops", "hop"), ("levels", "level"), ("legs", "leg")):
        for n in range(len(_at(tree, ("topology", where)) or [])):
            found.append((("topology", where, n), f"{singular} {n + 1}"))
    for n, link in enumerate(tree.get("link") or []):
        found.append((("link", n), str(link.get("name") or "–".join(map(str, link.get("between") or [n])))))
    several = len(found) > 1
    for path, name in found[:_MOST_LINKS]:
        link = _at(resolved if path[0] == "topology" else tree, path)
        group = f"Link {name}" if several else "Network"
        if "trace" not in link and link.get("rate", "none") != "none":
            yield _knob(tree, resolved, (*path, "rate"), group, "rate", "rate", min="100kbps", max="100Mbps")
        by_file = _at(resolved, path) or {}
        if "delay_trace" not in by_file:
            yield _knob(
                tree, resolved, (*path, "delay"), group, "delay, one way", "span", min="0ms", max="300ms"
            )
        kinds = ("droptail", "red", "codel", "fq-codel", "pie", "dualpi2")
        yield _knob(tree, resolved, (*path, "queue", "kind"), group, "queue", "choice", of=kinds)
        limit = _knob(tree, resolved, (*path, "queue", "limit"), group, "queue holds", "size")
        if isinstance(limit.value, str):
            yield limit
        if (
            "loss_trace" not in by_file
            and (_at(link, ("loss",)) or {"kind": "bernoulli"}).get("kind") == "bernoulli"
        ):
            yield _knob(tree, resolved, (*path, "loss", "p"), group, "random loss", "share", min=0, max=0.2)


def _of_traffic(tree: Json, resolved: Json) -> Iterator[Knob]:
    for n, flow in enumerate(tree.get("flow") or []):
        kind, name, path = flow.get("kind"), str(flow.get("name")), ("flow", n)
        if kind == "video":
            continue
        if "count" in flow:
            yield _knob(
                tree, resolved, (*path, "count"), "Traffic", f"{name}: how many", "whole", min=0, max=10
            )
        if kind == "tcp":
            label = f"{name}: congestion control"
            yield _knob(tree, resolved, (*path, "congestion"), "Traffic", label, "choice", of=_SIMULATED)
        elif "rate" in flow:
            label = f"{name}: rate"
            yield _knob(tree, resolved, (*path, "rate"), "Traffic", label, "rate", min="10kbps", max="10Mbps")


def first_video(tree: Json) -> int | None:
    """Return the index of the first video flow. Controllers A and B are compared for this flow."""
    return next((n for n, flow in enumerate(tree.get("flow") or []) if flow.get("kind") == "video"), None)


def _of_videos(tree: Json, resolved: Json, base: Base, b: str | None, clips: Sequence[str]) -> Iterator[Knob]:
    n = first_video(tree)
    if n is None:
        return
    flow, path = tree["flow"][n], ("flow", n)
    named = tuple(sorted(name for name in base.names if ":" in name))
    names = (*(each.name for each in registry()), *named)
    a = _knob(tree, resolved, (*path, "controller"), "A", "controller", "choice", of=names)
    yield a
    for group, name in (("A", a.value), ("B", b)):
        if group == "A" or name != a.value:
            yield from _of_controller(tree, path, flow, group, name)
    if flow.get("receivers") is not None:
        yield _knob(tree, resolved, (*path, "receivers"), "Video", "receivers", "whole", min=1, max=50)
    playout = flow.get("playout", "none")
    if playout != "none":
        where = (
            (*path, "playout", "most")
            if isinstance(playout, Mapping) and "most" in playout
            else (*path, "playout")
        )
        yield _knob(tree, resolved, where, "Video", "play-out limit", "span", min="50ms", max="2s")
    if clips or isinstance(flow.get("clip"), str):
        own = [flow["clip"]] if isinstance(flow.get("clip"), str) else []
        files = tuple(dict.fromkeys([*own, *clips]))
        yield _knob(tree, resolved, (*path, "clip"), "Video", "clip", "choice", of=files)


def _of_controller(tree: Json, path: Where, flow: Json, group: str, name: object) -> Iterator[Knob]:
    entry = next((each for each in registry() if each.name == name), None)
    for each in entry.params if entry is not None else ():
        where = (*path, "params", str(name), each.name)
        value = _at(tree, where)
        if value is None:
            value = each.paper if flow.get("mode") == "paper" else each.default
        low, high, kind = each.min, each.max, each.kind
        if kind not in ("number", "choice", "switch", "span", "rate"):
            continue
        if kind == "number" and not (isinstance(low, int | float) and isinstance(high, int | float)):
            continue
        yield Knob(tuple(where), group, each.name, kind, value, each.about, low, high, each.of)


def edits_of(value: object) -> list[tuple[Where, object]]:
    """Parse the changes that the page requests.

    Raises:
        ValueError: their structure is wrong.

    """
    if not isinstance(value, list) or len(value) > 200:
        raise ValueError("edits: a list of [path, value]")
    found: list[tuple[Where, object]] = []
    for each in value:
        if not isinstance(each, list) or len(each) != 2:
            raise ValueError("edits: a list of [path, value]")
        path, to = each
        if (
            not isinstance(path, list)
            or not 0 < len(path) <= 8
            or not all(type(key) in (str, int) for key in path)
            or any(isinstance(key, int) and key < 0 for key in path)
            or not isinstance(path[0], str)
        ):
            raise ValueError("edits: a path is a list of keys and of places in lists")
        if type(to) not in (str, int, float, bool) or (isinstance(to, float) and not math.isfinite(to)):
            raise ValueError("edits: a value is a text, a number, or true or false")
        found.append((path, to))
    return found
