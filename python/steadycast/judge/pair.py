"""Reads the file of a pair: the judged programs, their inputs, and the expectations."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from steadycast import confine, toml, units
from steadycast.controller import check_start
from steadycast.errors import MissingError, UserError, meant
from steadycast.files import readable
from steadycast.judge.clip import Crop, Marked, raw_shape
from steadycast.judge.figures import FIGURES, renamed
from steadycast.media.clip import CIF, parse_fps, parse_size
from steadycast.media.vmaf import need as need_vmaf

HOSTS = {"sender": "10.0.0.1", "receiver": "10.0.0.2", "relay": "10.0.0.3"}
"""The hosts and their addresses. The relay is beside the receiver, behind the bottleneck."""
PLACES = (
    *(*HOSTS, "clip", "clip.y4m", "clip.pipe", "pictures", "out"),
    *("sdp", "cell", "here", "seconds", "seed"),
)
"""Placeholders that a program's command may contain, besides `python` and `steadycast`."""
_COMMANDS = {"python": [sys.executable], "steadycast": [sys.executable, "-m", "steadycast"]}
LEAST_S = 1.0
"""The shortest time that is scored, in seconds.

In a shorter time, a stream with 50 packets per second sends fewer than `score.LEAST_DATAGRAMS`. The run would
then fail with the reason "no-traffic", although the sender sends.
"""
_READY = ("udp", "tcp", "log", "file", "delay")
_LAST_PORT = 65535
_LAST_PAYLOAD_TYPE = 127
_OURS = ("feed", "look")
_WORD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")


@dataclass(frozen=True)
class Program:
    """A program of a pair."""

    name: str
    on: str
    run: str
    ready: str
    env: Mapping[str, str]
    shell: bool
    ends: bool

    def used(self) -> set[str]:
        """Return the placeholders that the command contains."""
        texts = (self.run, self.ready, *self.env.values())
        # A doubled brace has no group. An empty pair of braces has an empty one, which is no known placeholder.
        return {found[1] for text in texts for found in _WORD.finditer(text) if found[1] is not None}

    def words(self, values: Mapping[str, str]) -> list[str]:
        """Return the command with its placeholders replaced."""
        if self.shell:
            return ["sh", "-c", filled(self.run, values, quoted=True)]
        words: list[str] = []
        for word in shlex.split(self.run):
            found = _WORD.fullmatch(word)
            words += _COMMANDS[found[1]] if found and found[1] in _COMMANDS else [filled(word, values)]
        return words


@dataclass(frozen=True)
class Expect:
    """A minimum or maximum for a figure of one network, or of all networks ("*")."""

    network: str
    that: str
    least: float | None
    most: float | None


@dataclass(frozen=True)
class Rtp:
    """Properties of the RTP streams. A property that is `None` is detected on the wire."""

    media: int | None = None
    rtx: int | None = None
    fec: int | None = None
    clock: int = 90_000
    deadline_s: float = 0.3


@dataclass(frozen=True)
class Pictures:
    """Where the displayed pictures come from."""

    source: str = "none"
    """"pipe", "file", "browser" or "none"."""
    format: str | None = None
    """The format of raw pictures. `None` means y4m."""
    crop: Crop | None = None
    vmaf: bool = False
    """Whether VMAF is measured after each run."""


@dataclass(frozen=True)
class Pair:
    """The programs that are judged together, and the settings for judging them."""

    name: str
    programs: tuple[Program, ...]
    networks: str = "smoke"
    lead_s: float = 10.0
    """The lead time in seconds. The sender must begin within this time.

    The times of network events count from the end of the lead time.
    """
    seconds: float = 60.0
    clip: Marked | None = None
    rtp: Rtp = Rtp()
    pictures: Pictures = Pictures()
    expect: tuple[Expect, ...] = ()
    folder: Path = Path()
    """The folder that contains the pair's file. It replaces the placeholder `{here}`."""

    @property
    def used(self) -> set[str]:
        """Return the placeholders that the commands of all programs contain."""
        return set[str]().union(*(program.used() for program in self.programs))

    def reads(self) -> list[Path]:
        """Return the existing paths that the commands contain: programs, their files, and the pair's folder."""
        values = {**dict.fromkeys(PLACES, ""), "here": str(self.folder.absolute())}
        words: dict[str, None] = {}
        for program in self.programs:
            split = shlex.split(filled(program.run, values)) if program.shell else program.words(values)
            words |= dict.fromkeys(split)
        found = [shutil.which(word) or word for word in words if word]
        # A word may be a program's text, which is too long for a path. `Path.exists` would raise an error.
        return [Path(each) for each in found if os.path.exists(each)]


