"""Two runs into one folder, and a system that refuses to write."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from steadycast import signals
from steadycast.errors import UnwrittenError, UserError
from steadycast.files import whole
from steadycast.folder import Claim, Draft, Folder

from tests.conftest import Say, bounded, command, no_room, ran, started, until

SCENARIO = """
duration = "{lasts}"
[topology]
shape = "dumbbell"
bottleneck = {{ rate = "2Mbps", delay = "20ms" }}
[[flow]]
name = "video"
kind = "video"
controller = "asmp"
media = "greedy"
receivers = 2
[[flow]]
name = "tcp"
kind = "tcp"
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "home.toml"
    path.write_text(SCENARIO.format(lasts="6s"))
    return path


# Many short sleeps instead of one long sleep. If a signal arrives just before a system call, CPython handles it only
# after the call has ended.
CONTROLLER = """
import time
print("loading", flush=True)
for _ in range(1200):
    time.sleep(0.05)
"""


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    path = tmp_path / "long.toml"
    path.write_text(SCENARIO.format(lasts="100000s"))
    return path


# ---------------------------------------------------------------- two writers in parallel


def test_a_second_run_into_a_folder_is_refused_before_it_simulates_and_harms_nothing(
    tmp_path: Path, endless: Path
) -> None:
    with bounded(
        subprocess.Popen(command("run", endless, "-o", "mix"), cwd=tmp_path, stderr=subprocess.PIPE)
    ) as first:
        until((tmp_path / "mix.part" / "summary.json").exists)
        # The run would last for hours if it began.
        second = ran(command("run", endless, "-o", "mix"), cwd=tmp_path, code=2)
        assert second.stderr == (
            f"steadycast: mix: another run (process {first.pid}) is writing there; "
            "wait until it has ended, or give another -o DIR\n"
        )
        told = ran(command("report", "mix"), cwd=tmp_path, code=2)
        assert f"mix: another run (process {first.pid}) is writing there" in told.stderr
        assert (tmp_path / "mix.part" / "summary.json").exists()
        first.send_signal(signal.SIGINT)
        _, said = first.communicate(timeout=60)
    assert first.returncode == 130
    assert b"the partial results are in mix.part" in said
    assert json.loads((tmp_path / "mix.part" / "summary.json").read_text())["complete"] is False
    assert (tmp_path / "mix.part" / "scenario.toml").exists()
    assert not (tmp_path / "mix.lock").exists()


def test_a_default_folder_that_is_being_written_is_not_taken(
    tmp_path: Path, scenario: Path, say: Say
) -> None:
    with Claim(tmp_path / "runs" / "home"):
        assert "runs/home-2/report.html" in say("run", scenario).out
    assert sorted(each.name for each in (tmp_path / "runs").iterdir()) == ["home-2"]


