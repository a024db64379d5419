"""A new user without a checkout: scenarios by name, frame sizes of the package, and the check of the machine."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import steadycast as sc
from steadycast import builtin, rootless
from steadycast.exits import Exit
from steadycast.loading import load
from steadycast.media import ladder as ladder_module
from steadycast.media.ladder import encode_ladder
from steadycast.media.prepare import media_of
from steadycast.media.raw import raw_video
from steadycast.media.synthetic import Synthetic

from tests.conftest import ROOT, Say

SHORT = ("--set", "duration=6s", "--set", "flow.video.media=greedy", "--json")


def test_a_name_runs_the_scenario_of_the_checkout_from_any_folder(say: Say) -> None:
    by_name = say("run", "home", *SHORT)
    by_path = say("run", ROOT / "scenarios" / "home.toml", *SHORT)
    assert by_name.code == by_path.code == 0
    assert by_name.out == by_path.out
    assert sc.run("home", set=[*SHORT[1:4:2]], quality=False).summary == json.loads(by_name.out)


def test_a_file_of_that_name_in_the_folder_goes_before(say: Say, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()  # a run's folder is not a scenario
    assert say("check", "home").out.endswith("scenarios/home.toml: no mistakes found\n")
    say("scenarios", "--copy", "home")
    assert say("check", "home").out == "home.toml: no mistakes found\n"
    (tmp_path / "home").rmdir()
    (tmp_path / "home.toml").rename(tmp_path / "home")
    assert say("check", "home").out == "home: no mistakes found\n"


def test_a_name_that_is_none_is_told_with_those_that_are(say: Say) -> None:
    said = say("run", "hoem", code=2)
    assert 'did you mean "home"?' in said.err
    said = say("emulate", "nothing-like-it", code=2)
    assert f"there are: {', '.join(builtin.names())}" in said.err
    assert say("run", "elsewhere/home").code == 2


def test_every_built_in_scenario_is_listed_with_its_sentence_and_runs_as_a_copy(
    say: Say, tmp_path: Path
) -> None:
    assert builtin.names() == sorted(path.stem for path in (ROOT / "scenarios").glob("*.toml"))
    for name in builtin.names():
        assert 20 < len(builtin.about(name)) <= 120
        assert builtin.about(name).endswith((".", "?"))
        assert f"\n{name} " in say("scenarios").out
    say("scenarios", "--all", "-o", "mine", code=0)
    assert (tmp_path / "mine" / "traces" / "lte-synthetic.mahi").is_file()
    for name in builtin.names():
        assert say("check", f"mine/{name}.toml").code == 0
    again = say("scenarios", "--copy", "home", "-o", "mine", code=2)
    assert "mine/home.toml: this file exists" in again.err
    assert say("scenarios", "--copy", "nope").code == 2


@pytest.mark.parametrize(("encode", "qs"), [(None, (18, 25, 36)), ("{}", (2, 9, 20))], ids=["h264", "mpeg4"])
def test_sizes_that_come_with_the_program_are_those_of_its_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encode: str | None, qs: tuple[int, ...]
) -> None:
    # The pictures are in the cache that all tests share. The encoded streams must not come from other tests.
    video = load("home", [] if encode is None else [f"flow.video.encode={encode}"]).videos()[0]
    raw = raw_video(Synthetic(), video["size"], video["fps"])
    monkeypatch.setattr(ladder_module, "raw_video", lambda *_: raw)
    monkeypatch.setenv("STEADYCAST_CACHE", str(tmp_path))
    made = media_of(video, 1)
    assert isinstance(made, ladder_module.Ladder)
    assert not list(tmp_path.glob("*.rung"))  # only the comparison encoded anything
    for q in qs:
        assert len(made.rung(q).data) == made.table.sizes[made.table.row(q)].sum()
    assert len(list(tmp_path.glob("*.rung"))) == 3
    again = media_of(video, 1)
    assert isinstance(again, ladder_module.Ladder)
    assert np.array_equal(again.table.sizes, made.table.sizes)


def test_sizes_of_another_encoder_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEADYCAST_CACHE", str(tmp_path))
    source, settings = Synthetic(24), {"size": "64x48", "qs": [9, 20, 31]}
    true = encode_ladder(source, **settings)  # type: ignore[arg-type]
    (kept,) = tmp_path.glob("*.ladder")
    found = ladder_module._load(kept, "")
    assert found is not None
    table, about = found
    known = tmp_path / "known.npz"
    monkeypatch.setattr(ladder_module, "KNOWN", (known,))
    for wrong in (20, 31):  # one is reported immediately, the other when it is needed
        table.sizes[:] = true.table.sizes
        table.sizes[table.row(wrong)] += 1
        ladder_module._store(known, table, about)
        for path in (kept, *tmp_path.glob("*.rung")):
            path.unlink()
        made = encode_ladder(source, **settings)  # type: ignore[arg-type]
        if wrong == 20:
            with pytest.raises(sc.UserError, match="run it again"):
                made.need([9, 20])
            made = encode_ladder(source, **settings)  # type: ignore[arg-type]
        assert np.array_equal(made.table.sizes, true.table.sizes)
        assert [rung.data.tobytes() for rung in made.rungs] == [rung.data.tobytes() for rung in true.rungs]


def test_doctor_says_what_works_and_ends_by_what_is_lacking(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = say("doctor", code=0)
    for name in (
        "simulator",
        "codecs",
        "cache",
        "disk",
        "processors",
        "networks",
        "sockets",
        "lab",
        "metrics",
    ):
        assert f"\n{name} " in said.out
    assert json.loads(say("doctor", "--json").out)["works"]["run"] is True
    assert say("doctor", "dance").code == 2
    (tmp_path / "file").touch()
    monkeypatch.setenv("STEADYCAST_CACHE", str(tmp_path / "file" / "cache"))
    said = say("doctor")
    assert said.code == Exit.UNWRITTEN
    assert "set STEADYCAST_CACHE" in " ".join(said.out.split())


def test_a_missing_right_is_told_with_its_remedy_and_fails_what_needs_it(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> None:
        raise sc.MissingError("emulate", "no right", "run it as root")

    monkeypatch.setattr(rootless, "way", refused)
    said = say("doctor", "emulate")
    assert said.code == Exit.MISSING
    assert "emulate: no right; run it as root" in said.out
    assert say("doctor", "run").code == 0


def test_an_extra_that_is_not_installed_is_told_and_fails_what_needs_it(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    util = importlib.import_module("importlib.util")
    found = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "uvicorn" else found(name))
    said = say("doctor", "lab")
    assert said.code == Exit.MISSING
    assert "for steadycast lab alone: uvicorn; pip install 'steadycast[lab]'" in " ".join(said.out.split())
    assert say("doctor", "run").code == 0


REAL_TIME = (
    ("send", "testsrc", "--to", "127.0.0.1:5004"),
    ("serve", "testsrc"),
    ("receive", "127.0.0.1:5004"),
    ("emulate", "home"),
    ("agree", "home"),
    ("call", "scenario.toml"),
)


@pytest.fixture
def simulator_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled module with only the simulator, as the first set-up of a checkout makes it."""
    module = importlib.import_module("steadycast.core")
    for name in module.REAL_TIME:
        monkeypatch.delattr(module.core, name)


