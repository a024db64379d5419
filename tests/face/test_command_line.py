from __future__ import annotations

import errno
import html
import importlib
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from steadycast.controllers import find
from steadycast.folder import Draft
from steadycast.loading import load
from steadycast.result import Run
from steadycast.run_pipeline import Ready, record_of

from tests.conftest import SMALL, Say, ran, started

HOME = SMALL.replace('"small"', '"home"').replace('"3s"', '"6s"').replace("media", "receivers = 2\nmedia")
HOME += """
[[expect]]
that = "flows.tcp.share_of_fair"
min = 0.01
"""
LONG = "a" * 300
COMMANDS = [
    *("run", "demo", "scenarios", "networks", "clips", "doctor", "sweep", "experiment", "test-cases"),
    *("emulate", "agree"),
    *("judge", "report", "compare", "encode", "quality", "export", "call", "psnr", "received"),
    *("controllers", "check", "schema", "lab", "reproduce", "send", "serve", "receive"),
]


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """Two receivers beside TCP for six seconds, without pixels."""
    path = tmp_path / "home.toml"
    path.write_text(HOME)
    return path


def test_help_names_all_commands_and_none_that_is_not_there(say: Say) -> None:
    said = say("--help")
    commands = [
        line.split()[0]
        for line in said.out.split("Commands:")[1].splitlines()
        if line.startswith("  ") and line[2:3] != " "
    ]
    assert said.code == 0
    assert [c for c in commands if c.islower()] == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_each_commands_help_has_an_example(say: Say, command: str) -> None:
    said = say(command, "--help", code=0)
    assert f"  steadycast {command}" in said.out


@pytest.mark.parametrize("command", COMMANDS)
def test_a_name_of_bytes_that_are_no_text_is_refused_by_each_command(say: Say, command: str) -> None:
    said = say(command, os.fsdecode(b"a\xff"))
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("steadycast: 'a\\udcff': these bytes are no utf-8; rename it")
    assert said.err.count("\n") == 1


def test_help_imports_none_of_the_heavy_libraries() -> None:
    code = (
        "import sys; from steadycast.cli import app; "
        "print([m for m in ('matplotlib', 'polars', 'numpy', 'av') if m in sys.modules])"
    )
    done = ran([sys.executable, "-c", code], check=True)
    assert done.stdout.strip() == "[]"


HEAVY = ("av", "matplotlib", "numpy", "numpy.ma", "polars")
"""Packages whose import takes longer than a short run."""


@pytest.mark.parametrize(
    ("words", "loads"),
    [
        (("--help",), ()),
        (("run", "--help"), ()),
        (("scenarios",), ()),
        (("networks",), ()),
        (("controllers", "steady"), ()),
        (("schema",), ()),
        (("check", "home"), ()),
        (("doctor", "--help"), ()),
        (("run", "home", "--set", "duration=8s", "--set", "flow.video.media=greedy", "--json"), ()),
        (("run", "home", "--set", "duration=8s", "--set", "flow.video.media=table2", "--json"), ("numpy",)),
        (("run", "home", "--set", "duration=8s", "--json"), ("av", "numpy")),
    ],
    ids=" ".join,
)
def test_a_command_loads_the_packages_that_it_uses_and_no_others(
    words: tuple[str, ...], loads: tuple[str, ...]
) -> None:
    code = (
        "import sys; from steadycast import cli\n"
        f"sys.argv = ['steadycast', *{words!r}]\n"
        "try: cli.main()\n"
        "except SystemExit as end: code = end.code\n"
        f"print(code, *(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)"
    )
    done = ran([sys.executable, "-c", code], check=True)
    ended, *found = done.stderr.splitlines()[-1].split()
    assert ended == "0"
    assert tuple(found) == loads


