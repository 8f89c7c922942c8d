"""BPE dropout: ours against subword-nmt's, on the same text with the same merges, as a ratio on one core.

    python -m benchmarks.dropout [--lines 10000]

The merges are our BPE vocabulary's. subword-nmt wants pairs and an end-of-word sign where SentencePiece has
pieces and a beginning-of-word sign, so every word is given to it reversed and so are the pairs: `▁two` is
`o w t </w>` (its format 0.1, where the sign is a symbol by itself, as our marker is). A piece that BPE can
build from several pairs has a pair for each, in a row, at its rank. subword-nmt does not write a sign that
stands alone, so markers alone are not counted on our side either. Nothing is reported unless both make the
same number of pieces without dropout, to 0.1 %.

Runs alternate between the two, and the median of each is compared. Ours remembers the plain cuts of words
in every run but the first, which is reported by itself; subword-nmt remembers nothing under dropout.
"""

from __future__ import annotations

import argparse
import io
import itertools
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from subword_nmt.apply_bpe import BPE

from benchmarks.record import record
from benchmarks.subjects import text
from dpe.text.bpe import BpeDropout
from dpe.text.draws import Draw
from dpe.text.learning import VocabularySettings, learn_vocabulary
from dpe.text.vocabulary import Vocabulary
from dpe.text.words import MARKER

RUNS, DROPOUT = 5, 0.05


def subword_nmt_merges(ranks: Mapping[str, int], characters: Sequence[str]) -> str:
    """Our merges in subword-nmt's file format, reversed: see the module's text."""
    known = set(characters) | set(ranks)
    rows = ["#version: 0.1"]
    for piece in sorted(ranks, key=lambda piece: ranks[piece]):
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in known and right in known:
                rows.append(f"{_reversed(right)} {_reversed(left)}")
    return "\n".join(rows) + "\n"


def _reversed(piece: str) -> str:
    return piece[:0:-1] + "</w>" if piece.startswith(MARKER) else piece[::-1]


def reversed_words(vocabulary: Vocabulary, line: str) -> str:
    words = vocabulary.normalize(line).split(MARKER)
    return " ".join(word[::-1] for word in words if word)


def count(pieces: list[str]) -> int:
    return len(pieces) - pieces.count(MARKER)


def timed(work: Callable[[], int]) -> tuple[float, int]:
    start = time.perf_counter()
    tokens = work()
    return time.perf_counter() - start, tokens


def measure(lines: list[str], vocabulary: Vocabulary) -> dict[str, float]:
    """Median seconds of each, and pieces made as a ratio to plain BPE."""
    ours = BpeDropout(vocabulary, dropout=DROPOUT)
    theirs = BPE(io.StringIO(subword_nmt_merges(vocabulary.ranks, vocabulary.characters)))
    reversed_lines = [reversed_words(vocabulary, line) for line in lines]
    random.seed(1)
    epochs = itertools.count()

    def cut_ours() -> int:
        epoch = next(epochs)
        return sum(count(ours.cut(line, Draw(epoch=epoch, line=i))) for i, line in enumerate(lines))

    def cut_theirs() -> int:
        return sum(len(theirs.segment_tokens(line.split(), dropout=DROPOUT)) for line in reversed_lines)

    plain = plain_counts(lines, vocabulary, theirs)
    first, _ = timed(cut_ours)
    runs = [(timed(cut_ours), timed(cut_theirs)) for _ in range(RUNS)]
    numbers = _summary(runs, plain)
    first_ratio = numbers["subword_nmt_seconds"] / first
    return {"ours_first_seconds": first, "first_speed_ratio": first_ratio} | numbers


def plain_counts(lines: list[str], vocabulary: Vocabulary, theirs: BPE) -> tuple[int, int]:
    """Pieces without dropout, ours and theirs; they differ where equal letters may be merged in two ways."""
    ours = sum(count(vocabulary.encode(line)) for line in lines)
    other = sum(len(theirs.segment_tokens(reversed_words(vocabulary, line).split())) for line in lines)
    if abs(ours - other) > 0.001 * ours:
        raise SystemExit(f"The merges are not the same: {ours} pieces without dropout against {other}.")
    return ours, other


def _summary(
    runs: list[tuple[tuple[float, int], tuple[float, int]]], plain: tuple[int, int]
) -> dict[str, float]:
    seconds = [statistics.median(run[side][0] for run in runs) for side in (0, 1)]
    pieces = [statistics.mean(run[side][1] for run in runs) for side in (0, 1)]
    return {
        "ours_seconds": seconds[0],
        "subword_nmt_seconds": seconds[1],
        "speed_ratio": seconds[1] / seconds[0],
        "ours_plain_pieces": plain[0],
        "subword_nmt_plain_pieces": plain[1],
        "ours_piece_ratio": pieces[0] / plain[0],
        "subword_nmt_piece_ratio": pieces[1] / plain[1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of BPE dropout against subword-nmt's.")
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=8_000, help="size of the vocabulary")
    arguments = parser.parse_args()
    name, lines = text().name, text().targets[: arguments.lines]
    numbers = measure(lines, learn_vocabulary(lines, VocabularySettings(size=arguments.size)))
    print(f"BPE dropout {DROPOUT}, {len(lines)} targets of {name}, {arguments.size} pieces, median of {RUNS}")
    print(f"{'':12} {'seconds':>8} {'pieces to plain':>16}")
    for who in ("ours", "subword_nmt"):
        print(f"{who:12} {numbers[who + '_seconds']:8.2f} {numbers[who + '_piece_ratio']:16.3f}")
    print(f"times faster: {numbers['speed_ratio']:.2f}; first pass: {numbers['first_speed_ratio']:.2f}")
    about = {"text": f"{name}, targets", "lines": len(lines), "vocabulary": arguments.size}
    about |= {"dropout": DROPOUT, "runs": RUNS}
    print(record("dropout", about | {key: round(value, 4) for key, value in numbers.items()}))


if __name__ == "__main__":
    main()
