"""Small vocabularies made by hand, piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sentencepiece import sentencepiece_model_pb2 as proto

from dpe.choices import VocabularyType
from dpe.text.vocabulary import Vocabulary

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")


def make_model(
    pieces: Sequence[tuple[str, float]],
    *,
    type: VocabularyType = "bpe",
    protected: Sequence[str] = (),
) -> Vocabulary:
    """A vocabulary of exactly these pieces (with their scores), behind the special and the protected ones.

    Ids 0 to 3 are padding, unknown, beginning and end. No normalisation but SentencePiece's for blanks.
    """
    kinds = proto.ModelProto.SentencePiece
    model = proto.ModelProto()
    model.trainer_spec.model_type = {"unigram": 1, "bpe": 2}[type]
    spec: Any = model.trainer_spec
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = range(4)
    model.normalizer_spec.name = "identity"
    for piece in SPECIAL:
        model.pieces.add(piece=piece, score=0.0, type=kinds.UNKNOWN if piece == "<unk>" else kinds.CONTROL)
    for piece in protected:
        model.pieces.add(piece=piece, score=0.0, type=kinds.USER_DEFINED)
    for piece, score in pieces:
        model.pieces.add(piece=piece, score=score, type=kinds.NORMAL)
    return Vocabulary(model.SerializeToString())
