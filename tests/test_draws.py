"""A draw is a function of its numbers, the ones that its definition names, and shares them with no other."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dpe.text.draws import NOISE_STREAM, Draw, generator


def test_draws_of_different_numbers_never_share_a_generator() -> None:
    assert Draw(1, 11, 1).generator().random() != Draw(11, 1, 1).generator().random()
    assert Draw(1, 1, 11).generator().random() != Draw(1, 11, 1).generator().random()


@pytest.mark.parametrize("draw", [Draw(), Draw(3, 2, 7), Draw(-1, 5, 2**40)])
def test_the_numbers_are_those_of_the_key(draw: Draw) -> None:
    """The keys are a contract: other ones would change every result that was made before."""
    assert draw.generator().random() == random.Random(" ".join(map(str, draw))).random()
    uniforms = draw.uniforms(12, n=3)  # [draw, character]
    seed, epoch, line = draw
    for number, row in enumerate(uniforms):
        key = [0x63757473, seed % 2**64, epoch, line, number]
        assert row.tolist() == np.random.default_rng(key).random(12).tolist()
    assert draw.uniforms(12, n=1).tolist() == uniforms[:1].tolist()
    assert draw.uniforms(5, n=3).tolist() == uniforms[:, :5].tolist()
    assert draw.uniforms(0, n=2).shape == (2, 0)


def test_another_line_has_other_numbers_and_the_same_seed_and_epoch() -> None:
    assert Draw(3, 2, 7).at(9) == Draw(3, 2, 9)
    rows = [Draw(3, 2).at(line).uniforms(4, n=1)[0] for line in range(3)]
    rows += [generator(NOISE_STREAM, 3, 2, line).random(4) for line in range(3)]
    assert len({tuple(row.tolist()) for row in rows}) == 6