def test_run_prints_a_table_of_80_columns_the_expectations_and_the_report(
    say: Say, scenario: Path, tmp_path: Path
) -> None:
    said = say("run", scenario, "-o", tmp_path / "home")
    lines = said.out.splitlines()
    assert said.code == 0
    assert all(len(line) <= 80 for line in lines if not line.startswith("report:"))
    assert any(line.startswith("video (asmp) → 2") for line in lines)
    assert any(line.startswith("flows.tcp.share_of_fair") and "holds" in line for line in lines)
    assert lines[-1] == f"report: {tmp_path / 'home' / 'report.html'}"
    assert (tmp_path / "home" / "report.html").exists()


def test_json_is_the_summary_alone_and_writes_nothing(say: Say, scenario: Path, tmp_path: Path) -> None:
    said = say("run", scenario, "--json")
    assert json.loads(said.out)["flows"][0]["name"] == "video"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["home.toml"]


def test_without_a_folder_results_go_to_runs_and_replace_nothing(
    say: Say, scenario: Path, tmp_path: Path
) -> None:
    assert say("run", scenario).code == 0
    assert say("run", scenario).code == 0
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["home", "home-2"]


def test_a_failed_expectation_is_exit_code_1_with_its_table(say: Say, scenario: Path, tmp_path: Path) -> None:
    scenario.write_text(HOME.replace("min = 0.01", "min = 9"))
    said = say("run", scenario, "-o", tmp_path / "home", code=1)
    assert "fails" in said.out


def test_a_promise_can_be_expected_by_the_name_under_which_it_is_described(say: Say, scenario: Path) -> None:
    scenario.write_text(
        HOME.replace("flows.tcp.share_of_fair", "invariants.asmp.least-counts.checked").replace("0.01", "1")
    )
    said = json.loads(say("run", scenario, "--json").out)
    [judged] = said["expect"]
    [promise] = [one for one in said["invariants"] if one["id"] == "asmp.least-counts"]
    assert judged["ok"]
    assert judged["value"] == promise["checked"] > 1
    assert promise["about"] in " ".join(say("controllers", "asmp").out.split())


def test_a_promise_that_a_run_breaks_is_said_in_terminal_page_and_summary(
    say: Say, scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [(name, about)] = [each for each in find("steady").promises if each[0] == "steady.at-most-twice"]
    said = f"the promise {name} was broken 2 of 7 times (video): {about}"

    def broken(ready: Ready, *, complete: bool) -> Run:
        run = record_of(ready, complete=complete)
        run.summary["invariants"] = [{"id": name, "about": about, "checked": 7, "broken": 2}]
        run.summary["warnings"].append(said)
        return run

    monkeypatch.setattr("steadycast.run_pipeline.record_of", broken)
    done = say("run", scenario, "-o", tmp_path / "home", code=0)
    assert said in " ".join(done.err.split())
    assert said in json.loads((tmp_path / "home" / "summary.json").read_text())["warnings"]
    page = html.unescape((tmp_path / "home" / "report.html").read_text())
    assert page.count(said) == 1
    assert page.index("Broken promises") < page.rindex(name)


def test_several_seeds_make_a_folder_with_a_report_for_each(say: Say, scenario: Path, tmp_path: Path) -> None:
    said = say("run", scenario, "--seeds", "1-2", "-o", tmp_path / "many", code=0)
    assert "…" not in said.out, "each number is there"
    parts = [part.splitlines() for part in said.out.split("\n\n")[:2]]
    for lines in parts:
        assert max(map(len, lines)) <= 80
        assert [line.split()[0] for line in lines if line.startswith(("flow ", "video ", "tcp "))] == [
            "flow",
            "video",
            "tcp",
        ]
    heads = " ".join(lines[0] for lines in parts).split()
    assert [heads.count(head) for head in ("flow", "throughput", "loss", "frozen")] == [2, 1, 1, 1]
    assert "±" in said.out
    assert sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("report.html")) == [
        "many/report.html",
        "many/seed-1/report.html",
        "many/seed-2/report.html",
    ]


