"""A pair's file: its allowed content, and its errors."""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from steadycast.errors import MissingError, UserError
from steadycast.judge import pair as pairs
from steadycast.judge.suite import Asked, _within_budget, named, unseen

ROOT = Path(__file__).parents[2]
SEND = {"name": "send", "on": "sender", "run": "send {receiver}:5004 {clip}"}
RECEIVE = {"name": "receive", "on": "receiver", "run": "receive {pictures}", "ready": "udp:5004"}
GOOD: dict[str, Any] = {"format": 1, "clip": {"fps": 25}, "program": [RECEIVE, SEND]}


def said(table: dict[str, Any]) -> str:
    with pytest.raises(UserError) as caught:
        pairs.of(table, "pair.toml", "pair")
    return str(caught.value)


def test_a_pair_is_read() -> None:
    pair = pairs.of(GOOD, "pair.toml", "pair")
    assert [p.name for p in pair.programs] == ["receive", "send"]
    assert pair.pictures.source == "pipe"
    assert pair.used == {"receiver", "clip", "pictures"}
    assert (pair.lead_s, pair.seconds, pair.networks) == (10.0, 60.0, "smoke")


@pytest.mark.parametrize(
    ("change", "place", "remedy"),
    [
        ({"format": 2}, "pair.toml: format", "write format = 1"),
        ({"secnds": "10s"}, "pair.toml: secnds", 'did you mean "seconds"?'),
        ({"seconds": "10"}, "pair.toml: seconds", "300ms"),
        ({"lead": 10}, "pair.toml: lead", "write a text"),
        ({"clip": {"siz": "1x1"}}, "pair.toml: clip.siz", 'did you mean "size"?'),
        ({"program": [SEND]}, "pair.toml: program", 'on = "receiver"'),
        ({"program": [SEND, RECEIVE, SEND]}, "pair.toml: program", "its own name"),
        (
            {"program": [{**SEND, "on": "sendr"}, RECEIVE]},
            "pair.toml: program[1].on",
            'did you mean "sender"?',
        ),
        (
            {"program": [{**SEND, "run": "x {clp}"}, RECEIVE]},
            "pair.toml: program[1].run",
            'did you mean "clip"?',
        ),
        ({"program": [{**SEND, "run": "x 'y"}, RECEIVE]}, "pair.toml: program[1].run", "correct it"),
        ({"program": [{**SEND, "ready": "upd:1"}, RECEIVE]}, "pair.toml: program[1].ready", "udp:PORT"),
        ({"program": [{**SEND, "ready": "log:("}, RECEIVE]}, "pair.toml: program[1].ready", "correct it"),
        ({"program": [{**SEND, "ends": "no"}, RECEIVE]}, "pair.toml: program[1].ends", "true or false"),
        ({"seconds": "0s"}, "pair.toml: seconds", '"20s"'),
        (
            {"seconds": "1ns"},
            "pair.toml: seconds",
            '1e-09 s are too short to score a stream; write at least "1s"',
        ),
        ({"seconds": "999ms"}, "pair.toml: seconds", 'at least "1s"'),
        ({"pictures": {"format": "rgb"}}, "pair.toml: pictures.format", "yuv420p 640x360"),
        ({"pictures": {"from": "none", "vmaf": True}}, "pair.toml: pictures.vmaf", "write {pictures}"),
        ({"pictures": {"crop": "1x1"}}, "pair.toml: pictures.crop", "640x360+0+60"),
        ({"expect": [{"that": "frozen_frac"}]}, "pair.toml: expect[1].min", "write min or max"),
        ({"expect": [{"that": "frozen"}]}, "pair.toml: expect[1].that", 'did you mean "frozen_frac"?'),
        ({"expect": [{"min": 1}]}, "pair.toml: expect[1].that", "in_time_frac"),
        ({"program": [SEND, 5]}, "pair.toml: program", "write [[program]]"),
        ({"expect": ["frozen_frac"]}, "pair.toml: expect", "write [[expect]]"),
        ({"name": "a/b"}, "pair.toml: name", "letters and digits"),
        ({"clip": {"fps": 0}}, "pair.toml: clip.fps", "from 1 to 240"),
        ({"clip": {"fps": "1e99999999"}}, "pair.toml: clip.fps", "a number such as 25"),
        ({"clip": {"size": "0x0"}}, "pair.toml: clip.size", "from 16 to 8192"),
        ({"clip": {"size": f"{'9' * 5000}x64"}}, "pair.toml: clip.size", "from 16 to 8192"),
        ({"rtp": {"clock": 0}}, "pair.toml: rtp.clock", "clock = 90000"),
        ({"rtp": {"media": 128}}, "pair.toml: rtp.media", "from 0 to 127"),
        ({"pictures": {"format": "yuv420p 0x0"}}, "pair.toml: pictures.format", "yuv420p 640x360"),
        ({"pictures": {"crop": "0x360+0+0"}}, "pair.toml: pictures.crop", "640x360+0+60"),
        (
            {"expect": [{"that": "frozen_frac", "max": float("nan")}]},
            "pair.toml: expect[1].max",
            "finite number",
        ),
        ({"program": [{**SEND, "ready": "udp:99999"}, RECEIVE]}, "pair.toml: program[1].ready", "65535"),
        ({"program": [{**SEND, "run": "x {}"}, RECEIVE]}, "pair.toml: program[1].run", "two braces"),
        ({"program": [{**SEND, "run": "x \0"}, RECEIVE]}, "pair.toml: program[1].run", "leave it out"),
        (
            {"program": [{**SEND, "env": {"LEVEL": 3}}, RECEIVE]},
            "pair.toml: program[1].env.LEVEL",
            'LEVEL = "3"',
        ),
        ({"program": [{**SEND, "env": {"A=B": "x"}}, RECEIVE]}, "pair.toml: program[1].env", "GST_DEBUG"),
    ],
)
def test_each_mistake_has_its_place_and_its_remedy(change: dict[str, Any], place: str, remedy: str) -> None:
    text = said({**GOOD, **change})
    assert text.startswith(place + ":"), text
    assert remedy in text


