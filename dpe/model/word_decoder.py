"""A decoder that reads words: most of its layers run over words, of which there are six times fewer.

After the characters y_1..y_t either the word ends or it continues, so the next piece has the probability

    p(word ends) * softmax over the pieces that begin a word, and the end of sentence, of the word state
    p(word continues) * softmax over all other pieces, of the character state

The word state comes from `decoder_layers` over the words up to the one that ends at t. The character state
comes from `character_layers` over characters; they start from the word state before the current word, and
leave the source to the word level. Both states are functions of y_1..y_t (and the source), so this is one
distribution over all pieces, whatever follows. The text says which of the two is needed at t: the word state
only where the word does end, so there is no more to compute than one state a word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from dpe.model.edge_scores import edge_scores, edges_that_matter
from dpe.model.fast_layers import Linear

if TYPE_CHECKING:
    from dpe.model.transformer import Decoder

# A longer word is read as several words of this many characters, so that in text without spaces the layers
# over characters start from a recent state too.
LONGEST_WORD = 16


class WordDecoder(nn.Module):
    """States of characters from two levels, and the scores of pieces by two softmaxes.

    `word_pieces` are the ids of the pieces that begin a word, and the end of sentence; `other_pieces` are the
    ids of all others that can be predicted.
    """

    words: Tensor  # the ids of `word_pieces`
    others: Tensor
    begins_word: Tensor  # bool [piece]
    row: Tensor  # [piece], its index among the pieces of its kind

    def __init__(
        self,
        width: int,
        word_layers: Decoder,
        character_layers: Decoder,
        *,
        word_pieces: Sequence[int],
        other_pieces: Sequence[int],
    ) -> None:
        super().__init__()
        self.word_layers, self.character_layers = word_layers, character_layers
        self.convolution, self.start = Linear(3 * width, width), Linear(width, width)
        self.word_end = Linear(width, 1)
        for part in (self.convolution, self.start, self.word_end):
            nn.init.xavier_uniform_(part.weight)
            nn.init.zeros_(part.bias)
        row = torch.zeros(max(*word_pieces, *other_pieces) + 1, dtype=torch.long)
        begins_word = torch.zeros_like(row, dtype=torch.bool)
        begins_word[list(word_pieces)] = True
        for name, pieces in (("words", torch.tensor(word_pieces)), ("others", torch.tensor(other_pieces))):
            self.register_buffer(name, pieces, persistent=False)
            row[pieces] = torch.arange(len(pieces))
        self.register_buffer("begins_word", begins_word, persistent=False)
        self.register_buffer("row", row, persistent=False)

    def forward(
        self,
        characters: Tensor,
        word_ends: Tensor,
        memory: Tensor | None,
        memory_mask: Tensor | None,
        *,
        embedding: nn.Embedding,
    ) -> Callable[[Tensor | None], Tensor]:
        """What gives the states of positions, each with the logit of a word's end. # [position, width + 1]

        characters [sentence, position], and word_ends bool [sentence, position] on the CPU.
        """
        batch = _Words.of(word_ends, characters.device)
        read = self.words_before(characters, batch, embedding)
        words = self.word_layers(read, memory, memory_mask).flatten(0, 1)  # [row, width]
        starts = self.start(words) / self.word_layers.scale  # as large as embeddings
        starts = F.embedding(batch.rows, starts)  # [sentence, position, width]
        unfinished = self.character_layers(embedding(characters) + starts, finish=False)

        def states(positions: Tensor | None) -> Tensor:
            def wanted(x: Tensor) -> Tensor:
                return x.flatten(0, 1) if positions is None else x.flatten(0, 1)[positions]

            found = self.character_layers.finished(wanted(unfinished))
            ends = batch.ends if positions is None else wanted(batch.word_ends).nonzero()[:, 0]
            after_words = F.embedding(wanted(batch.rows)[ends] + 1, words)  # [end, width]
            return torch.cat([found.index_copy(0, ends, after_words), self.word_end(found)], dim=1)

        return states

    def words_before(self, characters: Tensor, batch: _Words, embedding: nn.Embedding) -> Tensor:
        """A vector of the word before each word, 0 for the first. # [sentence, word, width]

        Its characters are convolved with their neighbours, but for the one after the word, and summed. Each
        character of the alphabet is multiplied with the weights once, not wherever it stands.
        """
        width, nothing = embedding.embedding_dim, embedding.num_embeddings
        alphabet = F.pad(embedding.weight, (0, 0, 0, 1))  # and `nothing`, which is 0
        weight = self.convolution.weight.view(width, 3, width).transpose(0, 1).flatten(0, 1)
        table = F.linear(alphabet, weight).view(-1, width)  # [character before, itself, after, next one ...]
        before = F.pad(characters, (1, -1), value=nothing)
        after = F.pad(characters, (-1, 1), value=nothing).masked_fill(batch.word_ends, nothing)
        three = 3 * torch.stack([before, characters, after], dim=2).flatten(0, 1)  # [position, 3]
        three += torch.arange(3, device=three.device)
        features = F.relu(F.embedding_bag(three, table, mode="sum") + self.convolution.bias)
        sums = features.new_zeros(len(batch.sizes), width).index_add(0, batch.rows.flatten() + 1, features)
        return (sums * batch.sizes[:, None].to(sums.dtype).rsqrt()).view(len(characters), -1, width)

    def edge_scores(
        self, states: Tensor, output_weight: Tensor, positions: Tensor, pieces: Tensor, *, threshold: float
    ) -> Tensor:
        """As `edge_scores.edge_scores`, from the states [position, width + 1] of `forward`. # [edge]"""
        states, logits = states[:, :-1], states[:, -1]  # [position, width], [position]
        scores = F.logsigmoid(torch.where(self.begins_word[pieces], 1, -1) * logits[positions])
        for own, is_own in ((self.words, self.begins_word[pieces]), (self.others, ~self.begins_word[pieces])):
            edges = is_own.nonzero()[:, 0]
            if not len(edges):  # what a search asks for often is of one kind
                continue
            found = edge_scores(
                states,
                output_weight.index_select(0, own),
                positions[edges],
                self.row[pieces[edges]],
                threshold=threshold,
            )
            scores = scores.index_add(0, edges, found)
        return _SparseGradient.apply(scores, positions, len(states), threshold)  # type: ignore[no-any-return, no-untyped-call]


