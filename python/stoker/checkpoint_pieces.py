"""Copies tensors of torch into the memory of a writer, piece by piece, from any device.

The bytes of a tensor that is not in C order in CPU memory, such as one of a GPU, go to the blocks
of the writer directly. So a save needs no memory of the host besides that of its writer.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from typing import Any

__all__ = ["Pieces", "Pins"]


class Pieces:
    """The tensors of a save, of which pieces are copied in their order."""

    def __init__(self, owners: list[Any], pins: Pins | None) -> None:
        self._owners, self._pins = owners, pins
        self._index: int | None = None
        self._flat: Any = None

    def fill(
        self, index: int, offset: int, size: int, address: int, block: int, block_size: int
    ) -> None:
        """Copies bytes of a tensor to an address."""
        import torch

        if self._index != index:
            self._flat = None  # first, so that only one tensor is made contiguous at a time
            tensor = self._owners[index].resolve_conj().resolve_neg()
            self._flat = tensor.contiguous().reshape(-1).view(torch.uint8)
            self._index = index
        if self._pins is not None and self._flat.is_cuda:
            self._pins.add(block, block_size)
        memory = (ctypes.c_char * size).from_address(address)
        target = torch.frombuffer(memory, dtype=torch.uint8)
        target.copy_(self._flat[offset : offset + size])


class Pins:
    """Blocks of memory that are registered with CUDA, so that copies have the full rate."""

    def __init__(self) -> None:
        self._blocks: set[int] = set()

    def add(self, address: int, size: int) -> None:
        """Registers a block once. Without success the copies are slower, and correct."""
        if address in self._blocks:
            return
        import torch

        self._blocks.add(address)
        with contextlib.suppress(RuntimeError):
            torch.cuda.check_error(torch.cuda.cudart().cudaHostRegister(address, size, 0))

    def close(self) -> None:
        """Before the memory is freed."""
        torch = sys.modules.get("torch")
        for address in self._blocks:
            if torch is not None:
                with contextlib.suppress(RuntimeError):
                    torch.cuda.check_error(torch.cuda.cudart().cudaHostUnregister(address))
        self._blocks.clear()
