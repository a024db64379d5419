"""Every value of the papers' scenarios is in a list, with its sentence or its range."""

from __future__ import annotations

from pathlib import Path

import pytest
from steadycast.errors import UserError

from papers import EXPERIMENTS
from papers.engine import values as listed
from papers.engine.experiment import Way
from papers.engine.suite import _placed

FAMILIES = "KMHCB"


@pytest.mark.parametrize("family", FAMILIES)
def test_no_value_of_a_scenario_is_missing_in_the_list(family: str) -> None:
    assert listed.scenario_keys(family) != {}
    assert listed.unlisted(family) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_a_value_is_given_by_a_sentence_or_ours_with_a_range_or_a_reason_to_keep_it(family: str) -> None:
    for value in listed.values(family):
        assert bool(value.given) != bool(value.ours), value.name
        assert value.given or value.kept or (value.range and value.others), value.name
        for other in value.others:
            assert (other.way is Way.READING) == bool(other.says), other.name
            assert value.ours or other.says, (
                f"{other.name}: a value of the paper has another reading only by a sentence"
            )


def test_a_key_that_nobody_listed_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "t").mkdir()
    (tmp_path / "scenarios/t-a.toml").write_text(
        'name = "t"\nduration = "9s"\n'
        '[[link]]\nbetween = ["a", "b"]\nrate = "1Mbps"\n'
        '[[flow]]\nname = "f"\npacket = "9B"\n',
        encoding="utf-8",
    )
    monkeypatch.setattr(listed, "PAPERS_FOLDER", tmp_path)
    file = tmp_path / "t/values.toml"
    packet = '[[value]]\nname = "p"\nkeys = ["flow.*.packet"]\nours = "so"\nrange = "8 to 9"\n'
    file.write_text(f'{packet}others = [{{ name = "8", to = "8B" }}]\n', encoding="utf-8")
    assert listed.unlisted("t") == [
        ("t-a.toml", "duration"),
        ("t-a.toml", "link.a~b.between"),
        ("t-a.toml", "link.a~b.rate"),
    ]
    (value,) = listed.values("t")
    assert value.here == "9B"
    assert value.others[0].sets_in(Path("t-a.toml")) == {"flow.f.packet": "8B"}
    again = packet.replace('"p"', '"q"')
    for wrong, says in (
        (packet, "one of ours that is not varied"),
        (packet.replace('ours = "so"', ""), "neither given nor ours"),
        (f'{packet.replace("packet", "pocket")}kept = "so"\n', "stands in no scenario"),
        (f'{packet}kept = "so"\n{again}kept = "so"\n', "too"),
    ):
        file.write_text(wrong, encoding="utf-8")
        with pytest.raises(UserError, match=says):
            listed.values("t")


@pytest.mark.parametrize("experiment", [e for e in EXPERIMENTS if e.alternatives], ids=lambda e: e.id)
def test_each_alternative_changes_a_scenario_of_its_experiment(experiment: object) -> None:
    placed = _placed(experiment)  # type: ignore[arg-type]
    for other in placed.alternatives:
        assert any(other.sets_in(placed.scenario_of(v)) for v in placed.variants), other.name
