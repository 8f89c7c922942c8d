"""A SentencePiece model file: what is read of it, and which models are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from typing import Any

import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from dpe.errors import UserError
from dpe.text.words import MARKER

SPECIAL_PIECES = {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>"}
# SentencePiece's piece types (sentencepiece_model.proto).
NORMAL, USER_DEFINED, _BYTE = 1, 4, 6


def parse(content: bytes, name: str) -> Any:
    """The model of a file's bytes."""
    model: Any = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]  # generated at import
    try:
        model.ParseFromString(content)
    except DecodeError as error:
        raise UserError(f"{name} is not a SentencePiece model (or is damaged).") from error
    if not model.pieces:
        raise UserError(f"{name} is not a SentencePiece model (it has no pieces).")
    return model


def load_processor(content: bytes, name: str) -> Any:
    """SentencePiece's own encoder and decoder, from a file's bytes."""
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=content)
    except RuntimeError as error:
        raise UserError(f"{name} is damaged; SentencePiece says: {str(error).strip()}") from error


def refuse_unusable(model: Any, name: str) -> None:
    """Models whose cuts could not be exact, each refused in one sentence."""
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    if trainer.model_type not in (1, 2):
        raise UserError(f"{name} is neither a BPE nor a unigram model; learn one with --type bpe or unigram.")
    if trainer.byte_fallback or any(p.type == _BYTE for p in model.pieces):
        raise UserError(f"{name} uses byte fallback, which dpe does not read; learn one without it.")
    if not normalizer.escape_whitespaces:
        raise UserError(f"{name} does not mark blanks with U+2581; learn one with SentencePiece's default.")
    matching = next(_special_pieces_that_match_text(model), None)
    if matching is not None:
        raise UserError(
            f"{name} has the special piece {matching!r} among the pieces that match text; "
            "learn one without it in user_defined_symbols."
        )
    crossing = next(_pieces_across_words(model), None)
    if crossing is not None:
        raise UserError(
            f"{name} has the piece {crossing!r}, which crosses a word boundary (U+2581 may only be first); "
            "learn one with split_by_whitespace and without treat_whitespace_as_suffix."
        )


def _special_pieces_that_match_text(model: Any) -> Iterator[str]:
    trainer = model.trainer_spec
    for index in (trainer.pad_id, trainer.bos_id, trainer.eos_id):
        if 0 <= index < len(model.pieces) and model.pieces[index].type in (NORMAL, USER_DEFINED):
            yield model.pieces[index].piece


def _pieces_across_words(model: Any) -> Iterator[str]:
    for piece in model.pieces:
        if piece.type in (NORMAL, USER_DEFINED) and MARKER in piece.piece[1:]:
            yield piece.piece


def with_special_pieces(model: Any) -> tuple[tuple[str, ...], dict[str, int]]:
    """All pieces by id, and the four special ids; those that the model lacks come behind its pieces."""
    pieces = [p.piece for p in model.pieces]
    trainer = model.trainer_spec
    ids = {"pad": trainer.pad_id, "unk": trainer.unk_id, "bos": trainer.bos_id, "eos": trainer.eos_id}
    for name, piece in SPECIAL_PIECES.items():
        if not 0 <= ids[name] < len(model.pieces):
            ids[name] = len(pieces)
            pieces.append(piece)
    return tuple(pieces), ids


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
