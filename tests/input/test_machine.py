"""A missing requirement gives one line and exit code 3. The processes of a user's controller end with the command."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from tests.conftest import ran
from tests.live.conftest import steadycast

SCENARIO = """
duration = "2s"
nodes = ["s", "r"]
[[link]]
between = ["s", "r"]
rate = "2Mbps"
[[flow]]
name = "video"
kind = "video"
controller = "{controller}"
media = "{media}"
from = "s"
to = "r"
"""


def scenario(folder: Path, controller: str = "fixed", media: str = "greedy") -> Path:
    place = folder / "small.toml"
    place.write_text(SCENARIO.format(controller=controller, media=media), encoding="utf-8")
    return place


def done(*words: str | Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    import os

    found = os.pathsep.join(filter(None, [str(path) if path else "", os.environ.get("PYTHONPATH", "")]))
    return ran(steadycast(*words), env={**os.environ, "PYTHONPATH": found})


@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ('raise ImportError("libavcodec.so.62: cannot open shared object file", name="av")', "av"),
        ("raise MemoryError", "memory"),
        ('raise RuntimeError("can\'t start new thread")', "threads and processes"),
        ('raise OSError(12, "Cannot allocate memory")', "memory"),
    ],
)
@pytest.mark.parametrize("command", ["run", "send"])
def test_a_library_or_memory_that_is_lacking_is_one_line(
    tmp_path: Path, fault: str, place: str, command: str
) -> None:
    (tmp_path / "av").mkdir()
    (tmp_path / "av" / "__init__.py").write_text(fault + "\n")
    words: tuple[str | Path, ...] = ("run", scenario(tmp_path, media="synthetic"), "-o", tmp_path / "out")
    if command == "send":
        words = ("send", "testsrc", "--to", "127.0.0.1:9")
    said = done(*words, path=tmp_path)
    assert said.returncode == 3, said.stderr
    (line,) = [line for line in said.stderr.splitlines() if line.startswith("steadycast: ")]
    assert line.startswith(f"steadycast: {place}: ")
    assert "Traceback" not in said.stderr


CONTROLLER = """
import os
import threading
import time


class Odd:
    def __init__(self, setup):
        self.done = False

    def on_report(self, report):
        if not self.done:
            self.done = True
            {deed}

    def rate_bps(self):
        return 500_000.0
"""


def test_a_process_that_a_controller_forks_ends_where_the_run_does(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(CONTROLLER.format(deed="os.fork()"))
    said = done("run", scenario(tmp_path, "odd.py:Odd"), "-o", tmp_path / "out")
    assert said.returncode == 0, said.stderr
    assert "Traceback" not in said.stderr
    # No other process continued to write to the same folder.
    assert sorted(place.name for place in tmp_path.iterdir() if place.is_dir()) in (
        ["out"],
        ["__pycache__", "out"],
    )
    assert said.stdout.count("report:") == 1


def test_a_thread_that_does_not_end_is_left_behind_with_a_line(tmp_path: Path) -> None:
    deed = "threading.Thread(target=time.sleep, args=(3600,), name='endless').start()"
    (tmp_path / "odd.py").write_text(CONTROLLER.format(deed=deed))
    said = done("run", scenario(tmp_path, "odd.py:Odd"), "-o", tmp_path / "out")
    assert said.returncode == 0, said.stderr
    assert "left behind: the thread endless" in said.stderr


def test_systemds_copy_of_a_key_is_read_whatever_its_mode_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from steadycast.errors import UserError
    from steadycast.live import session

    key = tmp_path / "key"
    key.write_text("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNk")
    key.chmod(0o440)
    with pytest.raises(UserError, match="other users can read"):
        session.read_key(key)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert session.read_key(key)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "other"))
    with pytest.raises(UserError, match="other users can read"):
        session.read_key(key)


def test_a_key_is_read_from_a_file_or_a_pipe_and_a_device_is_refused_without_a_change_of_its_rights(
    tmp_path: Path,
) -> None:
    from steadycast.errors import UserError
    from steadycast.live import session

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    writer = threading.Thread(target=pipe.write_text, args=("MDEyMzQ1",))
    writer.start()
    assert session.read_key(pipe) == "MDEyMzQ1"
    writer.join()
    for place in (Path("/dev/null"), tmp_path):
        with pytest.raises(
            UserError, match="this is no file, so it has no key; make one with: openssl"
        ) as refused:
            session.read_key(place)
        assert "chmod" not in str(refused.value)
    with pytest.raises(UserError, match="No such file"):
        session.read_key(tmp_path / "none")


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}


@pytest.mark.parametrize("words", ["check --explain queue", "networks --json", "schema"])
def test_output_in_an_encoding_that_lacks_characters_is_printed(words: str) -> None:
    import json
    import os

    said = ran(steadycast(*words.split()), env={**os.environ, **ASCII}, code=0)
    assert said.stdout.isascii()
    assert words.startswith("check") or json.loads(said.stdout)


@pytest.mark.parametrize("words", ["--version", "scenarios"])
@pytest.mark.parametrize("output", [">/dev/full", ">&-"])
def test_output_that_can_t_be_written_is_exit_code_4(words: str, output: str) -> None:
    said = ran(["sh", "-c", f'"$@" {output}', "sh", *map(str, steadycast(words))], code=4)
    assert said.stderr.startswith("steadycast: standard output: can't be written")
    assert said.stderr.count("\n") == 1


def test_a_current_folder_that_was_removed_is_one_line(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    words = [str(word) for word in steadycast("run", "ci", "-o", "out")]
    said = ran(["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *words], cwd=gone, code=2)
    assert said.stderr == "steadycast: the current folder: it was removed; go to another one by cd\n"
