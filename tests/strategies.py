"""Hypothesis strategies: random small lattices."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

MINUS_INFINITY = float("-inf")

real_scores = st.floats(-6.0, 3.0)
tied_scores = st.sampled_from([-1.0, 0.0])  # sums of whole numbers are exact, so equal scores are equal


@st.composite
def lattices(
    draw: st.DrawFn,
    *,
    scores: st.SearchStrategy[float] = real_scores,
    connected: bool = False,
    max_words: int = 4,
    max_length: int = 6,
) -> tuple[Tensor, Tensor]:
    """Edge scores [word, start, span] in float64 and lengths [word]; many edges are missing.

    Unless `connected`, some words have no cut at all; with it, every single character is a piece.
    """
    lengths = draw(st.lists(st.integers(1, max_length), min_size=1, max_size=max_words))
    max_span = draw(st.integers(1, max_length + 1))
    starts = max(lengths) + draw(st.integers(0, 2))
    edge_scores = torch.full((len(lengths), starts, max_span), MINUS_INFINITY, dtype=torch.float64)
    maybe_missing = st.one_of(scores, st.just(MINUS_INFINITY))
    for word, length in enumerate(lengths):
        for start in range(length):
            for span in range(min(max_span, length - start)):
                must_match = connected and span == 0
                edge_scores[word, start, span] = draw(scores if must_match else maybe_missing)
    return edge_scores, torch.tensor(lengths)