def test_a_default_folder_is_taken_before_another_run_can_take_it(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    with Claim.first(runs / "home") as one, Claim.first(runs / "home") as two:
        assert (one.name, two.name) == ("home", "home-2")
        with Draft(one) as draft:
            with pytest.raises(UserError, match="is writing there"), Claim(one):
                pass
            draft.finish({"format": 1, "complete": True, "flows": []})
        with Claim.first(runs / "home") as three:
            assert three.name == "home-3"
    assert [each.name for each in runs.iterdir()] == ["home"]


def test_two_runs_that_begin_at_once_without_a_folder_get_one_each(tmp_path: Path, scenario: Path) -> None:
    both = [
        subprocess.Popen(command("run", scenario), cwd=tmp_path, stdout=subprocess.DEVNULL) for _ in range(2)
    ]
    assert [each.wait(timeout=300) for each in both] == [0, 0]
    assert sorted(each.name for each in (tmp_path / "runs").iterdir()) == ["home", "home-2"]


def test_seeds_into_a_folder_that_is_being_written_are_refused(
    tmp_path: Path, scenario: Path, say: Say
) -> None:
    with Claim(tmp_path / "many"):
        said = say("run", scenario, "--seeds", "1-2", "-o", "many")
    assert (said.code, "is writing there" in said.err) == (2, True)
    assert not (tmp_path / "many").exists()


def test_a_lock_ends_with_the_process_that_had_it(
    tmp_path: Path, scenario: Path, endless: Path, say: Say
) -> None:
    with bounded(subprocess.Popen(command("run", endless, "-o", "mix"), cwd=tmp_path)) as first:
        until((tmp_path / "mix.part" / "summary.json").exists)
        first.kill()
        first.wait()
    assert (tmp_path / "mix.lock").exists()
    said = say("run", scenario, "-o", "mix", code=0)
    assert "mix.part: what an interrupted run left there is replaced\n" in said.err
    assert sorted(each.name for each in tmp_path.iterdir()) == ["home.toml", "long.toml", "mix"]


def test_of_threads_that_want_one_folder_at_once_one_gets_it(tmp_path: Path) -> None:
    ready, refused, held = threading.Barrier(8), [], []

    def want() -> None:
        ready.wait()
        try:
            with Draft(tmp_path / "run") as draft:
                held.append(draft)
                draft.begin()
                time.sleep(0.5)
        except UserError as error:
            refused.append(error)

    threads = [threading.Thread(target=want) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert (len(held), len(refused)) == (1, 7)
    assert all("is writing there" in str(error) for error in refused)


def test_a_mistake_leaves_no_folder_and_no_lock(tmp_path: Path, scenario: Path, say: Say) -> None:
    scenario.write_text(SCENARIO.format(lasts="6s").replace('"asmp"', '"absent.py:Mine"'))
    assert say("run", scenario, "-o", tmp_path / "a" / "b").code == 2
    assert [each.name for each in tmp_path.iterdir()] == ["home.toml"]


# ---------------------------------------------------------------- a system that refuses


def small(most: int, *words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command whose files can't grow beyond ``most`` bytes."""
    return ran(command(*words), cwd=folder, **no_room(most))


def left(folder: Path) -> list[str]:
    """Return the files in a folder, without bytecode, whose existence depends on the environment."""
    files = [each for each in folder.rglob("*") if each.is_file() and each.suffix != ".pyc"]
    return sorted(each.relative_to(folder).as_posix() for each in files)


def is_one_line_of_4(done: subprocess.CompletedProcess[str], name: str) -> None:
    assert done.returncode == 4, done
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert f"{name}: can't be written (File too large); " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("most", "name"), [(0, "mix.part/summary.json"), (4000, "mix.part/"), (60_000, "mix/report.html")]
)
def test_a_run_that_finds_no_room_is_exit_code_4(
    tmp_path: Path, scenario: Path, most: int, name: str
) -> None:
    done = small(most, "run", scenario, "-o", "mix", folder=tmp_path)
    assert done.returncode == 4, done
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"steadycast: {name}")
    assert "can't be written (File too large); " in line
    assert not [each for each in left(tmp_path) if each.endswith((".new", ".lock"))]
    if "part" in name:
        assert not (tmp_path / "mix").exists()
        assert not (tmp_path / "mix.part").exists() or (
            json.loads((tmp_path / "mix.part" / "summary.json").read_text())["complete"] is False
        )
    else:
        assert "mix/report.html" not in left(tmp_path)
        assert json.loads((tmp_path / "mix" / "summary.json").read_text())["complete"] is True


def test_export_compare_and_a_figure_that_find_no_room_are_exit_code_4_and_leave_nothing(
    tmp_path: Path, run_folder: Path
) -> None:
    is_one_line_of_4(
        small(1000, "export", run_folder, "--csv", "-o", "csv", folder=tmp_path), "csv/rates.csv"
    )
    is_one_line_of_4(small(1000, "export", run_folder, "--classic", "-o", "c", folder=tmp_path), "c/sd_be_0")
    is_one_line_of_4(small(1000, "compare", run_folder, "-o", "page.html", folder=tmp_path), "page.html")
    figure = small(1000, "report", run_folder, "--figure", "rates", "-o", "f.png", folder=tmp_path)
    is_one_line_of_4(figure, "f.png")
    assert left(tmp_path) == []


def test_a_report_that_finds_no_room_leaves_the_old_one(tmp_path: Path, scenario: Path, say: Say) -> None:
    assert say("run", scenario, "-o", "mix").code == 0
    before = (tmp_path / "mix" / "report.html").read_text()
    is_one_line_of_4(small(1000, "report", "mix", folder=tmp_path), "mix/report.html")
    assert (tmp_path / "mix" / "report.html").read_text() == before
    assert not (tmp_path / "mix" / "report.html.new").exists()


@pytest.mark.parametrize("words", [["run", "home.toml", "--json"], ["schema"], ["controllers"], ["--help"]])
def test_a_full_standard_output_is_exit_code_4_in_one_line(
    tmp_path: Path, scenario: Path, words: list[str]
) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command(*words),
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 4
    assert done.stderr == (
        "steadycast: standard output: can't be written (No space left on device); make room, or send it elsewhere\n"
    )


@pytest.mark.parametrize("words", [["schema"], ["controllers", "steady"]])
def test_a_reader_that_closes_its_pipe_is_exit_code_4_without_a_line(words: list[str]) -> None:
    process = subprocess.Popen(command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (4, b"")


@pytest.mark.parametrize("words", [["schema"], ["controllers"]])
@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_stop_nothing_but_what_is_written_there(
    words: list[str], closed: str
) -> None:
    shell = ["sh", "-c", f'"$@" {closed}', "sh", *command(*words)]
    done = ran(shell)
    cure = "standard output: can't be written (Bad file descriptor); make room, or send it elsewhere"
    assert done.returncode == (4 if " >&-" in f" {closed}" else 0)
    assert done.stderr == (f"steadycast: {cure}\n" if closed == ">&-" else "")


def test_a_file_takes_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("old")

    def fails(error: Exception) -> None:
        with whole(path) as new:
            new.write_text("half")
            raise error

    with pytest.raises(UnwrittenError, match=r"x\.txt: can't be written \(No space left on device\)"):
        fails(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    with pytest.raises(UnwrittenError, match=r"\(File too large\)"):
        fails(RuntimeError("parquet: underlying IO error: File too large (os error 27)"))
    with pytest.raises(ValueError, match="ours"):
        fails(ValueError("ours"))
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("x.txt", "old")]


def test_a_folder_that_may_not_be_written_is_exit_code_4(say: Say, scenario: Path) -> None:
    said = say("run", scenario, "-o", "/proc/self/mix", code=4)
    assert said.err.startswith("steadycast: /proc/self/mix: can't be written (")


def test_a_folder_in_the_making_is_not_read(tmp_path: Path) -> None:
    with Draft(tmp_path / "run") as draft:
        draft.begin()
        for name in ("run", "run.part"):
            with pytest.raises(UserError, match=f"another run \\(process {os.getpid()}\\) is writing there"):
                Folder.open(tmp_path / name)
    with pytest.raises(UserError, match="interrupted"):
        Folder.open(tmp_path / "run")


# ---------------------------------------------------------------- interruptions


@pytest.mark.parametrize("blow", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_run_as_ctrl_c_does(tmp_path: Path, endless: Path, blow: signal.Signals) -> None:
    with bounded(
        subprocess.Popen(
            command("run", endless, "-o", "mix"), cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )
    ) as run:
        until((tmp_path / "mix.part" / "summary.json").exists)
        run.send_signal(blow)
        _, said = run.communicate(timeout=60)
    assert (run.returncode, said) == (130, "steadycast: interrupted; the partial results are in mix.part\n")
    assert json.loads((tmp_path / "mix.part" / "summary.json").read_text())["complete"] is False
    assert not (tmp_path / "mix.lock").exists()


def test_an_interrupt_while_a_controller_is_loaded_claims_no_part(tmp_path: Path, scenario: Path) -> None:
    (tmp_path / "slow.py").write_text(CONTROLLER)
    scenario.write_text(SCENARIO.format(lasts="6s").replace('"asmp"', '"slow.py:Mine"'))
    run = started(command("run", scenario, "-o", "mix"), cwd=tmp_path)
    assert run.stdout is not None
    assert run.stdout.readline() == "loading\n"
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=60)
    assert (run.returncode, said) == (130, "steadycast: interrupted\n")
    assert left(tmp_path) == ["home.toml", "slow.py"]


def test_the_first_signal_interrupts_the_second_is_heard_out_and_the_third_aborts() -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with signals.obeyed():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGHUP)
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


@pytest.mark.parametrize("first", ["numpy, polars", "polars, numpy"])
def test_an_interrupt_at_polars_first_array_is_no_panic(first: str) -> None:
    """For its first array, polars executes NumPy's Python code.

    A KeyboardInterrupt there would cause an internal error.
    """
    program = f"""
from steadycast import signals

def interrupted(self, text):
    raise KeyboardInterrupt

with signals.obeyed():
    import {first}
    numpy.lib.NumpyVersion.__init__ = interrupted
    print(polars.Series(numpy.zeros(3)).sum())
"""
    done = ran([sys.executable, "-c", program])
    assert (done.returncode, done.stdout) == (0, "0.0\n"), done.stderr


def test_a_signal_that_is_put_off_is_handled_after_the_block() -> None:
    reached = []

    def twice() -> None:
        with signals._put_off():
            signal.raise_signal(signal.SIGTERM)
            with signals._put_off():
                signal.raise_signal(signal.SIGINT)
            reached.append("the end")

    with signals.obeyed():
        with pytest.raises(KeyboardInterrupt):
            twice()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)  # the third
    assert reached == ["the end"]


