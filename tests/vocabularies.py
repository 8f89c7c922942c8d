"""Small vocabularies for tests: made by hand, piece by piece, and the text that others are learned from."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sentencepiece import sentencepiece_model_pb2 as proto

from dpe.choices import VocabularyType
from dpe.text.vocabulary import Vocabulary
from dpe.text.words import MARKER

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
STEMS = ["talo", "auto", "kirja", "lower", "newest", "wide", "house", "Häuser", "straße", "öljy", "東京"]
STEMS += ["книга", "aaaa", "bánh"]
ENDINGS = ["", "ssa", "sta", "ni", "kin", "er", "est", "s", "en", "issani", ",", "!"]
PROTECTED = ("<ph>", "talossa", "<ph>x")

# Pieces for brute force, and sentences that meet each of them, unknown characters and protected strings.
LETTERS = [(MARKER, -1.0), ("a", -2.0), ("b", -3.0), ("c", -4.0)]
LONGER = [("ab", -5.0), ("ba", -6.0), ("bc", -7.0), (MARKER + "a", -8.0), ("abc", -9.0), ("xy", -10.0)]
SENTENCES = ["", "a", "ab", "abc bca", "aabbc a", "acc ccb", "a☃b ☃☃", "xy x y", "abab"]


def make_vocabulary(
    pieces: Mapping[str, float] | Iterable[tuple[str, float]],
    *,
    type: VocabularyType = "bpe",
    protected: Sequence[str] = (),
    prefix: bool = True,
    at_ends: bool = False,
    special: Sequence[str] = SPECIAL,
) -> Vocabulary:
    """A vocabulary of exactly these pieces (with their scores), behind the special and the protected ones.

    No normalisation but SentencePiece's for blanks; `prefix`: whether the first word of a line is marked too;
    `at_ends`: whether words end with their markers.
    """
    kinds = proto.ModelProto.SentencePiece
    model = proto.ModelProto()
    spec: Any = model.trainer_spec
    spec.model_type = {"unigram": 1, "bpe": 2}[type]
    places = [special.index(piece) if piece in special else -1 for piece in SPECIAL]
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = places
    spec.treat_whitespace_as_suffix = at_ends
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = prefix
    for piece in special:
        model.pieces.add(piece=piece, score=0.0, type=kinds.UNKNOWN if piece == "<unk>" else kinds.CONTROL)
    for piece in protected:
        model.pieces.add(piece=piece, score=0.0, type=kinds.USER_DEFINED)
    for piece, score in dict(pieces).items():
        model.pieces.add(piece=piece, score=score, type=kinds.NORMAL)
    return Vocabulary(model.SerializeToString())


def letters_vocabulary() -> Vocabulary:
    """Of few pieces, so that all cuts of short sentences can be listed."""
    return make_vocabulary(LETTERS + LONGER, protected=["cc"])


def make_text(lines: int = 300, *, seed: int = 0) -> list[str]:
    generator = random.Random(seed)
    return [
        " ".join(generator.choice(STEMS) + generator.choice(ENDINGS) for _ in range(generator.randint(1, 12)))
        for _ in range(lines)
    ]