class _Words(NamedTuple):
    """Where the words of a batch are. Row `sentence * columns + n` is that of the n-th word of a sentence.

    Made on the CPU, where the words are known: a GPU is sent this and not waited for.
    """

    word_ends: Tensor  # bool [sentence, position]
    rows: Tensor  # [sentence, position], of the word that the character belongs to
    ends: Tensor  # [end], the positions, in all sentences, at which a word ends
    sizes: Tensor  # [row], characters of the word before, at least 1

    @classmethod
    def of(cls, word_ends: Tensor, device: torch.device) -> _Words:
        numbers = word_numbers(word_ends)  # [sentence, position]
        columns = int(numbers.max()) + 2  # words of the sentence that has most, and what follows the last
        rows = numbers + columns * torch.arange(len(numbers))[:, None]
        sizes = (rows.flatten() + 1).bincount(minlength=len(numbers) * columns).clamp(min=1)
        ends = word_ends.flatten().nonzero()[:, 0]  # [end]
        return cls(*(part.to(device, non_blocking=True) for part in (word_ends, rows, ends, sizes)))


class _SparseGradient(torch.autograd.Function):
    """The same scores; positions that matter little get no gradient, neither by a softmax nor by a logit."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, positions: Tensor, position_count: int, threshold: float) -> Tensor:
        ctx.save_for_backward(positions)
        ctx.count, ctx.threshold = position_count, threshold
        return scores.view_as(scores)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (positions,) = ctx.saved_tensors
        matters = edges_that_matter(gradient, positions, ctx.count, ctx.threshold)
        return gradient.where(matters, 0.0), None, None, None


def word_numbers(word_ends: Tensor) -> Tensor:
    """Which word of its sentence each character belongs to, from 0. # [sentence, position]

    After a word's end the next one begins; so does one after LONGEST_WORD characters.
    """
    columns = torch.arange(word_ends.shape[1], device=word_ends.device)
    is_first = F.pad(word_ends, (1, -1))
    begins = torch.where(is_first, columns, 0).cummax(1).values  # [sentence, position]: of the own word
    return ((columns - begins) % LONGEST_WORD == 0).cumsum(1) - 1