def filled(text: str, values: Mapping[str, str], *, quoted: bool = False) -> str:
    """Replace placeholders in braces by values. A doubled brace becomes a single brace."""
    more = {name: shlex.join(words) for name, words in _COMMANDS.items()}

    def one(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0][0]
        return more[found[1]] if found[1] in more else (shlex.quote if quoted else str)(values[found[1]])

    return _WORD.sub(one, text)


def read(path: Path) -> Pair:
    """Read a pair's file."""
    try:
        with readable(path, "name a pair's file, or give --send and --receive"):
            table = toml.read(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UserError(str(path), f"this is not TOML: {error}", "correct that line") from error
    return replace(of(table, str(path), path.stem), folder=path.absolute().parent)


def of_commands(send: str, receive: str) -> Pair:
    """Create a pair from two commands. The receiver starts first, and is ready when its port is open."""
    programs = [
        {"name": "receive", "on": "receiver", "run": receive, **_guessed(receive)},
        {"name": "send", "on": "sender", "run": send},
    ]
    table: dict[str, Any] = {"format": 1, "program": programs}
    if "{clip" in send + receive:
        table["clip"] = {}
    return of(table, "--send and --receive", "pair")


def _guessed(words: str) -> dict[str, str]:
    port = re.search(r"(?<![\d.])(\d{4,5})(?![\d.])", words)
    if port is None or int(port[1]) > 65535:
        return {}
    return {"ready": f"{'tcp' if 'tcp' in words else 'udp'}:{port[1]}"}


def of(table: Mapping[str, Any], where: str, name: str) -> Pair:
    """Check a pair and return it. ``where`` is the file's name for errors, and ``name`` is the pair's default name."""
    top = _Table(table, where)
    if (version := top.take("format", int, 1)) != 1:
        raise top.wrong("format", f"{version} is not one that this program reads", "write format = 1")
    programs = tuple(map(_program, top.tables("program")))
    for host in ("sender", "receiver"):
        if all(program.on != host for program in programs):
            raise top.wrong(
                "program", f"there is no program for the {host}", f'add a [[program]] with on = "{host}"'
            )
    if (given := top.take("name", str)) is not None:
        name = given
        if not name or "/" in name or "\0" in name:
            raise top.wrong("name", f"{name!r} can't be part of a file name", "use only letters and digits")
    names = [program.name for program in programs]
    if twice := [each for each in names if names.count(each) > 1]:
        raise top.wrong("program", f'two are called "{twice[0]}"', "give each program its own name")
    used = set[str]().union(*(program.used() for program in programs))
    clip, rtp, shown = (next(iter(top.tables(each)), None) for each in ("clip", "rtp", "pictures"))
    pair = Pair(
        name,
        programs,
        top.take("networks", str, "smoke"),
        top.time("lead", "10s"),
        top.time("seconds", "60s"),
        None if clip is None else _clip(clip),
        Rtp() if rtp is None else _rtp(rtp),
        _pictures(shown or _Table({}, where, "pictures."), used),
        tuple(map(_expect, top.tables("expect"))),
    )
    top.end()
    need_time(pair.seconds, f"{where}: seconds")
    if clip is None and (lacking := sorted(each for each in used if each.startswith("clip"))):
        raise top.wrong("clip", f"{{{lacking[0]}}} is named, and there is no clip", "add [clip]")
    return pair


class _Table:
    """A table of the file. Its keys are removed one by one, so that unknown keys are left over."""

    def __init__(self, table: Mapping[str, Any], where: str, path: str = "") -> None:
        self._left, self._where, self._path, self._known = dict(table), where, path, list[str]()

    def wrong(self, key: str, what: str, remedy: str) -> UserError:
        return UserError(self.place(key), what, remedy)

    def place(self, key: str) -> str:
        """Return the place of a key, for errors."""
        return f"{self._where}: {self._path}{key}"

    def take(self, key: str, kind: type | tuple[type, ...], otherwise: Any = None) -> Any:
        """Remove a key, and return its value. Return ``otherwise`` if the key is missing."""
        self._known.append(key)
        value = self._left.pop(key, otherwise)
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if value is not None and (
            not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)
        ):
            called = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
            remedy = f"write {called.get(kinds[-1], 'a table')}"
            raise self.wrong(key, f"{value!r} is not a possible value", remedy)
        return value

    def need(self, key: str, example: str) -> Any:
        """Remove a mandatory key, and return its text."""
        value = self.take(key, str)
        if not value:
            raise self.wrong(key, "missing", f"write for example {key} = {example}")
        return value

    def choice(self, key: str, among: Sequence[str], otherwise: str | None = None) -> str:
        """Remove a key, and return its text. The text must be one of ``among``."""
        return self.one_of(key, self.take(key, str, otherwise), among)

    def one_of(self, key: str, value: str | None, among: Sequence[str]) -> str:
        """Check that a text is one of the choices in ``among``, and return it.

        Raises:
            UserError: the text is missing or is not one of the choices.

        """
        if value is None or value not in among:
            what = "missing" if value is None else f"there is no {value!r}"
            raise self.wrong(key, what, meant(str(value), among))
        return value

    def time(self, key: str, otherwise: str) -> float:
        """Remove a key that contains a time, and return the time in seconds."""
        return seconds(self.take(key, str, otherwise), self.place(key))

    def tables(self, key: str) -> list[_Table]:
        """Remove a key that contains a table or an array of tables, and return the tables."""
        value = self.take(key, (list, dict), [])
        several = [value] if isinstance(value, dict) else value
        if (other := next((each for each in several if not isinstance(each, dict)), None)) is not None:
            raise self.wrong(key, f"{other!r} is not a table", f"write [[{key}]], and its keys below it")
        paths = [f"{key}." if isinstance(value, dict) else f"{key}[{n}]." for n in range(1, len(several) + 1)]
        return [_Table(each, self._where, path) for each, path in zip(several, paths, strict=True)]

    def end(self) -> None:
        """Raise an error if keys are left over, because they are unknown."""
        for key in self._left:
            raise self.wrong(key, "no such key", meant(key, self._known))