def test_the_shortest_time_that_can_be_scored_is_accepted() -> None:
    assert pairs.of({**GOOD, "seconds": "1s"}, "pair.toml", "pair").seconds == 1


def test_a_program_s_text_in_its_command_is_not_a_path() -> None:
    text = "import socket; " * 200
    program = {**RECEIVE, "run": f"sh -c '{text}' {{pictures}}"}
    pair = pairs.of({**GOOD, "program": [program, SEND]}, "pair.toml", "pair")
    assert [path.name for path in pair.reads()] == ["sh"]


@pytest.mark.parametrize("nested", ["x = " + "[" * 5000, "x = " + "{a=" * 5000, "a" + ".a" * 20_000 + " = 1"])
def test_a_file_that_is_nested_too_deep_is_refused(tmp_path: Path, nested: str) -> None:
    path = tmp_path / "pair.toml"
    path.write_text(nested)
    with pytest.raises(
        UserError, match=r"pair\.toml: this is not TOML: .* nested too deep; correct that line"
    ):
        pairs.read(path)


def test_a_clip_that_is_named_must_be_there() -> None:
    assert "add [clip]" in said({key: value for key, value in GOOD.items() if key != "clip"})


def test_what_stands_in_braces_is_one_word_whatever_is_in_it() -> None:
    program = pairs.of(GOOD, "", "").programs[1]
    values = {**dict.fromkeys(pairs.PLACES, ""), "receiver": "10.0.0.2", "clip": "/a b/c'd"}
    assert program.words(values) == ["send", "10.0.0.2:5004", "/a b/c'd"]
    shell = replace(program, shell=True, run="{steadycast} {clip} '{{x}}' > {clip}")
    own = f"{sys.executable} -m steadycast"
    assert shell.words(values) == ["sh", "-c", f"{own} '/a b/c'\"'\"'d' '{{x}}' > '/a b/c'\"'\"'d'"]
    ours = replace(program, run="{steadycast} send {{}}")
    assert ours.words(values) == [sys.executable, "-m", "steadycast", "send", "{}"]


@pytest.mark.parametrize(
    ("words", "ready"),
    [
        ("x -p 5004", "udp:5004"),
        ("ffmpeg -i srt://0.0.0.0:6000?mode=listener", "udp:6000"),
        ("x --tcp 5201", "tcp:5201"),
        ("iperf3 -s", "delay:0.3"),
        ("x 99999", "delay:0.3"),
        ("x 10.0.0.1", "delay:0.3"),
    ],
)
def test_two_commands_are_a_pair_whose_receiver_is_ready_with_its_port(words: str, ready: str) -> None:
    pair = pairs.of_commands("send {clip.pipe}", words)
    assert [(p.name, p.on, p.ready) for p in pair.programs] == [
        ("receive", "receiver", ready),
        ("send", "sender", "delay:0.3"),
    ]
    assert pair.clip is not None


