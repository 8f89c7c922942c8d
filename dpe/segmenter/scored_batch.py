"""A batch of sentences whose edges the model has scored, and exact answers about their segmentations.

Here the model meets the dynamic program (the maximum, the draws, the posterior). Answers are found for all
words of the batch at once and turned into pieces with numpy, not sentence by sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpe.lattice import dynamic_program
from dpe.lattice.n_best import sentence_n_best
from dpe.segmenter.answers import Posterior, WordPosterior
from dpe.segmenter.lazy_best import PositionScores, lazy_best
from dpe.segmenter.long_lines import is_long, long_line_scores
from dpe.text.draws import Draw

if TYPE_CHECKING:
    from dpe.lattice.dynamic_program import Cuts
    from dpe.lattice.lattice import Bucket, LatticeBatch
    from dpe.model.batching import MixedCollator, MixedExample
    from dpe.model.mixed import MixedTransformer
    from dpe.segmenter.settings import SegmentSettings
    from dpe.text.vocabulary import Vocabulary

_CELLS_AT_ONCE = 4_000_000  # of the n-best tables and of the draws: tens of megabytes


class Cut(NamedTuple):
    """A segmentation of a sentence: pieces, score with the end of sentence, scores of its words without."""

    pieces: tuple[str, ...]
    score: float
    word_scores: tuple[float, ...]


class ScoredBatch:
    """Sentences in the order of `examples`, each answered for by the edge scores of its words."""

    def __init__(
        self,
        examples: Sequence[MixedExample],
        lattice: LatticeBatch,
        scores: Tensor | PositionScores,
        vocabulary: Vocabulary,
    ) -> None:
        """Scores [edge], or what computes them when they are needed."""
        self.examples = examples
        self.lattice = lattice
        self._given = scores
        self._text = BatchText(examples, vocabulary)

    @classmethod
    def of(
        cls,
        model: MixedTransformer,
        collator: MixedCollator,
        vocabulary: Vocabulary,
        examples: Sequence[MixedExample],
    ) -> ScoredBatch:
        """Let the model read a batch; a long line must be alone in it."""
        batch = collator.collate(examples, epoch=0).to(model.output_weight.device)
        if is_long(examples[0]):
            return cls(examples, batch.lattice, long_line_scores(model, batch), vocabulary)
        return cls(examples, batch.lattice, PositionScores(model, batch), vocabulary)

    @cached_property
    def _scores(self) -> Tensor:
        """Scores of all edges. # [edge]"""
        if isinstance(self._given, PositionScores):
            self._given.look_at_all()
            return self._given.scores
        return self._given.double()

    def best(self) -> list[Cut]:
        """The best segmentation of every sentence (Alg. 2).

        If nothing else was asked before, the softmax is computed for a part of the positions only.
        """
        if isinstance(self._given, PositionScores) and not self._given.is_complete:
            cuts = lazy_best(self._given, self.lattice)
            scores = self._given.scores
        else:
            cuts = [dynamic_program.best(*edges) for edges in self.bucket_scores()]
            scores = self._scores
        ends = _array(scores[self.lattice.end_edges])
        boundaries = [_array(cut.boundaries) for cut in cuts]
        return self._cuts(self._by_word([_array(cut.scores) for cut in cuts]), boundaries, ends)

    def n_best(self, n: int) -> list[list[Cut]]:
        """The n best segmentations of every sentence, or all if it has fewer, best first."""
        of_words = [_n_best_in_parts(*edges, n=n) for edges in self.bucket_scores()]
        scores = self._by_word([scores for scores, _ in of_words])  # [word, rank]
        ways = [sentence_n_best(rows.tolist(), n) for rows in self._split_words(scores)]
        result: list[list[Cut]] = [[] for _ in self.examples]
        for rank in range(max(map(len, ways))):
            # Sentences that have no such rank repeat their best one, which is then dropped.
            chosen = [way[rank if rank < len(way) else 0][1] for way in ways]
            cuts = self._chosen_cuts(np.array([r for row in chosen for r in row], np.int64), scores, of_words)
            for found, way, cut in zip(result, ways, cuts, strict=True):
                if rank < len(way):
                    found.append(cut)
        return result

    def _chosen_cuts(
        self,
        ranks: NDArray[np.int64],
        scores: NDArray[np.float64],
        of_words: Sequence[tuple[NDArray[np.float64], NDArray[np.bool_]]],
    ) -> list[Cut]:
        """One segmentation of every sentence, from the rank [word] of each word's among its n best."""
        boundaries = [
            of_bucket[np.arange(len(of_bucket)), ranks[_array(bucket.words)]]  # [word, position]
            for (_, of_bucket), bucket in zip(of_words, self.lattice.buckets, strict=True)
        ]
        return self._cuts(scores[np.arange(len(ranks)), ranks] if len(ranks) else scores, boundaries)

    def sample(self, settings: SegmentSettings) -> list[list[Cut]]:
        """Independent exact draws from the posterior of every sentence."""
        draw = Draw(settings.seed, settings.epoch)
        rows = [draw.at(one.line).uniforms(len(one.marked), n=settings.n) for one in self.examples]
        uniforms = np.concatenate(rows, axis=1)  # [draw, character]
        step = max(1, _CELLS_AT_ONCE // (16 * max(1, uniforms.shape[1])))
        result: list[list[Cut]] = [[] for _ in self.examples]
        for begin in range(0, settings.n, step):
            for cuts in self._draws(uniforms[begin : begin + step], settings.temperature):
                for sentence, cut in enumerate(cuts):
                    result[sentence].append(cut)
        return result

    def cuts(self, settings: SegmentSettings) -> list[list[Cut]]:
        """The segmentations of every sentence that the settings ask for."""
        if settings.mode == "best":
            return [[cut] for cut in self.best()]
        return self.n_best(settings.n) if settings.mode == "n-best" else self.sample(settings)

    def posterior(self) -> list[Posterior]:
        """The posterior over the segmentations of every sentence, word by word."""
        probabilities = np.split(self._boundary_probabilities(), self._text.word_begins[1:-1])
        texts = [word for example in self.examples for word in example.words]
        entropies, partitions = self._word_entropies.tolist(), self._word_partitions.tolist()
        rows = zip(texts, probabilities, entropies, partitions, strict=False)
        words = [WordPosterior(text, tuple(p.tolist()), entropy, z) for text, p, entropy, z in rows]
        totals = self.log_partitions().tolist()
        result = []
        for example, total in zip(self.examples, totals, strict=True):
            count = len(example.words)
            own, words = words[:count], words[count:]
            result.append(Posterior(example.marked, tuple(own), total))
        return result

    def expected_pieces(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Word, piece and posterior probability of every edge; words are numbered through the batch."""
        columns: list[tuple[NDArray[Any], ...]] = [(np.zeros(0, int), np.zeros(0, int), np.zeros(0))]
        for bucket, (scores, lengths) in zip(self.lattice.buckets, self.bucket_scores(), strict=True):
            marginals = dynamic_program.edge_marginals(scores, lengths).flatten()[bucket.cells]
            words = bucket.words[bucket.cells // (bucket.shape[1] * bucket.shape[2])]
            columns.append(tuple(map(_array, (words, self.lattice.edge_pieces[bucket.edges], marginals))))
        words_, pieces, probabilities = (np.concatenate(column) for column in zip(*columns, strict=True))
        return words_, pieces, probabilities

    def log_partitions(self) -> NDArray[np.float64]:
        """Exact log p(y | x) of every sentence (Alg. 1). # [sentence]"""
        return self._sentence_sums(self._word_partitions)

    def entropies(self) -> NDArray[np.float64]:
        """Entropy of the posterior over the segmentations of every sentence, in nats. # [sentence]"""
        return self._sentence_sums(self._word_entropies, np.zeros(len(self.examples)))

    @cached_property
    def _word_partitions(self) -> NDArray[np.float64]:
        return self._by_word(
            [_array(dynamic_program.log_partition(*edges)) for edges in self.bucket_scores()]
        )

    @cached_property
    def _word_entropies(self) -> NDArray[np.float64]:
        return self._by_word([_array(dynamic_program.entropy(*edges)) for edges in self.bucket_scores()])

    def bucket_scores(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Of every bucket: edge scores [word, start, span] and lengths [word]."""
        for bucket in self.lattice.buckets:
            yield bucket.scatter(self._scores), bucket.lengths

    def _draws(self, uniforms: NDArray[np.float64], temperature: float) -> Iterator[list[Cut]]:
        """One segmentation of every sentence for each row of uniforms [draw, character]."""
        drawn = [
            dynamic_program.sample(
                scores, lengths, uniforms=self._uniforms_of(bucket, uniforms), temperature=temperature
            )
            for bucket, (scores, lengths) in zip(self.lattice.buckets, self.bucket_scores(), strict=True)
        ]
        boundaries = [_array(cuts.boundaries) for cuts in drawn]  # [word, draw, position] of each bucket
        scores = self._by_word([_array(cuts.scores) for cuts in drawn])  # [word, draw]
        for draw in range(len(uniforms)):
            yield self._cuts(
                scores[:, draw] if scores.ndim == 2 else scores, [b[:, draw] for b in boundaries]
            )

    def _uniforms_of(self, bucket: Bucket, uniforms: NDArray[np.float64]) -> Tensor:
        """The numbers that belong to the characters of a bucket's words. # [draw, word, start]"""
        begins = self._text.word_begins[_array(bucket.words)]
        characters = begins[:, None] + np.arange(bucket.shape[1])
        characters = characters.clip(max=uniforms.shape[1] - 1)  # values beyond a word's end are not used
        return torch.from_numpy(uniforms[:, characters]).to(self._scores)

    def _boundary_probabilities(self) -> NDArray[np.float64]:
        """Probability of a boundary after each character of the joined text."""
        result = np.zeros(len(self._text))
        for bucket, (scores, lengths) in zip(self.lattice.buckets, self.bucket_scores(), strict=True):
            probabilities = _array(dynamic_program.boundary_probabilities(scores, lengths))[:, 1:]
            inside = np.arange(probabilities.shape[1]) < _array(lengths)[:, None]
            words, positions = inside.nonzero()
            result[self._text.word_begins[_array(bucket.words)[words]] + positions] = probabilities[inside]
        return result.clip(max=1.0)  # rounding must not lead above 1

    def _by_word(self, by_bucket: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """Values of the words of each bucket, in the order of the words. # [word, ...]"""
        if not by_bucket:  # no sentence has a word
            return np.zeros(0)
        result = np.zeros((len(self._text.word_begins) - 1, *by_bucket[0].shape[1:]))
        for bucket, values in zip(self.lattice.buckets, by_bucket, strict=True):
            result[_array(bucket.words)] = values
        return result

    def _sentence_sums(
        self, word_values: NDArray[np.float64], ends: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """The words' values and the score of the end of sentence. # [sentence]"""
        sentences = _array(self.lattice.word_sentence)
        sums = np.bincount(sentences, weights=word_values, minlength=len(self.examples))
        return sums + (_array(self._scores[self.lattice.end_edges]) if ends is None else ends)

    def _cuts(
        self,
        word_scores: NDArray[np.float64],
        boundaries: Sequence[NDArray[np.bool_]],
        end_scores: NDArray[np.float64] | None = None,
    ) -> list[Cut]:
        """One segmentation of every sentence from boundaries [word, position] of each bucket's words."""
        pieces = self._text.pieces(self._piece_ends(boundaries))
        scores = self._sentence_sums(word_scores, end_scores).tolist()
        rows = zip(pieces, scores, self._split_words(word_scores), strict=True)
        return [Cut(own, score, tuple(words.tolist())) for own, score, words in rows]

    def _split_words(self, values: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Values of all words [word, ...] as one array per sentence."""
        return np.split(values, np.cumsum([len(example.words) for example in self.examples])[:-1])

    def _piece_ends(self, boundaries: Sequence[NDArray[np.bool_]]) -> NDArray[np.int64]:
        """Where pieces end in the joined text."""
        ends = [np.zeros(0, dtype=np.int64)]
        for bucket, has_boundary in zip(self.lattice.buckets, boundaries, strict=True):
            words, positions = has_boundary[:, 1:].nonzero()
            ends.append(self._text.word_begins[_array(bucket.words)[words]] + positions + 1)
        return np.concatenate(ends)


def _n_best_in_parts(
    edge_scores: Tensor, lengths: Tensor, *, n: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The n best of the words of a bucket: scores [word, rank] and boundaries [word, rank, position]."""
    step = max(1, _CELLS_AT_ONCE // (n * edge_scores.shape[1]))
    parts = zip(torch.split(edge_scores, step), torch.split(lengths, step), strict=True)
    cuts: list[Cuts] = [dynamic_program.n_best(scores, size, n=n) for scores, size in parts]
    return (
        np.concatenate([_array(cut.scores) for cut in cuts]),
        np.concatenate([_array(cut.boundaries) for cut in cuts]),
    )


def _array(tensor: Tensor) -> NDArray[Any]:
    return tensor.cpu().numpy()


class BatchText:
    """All sentences, one after the other; their words are numbered through."""

    def __init__(self, examples: Sequence[MixedExample], vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._joined = "".join(example.marked for example in examples)
        words = [len(word) for example in examples for word in example.words]
        self.word_begins = np.concatenate([[0], np.cumsum(words, dtype=np.int64)])  # and the end of the last
        self._sentence_ends = np.cumsum([len(example.marked) for example in examples], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._joined)

    def pieces(self, ends: NDArray[np.int64]) -> list[tuple[str, ...]]:
        """The pieces of every sentence, from where they end in the joined text, in any order.

        Neighbouring unknown characters are written as one piece, or each as its bytes.
        """
        has_bytes = bool(self._vocabulary.byte_ids)
        ends = np.sort(ends) if has_bytes else self._without_inner_ends(np.sort(ends))
        pieces = [self._joined[begin:end] for begin, end in pairwise([0, *ends.tolist()])]
        last = np.searchsorted(ends, self._sentence_ends, side="right").tolist()
        rows = [pieces[begin:end] for begin, end in pairwise([0, *last])]
        if has_bytes:
            rows = [self._vocabulary.write_unknown("".join(row), row) for row in rows]
        return list(map(tuple, rows))

    def _without_inner_ends(self, ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Without those between two unknown characters of a sentence, unless both would be in one piece."""
        if not self._unknown.any():
            return ends
        lengths = np.diff(ends, prepend=0)
        unknown = (lengths == 1) & self._unknown[ends - 1]
        inner = unknown[:-1] & unknown[1:] & ~np.isin(ends[:-1], self._sentence_ends)
        for first, last in _runs(inner):
            if self._joined[ends[first] - 1 : ends[last]] in self._vocabulary.ids:
                inner[first:last] = False  # or it would read as another segmentation
        kept: NDArray[np.int64] = ends[np.append(~inner, [True])]
        return kept

    @cached_property
    def _unknown(self) -> NDArray[np.bool_]:
        """Which characters are no piece by themselves."""
        known = self._vocabulary.ids
        strange = {character for character in set(self._joined) if character not in known}
        if not strange:
            return np.zeros(len(self._joined), dtype=np.bool_)
        return np.fromiter((c in strange for c in self._joined), dtype=np.bool_, count=len(self._joined))


def _runs(flags: NDArray[np.bool_]) -> list[list[int]]:
    """Where each run of true flags begins, and where it has ended."""
    padded = np.concatenate([[False], flags, [False]])
    turns: list[list[int]] = np.flatnonzero(padded[1:] != padded[:-1]).reshape(-1, 2).tolist()
    return turns
