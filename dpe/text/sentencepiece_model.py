"""A SentencePiece model file: its pieces, its special ids, and unigram models that keep protected strings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import accumulate, pairwise
from typing import Any

import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from dpe.errors import UserError
from dpe.text.best_pieces import UNKNOWN_PENALTY, best_pieces
from dpe.text.words import MARKER

_PROTECTION = 50.0  # natural logarithm of the odds for a protected string; sampling divides it
_WORD_CHARACTERS = 6  # of an average word, with its marker

# SentencePiece's model types and piece types (sentencepiece_model.proto).
UNIGRAM, BPE = 1, 2
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
_FIRST_PRIVATE = 0xF0000


def parse(content: bytes, name: str) -> Any:
    """The model stored in a file's bytes."""
    model: Any = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]  # generated at import
    try:
        model.ParseFromString(content)
    except DecodeError as error:
        raise UserError(f"{name} is not a SentencePiece model, or is damaged.") from error
    return model


def empty_model(type: int) -> Any:
    """A model of this type without pieces, which leaves text as it is but for its spaces."""
    model: Any = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]  # generated at import
    model.trainer_spec.model_type = type
    model.normalizer_spec.name = "identity"
    return model


def load_processor(content: bytes, name: str) -> Any:
    """SentencePiece's own encoder and decoder, from a file's bytes."""
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=content)
    except RuntimeError as error:
        raise UserError(f"{name} is damaged; SentencePiece says: {str(error).strip()}") from error


def with_special_pieces(model: Any, special: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, int]]:
    """All pieces by id, and the four special ids; those that the model lacks follow its pieces."""
    pieces = [p.piece for p in model.pieces]
    trainer = model.trainer_spec
    ids = {"pad": trainer.pad_id, "unk": trainer.unk_id, "bos": trainer.bos_id, "eos": trainer.eos_id}
    for name, piece in special.items():
        if not 0 <= ids[name] < len(model.pieces):
            ids[name] = len(pieces)
            pieces.append(piece)
    return tuple(pieces), ids


def remove_pieces(model: Any, pieces: Collection[str]) -> Any:
    """Remove pieces from a model, which is changed; ids close up, and special ids follow their pieces."""
    if not pieces:
        return model
    kept = [i for i, piece in enumerate(model.pieces) if piece.piece not in pieces]
    places = {old: new for new, old in enumerate(kept)}
    for name in ("unk_id", "bos_id", "eos_id", "pad_id"):
        setattr(model.trainer_spec, name, places.get(getattr(model.trainer_spec, name), -1))
    rest = [model.pieces[i] for i in kept]
    del model.pieces[:]
    model.pieces.extend(rest)
    model.trainer_spec.vocab_size = len(rest)
    return model


def protecting_scores(scores: Mapping[str, float], protected: Collection[str]) -> dict[str, float]:
    """Scores of the same unigram model by which SentencePiece itself keeps protected strings whole.

    It does not always: since version 0.2.2 a protected string of n bytes has the score 0.1 n - 0.1; before,
    it had n times the largest score of a piece, less 0.1 (n characters when it samples). Pieces that overlap
    the string may have more together. Two shifts leave all probabilities as they are: a number for every
    character of a piece, and a number for every piece with a word marker. The first, negative, makes all that
    would replace the string worse; the second makes the largest score positive.
    """
    if not protected or not scores:
        return dict(scores)
    at_stake = 2 * _gain_over_sides(scores, protected) + _PROTECTION
    per_character = max(0.0, *scores.values()) + at_stake / min(map(len, protected))
    per_word = _WORD_CHARACTERS * per_character  # so that sums over a line stay small: they have few digits
    return {
        piece: score - per_character * len(piece) + per_word * (MARKER in piece)
        for piece, score in scores.items()
    }


def _gain_over_sides(scores: Mapping[str, float], protected: Collection[str]) -> float:
    """The most by which a piece that overlaps a protected string is better than pieces of its other part."""
    heads = {string[:end] for string in protected for end in range(1, len(string))}
    tails = {string[start:] for string in protected for start in range(1, len(string))}
    unknown, longest = min(scores.values()) - UNKNOWN_PENALTY, max(map(len, scores))

    def best(text: str) -> float:
        return best_pieces(text, scores, unknown, longest=longest)[0]

    gains = [0.0]
    for piece, score in scores.items():
        for cut in range(1, len(piece)):
            if piece[cut:] in heads:
                gains.append(score - best(piece[:cut]))
            if piece[:cut] in tails:
                gains.append(score - best(piece[cut:]))
        for string in protected:
            if string in piece:
                before, _, after = piece.partition(string)
                gains.append(score - best(before) - best(after))
    return max(gains)


class ProtectedUnigram:
    """A unigram model whose user-defined pieces always stay whole.

    SentencePiece itself may split them where other pieces score better, unless `protecting_scores` made the
    scores. Here each is replaced by one private
    character of score 0, in the model and in the text, so that nothing can split it.
    """

    def __init__(self, model: Any) -> None:
        used = {character for piece in model.pieces for character in piece.piece}
        free = (c for c in map(chr, range(_FIRST_PRIVATE, 0x10FFFF)) if c not in used)
        unknown = next(free)  # replaces stand-in characters that occur in the text itself
        self._stand_ins: dict[str, str] = {}
        copy = type(model)()
        copy.CopyFrom(model)
        for piece in copy.pieces:
            if piece.type == USER_DEFINED:
                self._stand_ins[piece.piece] = next(free)
                piece.piece, piece.type, piece.score = self._stand_ins[piece.piece], NORMAL, 0.0
            elif piece.type == BYTE:
                piece.type = CONTROL  # characters stay characters here; the vocabulary writes their bytes
        copy.trainer_spec.byte_fallback = False
        self._taken = str.maketrans(dict.fromkeys(self._stand_ins.values(), unknown))
        normalizer = copy.normalizer_spec  # the text arrives normalised, in its marked form
        normalizer.name, normalizer.precompiled_charsmap = "identity", b""
        normalizer.add_dummy_prefix = normalizer.remove_extra_whitespaces = False
        self._processor: Any = sentencepiece.SentencePieceProcessor(model_proto=copy.SerializeToString())

    def n_best(
        self, marked: str, protected_spans: Callable[[str], list[tuple[int, int]]], *, n: int
    ) -> list[list[str]]:
        """SentencePiece's n best segmentations of a marked line among those that keep protected strings."""
        text, widths = self._with_stand_ins(marked, protected_spans(marked))
        offsets = [0, *accumulate(widths)]
        found = []
        for pieces in self._processor.nbest_encode(text, nbest_size=n, out_type=str):
            bounds = [offsets[i] for i in accumulate(map(len, pieces), initial=0)]
            found.append([marked[start:end] for start, end in pairwise(bounds)])
        return found

    def _with_stand_ins(self, marked: str, spans: list[tuple[int, int]]) -> tuple[str, list[int]]:
        """The text for SentencePiece, and the width of each of its characters in the marked line."""
        text, widths, start = "", [], 0
        for begin, end in [*spans, (len(marked), len(marked))]:
            text += marked[start:begin].translate(self._taken)
            widths += [1] * (begin - start)
            if begin < end:
                text += self._stand_ins[marked[begin:end]]
                widths.append(end - begin)
            start = end
        return text, widths
