"""Learning a vocabulary: one SentencePiece model from the lines of all sides."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING

from dpe.choices import Normalization, VocabularyType
from dpe.errors import UserError
from dpe.progress import QUIET, Progress
from dpe.settings import Settings, setting
from dpe.text.corpus import read_lines
from dpe.text.words import MARKER, SPECIAL_PIECES

if TYPE_CHECKING:
    import numpy as np

    from dpe.text.vocabulary import Vocabulary

# Our names of SentencePiece's rules. Its "nmt_nfkc" is NFKC that also turns unusual spaces into spaces.
_NORMALIZATION_RULES = {"nfkc": "nmt_nfkc", "identity": "identity"}


@dataclass(frozen=True, kw_only=True)
class VocabularySettings(Settings):
    """How a vocabulary is learned."""

    size: int = setting(32_000, "Number of pieces.", low=5, below=2**31)
    type: VocabularyType = setting("bpe", "How pieces are learned.")
    normalization: Normalization = setting(
        "nfkc", "nfkc folds compatible characters; identity keeps the text as it is."
    )
    character_coverage: float = setting(
        1.0, "Share of characters that become pieces; the rest is unknown.", low=0.98, high=1
    )
    protected: tuple[str, ...] = setting((), "Strings that are always one piece.")
    sample_lines: int = setting(
        5_000_000, "Learn from this many random lines of a longer text; they are kept in memory.", low=1
    )


def learn_vocabulary(
    text: str | Path | Iterable[str | Path],
    settings: VocabularySettings = VocabularySettings(),
    *,
    progress: Progress = Progress(QUIET),
) -> Vocabulary:
    """Learn a joint vocabulary from a file (its path), from lines, or from several files (`Path`s).

    Same lines, same settings: same bytes, for one version of SentencePiece.
    """
    import sentencepiece  # noqa: PLC0415  (help texts should not wait for it)

    from dpe.text.draws import SAMPLE_STREAM, generator  # noqa: PLC0415
    from dpe.text.vocabulary import Vocabulary  # noqa: PLC0415

    parts = [Path(text)] if isinstance(text, str | Path) else text
    lines = (line for part in parts for line in (read_lines(part) if isinstance(part, Path) else [part]))
    kept, seen = sample(progress.track(lines, "reading"), settings.sample_lines, generator(SAMPLE_STREAM))
    if seen > len(kept):
        progress.say(f"learning from a sample of {len(kept):,} of {seen:,} lines")
    protected = check_protected(settings.protected)
    model = io.BytesIO()
    try:
        # An iterator and a writer, because SentencePiece stores the names of files it is given.
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_consumed(kept),  # it keeps every line itself
            model_writer=model,
            vocab_size=settings.size,
            model_type=settings.type,
            normalization_rule_name=_NORMALIZATION_RULES[settings.normalization],
            character_coverage=settings.character_coverage,
            user_defined_symbols=list(protected),
            pad_id=0,
            unk_id=1,
            bos_id=2,
            eos_id=3,
            max_sentence_length=1 << 30,  # its default silently skips long lines
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        raise UserError(_explain(str(error), settings)) from error
    return Vocabulary(model.getvalue())


def sample(lines: Iterable[str], size: int, random: np.random.Generator) -> tuple[list[str], int]:
    """So many of the lines, each as probable as any other, and how many lines there are, in one pass.

    Li's algorithm L (1994): it draws how many lines to pass over before one replaces a random one of those
    kept. Where there are no more than `size` lines, all of them in their order.
    """
    passed = count()
    remaining = (line for line, _ in zip(lines, passed, strict=False))  # `passed` stays at their number
    kept = list(islice(remaining, size))
    weight = 1.0
    while True:
        weight *= (1 - random.random()) ** (1 / size)
        line = next(islice(remaining, int(random.geometric(weight)) - 1, None), None)
        if line is None:
            return kept, next(passed)
        kept[int(random.integers(size))] = line


def _consumed(kept: list[str]) -> Iterator[str]:
    """The lines in their order, each forgotten when it was read."""
    kept.reverse()
    while kept:
        yield kept.pop()


def check_protected(strings: Sequence[str]) -> tuple[str, ...]:
    """Protected strings without repetition; those that cannot be one piece are refused."""
    for string in strings:
        has_space = any(c.isspace() or c in (MARKER, "\0") for c in string)
        if not string or has_space or string in SPECIAL_PIECES.values():
            raise UserError(
                f"{string!r} cannot be a protected string: it is empty, is a special piece, or contains "
                "whitespace, U+2581 or U+0000; remove it."
            )
    return tuple(dict.fromkeys(strings))


def _explain(message: str, settings: VocabularySettings) -> str:
    """SentencePiece's error as a sentence."""
    largest = re.search(r"too high \(\d+\).*<= (\d+)", message)
    if largest and int(largest[1]) > len(SPECIAL_PIECES) + len(set(settings.protected)):
        return (
            f"A vocabulary of {settings.size} pieces is too large for this text; "
            f"the largest possible size is {largest[1]}."
        )
    if smallest := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return (
            f"A vocabulary of {settings.size} pieces cannot hold every character of this text; the smallest "
            f"possible size is {smallest[1]} (or lower the character coverage)."
        )
    if largest or "empty()" in message:  # BPE calls any size "too high" when the text has spaces only
        return "The text to learn a vocabulary from is empty; give files with at least one word."
    return f"SentencePiece could not learn this vocabulary: {message.strip()}"
