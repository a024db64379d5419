"""Two hundred scenario files with a mistake. Each is answered with file, line, key and remedy."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from steadycast import cli

from tests.conftest import ROOT, ran

FILES = ["ci", "demo", "dumbbell", "home"]

# One invalid value in a file that is valid TOML: the key of a line, and its new value.
BAD_VALUES = [
    ("type", "duration", "80"),
    ("type", "duration", "true"),
    ("type", "seed", '"one"'),
    ("type", "name", "7"),
    ("type", "receivers", '"many"'),
    ("type", "between", '"left"'),
    ("type", "controller", "[]"),
    ("type", "start", "{ uniform = [1, 2] }"),
    ("sign", "duration", '"-80s"'),
    ("sign", "seed", "-1"),
    ("sign", "receivers", "-3"),
    ("sign", "warmup", '"-5s"'),
    ("sign", "count", "-2"),
    ("unit", "duration", '"80"'),
    ("unit", "duration", '"80 furlongs"'),
    ("unit", "warmup", '"5Mbps"'),
    ("unit", "bytes", '"300kb"'),
    ("unit", "send_jitter", '"1p"'),
    ("NaN", "duration", "nan"),
    ("NaN", "seed", "inf"),
    ("NaN", "receivers", "nan"),
    ("NaN", "min", "nan"),
    ("NaN", "playout", "nan"),
    ("name", "controller", '"asmpp"'),
    ("name", "congestion", '"newrino"'),
    ("name", "kind", '"vidio"'),
    ("name", "shape", '"dumbell"'),
    ("name", "preset", '"ns3"'),
    ("name", "media", '"film"'),
    ("name", "that", '"flows.tcq.share_of_fair"'),
    ("range", "receivers", "0"),
    ("range", "format", "99"),
    ("range", "duration", '"0s"'),
]


def one_bad_value(chance: random.Random, text: str) -> str | None:
    """The text with one value replaced; ``None`` if it has no such key."""
    way, key, value = chance.choice(BAD_VALUES)
    lines = text.splitlines()
    places = [n for n, line in enumerate(lines) if line.startswith(f"{key} = ")]
    if not places:
        return None
    place = chance.choice(places)
    lines[place] = f"{key} = {value}"
    # An expectation's path is checked when there are results, so that `check` can't reject it.
    return None if way == "name" and key == "that" else "\n".join(lines)


def one_bad_inner(chance: random.Random, text: str) -> str | None:
    """The text with one quantity inside a table replaced."""
    pattern, value = chance.choice(
        [
            (r'rate = "\d+\w+"', 'rate = "-4Mbps"'),
            (r'rate = "\d+\w+"', "rate = 4"),
            (r'rate = "\d+\w+"', 'rate = "4MB"'),
            (r'rate = "\d+\w+"', "rate = nan"),
            (r'delay = "\d+ms"', 'delay = "20"'),
            (r'delay = "\d+ms"', 'delay = "-20ms"'),
            (r'limit = "\d+p"', "limit = 50"),
            (r'limit = "\d+p"', 'limit = "0p"'),
            (r'kind = "droptail"', 'kind = "codle"'),
            (r'limit = "\d+p"', 'limit = "50p", limti = "50p"'),
            (r'mean = "\ds"', "mean = nan"),
            (r'uniform = \["0s", "(\d)s"\]', 'uniform = ["9s", "1s"]'),
        ]
    )
    found = list(re.finditer(pattern, text))
    found = [m for m in found if not text[text.rfind("\n", 0, m.start()) + 1 :].startswith("#")]
    if not found:
        return None
    match = chance.choice(found)
    return text[: match.start()] + value + text[match.end() :]


def a_duplicate(chance: random.Random, text: str) -> str:
    """The text with a key twice, a flow's name twice, or a link from a node to itself."""
    lines = text.splitlines()
    way = chance.randrange(3)
    if way == 0:
        place = chance.choice([n for n, line in enumerate(lines) if re.match(r"[a-z]+ = ", line)])
        return "\n".join([*lines[: place + 1], lines[place], *lines[place + 1 :]])
    if way == 1:
        return text + '\n[[flow]]\nname = "video"\nkind = "tcp"\n'
    return text + '\n[[link]]\nname = "loop"\nbetween = ["left", "left"]\n'


