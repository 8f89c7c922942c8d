"""A SentencePiece model seen as pieces, characters and merge ranks: load, encode, decode.

Text is handled in its *marked* form: SentencePiece's normalisation of the line, in which every space is
the word marker U+2581 and one marker stands before the first word. The joined pieces are the marked line:

    encode("two  words")  ->  ["▁two", "▁word", "s"]        normalize("two  words")  ->  "▁two▁words"

A model with byte fallback writes a character that is no piece as the pieces of its bytes (`<0xE2>`). They
never match text; `surfaces` gives the text of pieces as written. A model may also mark where words end
(`two▁words▁`), as those made of subword-nmt's codes do.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from dpe.choices import Normalization, VocabularyType
from dpe.errors import UserError
from dpe.files import os_errors, whole_file
from dpe.text.best_pieces import UNKNOWN_PENALTY
from dpe.text.sentencepiece_model import (
    BPE,
    BYTE,
    NORMAL,
    UNIGRAM,
    USER_DEFINED,
    ProtectedUnigram,
    load_processor,
    parse,
    protecting_scores,
    remove_pieces,
    with_special_pieces,
)
from dpe.text.words import MARKER, SPECIAL_PIECES, byte_piece, checked_text, split_words, surfaces


class Vocabulary:
    """The pieces of a SentencePiece model, ours or the user's.

    Ids are SentencePiece's. A model without padding, beginning or end symbol gets them after its pieces,
    so `len(vocabulary)` may exceed SentencePiece's own size.

    It is the vocabulary of both sides of a text, or of the target beside another one for the source.
    """

    def __init__(self, content: bytes, *, name: str = "the model", source: Vocabulary | None = None) -> None:
        self.content, self._source = content, source
        self._model = parse(content, name)
        for flaw in _flaws(self._model):
            raise UserError(f"{name} {flaw}.")
        self._processor = load_processor(content, name)
        self.type: VocabularyType = "bpe" if self._model.trainer_spec.model_type == BPE else "unigram"
        self.pieces, special = with_special_pieces(self._model, SPECIAL_PIECES)
        self.pad_id, self.unk_id = special["pad"], special["unk"]
        self.bos_id, self.eos_id = special["bos"], special["eos"]
        self._special = special
        self.marks_ends: bool = self._model.trainer_spec.treat_whitespace_as_suffix

    @classmethod
    def load(cls, path: Path | str) -> Vocabulary:
        """Read a `.model` file."""
        with os_errors(Path(path), "read as a vocabulary"):
            return cls(Path(path).read_bytes(), name=str(path))

    @classmethod
    def of(cls, given: Vocabulary | Path | str, source: Vocabulary | Path | str | None = None) -> Vocabulary:
        """A vocabulary, or the one in a file, beside another one for the source if that is given."""
        target = given if isinstance(given, Vocabulary) else cls.load(given)
        if source is None:
            return target
        other = source if isinstance(source, Vocabulary) else cls.load(source)
        if other.fingerprint == target.fingerprint:
            return target if target._source is None else cls(target.content)
        return cls(target.content, source=other)

    @property
    def source(self) -> Vocabulary:
        """The vocabulary of source sentences."""
        return self._source or self

    @property
    def is_joint(self) -> bool:
        """Whether both sides have the same pieces with the same ids, so that a model needs one table."""
        return (self.pieces, self._special) == (self.source.pieces, self.source._special)

    def save(self, path: Path | str) -> None:
        with whole_file(Path(path)) as file:
            file.write(self.content)

    def listing(self) -> Iterator[str]:
        """One line per piece, by id: piece, tab, score, as in SentencePiece's `.vocab`."""
        return (f"{one.piece}\t{one.score:g}" for one in self._model.pieces)

    def __len__(self) -> int:
        return len(self.pieces)

    def __reduce__(self) -> tuple[Callable[..., Vocabulary], tuple[bytes, Vocabulary | None]]:
        return _restored, (self.content, self._source)  # SentencePiece's own objects cannot be pickled

    @cached_property
    def fingerprint(self) -> str:
        """Identifies a vocabulary by its content."""
        return hashlib.sha256(self.content).hexdigest()

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """Id of every piece that may match text; control, unknown, unused and byte pieces never do."""
        kinds = (NORMAL, USER_DEFINED)
        return {p.piece: i for i, p in enumerate(self._model.pieces) if p.type in kinds}

    @cached_property
    def byte_ids(self) -> Mapping[str, int]:
        """Id of every byte piece; none without byte fallback."""
        return {p.piece: i for i, p in enumerate(self._model.pieces) if p.type == BYTE}

    @cached_property
    def written_ids(self) -> Mapping[str, int]:
        """Id of every piece that segmented text may have: those that match text, and bytes."""
        return {**self.ids, **self.byte_ids}

    @cached_property
    def scores(self) -> Mapping[str, float]:
        """SentencePiece's score of every piece that may match text: log-probability in a unigram model."""
        return {piece: self._model.pieces[i].score for piece, i in self.ids.items()}

    @cached_property
    def unknown_score(self) -> float:
        """What an unknown character scores in a unigram model, in SentencePiece too."""
        known = [p.score for p in self._model.pieces if p.type == NORMAL]
        return min(known, default=0.0) - UNKNOWN_PENALTY

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        """Merge rank of every BPE piece of two or more characters; the smallest is merged first."""
        self.require("bpe", "bpe-dropout")
        protected = set(self.protected)
        merged = [p for p in self.ids if len(p) > 1 and p not in protected]
        order = sorted({self.scores[p] for p in merged}, reverse=True)
        rank_of_score = {score: rank for rank, score in enumerate(order)}
        return {p: rank_of_score[self.scores[p]] for p in merged}

    @cached_property
    def carriers(self) -> frozenset[str]:
        """Last characters of words with their markers that are one symbol before any merge.

        Only models made of subword-nmt's codes have them; SentencePiece knows them by scores above 0.
        """
        has_them = self.type == "bpe" and self.marks_ends
        return frozenset(p for p, score in self.scores.items() if score > 0) if has_them else frozenset()

    @cached_property
    def characters(self) -> tuple[str, ...]:
        """Every code point of the pieces that may match text, sorted."""
        return tuple(sorted({character for piece in self.ids for character in piece}))

    @cached_property
    def max_span(self) -> int:
        """Length of the longest piece in characters: the paper's m."""
        return max(map(len, self.ids), default=1)

    @cached_property
    def protected(self) -> tuple[str, ...]:
        """Strings that are always one piece wherever they occur, the longest first."""
        found = [p.piece for p in self._model.pieces if p.type == USER_DEFINED]
        return tuple(sorted(found, key=lambda piece: (-len(piece), piece)))

    @cached_property
    def _protected_pattern(self) -> re.Pattern[str] | None:
        return re.compile("|".join(map(re.escape, self.protected))) if self.protected else None

    def protected_spans(self, word: str) -> list[tuple[int, int]]:
        """Start and end of the protected strings in a word: leftmost first, the longest at each place."""
        pattern = self._protected_pattern
        return [match.span() for match in pattern.finditer(word)] if pattern else []

    def word_parts(self, word: str) -> Iterator[tuple[str, bool]]:
        """The word's protected strings (true) and the text between them (false), from left to right."""
        start = 0
        for begin, end in self.protected_spans(word):
            if start < begin:
                yield word[start:begin], False
            yield word[begin:end], True
            start = end
        if start < len(word):
            yield word[start:], False

    def write_unknown(self, marked: str, pieces: list[str]) -> list[str]:
        """Pieces as written: an unknown character as its bytes, if the model has byte fallback.

        Else neighbouring ones are joined, unless together they would be a piece.
        """
        ids = self.ids
        if all(map(ids.__contains__, set(marked))):
            return pieces
        if self.byte_ids:
            return [part for piece in pieces for part in ([piece] if piece in ids else self.bytes_of(piece))]
        joined: list[str] = []
        for known, run in groupby(pieces, ids.__contains__):
            parts = list(run)
            surface = "".join(parts)
            joined.extend(parts if known or surface in ids else [surface])
        return joined

    def bytes_of(self, text: str) -> list[str]:
        """The byte pieces of a text."""
        return [byte_piece(byte) for byte in text.encode()]

    def surfaces(self, pieces: Iterable[str]) -> list[str]:
        """What each piece as written stands for in the marked line; joined they are that line."""
        return surfaces(pieces, self.byte_ids) if self.byte_ids else list(pieces)

    def as_unigram(self, scores: Mapping[str, float], *, without: Collection[str] = ()) -> Vocabulary:
        """A unigram model with these pieces, and the score given of every piece that is not protected.

        Ids stay, unless there are pieces to go `without`. With protected strings all scores are shifted,
        which changes no probability, so that SentencePiece itself keeps these strings whole.
        """
        model = type(self._model)()
        model.CopyFrom(self._model)
        model.trainer_spec.model_type = UNIGRAM
        if hasattr(model, "self_test_data"):  # segmentations of the old scores; not in SentencePiece 0.2.3
            model.ClearField("self_test_data")
        for piece, score in protecting_scores(scores, self.protected).items():
            model.pieces[self.ids[piece]].score = score
        return Vocabulary(remove_pieces(model, without).SerializeToString())

    def require(self, type: VocabularyType, method: str) -> None:
        """Refuse a method that does not work with this type of vocabulary."""
        if self.type != type:
            raise UserError(
                f"The method {method} needs a {type} vocabulary, but this one is {self.type}; "
                f"learn one with --type {type} or choose another method."
            )

    def normalize(self, line: str) -> str:
        """The marked form of a line; the joined surfaces of its pieces are exactly this."""
        marked: str = self._processor.normalize(checked_text(line))
        return marked

    @cached_property
    def _protected_unigram(self) -> ProtectedUnigram | None:
        return ProtectedUnigram(self._model) if self.type == "unigram" and self.protected else None

    def encode(self, line: str) -> list[str]:
        """SentencePiece's segmentation (BPE, or the best unigram one); unknown neighbours are joined."""
        if self._protected_unigram:
            return self._n_best_protected(line, self._protected_unigram, n=1)[0]
        pieces: list[str] = self._processor.encode(checked_text(line), out_type=str)
        return pieces

    def n_best_encode(self, line: str, *, n: int) -> list[list[str]]:
        """SentencePiece's n best segmentations of a unigram model, best first."""
        if self._protected_unigram:
            return self._n_best_protected(line, self._protected_unigram, n=n)
        found: list[list[str]] = self._processor.nbest_encode(checked_text(line), nbest_size=n, out_type=str)
        return found

    def _n_best_protected(self, line: str, model: ProtectedUnigram, *, n: int) -> list[list[str]]:
        marked = self.normalize(line)
        found = model.n_best(marked, self.protected_spans, n=n)
        return [self.write_unknown(marked, pieces) for pieces in found] if self.byte_ids else found

    def piece_ids(self, pieces: Iterable[str]) -> list[int]:
        """Ids of pieces as written; a run of unknown characters has the one unknown id, so this is lossy."""
        ids, unknown = self.written_ids, self.unk_id
        return [ids.get(piece, unknown) for piece in pieces]

    def decode(self, pieces: Iterable[str]) -> str:
        """Plain text of pieces as written; the inverse of `encode` up to normalisation."""
        return self.plain("".join(self.surfaces(pieces)))

    def plain(self, marked: str) -> str:
        """A line without markers: the inverse of `normalize` up to normalisation."""
        return self.without_outer_space(marked.replace(MARKER, " "))

    @property
    def normalization(self) -> Normalization:
        """Which of our rules it was learned with; a model with rules of its own counts as nfkc."""
        return "identity" if self._model.normalizer_spec.name == "identity" else "nfkc"

    @property
    def marks_every_word(self) -> bool:
        """Whether the first word (or, with markers at ends, the last) has one; a model may leave it out."""
        return bool(self._model.normalizer_spec.add_dummy_prefix)

    def without_outer_space(self, plain: str) -> str:
        """Without the space of the marker that no space of the line became."""
        if not self.marks_every_word:
            return plain
        return plain.removesuffix(" ") if self.marks_ends else plain.removeprefix(" ")

    def words(self, marked: str) -> list[str]:
        """The words of a marked line, each with its marker; joined they are the line."""
        return split_words(marked, at_ends=self.marks_ends)

    def begins_word(self, pieces: Sequence[str], at: int) -> bool:
        """Whether a piece as written, which is not the first, is known by the markers to begin a word."""
        return pieces[at - 1].endswith(MARKER) if self.marks_ends else pieces[at].startswith(MARKER)

    def pieces_of_ids(self, ids: Iterable[int]) -> list[str]:
        """Pieces of ids; special ids are left out, and unknown text is written as U+2047 (double ?)."""
        silent = {self.pad_id, self.bos_id, self.eos_id}
        return ["\u2047" if i == self.unk_id else self.pieces[i] for i in ids if i not in silent]

    def decode_ids(self, ids: Iterable[int]) -> str:
        """Plain text of ids, as `pieces_of_ids` writes them."""
        return self.decode(self.pieces_of_ids(ids))


