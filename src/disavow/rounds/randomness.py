"""Randomness as an argument: every draw comes from a stream, and every stream from a key.

*Training* draws (data split, initial model, batches) derive from the run's seed, the round, the client and a
purpose: a run can be repeated, and taking one client out changes nothing that another draws. *Secret* draws
(representatives, noise) come from a key that the operating system hands out and nobody keeps; only
`draws = "seeded"` derives that key, from the seed, the round, the attempt and the purpose. The attempt is in it
because noise used twice cancels out.

A stream is AES-256 in counter mode: unpredictable without the key, and the same on every machine. torch and
NumPy are imported by the methods that draw: commands that only answer draw nothing, and start without them.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch
    from torch import Tensor

Ints: TypeAlias = "npt.NDArray[np.int64]"

_KEY_BYTES = 32

_BLOCK = 16
"""Bytes of a block of AES."""

_ZEROS = bytes(1 << 20)
"""What is encrypted, so many bytes at a time."""


def derive(*parts: int | str) -> bytes:
    """Derive a 32-byte key from what identifies a draw; no two lists of parts share one."""
    encoded = [b"disavow/draw/v1\x00"]
    for part in parts:
        data = str(part).encode()
        kind = b"s" if isinstance(part, str) else b"i"
        encoded += (kind, len(data).to_bytes(4, "big"), data)
    return hashlib.sha256(b"".join(encoded)).digest()


class Stream:
    """An endless row of random bits, read as the numbers that are asked for.

    Args:
        key: 32 random bytes, from which all of it follows.
    """

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(AES(key), CTR(bytes(16))).encryptor()

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """Draw uniform 64-bit words.

        Args:
            count: How many.

        Returns:
            So many numbers.

        """
        import numpy as np

        if 8 * count > len(_ZEROS):
            return self._words(count, "cpu").numpy().view("<u8").astype(np.uint64, copy=False)
        # the same, a few microseconds sooner: every client of every round draws its batches here
        drawn = self._cipher.update(memoryview(_ZEROS)[: 8 * count])
        return np.frombuffer(drawn, "<u8").astype(np.uint64, copy=False)

    def _words(self, count: int, device: torch.device | str) -> Tensor:
        """The same on a device, read as signed; to a GPU through memory that it can read by itself."""
        import torch

        pinned = torch.device(device).type == "cuda"
        # the cipher asks for more room than it writes
        drawn = torch.empty(count + _BLOCK // 8, dtype=torch.int64, pin_memory=pinned)
        room = drawn.numpy().data.cast("B")
        for start in range(0, 8 * count, len(_ZEROS)):
            zeros = memoryview(_ZEROS)[: 8 * count - start]
            self._cipher.update_into(zeros, room[start : start + len(zeros) + _BLOCK - 1])
        return drawn[:count].to(device, non_blocking=pinned)

    def below(self, bound: int) -> int:
        """Draw a uniform whole number without bias.

        Args:
            bound: What it is below.

        Returns:
            A number from 0 to `bound` - 1.

        """
        limit = (1 << 64) - (1 << 64) % bound
        while (word := int(self.words(1)[0])) >= limit:
            pass
        return word % bound

    def uniform(self, count: int, device: torch.device | str = "cpu") -> Tensor:
        """Draw numbers strictly between 0 and 1, in steps of 2^-52: one bit less, or the largest would round to 1.

        Args:
            count: How many.
            device: Where they are made.

        Returns:
            The numbers, in float64.

        """
        words = self._words(count, device)
        # the upper 52 bits; the shift brings copies of the first bit along, which are masked away
        return (((words >> 12) & ((1 << 52) - 1)).double() + 0.5) * 2.0**-52

    def normal(self, count: int, device: torch.device | str = "cpu") -> Tensor:
        """Draw standard Gaussian numbers, by the inverse of their distribution function.

        Args:
            count: How many.
            device: Where they are made.

        Returns:
            The numbers, in float64.

        """
        import torch

        numbers: Tensor = torch.special.ndtri(self.uniform(count, device))
        return numbers

    def laplace(self, count: int, device: torch.device | str = "cpu") -> Tensor:
        """Draw Laplace numbers of mean 0 and standard deviation 1.

        Args:
            count: How many.
            device: Where they are made.

        Returns:
            The numbers, in float64.

        """
        import torch

        u = self.uniform(count, device) - 0.5
        return -torch.sign(u) * torch.log1p(-2 * u.abs()) / math.sqrt(2)

    def permutation(self, count: int) -> Ints:
        """Draw a random order.

        Args:
            count: Of how many things.

        Returns:
            The numbers from 0 to `count` - 1, each once.

        """
        import numpy as np

        return np.argsort(self.words(count), kind="stable").astype(np.int64, copy=False)

    def generator(self) -> np.random.Generator:
        """A numpy generator, for distributions that have no form here.

        Returns:
            A generator that is seeded from this stream.
        """
        import numpy as np

        return np.random.Generator(np.random.Philox(key=self.words(2)))


def training_stream(seed: int, purpose: str, *, round_number: int = 0, client: str = "") -> Stream:
    """Open the stream of a training draw.

    Args:
        seed: The seed of the run.
        purpose: What is drawn.
        round_number: Which round it is for; 0: before the first.
        client: Whom it is for; empty: nobody in particular.

    """
    return Stream(derive("training", seed, round_number, client, purpose))


@dataclass(frozen=True)
class Secrets:
    """Where secret draws come from. `seed` is None for fresh draws, which cannot be repeated."""

    seed: int | None = None

    def stream(self, round_number: int, attempt: int, purpose: str) -> Stream:
        """Open the stream of one secret draw; nothing about it is stored anywhere.

        Args:
            round_number: Which round it is for.
            attempt: Which try at it.
            purpose: What is drawn.

        """
        if self.seed is None:
            return Stream(secrets.token_bytes(_KEY_BYTES))
        return Stream(derive("secret", self.seed, round_number, attempt, purpose))
