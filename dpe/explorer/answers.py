"""What the page shows about a sentence pair, computed in one pass of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from threading import Lock

from dpe import __version__
from dpe.errors import UserError
from dpe.explorer import messages
from dpe.segmenter import scored_batch
from dpe.segmenter.answers import Posterior, posterior_probability
from dpe.segmenter.scored_batch import ScoredBatch
from dpe.segmenter.scored_edges import WordEdges, sentence_edges
from dpe.segmenter.segmenter import Segmenter
from dpe.segmenter.settings import SegmentSettings
from dpe.text.corpus import Pair, one_line
from dpe.text.vocabulary import Vocabulary
from dpe.text.words import MARKER, pieces_by_word


class TooLong(UserError):
    """A text beyond the limit."""


class Explorer:
    """Segmenters by name, and pairs to start with.

    Answers one question at a time, so that a busy page cannot exhaust the machine.
    """

    def __init__(self, segmenters: Mapping[str, Segmenter], examples: Sequence[Pair] = ()) -> None:
        if not segmenters:
            raise UserError("No segmenter is given; give at least one.")
        self._segmenters = dict(segmenters)
        self._examples = [messages.Example(source=pair.source, target=pair.target) for pair in examples]
        self._one_at_a_time = Lock()

    def setup(self) -> messages.Setup:
        """What the page needs to know before the first question."""
        infos = [
            messages.SegmenterInfo(
                name=name,
                has_source=segmenter.has_source,
                can_drop=segmenter.has_source and segmenter.vocabulary.source.type == "bpe",
                can_sample=segmenter.has_source and segmenter.vocabulary.source.type == "unigram",
                pieces=len(segmenter.vocabulary),
            )
            for name, segmenter in self._segmenters.items()
        ]
        return messages.Setup(
            version=__version__,
            segmenters=infos,
            examples=self._examples,
            longest_text=messages.LONGEST_TEXT,
            largest_n_best=messages.LARGEST_N_BEST,
        )

    def answer(self, question: messages.Question) -> messages.Answer:
        """Everything about one pair; an invalid question is a `UserError`."""
        name = question.segmenter or next(iter(self._segmenters))
        if name not in self._segmenters:
            raise UserError(f"There is no segmenter {name!r}; choose one of {', '.join(self._segmenters)}.")
        segmenter = self._segmenters[name]
        _check(question, segmenter)
        # As `dpe segment --source-dropout P --source-alpha A --epoch DRAW` segments a first line.
        settings = SegmentSettings(
            source_dropout=question.source_dropout, source_alpha=question.source_alpha, epoch=question.draw
        )
        pair = (0, question.source, question.target)
        with self._one_at_a_time:
            found = segmenter.answer_pairs(
                [pair], lambda batch: [_describe(batch, segmenter, question, name)], settings
            )
        source, answer = found[0]
        if source is not None:
            answer.source_words = _source_words(source, segmenter.vocabulary.source)
        return answer


def _check(question: messages.Question, segmenter: Segmenter) -> None:
    """Refuse what cannot be segmented, and what would take too long."""
    segmenter.refuse_wrong_source(given=question.source is not None)
    target = segmenter.vocabulary
    sides = (("source", question.source, target.source), ("target", question.target, target))
    for side, text, vocabulary in sides:
        if text is None:
            continue
        _refuse_long(side, text)
        marked = vocabulary.normalize(one_line(text))
        _refuse_long(f"normalised {side}", marked[1:])
        if not marked.strip(f"{MARKER} "):
            raise UserError(f"The {side} is empty; type a sentence.")


def _refuse_long(side: str, text: str) -> None:
    if len(text) > messages.LONGEST_TEXT:
        raise TooLong(f"The {side} has {len(text):,} characters; give at most {messages.LONGEST_TEXT:,}.")


def _describe(
    batch: ScoredBatch, segmenter: Segmenter, question: messages.Question, name: str
) -> messages.Answer:
    (posterior,), (score,) = batch.posterior(), segmenter.batch_scores(batch)
    vocabulary = segmenter.vocabulary
    return messages.Answer(
        segmenter=name,
        normalized=posterior.text,
        source_words=None,
        source_dropout=question.source_dropout,
        source_alpha=question.source_alpha,
        draw=question.draw,
        own_cut_method="BPE" if vocabulary.type == "bpe" else "unigram",
        words=_words(batch, posterior, vocabulary, vocabulary.encode(question.target)),
        n_best=[_cut(cut, posterior, vocabulary) for cut in batch.n_best(question.n_best)[0]],
        entropy=posterior.entropy,
        log_probability=posterior.log_partition,
        bits_per_character=score.bits_per_character,
        unknown_characters=score.unknown,
    )


def _source_words(pieces: Sequence[str], vocabulary: Vocabulary) -> list[list[str]]:
    words = vocabulary.words("".join(vocabulary.surfaces(pieces)))
    return pieces_by_word(words, pieces, vocabulary.byte_ids)


def _cut(cut: scored_batch.Cut, posterior: Posterior, vocabulary: Vocabulary) -> messages.Cut:
    words = pieces_by_word([word.word for word in posterior.words], cut.pieces, vocabulary.byte_ids)
    probability = posterior_probability(cut.score, posterior.log_partition)
    return messages.Cut(words=words, probability=probability, score=cut.score)


def _words(
    batch: ScoredBatch, posterior: Posterior, vocabulary: Vocabulary, own_cut: Sequence[str]
) -> list[messages.Word]:
    (best,) = batch.best()
    texts = [word.word for word in posterior.words]
    columns = (
        posterior.words,
        accumulate(map(len, texts[:-1]), initial=0),
        pieces_by_word(texts, best.pieces, vocabulary.byte_ids),
        pieces_by_word(texts, own_cut, vocabulary.byte_ids),
        best.word_scores,
        sentence_edges(batch),
    )
    return [
        messages.Word(
            word=word.word,
            offset=offset,
            best=pieces,
            best_probability=posterior_probability(score, word.log_partition),
            own_cut=own,
            differs=pieces != own,
            boundaries=list(word.boundaries),
            entropy=word.entropy,
            edges=_edges(word.word, found, vocabulary),
            edges_left_out=found.left_out,
        )
        for word, offset, pieces, own, score, found in zip(*columns, strict=True)
    ]


def _edges(word: str, found: WordEdges, vocabulary: Vocabulary) -> list[messages.Edge]:
    return [
        messages.Edge(
            piece=word[edge.start : edge.end],
            start=edge.start,
            end=edge.end,
            probability=edge.probability,
            score=edge.score,
            on_best_path=edge.on_best_path,
            unknown=edge.piece == vocabulary.unk_id,
        )
        for edge in found.edges
    ]