def test_an_interrupt_while_a_module_is_compiled_interrupts_when_it_is_loaded(tmp_path: Path) -> None:
    """An exception during the import of `letters` would be reported by Python as an error of the importing module."""
    (tmp_path / "named.py").write_text('space = "\\N{NO-BREAK SPACE}"\nprint("loaded", flush=True)\n')
    program = """
import signal, sys
from steadycast import signals

class Blow:
    def find_spec(self, name, path, target=None):
        if name == "unicodedata":
            signal.raise_signal(signal.SIGINT)

sys.modules.pop("unicodedata", None)
sys.meta_path.insert(0, Blow())
with signals.obeyed():
    try:
        import named
    except KeyboardInterrupt:
        print("interrupted")
"""
    done = ran([sys.executable, "-c", program], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "loaded\ninterrupted\n"), done.stderr


def test_a_signal_while_the_record_is_written_does_not_cut_it_off() -> None:
    with signals.obeyed(), signals.held():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.obeyed():
            signal.raise_signal(signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("words", [["scenarios"], ["run", "nothing"]])
def test_a_signal_after_the_end_of_a_command_changes_its_exit_code_no_more(words: list[str]) -> None:
    # Functions registered at exit run when the interpreter ends.
    program = (
        "import atexit, signal, sys\n"
        "from steadycast.__main__ import main\n"
        "atexit.register(lambda: [signal.raise_signal(s) for s in (signal.SIGTERM, signal.SIGHUP)])\n"
        f"sys.argv[1:] = {words}\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert done.returncode == (0 if words == ["scenarios"] else 2)


# ---------------------------------------------------------------- what is missing


def test_a_report_says_which_table_is_missing(tmp_path: Path, scenario: Path, say: Say) -> None:
    assert say("run", scenario, "-o", "mix").code == 0
    assert say("report", "mix").err == ""
    (tmp_path / "mix" / "frames.parquet").unlink()
    said = say("report", "mix", code=0)
    assert said.err == (
        "warning: mix/frames.parquet: missing: the report does without; run the scenario again\n"
    )
