"""Networks by their names: each is as the page states, carries packets, and is overridden by a scenario's keys."""

from __future__ import annotations

import copy
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import steadycast as sc
from hypothesis import given, settings
from hypothesis import strategies as st
from steadycast import builtin, networks, units
from steadycast.errors import Problems, UserError
from steadycast.lab.text import Base, checked, edited, knobs
from steadycast.loading import load
from steadycast.toml import inline

from tests.conftest import ROOT, Say, script

PAGE = ROOT / "docs" / "networks.md"
CALL = 'duration = "{}s"\n[[flow]]\nname = "call"\nkind = "cbr"\nrate = "100kbps"\npacket = "200B"\n'
SOURCES = {
    "T": "testRTC",
    "W": "WebPageTest",
    "L": "Loadero",
    "C": "private-octopus/",
    "R": "RFC ",
    "S": "ours",
}


# ---------------------------------------------------------------- what each is


def _number(value: object, of: dict[str, float], scale: float) -> str:
    read = units.read(value, of)
    return str(value) if read is None else f"{read * scale:.6g}"


def _words(value: Any, key: str = "") -> str:
    if key == "rate":
        return _number(value, units.RATE, 1e-6)
    if isinstance(value, dict) and key == "arq":
        return f"{value['tries']} × {value['per_try']}"
    values = value.values() if isinstance(value, dict) else (value,)
    return " ".join(_unit(each) for each in values if each not in ("droptail", "bernoulli"))


def _unit(value: object) -> str:
    """Write a quantity as the page does: 1.5Mbps, 0.999ms and 37.5kB, but 1280B."""
    for of, small, large in ((units.RATE, "kbps", "Mbps"), (units.SPAN, "us", "ms"), (units.SIZE, "B", "kB")):
        found = re.fullmatch(rf"(\d+){small}", str(value))
        if found is not None and (small != "B" or int(found[1]) > 2000):
            return f"{int(found[1]) * of[small] / of[large]:g}{large}"
    return str(value)


def row(network: networks.Network) -> list[str]:
    """Return a network's rate, delay, queue and other properties, as the page shows them."""
    link = copy.deepcopy(network.topology["bottleneck"])
    back, access = link.pop("back", {}), network.topology["access"]
    assert link.pop("loop", True)  # each trace starts again
    rate = _words(link.pop("rate", "trace" if link.pop("trace", "") else "none"), "rate")
    up = _words(back.pop("rate"), "rate") if "rate" in back else rate
    way = units.read(link.pop("delay"), units.SPAN), units.read(access.get("delay", "0ms"), units.SPAN)
    assert None not in way
    queue = [_words(link.pop("queue"))] + ([_words(back.pop("queue"))] if "queue" in back else [])
    more = [f"{key} {_words(value, key)}" for key, value in link.items()]
    more += [f"up {key} {_words(value, key)}" for key, value in back.items()]
    changes: dict[str, list[str]] = {}
    for event in network.event:
        change = {key: value for key, value in event["set"].items() if key not in ("link", "direction")}
        which = {"forward": "down ", "back": "up "}.get(event["set"].get("direction", ""), "")
        again = f" (every {event['every']})" if "every" in event else ""
        for key, value in change.items():
            at = f"{units.read(event['at'], units.SPAN):g}s"
            changes.setdefault(f"{which}{key}", []).append(f"{_words(value, key)} at {at}{again}")
        assert event["set"]["link"] == "bottleneck"
    more += [f"{what} {', '.join(steps)}" for what, steps in changes.items()]
    delay = 1e3 * (way[0] or 0) + 2e3 * (way[1] or 0)
    return [f"{rate}/{up}", f"{delay:g}", "/".join(queue), "; ".join(more)]


def test_the_networks_are_those_of_the_page_number_by_number() -> None:
    lines = re.findall(r"^\|(.+)\| [TWLCRS] \|$", PAGE.read_text(encoding="utf-8"), re.M)
    letters = re.findall(r"\| ([TWLCRS]) \|$", PAGE.read_text(encoding="utf-8"), re.M)
    told = [[cell.strip() for cell in line.split("|")] for line in lines]
    assert len(told) == 41
    assert sorted(name for name, *_ in told) == networks.names()
    for (name, *cells), letter in zip(told, letters, strict=True):
        network = networks.find(name)
        assert row(network) == cells, name
        assert network.source.startswith(SOURCES[letter]), name
        assert network.kind in ("published", "model", "synthetic", "measured")
        assert 10 < len(network.about) <= 100
        assert network.licence in ("facts", "MIT", "MIT OR Apache-2.0")
        assert network.licence == "MIT" or letter != "C"