def seconds(text: str, place: str) -> float:
    """Parse a time such as "300ms", "10s" or "20min", and return it in seconds."""
    if (found := units.read(text, units.SPAN)) is None:
        raise UserError(place, f"{text!r} is not a time", 'write for example "10s", "300ms" or "20min"')
    return found


def need_time(measured_s: float, place: str) -> None:
    """Check that the scored time is at least `LEAST_S`."""
    if measured_s < LEAST_S:
        problem = f"{measured_s:g} s are too short to score a stream"
        raise UserError(place, problem, f'write at least "{LEAST_S:g}s", for example "20s"')


def _program(table: _Table) -> Program:
    program = Program(
        table.need("name", '"send"'),
        table.choice("on", tuple(HOSTS)),
        table.need("run", '"ffmpeg …"'),
        table.take("ready", str, "delay:300ms"),
        _environment(table),
        table.take("shell", bool, False),
        table.take("ends", bool, False),
    )
    table.end()
    if re.fullmatch(r"[\w.-]+", program.name) is None:
        raise table.wrong(
            "name", f"{program.name!r} can't be part of a file name", "use only letters and digits"
        )
    if program.name in _OURS:
        raise table.wrong(
            "name", f"judge itself has a program called {program.name!r}", "choose another name"
        )
    for used in program.used():
        if used not in PLACES and used not in _COMMANDS:
            remedy = f"{meant(used, (*PLACES, *_COMMANDS))} (two braces are one: {{{{)"
            raise table.wrong("run", f"{{{used}}} stands for nothing", remedy)
    kind, _, what = program.ready.partition(":")
    is_port = units.whole(what, 1, _LAST_PORT) is not None
    if kind not in _READY or not what or (kind in ("udp", "tcp") and not is_port):
        forms = f"udp:PORT, tcp:PORT (1 to {_LAST_PORT}), log:REGEX, file:PATH or delay:TIME"
        raise table.wrong("ready", f"{program.ready!r} is not a known form", f"write {forms}")
    if kind == "delay":
        program = replace(program, ready=f"delay:{seconds(what, 'ready')}")
    # Report mistakes in the pattern and the command before any program runs.
    try:
        _ = re.compile(what if kind == "log" else "")
        words = shlex.split(program.run)
    except (ValueError, re.error) as error:
        raise table.wrong("run" if kind != "log" else "ready", str(error), "correct it") from error
    if "\0" in program.run:
        raise table.wrong("run", "a command can't contain a byte of 0", "leave it out")
    if not words:
        raise table.wrong("run", "there is no command", 'write for example run = "ffmpeg …"')
    return program


