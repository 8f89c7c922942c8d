"""A SentencePiece model file: what is read of it, and which models are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from dpe.errors import UserError
from dpe.text.marked_words import MARKER

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