def _restored(content: bytes, source: Vocabulary | None) -> Vocabulary:
    return Vocabulary(content, source=source)


def _flaws(model: Any) -> Iterator[str]:
    """Why segmentations of this model could not be exact, and what to do about it."""
    trainer, pieces, match_text = model.trainer_spec, model.pieces, (NORMAL, USER_DEFINED)
    if not pieces:
        yield "is not a SentencePiece model: it has no pieces"
    if trainer.model_type not in (UNIGRAM, BPE):
        yield "is neither a BPE nor a unigram model; learn one with --type bpe or unigram"
    byte_pieces = {p.piece for p in pieces if p.type == BYTE}
    if not model.normalizer_spec.escape_whitespaces:
        yield "does not mark spaces with U+2581; learn one with SentencePiece's default"
    for index in (trainer.pad_id, trainer.bos_id, trainer.eos_id):
        if 0 <= index < len(pieces) and pieces[index].type in match_text:
            yield (
                f"has the special piece {pieces[index].piece!r} among the pieces that match text; "
                "learn one without it in user_defined_symbols"
            )
    for p in pieces:
        if p.type in match_text and p.piece in byte_pieces:
            yield f"has {p.piece!r} both as a byte and as text; learn one without this text piece"
        rest = p.piece[:-1] if trainer.treat_whitespace_as_suffix else p.piece[1:]
        if p.type in match_text and MARKER in rest:
            place = "last" if trainer.treat_whitespace_as_suffix else "first"
            yield (
                f"has the piece {p.piece!r}, which crosses a word boundary (U+2581 may only be {place}); "
                "learn one whose pieces do not (SentencePiece: split_by_whitespace; Metaspace: split)"
            )
