"""The environment of a confined program, and the files of it that are kept."""

from __future__ import annotations

import os
import random
import re
import socket
from pathlib import Path

import pytest
from steadycast import confine
from steadycast.errors import UserError
from steadycast.judge import cell as cells
from steadycast.judge.pair import of

EVIDENCE = (
    *("wire.parquet", "links.parquet", "rates.parquet", "frames.parquet", "tcp.parquet", "decisions.parquet"),
    *("summary.json", "scenario.toml", "cell.toml", "cost.json", "crew.jsonl", "feed.tsv", "look.tsv"),
    *("send.log", "receive.log", "shown.y", "programs", "programs.txt", "session.sdp", "stats.jsonl", "out"),
)
KINDS = ("file", "link", "pipe", "folder", "socket", "dangling", "hard link", "sparse")


def make(path: Path, kind: str, secret: Path) -> None:
    """Create an entry of this kind, as a hostile program might."""
    match kind:
        case "file":
            path.write_text("forged")
        case "link":
            path.symlink_to(secret)
        case "dangling":
            path.symlink_to("/nowhere/at/all")
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
            (path / "inner").write_text("forged")
            (path / "up").symlink_to(secret.parent)
        case "socket":
            here = os.open(path.parent, os.O_RDONLY)
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(f"/proc/self/fd/{here}/{path.name}")
            os.close(here)
        case "hard link":
            (path.parent / f"{path.name}.first").write_text("forged")
            os.link(path.parent / f"{path.name}.first", path)
        case "sparse":
            with path.open("wb") as file:
                file.truncate(1 << 40)


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("own", ["", "a line\n", "é\nand another\n"])
def test_the_last_lines_of_a_failed_program_are_those_before_it_was_ended(
    tmp_path: Path, own: str, running: bool
) -> None:
    place = cells.folder_of(tmp_path, (task := cells.Task("any", 1)))
    place.mkdir(parents=True)
    (place / "receive.log").write_text(own + "KeyboardInterrupt\n", encoding="utf-8")
    told = {"reason": "too-long", "program": "receive", "detail": "", "logged": len(own.encode())}
    failed = cells._failed(task, place, {**told, "logged": told["logged"] if running else None}).failed
    assert failed is not None
    assert failed["log"] == own.splitlines() + ([] if running else ["KeyboardInterrupt"])


@pytest.mark.parametrize("seed", range(6))
def test_only_regular_files_of_a_bounded_size_are_kept_and_none_of_elsewhere(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    left, secret = tmp_path / "left", tmp_path / "secrets" / "key"
    left.mkdir()
    secret.parent.mkdir()
    secret.write_text("not to be copied")
    made = {name: KINDS[(n + seed) % len(KINDS)] for n, name in enumerate(EVIDENCE)}
    for name, kind in draw.sample(sorted(made.items()), len(made)):
        make(left / name, kind, secret)
    notes = confine.copy_left(left, tmp_path / "kept", most=1 << 20)
    kept = [path for path in (tmp_path / "kept").rglob("*") if not path.is_dir()]
    assert all(path.is_file() and not path.is_symlink() for path in kept)
    assert sum(path.stat().st_size for path in kept) <= 1 << 20
    assert not any(b"not to be copied" in path.read_bytes() for path in kept)
    said = "\n".join(notes)
    assert "no regular file" in said
    assert ("cut there" in said) == ("sparse" in made.values())


def test_many_files_are_cut_and_few_are_kept_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confine, "MOST_FILES", 20)
    left = tmp_path / "left"
    for n in range(5):
        (left / str(n)).mkdir(parents=True)
        for k in range(n * 3):
            (left / str(n) / str(k)).write_text("x" * k)
    notes = confine.copy_left(left, tmp_path / "kept")
    assert len([*(tmp_path / "kept").rglob("*")]) <= 20 + 5
    assert "cut there" in notes[0]
    few = tmp_path / "few"
    few.mkdir()
    (few / "film").write_bytes(b"abc" * 1000)
    assert confine.copy_left(few, tmp_path / "whole") == []
    assert (tmp_path / "whole" / "film").read_bytes() == b"abc" * 1000


def test_a_program_gets_the_variables_that_are_documented_and_its_own_alone() -> None:
    page = (Path(__file__).parents[2] / "docs" / "judge.md").read_text()
    assert all(re.search(rf"\b{name}\b", page) for name in (*confine.ENVIRONMENT, "HOME"))
    caller = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "GITHUB_TOKEN": "s",
        "AWS_SECRET_ACCESS_KEY": "s",
        "HOME": "/root",
    }
    caller |= {"SSH_AUTH_SOCK": "s", "STEADYCAST_NET_A": "/proc/1/ns/net", "SUDO_COMMAND": "x"}
    got = confine.Confinement("/cell").environment(caller, {"MINE": "1"})
    assert got == {"PATH": "/bin", "LC_ALL": "C", "HOME": "/cell", "MINE": "1"}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_user_is_who_typed_sudo_else_nobody_and_a_closed_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STEADYCAST_ROOTLESS", raising=False)
    monkeypatch.delenv("SUDO_UID", raising=False)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    assert confine.user_for([Path("/")])[0] is not None
    user, warning = confine.user_for([closed])
    assert user is None
    assert warning is not None
    assert str(closed) in warning
    monkeypatch.setenv("SUDO_UID", "12345")
    monkeypatch.setenv("SUDO_GID", "54321")
    assert confine.user_for([Path("/")]) == ((12345, 54321), None)
    with pytest.raises(UserError, match="closed"):
        confine.user_for([closed])
    with confine.reachable(closed, (12345, 54321)) as rooms:
        assert rooms != closed
        assert rooms.is_dir()
    assert not rooms.exists()


@pytest.mark.parametrize("name", ["feed", "look"])
def test_a_program_is_not_called_as_one_of_the_judge(name: str) -> None:
    table = {
        "program": [
            {"name": name, "on": "sender", "run": "true"},
            {"name": "b", "on": "receiver", "run": "true"},
        ]
    }
    with pytest.raises(UserError, match="judge itself has a program"):
        of(table, "pair.toml", "pair")


def test_a_browser_is_believed_only_where_the_pair_says_so(tmp_path: Path) -> None:
    programs = [{"name": n, "on": n, "run": "true"} for n in ("sender", "receiver")]
    for source, taken in (("none", {"session.sdp"}), ("browser", {"session.sdp", "stats.jsonl", "look.tsv"})):
        pair = of({"program": programs, "pictures": {"from": source}}, "pair.toml", "pair")
        place = tmp_path / source
        (place / cells.LEFT).mkdir(parents=True)
        for name in EVIDENCE:
            (place / cells.LEFT / name).write_text("said")
        cells.take_said(pair, place)
        assert {path.name for path in place.iterdir() if path.is_file()} == taken
