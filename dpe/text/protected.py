"""Protected strings in a unigram model.

SentencePiece only gives them a good score there, so that frequent pieces may still beat them, and lists of
the n best cuts cut them. Here each is one stand-in character while SentencePiece looks at the text: nothing
can cut a character, and no other piece has it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import sentencepiece

from dpe.text.sentencepiece_model import NORMAL, USER_DEFINED

_FIRST_PRIVATE = 0xF0000


class ProtectedUnigram:
    """A unigram model whose user-defined pieces are always one piece."""

    def __init__(self, model: Any) -> None:
        used = {character for piece in model.pieces for character in piece.piece}
        free = (c for c in map(chr, range(_FIRST_PRIVATE, 0x10FFFF)) if c not in used)
        unknown = next(free)  # what the text's own stand-in characters are read as
        self._stand_ins: dict[str, str] = {}
        copy = type(model)()
        copy.CopyFrom(model)
        for piece in copy.pieces:
            if piece.type == USER_DEFINED:
                self._stand_ins[piece.piece] = next(free)
                piece.piece, piece.type, piece.score = self._stand_ins[piece.piece], NORMAL, 0.0
        self._taken = str.maketrans(dict.fromkeys(self._stand_ins.values(), unknown))
        self._processor: Any = sentencepiece.SentencePieceProcessor(model_proto=_without_normalizer(copy))

    def n_best(
        self, marked: str, protected_spans: Callable[[str], list[tuple[int, int]]], *, n: int
    ) -> list[list[str]]:
        """SentencePiece's n best cuts of a marked line among those that keep its protected strings."""
        text, widths = self._with_stand_ins(marked, protected_spans(marked))
        offsets = [0, *accumulate(widths)]
        cuts = self._processor.nbest_encode(text, nbest_size=n, out_type=str)
        return [_restore(cut, marked, offsets) for cut in cuts]

    def _with_stand_ins(self, marked: str, spans: list[tuple[int, int]]) -> tuple[str, list[int]]:
        """The text for SentencePiece, and for each of its characters the width in the marked line."""
        text, widths, start = "", [], 0
        for begin, end in [*spans, (len(marked), len(marked))]:
            text += marked[start:begin].translate(self._taken)
            widths += [1] * (begin - start)
            if begin < end:
                text += self._stand_ins[marked[begin:end]]
                widths.append(end - begin)
            start = end
        return text, widths


def _restore(cut: list[str], marked: str, offsets: list[int]) -> list[str]:
    """The pieces as they stand in the marked line; only their lengths are used."""
    bounds = [offsets[i] for i in accumulate(map(len, cut), initial=0)]
    return [marked[start:end] for start, end in pairwise(bounds)]


def _without_normalizer(model: Any) -> bytes:
    """The model, for text in its marked form already."""
    normalizer = model.normalizer_spec
    normalizer.name, normalizer.precompiled_charsmap = "identity", b""
    normalizer.add_dummy_prefix = normalizer.remove_extra_whitespaces = False
    content: bytes = model.SerializeToString()
    return content
