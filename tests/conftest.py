"""Small vocabularies for all tests, learned once from a text made here, or written down piece by piece."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Mapping, Sequence

import hypothesis
import pytest
from sentencepiece import sentencepiece_model_pb2

from dpe.text.vocabulary import Vocabulary, VocabularySettings, learn_vocabulary

# Tests run two at a time: more threads than cores would wait for each other. Commands they start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A busy machine may be slow at any example.
hypothesis.settings.register_profile("dpe", deadline=None)
hypothesis.settings.load_profile("dpe")
# Tests that a shell runs in the background would ignore interrupts, and so would the commands they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

STEMS = ["talo", "auto", "kirja", "lower", "newest", "wide", "house", "Häuser", "straße", "öljy", "東京"]
STEMS += ["книга", "aaaa", "bánh"]
ENDINGS = ["", "ssa", "sta", "ni", "kin", "er", "est", "s", "en", "issani", ",", "!"]
PROTECTED = ("<ph>", "talossa", "<ph>x")
MakeVocabulary = Callable[..., Vocabulary]


def make_text(lines: int = 300, *, seed: int = 0) -> list[str]:
    generator = random.Random(seed)
    return [
        " ".join(generator.choice(STEMS) + generator.choice(ENDINGS) for _ in range(generator.randint(1, 12)))
        for _ in range(lines)
    ]


@pytest.fixture(scope="session")
def text() -> list[str]:
    return make_text()


@pytest.fixture(scope="session")
def bpe_vocabulary(text: list[str]) -> Vocabulary:
    return learn_vocabulary(text, VocabularySettings(size=160))


@pytest.fixture(scope="session")
def unigram_vocabulary(text: list[str]) -> Vocabulary:
    return learn_vocabulary(text, VocabularySettings(size=120, type="unigram"))


@pytest.fixture(scope="session")
def protecting_vocabularies(text: list[str]) -> dict[str, Vocabulary]:
    """A vocabulary of each type with protected strings."""
    settings = {"bpe": 160, "unigram": 110}
    return {
        kind: learn_vocabulary(text, VocabularySettings(size=size, type=kind, protected=PROTECTED))  # type: ignore[arg-type]
        for kind, size in settings.items()
    }


@pytest.fixture(scope="session")
def make_vocabulary() -> MakeVocabulary:
    """Builds a vocabulary from pieces and scores, without learning and without normalisation."""

    def build(
        pieces: Mapping[str, float], *, kind: str = "bpe", protected: Sequence[str] = (), prefix: bool = True
    ) -> Vocabulary:
        model = sentencepiece_model_pb2.ModelProto()
        model.trainer_spec.model_type = {"unigram": 1, "bpe": 2}[kind]
        model.trainer_spec.bos_id = model.trainer_spec.eos_id = -1
        model.pieces.add(piece="<unk>", score=0, type=2)
        for piece in protected:
            model.pieces.add(piece=piece, score=0, type=4)
        for piece, score in pieces.items():
            model.pieces.add(piece=piece, score=score, type=1)
        model.normalizer_spec.name = "identity"
        model.normalizer_spec.add_dummy_prefix = prefix
        return Vocabulary(model.SerializeToString())

    return build
