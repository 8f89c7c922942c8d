"""The best segmentation of a text by scores of pieces, piece by piece: Viterbi's algorithm."""

from __future__ import annotations

from collections.abc import Mapping

# SentencePiece scores an unknown character this far below the worst piece of a unigram model.
UNKNOWN_PENALTY = 10.0


def best_pieces(
    text: str, scores: Mapping[str, float], unknown: float, *, longest: int
) -> tuple[float, list[str]]:
    """The best segmentation of a text into pieces of at most `longest` characters, and its score.

    A character that is no piece has the score `unknown`.
    """
    best = [(0.0, 0)]  # of every prefix: its score, and where its last piece begins
    for end in range(1, len(text) + 1):
        ways = []
        for start in range(max(0, end - longest), end):
            score = scores.get(text[start:end], unknown if start == end - 1 else None)
            if score is not None:
                ways.append((best[start][0] + score, start))
        best.append(max(ways))
    pieces, end = [], len(text)
    while end:
        start = best[end][1]
        pieces.append(text[start:end])
        end = start
    return best[-1][0], pieces[::-1]