def an_unknown_key(chance: random.Random, text: str) -> str:
    lines = text.splitlines()
    place = chance.choice([n for n, line in enumerate(lines) if re.match(r"[a-z]+ = ", line)])
    key = lines[place].split(" = ")[0]
    lines[place] = lines[place].replace(key, key[:-1] + chance.choice("xz") if len(key) > 3 else key + "q", 1)
    return "\n".join(lines)


def not_toml(chance: random.Random, text: str) -> str:
    """The text with a part removed or garbled, so that it usually is invalid TOML."""
    place = chance.randrange(len(text))
    garbage = chance.choice(['"', "[", "]]", "= =", "\x00", "{", "\n\n[[", "'''", "\\u12", "\n= 3\n"])
    return text[:place] + garbage + text[place + chance.randrange(4) :]


WAYS: list[Callable[[random.Random, str], str | None]] = [
    one_bad_value,
    not_toml,
    one_bad_inner,
    a_duplicate,
    one_bad_value,
    not_toml,
    one_bad_inner,
    an_unknown_key,
]


def two_hundred() -> list[str]:
    """Mutated files; the same two hundred every time."""
    chance = random.Random(200)
    texts = [(ROOT / "scenarios" / f"{name}.toml").read_text(encoding="utf-8") for name in FILES]
    mutated: list[str] = []
    while len(mutated) < 200:
        made = WAYS[len(mutated) % len(WAYS)](chance, chance.choice(texts))
        if made is not None:
            mutated.append(made)
    return mutated


def checked(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str = "check",
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["steadycast", command, str(path)])
    code = 0
    try:
        cli.main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0
    said = capsys.readouterr()
    assert "Traceback" not in said.err + said.out
    return code, said.err


def test_two_hundred_files_with_a_mistake_are_answered_with_line_key_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    harmless = 0
    for number, text in enumerate(two_hundred()):
        path = tmp_path / f"mutated-{number}.toml"
        path.write_text(text, encoding="utf-8")
        code, said = checked(path, monkeypatch, capsys)
        garbled = WAYS[number % len(WAYS)] is not_toml
        if garbled and code == 0:
            harmless += 1  # a change inside a comment or a text is harmless
            continue
        assert code == 2, f"{number}: {said}\n{text}"
        lines = said.strip().splitlines()
        assert lines, text
        for line in lines:
            # file:line: key: problem; remedy. A text that is invalid TOML has no key.
            place = re.match(rf"{re.escape(str(path))}:\d+:", line)
            assert place, f"{number}: {line}\n{text}"
            problem, _, remedy = line[place.end() :].rpartition("; ")
            assert problem.strip(), f"{number}: {line}"
            assert len(remedy) > 5, f"{number}: {line}"
            if not garbled:
                assert re.match(r" [\w.\-\[\]]+:? ", problem), f"{number}: {line}"
    assert harmless <= 25, "most of what is garbled is no TOML"


@pytest.mark.parametrize("command", ["check", "experiment"])
@pytest.mark.parametrize("nested", ["x = " + "[" * 5000, "x = " + "{a=" * 5000, "a" + ".a" * 20_000 + " = 1"])
def test_a_file_that_is_nested_too_deep_is_refused_with_its_place(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    nested: str,
) -> None:
    path = tmp_path / "deep.toml"
    path.write_text(f"name = 'deep'\n{nested}\n")
    code, said = checked(path, monkeypatch, capsys, command)
    assert code == 2
    assert f"{path}:2: " in said


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_the_command_itself_says_the_same(tmp_path: Path, number: int) -> None:
    text = two_hundred()[number]
    path = tmp_path / "mutated.toml"
    path.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "steadycast", "check", str(path)]
    for words in (command, [*command[:-2], "run", str(path)]):
        done = ran(words, cwd=tmp_path, code=2)
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        assert re.search(r"mutated\.toml:\d+: .+; .+", done.stderr), done.stderr
    assert not list(tmp_path.glob("runs*")), "nothing was run"