def _environment(table: _Table) -> dict[str, str]:
    """Remove the variables that are added to a program's environment, and return them."""
    variables: dict[str, Any] = table.take("env", dict, {})
    for name, value in variables.items():
        if not isinstance(value, str):
            raise table.wrong(f"env.{name}", f"{value!r} is not a text", f'write {name} = "{value}"')
        if not name or "=" in name or "\0" in name + value:
            remedy = 'write for example env = { GST_DEBUG = "3" }'
            raise table.wrong("env", f"{name!r} = {value!r} can't be a variable", remedy)
    return variables


def _clip(table: _Table) -> Marked:
    source, size = table.take("source", str, "synthetic"), table.take("size", str, "640x360")
    fps = str(table.take("fps", (str, int, float), 30))
    clip = Marked(source, size, fps, table.take("mark", bool, True))
    table.end()
    # Report mistakes before any program runs. The clip's own size and rate are known only when it is opened.
    _ = parse_size(size, CIF, table.place("size")), parse_fps(fps, Fraction(25), table.place("fps"))
    return clip


def _rtp(table: _Table) -> Rtp:
    clock, deadline = table.take("clock", int, 90_000), table.time("deadline", "300ms")
    media, rtx, fec = (table.take(key, int) for key in ("media", "rtx", "fec"))
    if clock <= 0:
        raise table.wrong("clock", f"{clock} is not a frequency", "write for example clock = 90000")
    for key, value in (("media", media), ("rtx", rtx), ("fec", fec)):
        if value is not None and not 0 <= value <= _LAST_PAYLOAD_TYPE:
            remedy = f"write a number from 0 to {_LAST_PAYLOAD_TYPE}"
            raise table.wrong(key, f"{value} is not a payload type", remedy)
    rtp = Rtp(media, rtx, fec, clock, deadline)
    table.end()
    return rtp


def _pictures(table: _Table, used: set[str]) -> Pictures:
    otherwise = "pipe" if "pictures" in used else "file" if "out" in used else "none"
    source = table.choice("from", ("pipe", "file", "browser", "none"), otherwise)
    form, crop = table.take("format", str), table.take("crop", str)
    vmaf = table.take("vmaf", bool, False)
    table.end()
    if vmaf and source != "pipe":
        remedy = "write {pictures} in the receiver, or leave it out"
        raise table.wrong("vmaf", "VMAF needs the pictures from a pipe", remedy)
    if form is not None:
        raw_shape(form, table.place("format"))
    found = re.fullmatch(r"([0-9]{1,5})x([0-9]{1,5})\+([0-9]{1,5})\+([0-9]{1,5})", crop or "0x0+0+0")
    if found is None or (crop and 0 in map(int, found.groups()[:2])):
        raise table.wrong("crop", f"{crop!r} is not a part of a picture", 'write for example "640x360+0+60"')
    width, height, left, top = map(int, found.groups())
    return Pictures(source, form, (width, height, left, top) if crop else None, vmaf)


def _expect(table: _Table) -> Expect:
    network, given = table.take("network", str, "*"), table.take("that", str)
    name, factor = renamed(given or "")
    that = table.one_of("that", name or None, [*FIGURES])
    least, most = (table.take(key, (int, float)) for key in ("min", "max"))
    for key, bound in (("min", least), ("max", most)):
        if bound is not None and not math.isfinite(bound):
            raise table.wrong(key, f"{bound} bounds nothing", f"write a finite number, or leave {key} out")
    found = Expect(network, that, *(None if each is None else each * factor for each in (least, most)))
    table.end()
    if found.least is None and found.most is None:
        raise table.wrong("min", "missing", "write min or max")
    return found


def need_tools(pair: Pair) -> None:
    """Check that the programs of a pair are installed, and also the tools that start them."""
    for program in pair.programs:
        words = program.words({**dict.fromkeys(PLACES, "x"), "here": str(pair.folder)})
        where = f"{program.name}: {words[0]}"
        if not program.shell and not check_start(where, words[0]):
            raise MissingError(where, "there is no such program", "install it, or give its path")
    confine.need_tools()
    if pair.pictures.vmaf:
        need_vmaf()
