"""Dropout of stacked clients: each client draws its own masks, from a key of its own.

`torch.func.vmap` draws for all clients of a stack from one generator, so that a client's masks would depend on who
else is stacked. Here a mask is a hash of the client's key, the step, and the place in the tensor: the same whoever
trains beside it, on every device.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

_WORD = 0xFFFFFFFF
_CHANNELS = {"dropout1d": 3, "dropout2d": 4, "dropout3d": 5}
"""Dropout of whole channels, and the dimensions of a batch for each."""

_patching = threading.Lock()


def keys_of(words: npt.NDArray[np.uint64], device: torch.device) -> Tensor:
    """Make keys of random words: two halves each, as whole numbers that a device can multiply."""
    halves = np.stack([words & np.uint64(_WORD), words >> np.uint64(32)], axis=-1).astype(np.int64)
    return torch.from_numpy(halves).to(device)


@contextmanager
def own_dropout(key: Tensor) -> Iterator[None]:
    """Let `torch.nn.functional` draw its dropout masks from a client's key, in this thread, meanwhile.

    It is put in the place of the functions themselves, because modules such as `nn.MultiheadAttention` call them by
    their names. Whatever else draws at random is left to `vmap`, which refuses it.

    Args:
        key: The two halves of a client's key for this step; under `vmap`, those of every client.

    """
    masks, thread = _Masks(key), threading.get_ident()
    patched = {"dropout": masks.dropout, "scaled_dot_product_attention": masks.attention}
    patched |= {name: masks.of_channels(name) for name in _CHANNELS}

    def in_this_thread(ours: Any, theirs: Any) -> Any:
        def chosen(*args: Any, **kwargs: Any) -> Any:
            return (ours if threading.get_ident() == thread else theirs)(*args, **kwargs)

        return chosen

    with _patching:
        before = {name: getattr(functional, name) for name in patched}
        masks.originals = before
        try:
            for name, ours in patched.items():
                setattr(functional, name, in_this_thread(ours, before[name]))
            yield
        finally:
            for name, theirs in before.items():
                setattr(functional, name, theirs)


class _Masks:
    """The masks of one step of one client, one after the other."""

    def __init__(self, key: Tensor) -> None:
        self._key = key
        self._drawn = 0
        self.originals: dict[str, Any] = {}

    def _kept(self, shape: torch.Size, p: float) -> Tensor:
        """Draw which of so many places are kept, each with a chance of 1 - p."""
        self._drawn += 1
        low, high = self._key[0], self._key[1]
        indices = torch.arange(math.prod(shape), device=self._key.device)
        drawn = _mixed(_mixed(indices ^ low) ^ _mixed(high ^ self._drawn))
        return (drawn >= int(p * (_WORD + 1))).view(shape)

    def dropout(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        """See `torch.nn.functional.dropout`."""
        if not training or p == 0.0:
            return input
        scale = 0.0 if p >= 1.0 else 1.0 / (1.0 - p)
        factors = self._kept(input.shape, p).to(input.dtype) * scale
        return input.mul_(factors) if inplace else input * factors

    def of_channels(self, name: str) -> Any:
        """Make the function that drops whole channels, such as `torch.nn.functional.dropout2d`."""

        def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
            if not training or p == 0.0:
                return input
            if input.dim() != _CHANNELS[name]:
                return self.originals[name](input, p, training, inplace)  # type: ignore[no-any-return]
            whole = input.new_ones(input.shape[:2] + (1,) * (input.dim() - 2))
            return input * self.dropout(whole, p)

        return dropout

    def attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """See `torch.nn.functional.scaled_dot_product_attention`, whose definition this is where it has dropout."""
        if dropout_p == 0.0 or enable_gqa:
            return self.originals["scaled_dot_product_attention"](  # type: ignore[no-any-return]
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        weights = query @ key.transpose(-2, -1) * (1.0 / math.sqrt(query.size(-1)) if scale is None else scale)
        if is_causal:
            past = torch.ones(query.size(-2), key.size(-2), dtype=torch.bool, device=query.device).tril()
            weights = weights.masked_fill(~past, -math.inf)
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            weights = weights.masked_fill(~attn_mask, -math.inf)
        elif attn_mask is not None:
            weights = weights + attn_mask
        return self.dropout(torch.softmax(weights, dim=-1), dropout_p) @ value


def _mixed(words: Tensor) -> Tensor:
    """Mix the bits of 32-bit words: the finalizer `lowbias32` of C. Wellons."""
    words = (words ^ (words >> 16)) & _WORD
    words = (words * 0x7FEB352D) & _WORD
    words = (words ^ (words >> 15)) & _WORD
    words = (words * 0x846CA68B) & _WORD
    return (words ^ (words >> 16)) & _WORD