def test_an_interrupt_is_130_and_names_what_is_left(
    say: Say, scenario: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stops(*_: Any, out: Path, **__: Any) -> None:
        with Draft(out) as draft:
            draft.begin()
            raise KeyboardInterrupt

    # By its full name, because the package exports a function of the same name as its module.
    monkeypatch.setattr(importlib.import_module("steadycast.run"), "run", stops)
    said = say("run", scenario, "-o", tmp_path / "home", code=130)
    assert said.err == f"steadycast: interrupted; the partial results are in {tmp_path / 'home'}.part\n"


def test_an_interrupt_before_there_is_a_command_is_130_in_one_line(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stops(_: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("steadycast.cli.base._of", stops)
    said = say("run", "home")
    assert (said.code, said.err) == (130, "steadycast: interrupted\n")


def test_an_interrupt_while_the_report_is_drawn_says_that_the_results_are_whole(
    say: Say, scenario: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stops(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("steadycast.cli.base.write_report", stops)
    said = say("run", scenario, "-o", "home", code=130)
    assert said.err == (
        "steadycast: interrupted; the results are whole, without their report: steadycast report home\n"
    )
    assert json.loads((tmp_path / "home" / "summary.json").read_text())["complete"] is True


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "none.toml"], "none.toml: no such file"),
        (["run", "home.toml", "--set", "flow.video"], "this is not PATH=VALUE"),
        (["run", "home.toml", "--seeds", "5-1"], "this is not a range"),
        (["run", "home.toml", "--seeds", "a-b"], "this is not a range"),
        (["run", "home.toml", "--seeds", "9" * 5000], "this is not a range"),
        (
            ["run", "home.toml", "--seeds", "1,,3"],
            '"" is not a range; write for example --seeds 1-5 or --seeds 1,3,5',
        ),
        (["run", "home.toml", "--seeds", "1,x"], '"x" is not a range'),
        (["run", "home.toml", "--seeds", "1-3,9-7"], '"9-7" is not a range'),
        (["run", "home.toml", "--seeds", "1-60000,60001-120000"], "these are 120,000 seeds"),
        (["run", "home.toml", "--seed", "1,3"], "1,3 are several seeds; write --seeds 1,3"),
        (
            ["run", "home.toml", "--seeds", "3-200002"],
            "--seeds 3-200002: these are 200,000 seeds, and one call takes at most 100,000; write --seeds 3-100002",
        ),
        (["sweep", "home.toml", "--seeds", str(2**63)], f"{2**63} is too large; take {2**63 - 1} or less"),
        (["run", "home.toml", "--seed", "1", "--seeds", "1-2"], "--seed is given as well"),
        (["run", "home.toml", "--sed", "1"], "No such option"),
        (["run", "home.toml", "--duration", "30s"], "is set by --set duration=…"),
        (["run", "home.toml", "--controller", "tfrc"], "is set by --set flow.NAME.controller=…"),
        (["sweep", "home.toml", "--rate", "1Mbps"], "--explain rate lists the paths"),
        (["run", "home.toml", "duration=30s"], "is set by --set duration=30s"),
        (["run", "home.toml", "--clip"], "Option '--clip' requires an argument.\n"),
        (["run", "home.toml", "--seed", "1", "--seed", "x"], "x is not a whole number"),
        (["run", "home.toml", "--json=yes"], "Option '--json' does not take a value.\n"),
        (["-o", "x", "run", "home.toml"], "No such option: -o; write a command's options behind its name"),
        (["call", "home.toml", "--stream", "0x1111"], "0x1111 is not decimal; write 4369"),
        (["report", "home.toml"], "home.toml: this is no folder"),
        (
            ["lab", "--watch", "none.jsonl"],
            "--watch none.jsonl: there is no such file; start send or receive",
        ),
        (["lab", "--watch", "."], "--watch .: this is no file"),
        (["report", "nowhere"], "nowhere: no such folder"),
        (["report", "."], "this is not a run folder"),
        (["compare", "nowhere"], "no such folder"),
        (["compare", "nowhere", "--fail-if", "a<1"], "there is nothing to measure against"),
        (["export", "nowhere"], "no format is named"),
        (["reproduce", "K", "--seeds", "x"], "this is not a range"),
        (["frobnicate"], "No such command"),
        (["run", LONG], f"steadycast: {LONG}: File name too long; give a shorter name\n"),
        (["run", "home.toml", "-o", LONG], f"{LONG}: File name too long; give a shorter name\n"),
        *(
            (["run", "home.toml", "-o", here, "--force"], f"{here}: this is the current folder")
            for here in (".", "..")
        ),
        (["send", "testsrc", "--to", "127.0.0.1:5004", "-o", "."], ".: this is the current folder"),
        (["compare", LONG], "File name too long; give a shorter name\n"),
    ],
)
def test_mistakes_are_exit_code_2_in_one_line_without_a_traceback(
    say: Say, scenario: Path, words: list[str], says: str
) -> None:
    said = say(*words, code=2)
    assert says in said.err
    assert "Traceback" not in said.err
    assert said.out == ""


UNREADABLE = {
    "no-frame.csv": (
        'controller = "fixed"\nmedia = "trace"\ntrace = "no-frame.csv"',
        "frame,type,q,size\n",
        "holds no frame",
    ),
    "damaged.csv": (
        'controller = "fixed"\nmedia = "trace"\ntrace = "damaged.csv"',
        "frame,type,q,size\n0,I,2,x\n",
        "csv:2: 'x'",
    ),
    "noise.mp4": ('controller = "fixed"\nclip = "noise.mp4"', "noise", "not a video file"),
    "cut.mp4": (
        'controller = "fixed"\nclip = "cut.mp4"',
        "\0\0\0\x10ftypisom\0\0\2\0\0\1\0\0mdat",
        "its index (moov)",
    ),
    "none.py": ('media = "greedy"\ncontroller = "none.py:Mine"', None, "none.py:Mine: no such file"),
    "empty.py": ('media = "greedy"\ncontroller = "empty.py:Mine"', "", 'no class "Mine"'),
    "none": ('media = "greedy"\ncontroller = "exec:./none"', None, 'no such file: "./none"'),
    "bare": ('media = "greedy"\ncontroller = "exec:./bare"', "echo hi\n", "first line names no interpreter"),
    "dos": (
        'media = "greedy"\ncontroller = "exec:./dos"',
        "#!/bin/sh\r\ncat\r\n",
        "the line ends of Windows",
    ),
    "away": ('media = "greedy"\ncontroller = "exec:./away"', "#!/no/perl -w\n", 'exist: "/no/perl"'),
}
"""Files that a video names: the video's keys, the file's content, and what is said of it."""


@pytest.mark.parametrize("name", UNREADABLE)
def test_check_finds_what_run_finds_in_the_files_that_a_scenario_names(
    say: Say, tmp_path: Path, name: str
) -> None:
    keys, content, says = UNREADABLE[name]
    if content is not None:
        (tmp_path / name).write_text(content, newline="")
        (tmp_path / name).chmod(0o755)
    video = f'[[flow]]\nname = "video"\nkind = "video"\n{keys}\n'
    shape = '[topology]\nshape = "dumbbell"\nbottleneck = { rate = "1Mbps" }\n'
    (tmp_path / "mine.toml").write_text(f'format = 1\nduration = "2s"\n{shape}{video}')
    for command in ("check", "run"):
        said = say(command, "mine.toml", code=2)
        assert says in said.err, command
        assert said.err.count("\n") == 1
        assert "; " in said.err.partition(says)[2]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EMFILE])