@pytest.mark.usefixtures("simulator_alone")
def test_a_module_of_another_system_runs_and_says_why_it_does_not_send(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steadycast.core.sys", SimpleNamespace(platform="darwin"))
    Path("scenario.toml").write_text("")
    for words in REAL_TIME:
        said = say(*words)
        assert said.code == Exit.MISSING
        assert "this needs Linux, and here is darwin" in said.err
    assert say("run", "home", *SHORT).code == 0
    works = json.loads(say("doctor", "--json").out)["works"]
    can = dict.fromkeys(("emulate", "judge", "send", "serve", "receive"), False) | {"run": True, "lab": True}
    assert works == can
    assert say("doctor", "emulate").code == Exit.MISSING


@pytest.mark.usefixtures("simulator_alone")
def test_what_a_checkout_has_not_compiled_is_compiled_when_it_is_first_used_and_once(
    say: Say, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = tmp_path / "asked"
    setup = tmp_path / "setup.py"
    setup.write_text(f"import sys; open({str(asked)!r}, 'a').write(sys.argv[1]); print('set-up: building')")
    monkeypatch.setattr("steadycast.core.SETUP", setup)
    Path("scenario.toml").write_text("")
    restarted: list[list[str]] = []

    def restart(program: str, words: list[str]) -> None:
        restarted.append([program, *words])
        raise SystemExit(0)

    monkeypatch.setattr("os.execv", restart)
    for words in (*REAL_TIME, *(("doctor", each) for each in ("emulate", "judge", "send", "receive"))):
        monkeypatch.delenv("STEADYCAST_RESTARTED", raising=False)
        asked.unlink(missing_ok=True)
        said = say(*words)
        assert (said.code, said.out) == (0, "")
        assert "compiling the part of the module for real time, once" in said.err
        assert asked.read_text() == "--all"
        # Compiling did not help: the second call prints the reason and compiles nothing.
        said = say(*words)
        assert said.code == Exit.MISSING
        assert f"is not compiled yet; run: {sys.executable} {setup} --all" in said.err
        assert asked.read_text() == "--all"
    assert restarted == [[sys.executable, *sys.orig_argv]] * (len(REAL_TIME) + 4)
    monkeypatch.delenv("STEADYCAST_RESTARTED")
    setup.write_text("raise SystemExit(1)")
    assert say("emulate", "home").code == Exit.MISSING
    assert say("run", "home", *SHORT).code == 0
    assert "networks" in say("doctor").out
    # A wheel includes everything, so that there is nothing to compile.
    setup.unlink()
    said = say("receive", "127.0.0.1:5004")
    assert said.code == Exit.MISSING
    assert "install steadycast again" in said.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_offered_the_commands(say: Say, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    # The command has the same name however the tests were started.
    monkeypatch.setattr(sys.modules["__main__"], "__package__", "")
    monkeypatch.setenv("_STEADYCAST_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("COMP_WORDS", "steadycast sc")
    monkeypatch.setenv("COMP_CWORD", "1")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "steadycast sc")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    said = say()
    assert "scenarios" in said.out
    assert "sweep" not in said.out
    Path("hotel.toml").touch()
    monkeypatch.setenv("COMP_WORDS", "steadycast run ho")
    monkeypatch.setenv("COMP_CWORD", "2")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "steadycast run ho")
    said = say()
    assert [name in said.out for name in ("home", "hotel.toml", "demo")] == [True, True, False]
    Path("wifi-own.toml").touch()
    for words, count in (("run home --network wifi-", "4"), ("judge pair.toml --networks leo,wifi-", "4")):
        monkeypatch.setenv("COMP_WORDS", f"steadycast {words}")
        monkeypatch.setenv("COMP_CWORD", count)
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", f"steadycast {words}")
        said = say()
        before = "leo," if "leo" in words else ""
        assert all(f"{before}{name}" in said.out for name in ("wifi-bad", "wifi-fade", "wifi-own.toml"))
        assert "smoke" not in said.out


def _waits(name: str, *sets: str) -> dict[str, tuple[float, float]]:
    """Run a built-in scenario without pictures. Returns loss and delay (95th percentile, ms) of each flow."""
    flows = sc.run(name, set=list(sets), quality=False).summary["flows"]
    viewers = {flow["name"]: flow["receivers"][0] for flow in flows if flow["kind"] != "tcp"}
    return {name: (viewer["loss_frac"], viewer["delay_ms"]["p95"]) for name, viewer in viewers.items()}


FQ = "topology.bottleneck.queue=fq-codel"


def test_in_a_bloated_buffer_a_call_is_a_second_late_beside_a_backup_and_at_fq_codel_a_tenth() -> None:
    # The queue holds 1 s, the path takes 17 ms, and a packet up to 5 ms to transmit. FQ-CoDel's target is 5 ms for a
    # flow.
    assert 700 < _waits("bufferbloat")["call"][1] < 1_025
    assert 17 < _waits("bufferbloat", FQ)["call"][1] < 150


def test_sound_waits_in_a_download_s_queue_and_hardly_at_fq_codel() -> None:
    # The queue holds 200 ms. With FQ-CoDel, a sparse flow waits for the packets in transmission, 6 ms each.
    assert 150 < _waits("audio")["sound"][1] < 225
    lost, late = _waits("audio", FQ)["sound"]
    assert 17 < late < 35
    assert lost < 0.001


def test_wifi_s_repetitions_leave_no_loss_and_cost_delay() -> None:
    # A packet that is lost with probability 0.1 and sent up to seven times is lost with probability 1e-7.
    repeated = _waits(
        "wifi", "link.line.queue=1s", "link.air.queue=2s", "flow.download.start=58s", "flow.download.stop=59s"
    )["call"]
    assert repeated[0] == 0.0
    lost, _ = _waits("wifi", "link.air.arq.tries=1")["call"]
    assert 0.05 < lost < 0.2
