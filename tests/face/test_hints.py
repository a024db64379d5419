"""Messages name what their reader can write: options of this command, or arguments in Python."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import steadycast as sc
from steadycast.errors import UserError
from steadycast.progress import Terminal
from steadycast.report import terminal
from steadycast.report.answer import answer, got
from steadycast.report.say import rate as rate_said
from steadycast.report.say import seconds as seconds_said

from tests.conftest import SMALL, Say


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "home", "--seed", "-1"), "seed: -1 is out of range; write a whole number from 0 to"),
        (("run", "home", "--seed", str(2**63)), "seed: 9223372036854775808 is out of range"),
        (("run", "home", "--seed", "1-3"), "1-3 are several seeds; write --seeds 1-3"),
        (("run", "home", "--seed=1-3"), "1-3 are several seeds; write --seeds 1-3"),
        (("emulate", "home", "--seed", "1-3"), "1-3 is not a whole number; write for example 3"),
        (("run", "home", "--seed", "one"), "one is not a whole number; write for example 3"),
        (("sweep", "home", "--jobs", "0"), "0 is too small; take 1 or more"),
        (("sweep", "home", "--jobs", "2.5"), "2.5 is not a whole number; write for example 3"),
        (("serve", "testsrc", "--viewers", "500"), "500 is too large; take 100 or less"),
    ],
)
def test_a_number_that_is_none_is_answered_in_plain_words(
    say: Say, words: tuple[str, ...], said: str
) -> None:
    told = say(*words, code=2)
    assert said in told.err
    assert "Input should be" not in told.err


def test_a_folder_that_is_there_is_answered_by_an_option_or_by_an_argument(say: Say, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes").touch()
    with pytest.raises(UserError) as told:
        sc.run(tmp_path / "small.toml", out=tmp_path / "out")
    assert "force=True" in str(told.value)
    assert not re.search(r"(^|\s)--?[a-z]", str(told.value))
    said = say("run", tmp_path / "small.toml", "-o", tmp_path / "out", code=2)
    assert "--force" in said.err
    assert "=True" not in said.err


def test_a_flow_that_never_competes_says_so_and_has_no_share(tmp_path: Path) -> None:
    (tmp_path / "alone.toml").write_text(SMALL[: SMALL.rindex("[[flow]]")])
    summary = sc.run(tmp_path / "alone.toml").summary
    (flow,) = summary["flows"]
    assert (flow["share_of_fair"], flow["competing_s"], flow["fair_share_bps"]) == (None, 0, 1e6)
    said = terminal.unshared(summary)
    assert said is not None
    assert str(said) == "of fair is unknown for video, which shared no full link with another flow"
    assert any("shared no full link with another flow" in line for line in answer(summary))
    idle = {"name": "late", "share_of_fair": None, "competing_s": 0, "throughput_bps": None}
    said = terminal.unshared({"flows": [flow, idle, idle | {"name": "later"}]})
    assert said is not None
    assert str(said) == (
        "of fair is unknown for video, which shared no full link with another flow; and for late and later, which "
        "did not run in the measured time"
    )
    (tmp_path / "small.toml").write_text(SMALL)
    both = sc.run(tmp_path / "small.toml").summary
    assert terminal.unshared(both) is None
    # A flow that stops before the end of the warm-up has no figures that another flow could explain.
    changes = {"warmup": "2s", "flow.tcp.stop": "1s"}
    early = sc.run(tmp_path / "small.toml", set=changes).summary
    reasons = "video, which shared no full link with another flow; and for tcp, which did not run in the measured time"
    assert str(terminal.unshared(early)) == f"of fair is unknown for {reasons}"
    assert got(early["flows"][1]) == "tcp (cubic) was not active after the warm-up"
    # The fair share of each is half of the link's 1 Mb/s.
    assert sum(flow["share_of_fair"] for flow in both["flows"]) == pytest.approx(
        sum(flow["throughput_bps"] for flow in both["flows"]) / 0.5e6, rel=0.01
    )


def test_the_share_of_a_flow_that_is_alone_for_a_time_is_told_with_what_it_divides(
    tmp_path: Path, say: Say
) -> None:
    (tmp_path / "late.toml").write_text(SMALL.replace('"3s"', '"9s"', 1) + 'start = "4s"\n')
    out = say("run", tmp_path / "late.toml", "-o", tmp_path / "late").out
    summary = json.loads((tmp_path / "late" / "summary.json").read_text())
    said = str(terminal.partly_competing(summary))
    assert " ".join(out.split()).count(said) == 1
    page = (tmp_path / "late" / "report.html").read_text()
    for flow in summary["flows"]:
        rate, fair = flow["share_of_fair"] * flow["fair_share_bps"], flow["fair_share_bps"]
        told = f"{flow['name']} had {rate_said(rate)} of {rate_said(fair)} in its {seconds_said(flow['competing_s'])}"
        apart = abs(flow["throughput_bps"] - rate) / fair
        assert (told in said) == (apart > 0.02), (flow, said)
    assert "Shares count the time in which a flow competes" in page
    (tmp_path / "small.toml").write_text(SMALL)
    assert terminal.partly_competing(sc.run(tmp_path / "small.toml").summary) is None


def test_progress_without_a_terminal_is_a_line_for_each_part(capsys: pytest.CaptureFixture[str]) -> None:
    for lines, said in ((True, ["judging: 0 of 2", "judging: 1 of 2", "judging: 2 of 2"]), (False, [])):
        with Terminal(lines=lines) as told:
            for done in (0, 0, 1, 1, 2):
                told("judging", done, 2)
        assert capsys.readouterr().err.splitlines() == said
