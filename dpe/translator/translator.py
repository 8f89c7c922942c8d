"""`Translator`: a trained translation model in use, decoded by CTranslate2."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, overload

import ctranslate2
from jinja2 import Template

from dpe.errors import UserError
from dpe.files import file_hash, temporary_cache, whole_directory
from dpe.machine import cores
from dpe.model.checkpoint import (
    MODEL,
    SOURCE_VOCABULARY,
    VOCABULARY,
    load_vocabulary,
    load_weights,
    read_settings,
)
from dpe.model.settings import model_settings
from dpe.model.translation import TranslationTransformer
from dpe.store import make_once
from dpe.text.corpus import Strings, lines_of
from dpe.text.dictionaries import source_names, token_names
from dpe.text.preparation import Moses
from dpe.text.vocabulary import Vocabulary
from dpe.translator.ctranslate2 import LONGEST, export_model
from dpe.translator.settings import BATCH_TOKENS, Search, TranslatorSettings

WINDOW = 2_000  # lines of a stream that are translated together
LONGEST_PART = 512  # pieces of a source that are translated at once


class Translation(NamedTuple):
    """A translation and its score: log-probability / length ** length penalty, the end symbol counted."""

    text: str
    score: float


class Translator:
    """Translates text: raw lines in, detokenised lines out.

    Sources are segmented by the vocabulary itself, without dropout, whatever the training was. An
    empty line stays empty. A source of more than 512 pieces is cut between words into parts that are
    translated one by one. Unknown characters in a translation are written as U+2047 (double ?).

        translator = Translator.load("translator/")
        translator.translate("the cars were electric")
    """

    def __init__(self, engine: Any, vocabulary: Vocabulary, *, moses: Sequence[str] | None = None) -> None:
        """Use `load`."""
        self.vocabulary = vocabulary
        self._engine = engine
        self._source_names = source_names(vocabulary)
        self._ids = {name: number for number, name in enumerate(token_names(vocabulary))}
        self._tokenize = Moses(moses[0]).tokenize if moses else str
        self._detokenize = Moses(moses[1]).detokenize if moses else str

    @classmethod
    def load(cls, directory: Path | str, *, int8: bool = False, threads: int | None = None) -> Translator:
        """Read what `dpe train-translator` wrote.

        The first time, the model is exported to CTranslate2 beside the weights. `int8` is faster and may
        change some translations; `threads` is one per core unless given, each with batches of its own.
        """
        directory = Path(directory)
        record = read_settings(directory, "translator")
        engine = ctranslate2.Translator(
            str(exported(directory)),
            compute_type="int8" if int8 else "float32",  # its default may choose by itself
            inter_threads=threads or cores(),
            intra_threads=1,
        )
        settings = model_settings(record, TranslatorSettings, str(directory))
        return cls(engine, load_vocabulary(directory, record), moses=settings.moses)

    @overload
    def translate(
        self, source: str, *, beam: int = 5, length_penalty: float = 1.0, batch_tokens: int = BATCH_TOKENS
    ) -> str: ...
    @overload
    def translate(
        self, source: Strings, *, beam: int = 5, length_penalty: float = 1.0, batch_tokens: int = BATCH_TOKENS
    ) -> list[str]: ...
    def translate(
        self,
        source: str | Strings,
        *,
        beam: int = 5,
        length_penalty: float = 1.0,
        batch_tokens: int = BATCH_TOKENS,
    ) -> str | list[str]:
        """The best translation of a line, or of each line of a list in its order."""
        search = Search(beam=beam, length_penalty=length_penalty, batch_tokens=batch_tokens)
        best = [found[0].text for found in self.stream(lines_of(source, "source"), search)]
        return best[0] if isinstance(source, str) else best

    @overload
    def n_best(
        self, source: str, *, n: int = 5, beam: int | None = None, length_penalty: float = 1.0
    ) -> list[Translation]: ...
    @overload
    def n_best(
        self, source: Strings, *, n: int = 5, beam: int | None = None, length_penalty: float = 1.0
    ) -> list[list[Translation]]: ...
    def n_best(
        self, source: str | Strings, *, n: int = 5, beam: int | None = None, length_penalty: float = 1.0
    ) -> list[Translation] | list[list[Translation]]:
        """The n best translations that a beam (of n, unless given) finds: of a line, or of each of a list."""
        search = Search(beam=beam or max(n, 1), length_penalty=length_penalty, n_best=n)
        found = list(self.stream(lines_of(source, "source"), search))
        return found[0] if isinstance(source, str) else found

    def stream(self, lines: Iterable[str], search: Search) -> Iterator[list[Translation]]:
        """For each line its `search.n_best` translations, best first; a window of lines is read at a time."""
        if search.beam > len(self.vocabulary):
            raise UserError(
                f"The beam is {search.beam}, more than the {len(self.vocabulary)} pieces of the vocabulary; "
                "beams of 4 to 10 are usual."
            )
        remaining = iter(lines)
        while window := list(islice(remaining, WINDOW)):
            yield from self._window(window, search)

    def _window(self, lines: Sequence[str], search: Search) -> list[list[Translation]]:
        """The translations of some lines, which are decoded in batches of similar length."""
        parts_of_lines = [self._parts(line) for line in lines]
        parts = [part for parts in parts_of_lines for part in parts]
        found = iter(self._decode_all(parts, search))
        return [self._join([next(found) for _ in parts]) for parts in parts_of_lines]

    def _parts(self, line: str) -> list[list[str]]:
        """The names of a source's pieces: one list, several if it is very long, none if it is empty."""
        vocabulary = self.vocabulary.source
        pieces = vocabulary.encode(self._tokenize(line))
        names = [self._source_names[number] for number in vocabulary.piece_ids(pieces)]
        parts = []
        while len(names) > LONGEST_PART:
            middle = range(LONGEST_PART, LONGEST_PART // 2, -1)
            end = next((at for at in middle if vocabulary.begins_word(pieces, at)), LONGEST_PART)
            parts.append(names[:end])
            pieces, names = pieces[end:], names[end:]
        return [*parts, names] if names else parts

    def _decode_all(self, parts: Sequence[list[str]], search: Search) -> list[list[Translation]]:
        """Translations of piece sequences; those with the same limit of length go to CTranslate2 together."""
        by_limit: dict[int, list[int]] = {}
        for place, part in enumerate(parts):
            by_limit.setdefault(length_limit(len(part)), []).append(place)
        found: dict[int, list[Translation]] = {}
        for limit, places in by_limit.items():
            results = self._decode([parts[place] for place in places], search, limit)
            found.update(zip(places, results, strict=True))
        return [found[place] for place in range(len(parts))]

    def _decode(self, parts: list[list[str]], search: Search, limit: int) -> list[list[Translation]]:
        results = self._engine.translate_batch(
            parts,
            max_batch_size=search.batch_tokens,
            batch_type="tokens",
            beam_size=search.beam,
            num_hypotheses=search.n_best,
            length_penalty=search.length_penalty,
            max_input_length=0,  # its default cuts sources short
            max_decoding_length=limit,
            min_decoding_length=0,  # its default forbids an empty translation
            return_scores=True,
        )
        return [
            [
                Translation(self.vocabulary.decode_ids(map(self._ids.__getitem__, names)), score)
                for names, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for result in results
        ]

    def _join(self, parts: list[list[Translation]]) -> list[Translation]:
        """The translations of a line from those of its parts: the best of all, the second of all, ..."""
        if not parts:
            return [Translation("", 0.0)]
        joined = []
        for rank in zip(*parts, strict=False):
            text = " ".join(translation.text for translation in rank)
            joined.append(Translation(self._detokenize(text), sum(t.score for t in rank) / len(rank)))
        return joined


def length_limit(source_pieces: int) -> int:
    """Pieces after which a translation is cut off: twice the source's, that rounded up to a power of two.

    A function of the sentence alone, so that its translation does not depend on its neighbours.
    """
    rounded = 1 << max(5, (source_pieces - 1).bit_length())
    return min(2 * rounded + 20, LONGEST - 1)


def load_model(directory: Path) -> TranslationTransformer:
    """The torch model of a translator."""
    record = read_settings(directory, "translator")
    settings = model_settings(record, TranslatorSettings, str(directory))
    model = TranslationTransformer.of(settings, load_vocabulary(directory, record))
    load_weights(directory, model)
    return model.eval()


def exported(directory: Path) -> Path:
    """The CTranslate2 model of a translator, made beside the weights if it does not exist.

    Its name holds the weights' hash, so one that exists is right; those of older weights are removed. In a
    read-only directory it goes to a temporary one.
    """
    try:
        key = file_hash(directory / MODEL)[:16]
    except UserError as error:
        raise UserError(f"{error} Train the translator first.") from error
    name = f"ctranslate2-{key}"
    if (directory / name).exists() or os.access(directory, os.W_OK):
        place = directory / name
    else:
        place = temporary_cache() / name
    vocabulary = load_vocabulary(directory, read_settings(directory, "translator"))

    def export(out: Path) -> None:
        export_model(load_model(directory), vocabulary, out, int8=False)
        for other in out.parent.glob("ctranslate2-*"):
            if other != out and re.fullmatch(r"ctranslate2-[0-9a-f]{16}", other.name):
                shutil.rmtree(other, ignore_errors=True)

    return make_once(place, export)


def export_translator(directory: Path, out: Path, *, int8: bool) -> None:
    """Write a CTranslate2 model, its vocabulary and a README with the few lines that use them."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} already exists; choose another --out, or remove it.")
    record = read_settings(directory, "translator")
    moses = model_settings(record, TranslatorSettings, str(directory)).moses
    vocabulary = load_vocabulary(directory, record)
    template = Template(files("dpe.translator").joinpath("export.md").read_text(encoding="utf-8"))
    readme = template.render(
        vocabulary=VOCABULARY,
        source_vocabulary=VOCABULARY if vocabulary.source is vocabulary else SOURCE_VOCABULARY,
        compute_type="int8" if int8 else "float32",
        longest=LONGEST_PART,
        moses=moses,
    )
    with whole_directory(out) as aside:
        export_model(load_model(directory), vocabulary, aside, int8=int8)
        vocabulary.save(aside / VOCABULARY)
        if vocabulary.source is not vocabulary:
            vocabulary.source.save(aside / SOURCE_VOCABULARY)
        (aside / "README.md").write_text(readme.rstrip() + "\n", encoding="utf-8")
