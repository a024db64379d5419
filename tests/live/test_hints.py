"""The hints of a live session, and when they are repeated."""

from __future__ import annotations

import itertools

import pytest
from steadycast.live import view

from tests.live.test_outlets import peer, status

HINTS = (
    "the encoder is too slow: {n} left out; use a smaller --size or --fps",
    "the rate was too low for {n}; use a higher --floor (the key +) or a smaller --size",
    "no RTCP from 10.0.0.2 for {d} s: is port 5005 of this machine reachable from there?",
    "{n} skipped: the rate fell faster than the encoder could",
    "{d} packets were refused: check that a receiver listens at 10.0.0.9:5004",
)


def test_a_hint_is_said_once_whatever_its_numbers_are_and_each_kind_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told: list[str] = []
    watch = view.Watch(lambda status: "line", lambda status: None, lambda status: told)  # type: ignore[arg-type,return-value]
    watch.in_terminal = False
    watch._next = float("inf")
    for round_, hint in itertools.product(range(1, 60), HINTS):
        counted = "1 picture was" if round_ == 1 else f"{round_ * 7:,} pictures were"
        told[:] = [hint.format(n=counted, d=round_)]
        watch.show({"at_s": round_})
    said = capsys.readouterr().err.splitlines()
    # The message for one picture and that for several count as the same.
    assert len(said) == len(HINTS)
    told[:] = [f"no RTCP from 10.0.0.{host} for 9 s: is it still there?" for host in range(3, 9)]
    watch.show({"at_s": 60})
    assert len(capsys.readouterr().err.splitlines()) == 6


def test_a_rate_that_the_encoder_held_says_no_more_than_that() -> None:
    decision = {"rule": "r", "loss": None, "rtt_ms": None, "by": None, "limit": "encoder"}
    assert view.why(decision) == "the encoder limits: r"


@pytest.mark.parametrize("ignored", [0, 3])
def test_a_receiver_whose_reports_cannot_be_true_is_named_with_what_to_check(ignored: int) -> None:
    found = view.hints(status([peer(1, implausible=ignored, loss_frac=None)]), "10.0.0.9:5004", 5005)
    assert [hint for hint in found if "more losses than packets" in hint] == [
        f"{peer(1)['name']} has reported more losses than packets: these reports are ignored; check how its program "
        "counts losses (RFC 3550, A.3)"
    ][: bool(ignored)]
