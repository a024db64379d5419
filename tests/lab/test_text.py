"""The scenario's text: the names that the page may use, its controls, and how they change the text."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from steadycast.errors import Problems, UserError
from steadycast.lab import text as lab_text
from steadycast.lab.text import Base, Knob, Where, checked, edited, edits_of, knobs
from steadycast.loading import load

from tests.lab.conftest import ROOT, SCENARIO

BUILT_IN = sorted((ROOT / "scenarios").glob("*.toml"))
OTHERS = sorted(
    [*(ROOT / "papers" / "scenarios").rglob("*.toml"), *(ROOT / "validation" / "scenarios").rglob("*.toml")]
)


@pytest.fixture
def base(tmp_path: Path) -> Base:
    file = tmp_path / "small.toml"
    file.write_text(SCENARIO, encoding="utf-8")
    return Base.read(file)


def test_an_edit_changes_its_value_and_leaves_every_other_line_as_it_stands() -> None:
    changed = edited(
        SCENARIO, [(("topology", "bottleneck", "rate"), "2Mbps"), (("flow", 0, "controller"), "tfrc")]
    )
    pairs = zip(SCENARIO.splitlines(), changed.splitlines(), strict=True)
    assert [new for old, new in pairs if old != new] == [
        'bottleneck = { rate = "2Mbps", delay = "15ms", '
        'queue = { kind = "droptail", limit = "30p" } } # the way in',
        'controller = "tfrc"',
    ]


def test_what_is_not_there_yet_is_added_where_it_belongs() -> None:
    changed = edited(
        SCENARIO,
        [(("flow", 0, "params", "asmp", "beta"), 0.25), (("topology", "bottleneck", "loss", "p"), 0.01)],
    )
    tree = tomllib.loads(changed)
    assert tree["flow"][0]["params"] == {"asmp": {"beta": 0.25}}
    assert tree["topology"]["bottleneck"]["loss"] == {"kind": "bernoulli", "p": 0.01}
    assert "\n\n[[flow]] # a download" in changed
    dotted = SCENARIO.replace("playout =", 'params.fixed = { rate = "1Mbps" } # its share\nplayout =')
    lines = edited(dotted, [(("flow", 0, "params", "asmp", "beta"), 0.25)]).splitlines()
    at = lines.index('params.fixed = { rate = "1Mbps" } # its share')
    assert lines[at + 1 : at + 3] == ["params.asmp = { beta = 0.25 }", 'playout = "400ms"']


def test_a_queue_of_another_kind_keeps_its_packets_and_drops_what_only_the_old_kind_has() -> None:
    red = edited(SCENARIO, [(("topology", "bottleneck", "queue", "kind"), "red")])
    red = edited(red, [(("topology", "bottleneck", "queue", "max_p"), 0.2)])
    assert tomllib.loads(red)["topology"]["bottleneck"]["queue"] == {
        "kind": "red",
        "limit": "30p",
        "max_p": 0.2,
    }
    codel = edited(red, [(("topology", "bottleneck", "queue", "kind"), "codel")])
    assert tomllib.loads(codel)["topology"]["bottleneck"]["queue"] == {"kind": "codel", "limit": "30p"}
    dual = edited(red, [(("topology", "bottleneck", "queue", "kind"), "dualpi2")])
    assert tomllib.loads(dual)["topology"]["bottleneck"]["queue"] == {"kind": "dualpi2"}


@pytest.mark.parametrize(
    "path",
    [("flow", 7, "controller"), ("name", "x"), ("flow", "video"), ("flow", 0), ("topology", 1, "rate")],
)
def test_an_edit_of_a_place_that_is_not_there_is_a_problem(path: Where) -> None:
    with pytest.raises(Problems, match="can't be set from here"):
        edited(SCENARIO, [(path, "1")])


@pytest.mark.parametrize("file", BUILT_IN, ids=lambda file: file.stem)
def test_every_knob_of_the_scenarios_can_be_set_to_what_it_says(file: Path) -> None:
    found = set_all_knobs(Base.read(file))
    assert {knob.group for knob in found} >= {"A", "Run"}
    assert all(knob.about for knob in found if knob.group not in ("A", "B")), "each key is explained"


def test_every_knob_of_all_other_scenarios_too() -> None:
    assert len(OTHERS) > 50
    for file in OTHERS:
        set_all_knobs(Base.read(file))


def set_all_knobs(base: Base) -> list[Knob]:
    """Set each control to its own value.

    The text then says the same as before, and nothing in addition to the controls.
    """
    tree, loaded = checked(base, base.text)
    found = knobs(tree, tomllib.loads(loaded.toml()), base, "tfrc")
    edits = [(knob.path, knob.value) for knob in found if knob.value is not None]
    changed = edited(base.text, edits)
    values = tomllib.loads(changed)
    for path, value in edits:
        node = values
        for key in path:
            node = node[key]  # type: ignore[index]
        assert node == value, (base.name, path)
    same = checked(base, changed)[1]
    assert [v["controller"] for v in same.videos()] == [v["controller"] for v in loaded.videos()]
    assert re.findall(r"#.*", changed) == re.findall(r"#.*", base.text), "comments stay"
    return found


def test_each_choice_of_a_knob_is_one_that_a_simulated_run_takes(base: Base) -> None:
    tree, loaded = checked(base, base.text)
    for knob in knobs(tree, tomllib.loads(loaded.toml()), base, None):
        if knob.group in ("Network", "Traffic"):
            for each in knob.of:
                checked(base, edited(base.text, [(knob.path, each)]))


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('media = "synthetic"', 'clip = "/etc/passwd"', "/etc/passwd"),
        ('media = "synthetic"', 'clip = ["a.mkv", "../../etc/shadow"]', "a.mkv"),
        ('media = "synthetic"', 'trace = "/etc/hostname"', "/etc/hostname"),
        ('rate = "600kbps"', 'trace = "/etc/hostname"', "/etc/hostname"),
        ('controller = "asmp"', 'controller = "/tmp/evil.py:Mine"', "/tmp/evil.py:Mine"),
        ('"asmp"', '"\\u0065vil.py:Mine"', "evil.py:Mine"),
        ('controller = "asmp"', 'controller = "exec:/bin/sh -c id"', "exec:/bin/sh -c id"),
        ('"asmp"', '"\\u0065xec:id"', "exec:id"),
        ('"asmp"', '"asmp"\nvbr = "rungs"\nswitching = "exec:id"', "exec:id"),
        ('"asmp"', '"asmp"\nvbr = "rungs"\nswitching = "evil.py:Mine"', "evil.py:Mine"),
    ],
)
def test_the_page_can_name_no_file(base: Base, old: str, new: str, named: str) -> None:
    with pytest.raises(Problems) as caught:
        checked(base, base.text.replace(old, new))
    [problem] = caught.value.problems
    assert f'may not name the file "{named}"' in problem["what"]


def test_a_change_of_the_link_during_the_run_can_name_no_file_either(base: Base) -> None:
    event = '\n[[event]]\nat = "5s"\nset = { link = "bottleneck", trace = "/etc/hostname" }\n'
    with pytest.raises(Problems, match="may not name the file"):
        checked(base, base.text + event)


def test_files_that_the_scenario_itself_names_stay_allowed() -> None:
    base = Base.read(ROOT / "scenarios" / "lte.toml")
    assert base.names == {"traces/lte-synthetic.mahi"}
    checked(base, base.text)


def test_clips_of_the_allowed_folder_may_be_named_and_no_others(base: Base, tmp_path: Path) -> None:
    clips = tmp_path / "clips"
    clips.mkdir()
    (clips / "film.mkv").write_bytes(b"no film")
    (tmp_path / "secret.mkv").write_bytes(b"no film")
    (clips / "link.mkv").symlink_to(tmp_path / "secret.mkv")
    with_clip = base.text.replace('media = "synthetic"', 'clip = "clips/film.mkv"')
    assert checked(base, with_clip, clips)[1].videos()[0]["paths"] == [str(clips / "film.mkv")]
    for name in ("secret.mkv", "clips/../secret.mkv", "clips/link.mkv"):
        with pytest.raises(Problems, match="may not name the file"):
            checked(base, with_clip.replace("clips/film.mkv", name), clips)
    # Only clips are allowed, neither traces nor controllers.
    with pytest.raises(Problems, match="may not name the file"):
        checked(base, with_clip.replace("clip =", "trace ="), clips)


@pytest.mark.parametrize(
    ("text", "line"),
    [('name = "x"\nduration = \n', 2), ("[[flow\n", 1), ("a = 1\na = 2\n", 2), ("x = [" * 5000, 1)],
)
def test_what_is_not_toml_is_a_problem_at_its_line(base: Base, text: str, line: int) -> None:
    with pytest.raises(Problems) as caught:
        checked(base, text)
    assert caught.value.problems[0]["line"] == line


def test_a_text_that_is_too_long_is_refused(base: Base, tmp_path: Path) -> None:
    long = base.text + "#" * lab_text.MOST_TEXT
    with pytest.raises(Problems, match="64 KiB"):
        checked(base, long)
    (tmp_path / "long.toml").write_text(long)
    with pytest.raises(UserError, match="64 KiB"):
        Base.read(tmp_path / "long.toml")


@pytest.mark.parametrize(
    "edits",
    [3, [3], [["a"]], [[[], 1]], [[[0], 1]], [[["a", -1], 1]], [[["a", True], 1]], [[["a"], None]], [[["a"], [1]]],
     [[["a"], float("inf")]], [[["a"] * 9, 1]], [[["a"], 1]] * 201],
)  # fmt: skip
def test_edits_of_another_shape_are_refused(edits: object) -> None:
    with pytest.raises(ValueError, match="edits"):
        edits_of(edits)


def test_the_resolved_scenario_of_an_edit_is_that_of_set(base: Base) -> None:
    ours = checked(base, edited(base.text, [(("flow", 0, "controller"), "tfrc"), (("duration",), "20s")]))[1]
    theirs = load(base.place, ["flow.video.controller=tfrc", "duration=20s"])
    assert ours.toml() == theirs.toml()


@pytest.mark.parametrize("name", ["home", "demo"])
@pytest.mark.parametrize("network", [None, "dsl-8"])
def test_a_clip_of_the_command_line_plays_as_it_does_in_a_run(
    tmp_path: Path, name: str, network: str | None
) -> None:
    clip = tmp_path / "film.y4m"
    clip.write_bytes(b"YUV4MPEG2 W48 H80 F30:1 Ip A1:1 C420\n" + (b"FRAME\n" + bytes(48 * 80 * 3 // 2)) * 3)
    base = Base.read(Path(name), network, str(clip))
    shown = checked(base, base.text)[1]
    sets = [f"clip={clip}", *([] if network is None else [f"network={network}"])]
    assert shown.toml() == load(base.place, sets).toml()