def test_a_file_that_may_not_be_looked_at_is_exit_code_2_in_one_line(
    say: Say, scenario: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refused(path: Path) -> Path:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr("steadycast.cli.first.scenario_at", refused)
    said = say("run", scenario, code=2)
    assert said.err.startswith(f"steadycast: {scenario}: {os.strerror(number)}; ")
    assert said.err.count("\n") == 1


def test_outside_of_a_checkout_reproduce_says_so_in_one_line(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steadycast.cli.laboratories._CHECKOUT", tmp_path / "lib")
    monkeypatch.chdir(tmp_path)
    said = say("reproduce", "K-A", code=3)
    assert said.err == (
        "steadycast: reproduce: the papers' experiments are not part of the installed package; "
        "run this in a checkout of the repository, where papers/ is\n"
    )
    assert said.out == ""


def test_an_existing_folder_is_refused_before_the_run(say: Say, scenario: Path, tmp_path: Path) -> None:
    assert say("run", scenario, "-o", tmp_path / "home").code == 0
    said = say("run", scenario, "-o", tmp_path / "home", code=2)
    assert "--force" in said.err
    assert say("run", scenario, "-o", tmp_path / "home", "--force").code == 0


def test_a_missing_compiled_module_is_exit_code_3(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "steadycast._core", None)
    monkeypatch.delitem(sys.modules, "steadycast.core", raising=False)
    said = say("schema", code=3)
    assert "can't be loaded" in said.err


def test_received_videos_of_a_run_without_pictures_are_refused_before_it(
    say: Say, scenario: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = ["run", scenario, "--set", "flow.video.media=greedy", "-o", out]
    said = say(*words, "--save-video", tmp_path / "seen.mkv", code=2)
    assert 'flow.video.media: "greedy" has no pixels; only "clip" and "synthetic" have pictures' in said.err
    assert not out.exists()


def test_what_to_take_stands_first_and_is_what_send_and_the_built_in_calls_take(say: Say) -> None:
    from steadycast.controllers import GROUP, ONE, USES, registry
    from steadycast.live.send import default_controller

    told = say("controllers").out.splitlines()
    assert re.match(r"receivers +controller +reason", told[0])
    assert re.match(rf"{ONE.towards} +{ONE.controller} ", told[1])
    for to, use in (("10.0.0.2:5004", ONE), ("239.1.2.3:5004", GROUP)):
        assert default_controller(to) == use.controller
    known = {each.name for each in registry()}
    assert {use.controller for use in USES} <= known
    for name in ("demo", "home"):
        (video,) = load(name).videos()
        assert video["controller"] == ONE.controller, name
    (element,) = (use.controller for use in USES if use.towards.startswith("GStreamer's element"))
    for page, sentence in (
        ("README.md", f"For one receiver take `{ONE.controller}`"),
        ("docs/gstreamer.md", f"| `controller` | string, `{element}` |"),
        ("docs/adapters.md", f'Steadycast::new("{ONE.controller}"'),
        ("integrations/gstreamer/src/bwe.rs", f'controller: "{element}".into()'),
    ):
        assert sentence in (Path(__file__).parents[2] / page).read_text(encoding="utf-8"), page


def test_controllers_are_listed_and_one_has_its_page(say: Say) -> None:
    names = [c["name"] for c in json.loads(say("controllers", "--json").out)]
    assert {"asmp", "fixed", "tfmcc", "tfrc"} <= set(names)
    listed = say("controllers").out
    assert all(re.search(rf"^{name} ", listed, re.MULTILINE) for name in names)
    one = say("controllers", "asmp").out
    assert re.search(
        r"^gamma_down +0\.9 +the weight of a newly computed rate that is lower", one, re.MULTILINE
    )
    assert "Use it for a group in which some receivers send only standard reports" in one
    assert "Requirement" not in one
    assert "\nRequirement: packet reports (" in say("controllers", "scream").out
    wrong = say("controllers", "asmpp", code=2)
    assert 'did you mean "asmp"?' in wrong.err


def test_check_tells_file_line_key_problem_and_remedy(say: Say, scenario: Path) -> None:
    assert say("check", scenario).code == 0
    scenario.write_text(HOME.replace("receivers = 2", "recievers = 2"))
    said = say("check", scenario, code=2)
    assert said.err == f'{scenario}:14: flow.video.recievers: no such key; did you mean "receivers"?\n'


def test_report_saves_one_figure(say: Say, run_folder: Path, tmp_path: Path) -> None:
    say("report", run_folder, "--figure", "delay", "-o", "delay.svg", code=0)
    assert (tmp_path / "delay.svg").read_text().startswith("<?xml")
    wrong = say("report", run_folder, "--figure", "delays", code=2)
    assert "there are: rates" in wrong.err


def test_a_real_interrupt_leaves_a_part_that_is_not_complete(scenario: Path, tmp_path: Path) -> None:
    """Ctrl-C in the middle of a run, sent as a shell does."""
    program = """
import sys, time
from types import ModuleType
from steadycast import cli, folder

def run(file, *, out, **_):
    with folder.Draft(out) as draft:
        draft.text("scenario.toml", "")
        print("half way", flush=True)
        for _ in range(1200):  # not one long sleep, whose beginning a signal may miss
            time.sleep(0.05)

module = ModuleType("steadycast.run")
module.run = run
sys.modules["steadycast.run"] = module
sys.argv = ["steadycast", "run", sys.argv[1], "-o", sys.argv[2]]
cli.main()
"""
    process = started([sys.executable, "-c", program, str(scenario), str(tmp_path / "home")])
    assert process.stdout is not None
    assert process.stdout.readline() == "half way\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert json.loads((tmp_path / "home.part" / "summary.json").read_text())["complete"] is False
    assert not (tmp_path / "home").exists()


def test_a_key_is_explained_by_its_path_by_its_name_and_a_mistyped_one_with_the_nearest(say: Say) -> None:
    whole = say("check", "--explain", "flow.playout", code=0)
    assert whole.out.startswith("flow.playout: ")
    assert say("check", "--explain", "flow.video.playout").out == whole.out, "as --set names it"
    every = say("check", "--explain", "delay")
    assert "event.set.delay" in every.out
    assert "link.delay" in every.out
    wrong = say("check", "--explain", "playuot", code=2)
    assert "playout" in wrong.err


def test_a_parameter_is_explained_with_the_controllers_that_have_it_its_range_and_its_source(
    say: Say,
) -> None:
    one = say("check", "--explain", "flow.video.params.asmp.t_suspend").out
    assert "Range: 0ns to 86400s. Source: Steadycast; ASMP, 3.8 gives no value. Default: " in one
    assert say("check", "--explain", "t_suspend").out == one
    every = say("check", "--explain", "gamma_down").out
    assert "number, 0 to 1" in every
    assert "In paper mode the default is 0. Source: " in every
    assert (
        "flow.params.rbuf-type1.margin, flow.params.rbuf-type2.margin"
        in say("check", "--explain", "margin").out
    )
    gone = say("check", "--explain", "gama_down", code=2)
    assert "gamma_down" in gone.err


def test_a_controller_fits_one_screen(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for controller in json.loads(say("controllers", "--json").out):
        lines = say("controllers", controller["name"]).out.splitlines()
        assert len(lines) <= 45, f"{controller['name']}: {len(lines)} lines"


def test_the_schema_is_laid_out_in_lines(say: Say) -> None:
    said = say("schema").out
    assert json.loads(said)["type"] == "object"
    assert said.count("\n") > 1000


def test_check_says_what_run_would_warn_of(say: Say, tmp_path: Path) -> None:
    late = tmp_path / "late.toml"
    late.write_text(HOME.replace('kind = "tcp"\n', 'kind = "tcp"\nstart = "20s"\n'))
    said = say("check", str(late), code=0)
    assert f"warning: {late}:20: flow.tcp.start: starts after the end at 6s; it will never run" in said.err
