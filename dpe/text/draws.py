"""Where randomness comes from: every draw is a function of (seed, epoch, line) or (seed, epoch, batch).

Nothing else matters: not the order of the work, the batch size, the number of workers or processes. So a run
that was killed resumes with the numbers that it would have had. Changing a key or a stream here changes every
result that was made before.
"""

from __future__ import annotations

import hashlib
import random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# The first number of a key: it separates these draws from all others of the same seed, epoch and line.
NOISE_STREAM = 0x6E6F6973  # characters hidden from the mixed model
CUT_STREAM = 0x63757473  # segmentations from a segmenter's posterior
ORDER_STREAM = 0x6F726472  # of the batches of a window
SAMPLE_STREAM = 0x76636162  # lines that a vocabulary is learned from
EDIT_STREAM = 0x65646974  # typing errors
# Added to the seed of a `Draw`: it separates count-based segmentations of the target from the source's.
TARGET_STREAM = 1 << 40


class Draw(NamedTuple):
    """What a random segmentation depends on besides the text.

    Two sides of a corpus that share all three share their random numbers: give each side its own seed.
    """

    seed: int = 1
    epoch: int = 0
    line: int = 0

    def at(self, line: int) -> Draw:
        """The draw of another line."""
        return self._replace(line=line)

    def generator(self) -> random.Random:
        """The numbers of a count-based segmentation."""
        return random.Random(f"{self.seed} {self.epoch} {self.line}")

    def uniforms(self, length: int, *, n: int) -> NDArray[np.float64]:
        """The numbers of n samples from the posterior of a line of this length. # [draw, character]"""
        keys = ((CUT_STREAM, self.seed, self.epoch, self.line, draw) for draw in range(n))
        return np.stack([generator(*key).random(length) for key in keys])


def generator(*key: int) -> np.random.Generator:
    """Numpy's numbers of this key, a stream first where there is one."""
    return np.random.default_rng([int(number) % 2**64 for number in key])  # numpy takes no negative ones


def torch_seed(*numbers: int) -> int:
    """One seed from several numbers, without patterns, for `torch.manual_seed`."""
    digest = hashlib.blake2b(" ".join(map(str, numbers)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