def test_the_sets_name_networks_that_are_there() -> None:
    sets = {name: [networks.find(each) for each in of] for name, of in networks.sets().items()}
    alone = [network for network in sets["standard"] if not network.flow]
    assert (len(sets["standard"]), len(alone), len(sets["smoke"])) == (40, 28, 6)
    beside = {network.name: len(network.flow) for network in sets["standard"] if network.flow}
    assert beside == {**dict.fromkeys(beside, 1), "home-3+2cubic+web": 3}
    assert networks.expanded("smoke") == networks.sets()["smoke"]
    assert networks.expanded("lte") == ["lte"]


@pytest.mark.parametrize("name", networks.names())
def test_each_network_is_clean_and_a_call_over_it_waits_for_its_way_at_least(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "call.toml"
    path.write_text(f'network = "{name}"\n{CALL.format(5)}', encoding="utf-8")
    assert load(path).warnings() == []
    done = sc.run(path, quality=False).summary
    (receiver,) = done["flows"][0]["receivers"]
    assert done["complete"]
    assert 0.8 < 1 - receiver["loss_frac"] <= 1
    least = float(row(networks.find(name))[1])
    assert least <= receiver["delay_mean_ms"] < least + 40


def test_the_cells_are_those_that_the_recipe_makes() -> None:
    for name, cell in script("cells").CELLS.items():
        path = Path(networks.find(name).topology["bottleneck"]["trace"])
        assert path.read_text(encoding="utf-8") == cell.trace()


# ---------------------------------------------------------------- what a scenario over one is

OWN: dict[str, list[Any]] = {
    "rate": ["7Mbps"],
    "delay": ["33ms"],
    "loss": [{"kind": "none"}, {"kind": "bernoulli", "p": 0.2}],
    "queue": [
        {"limit": "77p"},
        {"kind": "codel"},
        {"kind": "red", "limit": "50p", "min": "5p", "max": "15p"},
        "90ms",
    ],
    "mtu": ["1400B"],
    "back": [{"rate": "2Mbps"}, {"delay": "1ms", "mtu": "1300B"}],
}


@st.composite
def over(draw: st.DrawFn) -> tuple[str, dict[str, Any], list[dict[str, Any]]]:
    """Draw a network with added TCP flows, keys that override its two links, and additional events."""
    name = draw(st.sampled_from(networks.names()))
    beside = draw(st.sampled_from(["", "+cubic", "+2bbr", "+web+cubic"]))
    own: dict[str, Any] = {}
    for link in draw(st.sets(st.sampled_from(["bottleneck", "access"]))):
        keys = draw(st.sets(st.sampled_from(sorted(OWN)), min_size=1))
        own[link] = {key: draw(st.sampled_from(OWN[key])) for key in sorted(keys)}
    times = draw(st.lists(st.integers(0, 50), max_size=3))
    return (
        name + beside,
        own,
        [{"at": f"{t}s", "set": {"link": "bottleneck", "delay": f"{t}ms"}} for t in times],
    )


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Merge tables independently of the program: the keys of ``above`` override those of ``below``."""
    if above.get("kind", below.get("kind")) != below.get("kind"):
        return {**({"limit": below["limit"]} if "limit" in below else {}), **above}
    whole = {key: value for key, value in below.items() if not (key in ("trace", "loop") and "rate" in above)}
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(whole.get(key), dict)
        whole[key] = merged(whole[key], value) if both else value
    return whole


@settings(max_examples=60)
@given(over())
def test_a_scenario_over_a_network_is_the_two_laid_on_each_other_by_hand(
    drawn: tuple[str, dict[str, Any], list[dict[str, Any]]],
) -> None:
    name, own, events = drawn
    flow = tomllib.loads(CALL.format(100))["flow"]
    keys = {"name": "both", "duration": "100s", "event": events, "flow": flow}
    found = networks.find(name)
    by_hand = {
        **keys,
        "topology": merged(found.topology, own),
        "event": [*found.event, *events],
        "flow": [*flow, *found.flow],
    }
    by_name = {**keys, "network": name, "topology": own}
    texts = [
        "\n".join(f"{key} = {inline(value)}" for key, value in each.items()) for each in (by_hand, by_name)
    ]
    hand, named = (outcome("both.toml", text) for text in texts)
    parts: dict[str, Any] = {"topology": own, "events": events, "flows": flow}
    objects = sc.Scenario(name="both", duration="100s", network=name, **parts)
    assert hand == named == outcome(objects)


def outcome(scenario: str | sc.Scenario, text: str | None = None) -> object:
    """Return a scenario's resolved form, or its error."""
    try:
        return tomllib.loads(load(scenario, (), text).toml())
    except Problems as problems:
        return {(each["what"], each["remedy"]) for each in problems.listed()}


# ---------------------------------------------------------------- the command line and the lab


def test_a_file_of_the_current_folder_precedes_a_built_in_file_of_its_name(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The built-in scenarios also have a file lte.toml."""
    monkeypatch.chdir(tmp_path)
    assert say("networks", "--copy", "lte").code == 0
    checked = say("check", "home", "--set", "network=lte.toml")
    assert checked.code == 0, checked.err


def test_the_command_lists_shows_and_copies_networks_and_runs_over_them(say: Say, tmp_path: Path) -> None:
    listed = say("networks").out
    assert all(f"\n{name} " in listed for name in (*networks.names(), *networks.sets()))
    told = json.loads(say("networks", "--json").out)
    assert [each["name"] for each in told["networks"]] == networks.names()
    assert told["sets"] == networks.sets()
    assert say("networks", "--show", "lte").out == (builtin.NETWORKS / "lte.toml").read_text(encoding="utf-8")
    assert 'did you mean "lte"?' in say("networks", "--show", "lt").err
    assert say("networks", "--copy", "lte", "--copy", "steps", "-o", "mine").code == 0
    assert (tmp_path / "mine" / "traces" / "lte-synthetic.mahi").is_file()
    assert say("networks", "-o", "mine").code == 2
    for one in ("lte", "mine/lte.toml"):
        said = say(
            "run",
            "home",
            "--network",
            one,
            "--set",
            "duration=6s",
            "--set",
            "flow.video.media=greedy",
            "--json",
            code=0,
        )
        assert json.loads(said.out)["links"][0]
    assert "there are: cubic, newreno, bbr, web" in say("run", "home", "--network", "lte+x").err
    assert "leave it out" in say("run", "lte", "--network", "steps").err


def test_a_sweep_over_a_set_runs_each_of_its_networks(tmp_path: Path) -> None:
    path = tmp_path / "call.toml"
    path.write_text(f'network = "lte"\n{CALL.format(2)}', encoding="utf-8")
    done = sc.sweep(path, {"network": ["standard", "edge"]}, out=tmp_path / "swept")
    assert done.failed == 0
    assert done.results["network"].to_list() == [*networks.sets()["standard"], "edge"]
    assert done.results["record_sha256"].n_unique() > 30


def test_the_lab_s_page_may_choose_a_network_by_name_and_no_file(tmp_path: Path) -> None:
    path = tmp_path / "call.toml"
    path.write_text(f'network = "cable-5"\n{CALL.format(5)}', encoding="utf-8")
    base = Base.read(path)
    tree, loaded = checked(base, edited(base.text, [(("network",), "lte+cubic")]))
    found = {knob.path: knob for knob in knobs(tree, tomllib.loads(loaded.toml()), base, None)}
    assert found["network",].value == "lte+cubic"
    assert found["topology", "bottleneck", "delay"].value == "25ms"
    assert ("topology", "bottleneck", "rate") not in found  # its rate follows a trace
    changed = edited(base.text, [(("topology", "bottleneck", "rate"), "9Mbps")])
    assert 'bottleneck = { rate = "9Mbps"' in checked(base, changed)[1].toml()
    builtin.copy(["geo"], tmp_path, builtin.NETWORKS)
    with pytest.raises(sc.UserError, match="may not name the file"):
        checked(base, base.text.replace("cable-5", "geo.toml"))
    path.write_text(base.text.replace("cable-5", "geo.toml+cubic"), encoding="utf-8")
    assert checked(Base.read(path), path.read_text(encoding="utf-8"))[1].flows == 2


def test_the_lab_begins_over_the_network_that_is_asked_for(tmp_path: Path) -> None:
    for one, topology in (("home", None), (builtin.copy(["dumbbell"], tmp_path)[0], None)):
        base = Base.read(Path(one), "steps-back+web")
        assert tomllib.loads(base.text).get("topology") == topology
        assert 'rate = "2Mbps", delay = "50ms"' in checked(base, base.text)[1].toml()
    (tmp_path / "own.toml").write_text(
        f'network = "lte"\ntopology.bottleneck.delay = "1ms"\n{CALL.format(5)}', encoding="utf-8"
    )
    base = Base.read(tmp_path / "own.toml", "geo")
    assert 'rate = "10Mbps", delay = "1ms"' in checked(base, base.text)[1].toml()


def test_a_network_in_the_place_of_a_scenario_is_called_one() -> None:
    for name in networks.names():
        with pytest.raises(UserError, match="this is a network, which a scenario runs over"):
            load(builtin.NETWORKS / f"{name}.toml")
