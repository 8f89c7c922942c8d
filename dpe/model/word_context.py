"""The word level of a decoder: what the words before the current one say, for each of its characters.

Words are read as whole units: a convolution over three characters, pooled, makes one vector of a word, and a
transformer decoder runs over the words instead of the characters, which are about six times as many.

    characters   <s> ▁ a | ▁ b c | ▁ d      word 0 contains the begin symbol
    read by      nothing | word 0 | words 0 and 1

A character is given the state after the words before its own, so nothing here depends on where a word ends
before the next one has begun. What a word's own characters say is left to the layers over characters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpe.model.batching import PAD_CHARACTER
from dpe.model.fast_layers import Linear
from dpe.model.transformer import Decoder, initialise

if TYPE_CHECKING:
    from dpe.model.settings import TransformerSettings

# Characters of a longer word are read as several words of this length, so that text without spaces has a
# context too.
LONGEST_WORD = 32


class WordContext(nn.Module):
    """A causal decoder over words, with cross-attention to the source if there is one."""

    def __init__(self, settings: TransformerSettings, *, marker: int, cross_attention: bool) -> None:
        super().__init__()
        self.marker = marker
        self.convolution = Linear(3 * settings.width, settings.width)
        self.output = Linear(settings.width, settings.width)
        initialise(self)
        self.decoder = Decoder(settings, cross_attention=cross_attention)

    def forward(
        self, characters: Tensor, embedded: Tensor, memory: Tensor | None, memory_mask: Tensor | None
    ) -> Tensor:
        """What is added to the embedding of each character. # [sentence, position, width]

        characters [sentence, position], embedded [sentence, position, width].
        """
        numbers = word_numbers(characters, self.marker)
        words = int(numbers.max()) + 1  # of the sentence that has most
        states = self.decoder(self.preceding_words(embedded, numbers, words), memory, memory_mask)
        states = self.output(states) / self.decoder.scale  # [sentence, word, width], as large as embeddings
        rows = numbers + words * torch.arange(len(numbers), device=numbers.device)[:, None]
        return F.embedding(rows, states.flatten(0, 1))

    def preceding_words(self, embedded: Tensor, numbers: Tensor, words: int) -> Tensor:
        """A vector of the word before each word, 0 for the first. # [sentence, word, width]

        The last character of a word is convolved with the first one of the next word. No state sees more
        than it has read: only characters of the next word, which have read its first one, see the result.
        """
        padded = F.pad(embedded, (0, 0, 1, 1))
        neighbours = torch.cat([padded[:, :-2], embedded, padded[:, 2:]], dim=2)
        features = F.relu(self.convolution(neighbours)).flatten(0, 1)  # [character, width]
        sentences = torch.arange(len(numbers), device=numbers.device)[:, None]
        following = (numbers + 1 + (words + 1) * sentences).flatten()  # [character], the row of the next word
        shape = (len(numbers) * (words + 1), features.shape[1])
        sums = features.new_zeros(shape).index_add(0, following, features)
        counts = following.bincount(minlength=shape[0]).clamp(min=1)[:, None]
        return (sums * counts.to(sums.dtype).rsqrt()).view(len(numbers), words + 1, -1)[:, :words]


def word_numbers(characters: Tensor, marker: int) -> Tensor:
    """Which word of its sentence each character belongs to, from 0. # [sentence, position]

    A marker begins a word; so does every LONGEST_WORD-th character after it. The begin symbol belongs to the
    first word, padding to the last.
    """
    columns = torch.arange(characters.shape[1], device=characters.device)
    is_first = characters == marker
    is_first[:, 1:2] = False
    begins = torch.where(is_first, columns, 0).cummax(1).values  # [sentence, position]: of the own word
    is_first = ((columns - begins) % LONGEST_WORD == 0) & (characters != PAD_CHARACTER)
    return is_first.cumsum(1) - 1
