"""Lattices: every piece that matches every span of a word, and batches of them as tensors.

An edge is one piece over one span. A word of n characters has the boundaries 0..n; a segmentation is a path
of edges from 0 to n. With the pieces `▁`, `a`, `b`, `ab` the word `▁ab` has the edges

    (start 0, span 0, `▁`)  (start 1, span 0, `a`)  (start 1, span 1, `ab`)  (start 2, span 0, `b`)

where the span index is the length minus one. No piece crosses a word boundary, so a sentence is its words'
lattices one after the other, followed by the end of sentence.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from dpe.text.vocabulary import Vocabulary

# A batch has few words longer than this; shorter classes would cost the dynamic program more steps than
# they save padding.
_SHORTEST_CLASS = 16
# About 10 MB of lattices. Longer words rarely occur again, and may have any size.
_CACHED_WORDS = 16_384
_CACHED_LENGTH = 64


@dataclass(frozen=True, slots=True)
class WordLattice:
    """The edges of one word, ordered by start, then span."""

    length: int
    edges: NDArray[np.int32]  # [edge, (start, span, piece)]

    @property
    def starts(self) -> NDArray[np.int32]:
        return self.edges[:, 0]

    @property
    def spans(self) -> NDArray[np.int32]:
        return self.edges[:, 1]

    @property
    def pieces(self) -> NDArray[np.int32]:
        return self.edges[:, 2]


@dataclass(frozen=True)
class Bucket:
    """Words of similar length, and where their edges are in a padded [word, start, span] tensor."""

    words: Tensor  # [word], index among the words of the batch, ascending
    lengths: Tensor  # [word], in characters
    shape: tuple[int, int, int]  # word, start, span: no longer than the longest word and span here
    edges: Tensor  # [edge], index in the flat list of the batch
    cells: Tensor  # [edge], index in the flattened padded tensor, ascending

    def scatter(self, flat_scores: Tensor) -> Tensor:
        """Scores of all edges of the batch, [edge] -> [word, start, span]; -inf where no piece matches."""
        # Writing the few edges into a filled tensor is several times faster, forward and backward, than
        # reading every cell through an index.
        words, starts, spans = self.shape
        padded = flat_scores.new_full((words * starts * spans,), float("-inf"))
        return padded.index_copy(0, self.cells, flat_scores.index_select(0, self.edges)).view(self.shape)

    def to(self, device: torch.device | str) -> Bucket:
        return replace(self, **tensors_on(device, self))


@dataclass(frozen=True)
class LatticeBatch:
    """All edges of a batch of sentences as one flat list, and the words' buckets over it.

    A position is an index into the flattened [sentence, position] states of the decoder: the state after
    reading that many characters of that sentence. Edges ascend by position.
    """

    edge_positions: Tensor  # [edge]
    edge_pieces: Tensor  # [edge]
    end_edges: Tensor  # [sentence], index of the end of sentence in the flat list
    word_sentence: Tensor  # [word], the row of each word
    word_positions: Tensor  # [word], the position at which each word begins
    buckets: tuple[Bucket, ...]

    def to(self, device: torch.device | str) -> LatticeBatch:
        buckets = tuple(bucket.to(device) for bucket in self.buckets)
        return replace(self, **tensors_on(device, self), buckets=buckets)


def tensors_on(device: torch.device | str, holder: object, *, but: Collection[str] = ()) -> dict[str, Any]:
    """The tensors of a dataclass, by field, on a device. A GPU is sent them and not waited for."""
    tensors = {name: value for name, value in vars(holder).items() if isinstance(value, Tensor)}
    return {name: value.to(device, non_blocking=True) for name, value in tensors.items() if name not in but}


class LatticeBuilder:
    """Lattices over one vocabulary; those of short words are cached."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        protected = set(vocabulary.protected)
        self._vocabulary = vocabulary
        self._ids = {piece: i for piece, i in vocabulary.ids.items() if piece not in protected}
        self._longer = sorted({len(piece) for piece in self._ids} - {1})
        self._kept = lru_cache(maxsize=_CACHED_WORDS)(self._build)

    def word(self, word: str) -> WordLattice:
        """Every piece that matches every span of a word.

        A character without a piece of its own has an edge of one character with the unknown id. If no piece
        contains the character, that is its only edge, so every segmentation has it; if only longer pieces
        do, it is used where those do not match. So a lattice is always connected. A protected string is one
        edge, and no other edge overlaps it.
        """
        return WordLattice(len(word), _edge_array(self._edges(word)))

    def _edges(self, word: str) -> bytes:
        """The edges as bytes: 32-bit numbers, the start, span and piece of each.

        Not arrays, because small arrays that stay, between large ones that do not, would fragment the heap.
        """
        return self._kept(word) if len(word) <= _CACHED_LENGTH else self._build(word)

    def _build(self, word: str) -> bytes:
        if not word:
            raise ValueError("A word must have at least one character.")
        flat: list[int] = []  # start, span, piece of each edge
        begin = 0
        for start, end in self._vocabulary.protected_spans(word):
            self._match(word, begin, start, flat)
            flat += (start, end - start - 1, self._vocabulary.ids[word[start:end]])
            begin = end
        self._match(word, begin, len(word), flat)
        return np.array(flat, dtype=np.int32).tobytes()

    def _match(self, word: str, begin: int, end: int, flat: list[int]) -> None:
        """Append the edges within word[begin:end]."""
        find, longer, unknown = self._ids.get, self._longer, self._vocabulary.unk_id
        for start in range(begin, end):
            flat += (start, 0, find(word[start], unknown))
            for length in longer:
                if start + length > end:
                    break
                piece = find(word[start : start + length])
                if piece is not None:
                    flat += (start, length - 1, piece)

    def batch(self, sentences: Sequence[Sequence[str]], *, stride: int, end_piece: int) -> LatticeBatch:
        """The lattices of sentences, given as their words.

        `stride` is the number of positions of a sentence's row in the padded states: at least one more than
        the characters of the longest sentence. `end_piece` is the end of sentence, one more edge of each.
        """
        # An item is a word, or the end of a sentence as a word without characters, which is in no bucket.
        end = np.array([0, 0, end_piece], dtype=np.int32).tobytes()
        items = [edges for words in sentences for edges in (*map(self._edges, words), end)]
        if not items:
            raise ValueError("A batch must have at least one sentence.")
        lengths = np.array([len(word) for words in sentences for word in (*words, "")])  # [item]
        edges = _edge_array(b"".join(items)).astype(np.int64)  # [edge, (start, span, piece)]
        item_of_edge = np.repeat(np.arange(len(items)), [len(item) // len(end) for item in items])  # [edge]
        sentence = np.repeat(np.arange(len(sentences)), [len(words) + 1 for words in sentences])  # [item]
        places = _places(lengths, sentence, stride)  # [item]
        return LatticeBatch(
            edge_positions=torch.from_numpy(places[item_of_edge] + edges[:, 0]),
            edge_pieces=torch.from_numpy(edges[:, 2].copy()),
            end_edges=torch.from_numpy(np.flatnonzero(lengths[item_of_edge] == 0)),
            word_sentence=torch.from_numpy(sentence[lengths > 0]),
            word_positions=torch.from_numpy(places[lengths > 0]),
            buckets=_buckets(lengths, edges, item_of_edge),
        )


def _edge_array(edges: bytes) -> NDArray[np.int32]:
    """Edges as an array. # [edge, (start, span, piece)]"""
    return np.frombuffer(edges, dtype=np.int32).reshape(-1, 3)


def _places(lengths: NDArray[np.int64], sentence: NDArray[np.int64], stride: int) -> NDArray[np.int64]:
    """The position where each item starts, from the items' lengths and sentences. # [item]"""
    begins = np.cumsum(lengths) - lengths  # [item], in the characters of the whole batch
    first_items = np.flatnonzero(np.diff(sentence, prepend=-1))  # [sentence]
    offsets: NDArray[np.int64] = begins - begins[first_items][sentence]  # [item], in the sentence
    if offsets.max() >= stride:
        raise ValueError(f"A sentence of {offsets.max()} characters needs a larger stride than {stride}.")
    return sentence * stride + offsets


def _buckets(
    lengths: NDArray[np.int64], edges: NDArray[np.int64], item_of_edge: NDArray[np.int64]
) -> tuple[Bucket, ...]:
    """Words by length: up to 16 characters, then in classes that double."""
    classes = np.ceil(np.log2(np.maximum(lengths, _SHORTEST_CLASS)))  # [item]
    classes[lengths == 0] = 0  # ends of sentences
    word_of_item = np.cumsum(lengths > 0) - 1  # [item]
    row_of_item = np.zeros_like(lengths)  # [item], in the item's bucket
    buckets = []
    for length_class in np.unique(classes[lengths > 0]):
        items = np.flatnonzero(classes == length_class)  # [item of the class]
        own = np.flatnonzero(classes[item_of_edge] == length_class)  # [edge of the class], in the flat list
        starts, spans, _ = edges[own].T
        shape = (len(items), int(lengths[items].max()), int(spans.max()) + 1)
        row_of_item[items] = np.arange(len(items))
        rows = row_of_item[item_of_edge[own]]  # [edge of the class], its word's row in the bucket
        bucket = Bucket(
            words=torch.from_numpy(word_of_item[items]),
            lengths=torch.from_numpy(lengths[items]),
            shape=shape,
            edges=torch.from_numpy(own),
            cells=torch.from_numpy((rows * shape[1] + starts) * shape[2] + spans),
        )
        buckets.append(bucket)
    return tuple(buckets)
