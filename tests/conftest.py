"""What all tests share: how they are run, vocabularies learned once, commands in this process."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path

import hypothesis
import pytest

from dpe.cli import run
from dpe.text.corpus import write_lines
from dpe.text.learning import VocabularySettings, learn_vocabulary
from dpe.text.vocabulary import Vocabulary
from tests.segment_command import Dpe
from tests.vocabularies import PROTECTED, make_text

# Tests run two at a time: more threads than cores would wait for each other. Commands they start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A busy machine may be slow at any example.
hypothesis.settings.register_profile("dpe", deadline=None)
hypothesis.settings.load_profile("dpe")
# Tests that a shell runs in the background would ignore interrupts, and so would the commands they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


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


@pytest.fixture(scope="module")
def segment_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with segmenters and a text; the tests write beside them."""
    from tests.segmenters import PAIRS, learned_vocabulary, save_segmenter  # torch takes a while

    directory = tmp_path_factory.mktemp("segment")
    vocabulary = learned_vocabulary()
    save_segmenter(directory / "segmenter", vocabulary)
    save_segmenter(directory / "other", vocabulary, seed=2)
    save_segmenter(directory / "lm", vocabulary, source=False)
    save_segmenter(directory / "unigram", learned_vocabulary(type="unigram"))
    write_lines(directory / "x.en", (source for source, _ in PAIRS))
    write_lines(directory / "x.fi", (target for _, target in PAIRS))
    return directory


@pytest.fixture
def dpe(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Dpe:
    """Run a command in this process; gives standard output and standard error."""

    def call(*arguments: str, code: int = 0, stdin: str = "") -> tuple[str, str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
        capfd.readouterr()
        found = run(list(arguments))
        out, err = capfd.readouterr()
        assert found == code, err
        return out, err

    return call