@pytest.mark.parametrize("suffix", ["", "+cubic", "+2cubic"])
def test_a_network_s_file_that_is_missing_is_named_with_its_folder(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(UserError, match=re.escape(f"there is no file {tmp_path}/a/b.toml;")):
        named(f"smoke,a/b.toml{suffix}", tmp_path)


def test_a_budget_says_what_fits() -> None:
    pair = pairs.of(GOOD, "", "")
    _within_budget(Asked(pair, budget_s=450.0), 6)
    with pytest.raises(
        UserError, match=r"6 runs of 75 s take 7.5 min; write --seconds 58s, or choose at most 5 runs"
    ):
        _within_budget(Asked(pair, budget_s=440.0), 6)
    with pytest.raises(UserError, match=r"--budget 10s: .*allow more"):
        _within_budget(Asked(pair, budget_s=10.0), 6)


def test_the_pair_of_the_page_is_read() -> None:
    page = (ROOT / "docs" / "judge.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert [pairs.of(tomllib.loads(block), "judge.md", "").name for block in blocks] == ["mine"]


EXAMPLES = ROOT / "examples" / "judge"


@pytest.mark.parametrize(
    "path", sorted([*EXAMPLES.glob("*.toml"), *EXAMPLES.glob("*/*.toml")]), ids=lambda path: path.stem
)
def test_each_example_is_read_and_the_files_beside_it_that_it_names_are_there(path: Path) -> None:
    pair = pairs.read(path)
    assert pair.programs
    named = re.findall(r"\{here\}/([\w.-]+)(?= |$)", " ".join(program.run for program in pair.programs))
    assert all((path.parent / each).is_file() for each in named)


def test_here_is_the_folder_of_the_pairs_file(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    (tmp_path / "pair.toml").write_text(
        '[[program]]\nname = "a"\non = "sender"\nrun = "{here}/own"\n'
        '[[program]]\nname = "b"\non = "receiver"\nrun = "{here}/other"\n'
    )
    with pytest.raises(MissingError, match=re.escape(f"b: {tmp_path}/other: there is no such program")):
        pairs.need_tools(pairs.read(tmp_path / "pair.toml"))


@pytest.mark.parametrize(
    ("first_line", "mode", "said"),
    [
        ("#!/bin/sh\n", 0o644, "is not executable; chmod +x "),
        ("#!/bin/sh\r\n", 0o755, "has the line ends of Windows"),
        ("#!/bin/none-such\n", 0o755, "names an interpreter that does not exist"),
        ("#!/bin/sh\n", 0o755, None),
        # The system starts a text without an interpreter by a shell.
        ("sleep 1\n", 0o755, None),
    ],
)
def test_a_program_that_cannot_be_started_is_refused_for_the_true_reason(
    tmp_path: Path, first_line: str, mode: int, said: str | None
) -> None:
    for name in ("own", "other"):
        (tmp_path / name).write_text(first_line if name == "own" else "#!/bin/sh\n")
        (tmp_path / name).chmod(mode if name == "own" else 0o755)
    (tmp_path / "pair.toml").write_text(
        '[[program]]\nname = "a"\non = "sender"\nrun = "{here}/own"\n'
        '[[program]]\nname = "b"\non = "receiver"\nrun = "{here}/other"\n'
    )
    pair = pairs.read(tmp_path / "pair.toml")
    if said is None:
        pairs.need_tools(pair)
        return
    with pytest.raises(UserError, match=re.escape(f"a: {tmp_path}/own: ")) as error:
        pairs.need_tools(pair)
    assert said in str(error.value)


@pytest.mark.parametrize("network", ["steps", "leo", "black-hole", "wifi-suspend", "clean-20"])
@pytest.mark.parametrize("length", [5, 10, 20, 60])
def test_a_change_that_no_picture_is_counted_after_is_told_with_the_time_that_has_it(
    network: str, length: int
) -> None:
    def told(seconds: int) -> list[str]:
        table = {**GOOD, "networks": network, "seconds": f"{seconds}s"}
        return unseen(Asked(pairs.of(table, "pair.toml", "pair")))

    first = {"steps": 20, "leo": 15, "black-hole": 20, "wifi-suspend": 1.8}.get(network, 0)
    last = {"steps": 40, "black-hole": 22}.get(network, first)
    said = told(length)
    assert len(said) == (length <= last)
    for line in said:
        assert line.startswith(f"{network}: ")
        needed = re.search(r"--seconds (\d+)s", line)
        assert needed is not None
        assert told(int(needed[1])) == []
