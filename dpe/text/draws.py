"""Where randomness comes from: every draw is a function of (seed, epoch, line) or (seed, epoch, batch).

Nothing else counts: not the order of the work, the size of a batch, the workers or the processes. So a run
that was killed goes on with the numbers that it would have had. Whoever changes a key or a stream here
changes every result that was made before.
"""

from __future__ import annotations

import hashlib
import random
from typing import NamedTuple

import numpy as np

# Each sets its draws apart from all others of the same seed, epoch and line: the first number of a key.
NOISE_STREAM = 0x6E6F6973  # characters hidden from the mixed model
CUT_STREAM = 0x63757473  # cuts from a segmenter's posterior
# This one is added to the seed of a `Draw`: count-based cuts of the target, apart from the source's.
TARGET_STREAM = 1 << 40


class Draw(NamedTuple):
    """What a random cut depends on besides the text.

    Two sides of a corpus that share all three share their random numbers: give each side its own seed.
    """

    seed: int = 1
    epoch: int = 0
    line: int = 0

    def generator(self) -> random.Random:
        return random.Random(f"{self.seed} {self.epoch} {self.line}")


def generator(*key: int) -> np.random.Generator:
    """Numpy's numbers of this key, a stream first where there is one."""
    return np.random.default_rng([int(number) % 2**64 for number in key])  # numpy takes no negative ones


def torch_seed(*numbers: int) -> int:
    """One seed of several numbers, without patterns, for `torch.manual_seed`."""
    digest = hashlib.blake2b(" ".join(map(str, numbers)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
