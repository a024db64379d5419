"""Scores of encoded pictures, which the cache keeps. They equal those that a run measures itself."""

import numpy as np
import pytest
from steadycast.media import quality as quality_module
from steadycast.media import scores as scores_module
from steadycast.media.ladder import encode_ladder
from steadycast.media.quality import Quality, evaluate
from steadycast.media.splice import Fates
from steadycast.media.synthetic import Synthetic

FRAMES = 52
QS = [2, 9, 31]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A separate cache for each test."""
    monkeypatch.setenv("STEADYCAST_CACHE", str(tmp_path))
    return tmp_path


def ladder():
    """The film as another process has it: only with the content of the cache."""
    return encode_ladder(Synthetic(FRAMES), size="176x144", qs=QS)


def drawn(seed):
    """Losses, quantizers, and the number of frames. Some groups are complete, and some have several quantizers."""
    chance = np.random.default_rng(seed)
    frames = int(chance.integers(20, 3 * FRAMES))
    complete = chance.random(frames) >= chance.choice([0.0, 0.02, 0.3])
    groups = ladder().table.groups_in(frames)
    chosen = [int(chance.choice(QS)) for _ in range(groups)]
    if seed % 3 == 0:
        chosen[0] = tuple(int(chance.choice(QS)) for _ in range(12))
    return chosen, Fates(complete)


def same(a: Quality, b: Quality) -> bool:
    names = ("shown", "psnr_raw", "psnr_encoded", "ssim", "mos", "coded")
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)


@pytest.mark.parametrize("seed", range(12))
def test_what_the_cache_keeps_changes_no_score(seed, monkeypatch):
    flow = drawn(seed)
    with monkeypatch.context() as patch:
        # Without the cached scores, each picture is measured.
        patch.setattr(scores_module.EncodedScores, "of", lambda *_: None)
        measured = evaluate(ladder(), *flow)
    for other in range(seed + 1, seed + 3):
        evaluate(ladder(), *drawn(other))
    first, again = evaluate(ladder(), *flow), evaluate(ladder(), *flow)
    assert same(first, measured)
    assert same(again, measured)


@pytest.fixture
def decoded(monkeypatch):
    """Number of groups of pictures that are decoded."""
    counted = []
    decode = quality_module.decode_units

    def counting(*args):
        counted.append(1)
        return decode(*args)

    monkeypatch.setattr(quality_module, "decode_units", counting)
    return counted


def test_a_second_run_decodes_the_groups_with_losses_alone(decoded):
    complete = np.ones(FRAMES, dtype=bool)
    evaluate(ladder(), [9] * 5, Fates(complete))
    assert len(decoded) == 5
    decoded.clear()
    evaluate(ladder(), [9] * 5, Fates(complete))
    assert decoded == []
    complete[30] = False
    evaluate(ladder(), [9] * 5, Fates(complete))
    assert len(decoded) == 2  # the group as received, and as encoded


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "shape", "program"])
def test_scores_that_are_damaged_or_of_another_program_are_measured_again(
    cache, decoded, monkeypatch, damage
):
    flow = [9] * 5, Fates(np.ones(FRAMES, dtype=bool))
    whole = evaluate(ladder(), *flow)
    (kept,) = cache.glob("*-9.scores")
    content = kept.read_bytes()
    if damage == "program":
        monkeypatch.setattr(scores_module.core, "sources", lambda: ("another", {}))
    elif damage == "shape":
        with kept.open("wb") as file:
            program = np.frombuffer(scores_module.core.sources()[0].encode(), dtype=np.uint8)
            np.savez(file, program=program, scores=np.zeros((3, 4)))
    else:
        kept.write_bytes({"cut": content[: len(content) // 2], "empty": b"", "text": b"scores"}[damage])
    decoded.clear()
    assert same(evaluate(ladder(), *flow), whole)
    assert len(decoded) == 5
    decoded.clear()
    assert same(evaluate(ladder(), *flow), whole)
    assert decoded == []


def test_two_processes_that_measure_different_parts_keep_both(decoded):
    first, second = ladder(), ladder()
    views = [evaluate(each, [2, 9, 9, 9, 9], Fates(np.ones(12, dtype=bool))) for each in (first, second)]
    assert same(*views)
    # Both have read the rung of quantizer 9 before either adds to it.
    late = Fates(np.ones(FRAMES, dtype=bool))
    evaluate(first, [2, 9, 31, 31, 31], late)
    evaluate(second, [2, 31, 9, 31, 31], late)
    decoded.clear()
    evaluate(ladder(), [2, 9, 9, 31, 31], late)
    assert decoded == []


def test_scores_know_infinite_ones_and_the_last_slot():
    made = scores_module.EncodedScores(ladder())
    made.need([9])
    assert made.of(9, FRAMES - 1) is None
    made.put(9, FRAMES - 1, (np.inf, 50.5, np.inf), 1.0)
    made.store()
    again = scores_module.EncodedScores(ladder())
    again.need([9])
    assert again.of(9, FRAMES - 1) == ((np.inf, 50.5, np.inf), 1.0)
    assert again.of(9, 0) is None
