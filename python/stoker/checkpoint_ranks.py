"""Checkpoints of several ranks: what each rank writes, and how the ranks agree.

All ranks agree on a process group of their own, so that a save in the background never meets the
collectives of the training. One exchange of fixed size for each save collects what rank 0 needs for
the manifest, and one tells all ranks whether it is committed.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import secrets
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from .checkpoint_tree import Tensor
from .errors import Error, TimeoutError

__all__ = ["Ranks", "choose", "parts_of"]

_PART = 256  # at least struct stoker_checkpoint_part
_SAVE = 8 + 40  # step and save_id
_TEXT = 1024
_STORE_S = 5
NO_STEP = 2**64 - 1  # of a save that failed before its step was known


class RankError(Error):
    """A rank failed during a save, so the step was not committed."""

    name = "rank"


class Ranks:
    """The ranks of ``torch.distributed``, with a gloo group of their own."""

    def __init__(self, timeout: float) -> None:
        import torch.distributed as dist

        self.dist = dist
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        self.timeout = timeout
        self.group = self.new_group()
        self.saves = 0
        self.arrivals: _Arrivals | None = None
        nonce = self.share(secrets.token_bytes(8) if self.rank == 0 else b"", 8)
        self.nonce = nonce.hex()
        self.arrivals = _Arrivals.open(self.nonce, self.rank, self.count)

    def new_group(self) -> Any:
        """A process group of all ranks, for collectives of one thread; all ranks call it."""
        timeout = datetime.timedelta(seconds=self.timeout)
        return self.dist.new_group(backend="gloo", timeout=timeout, group_desc="stoker")

    @staticmethod
    def find(timeout: float) -> Ranks | None:
        """None in a process without ``torch.distributed``, or alone in it."""
        dist = sys.modules.get("torch.distributed")
        if dist is None or not dist.is_available() or not dist.is_initialized():
            return None
        return Ranks(timeout) if dist.get_world_size() > 1 else None

    def next_id(self) -> str:
        """The id of the next save: the same on all ranks, without asking."""
        self.saves += 1
        return f"{self.nonce}{self.saves:x}"

    def run(self, what: str, call: Callable[[], Any]) -> Any:
        """A collective; a rank that died or hangs is an error that says so."""
        try:
            return call()
        except RuntimeError as error:
            text = str(error).partition("\n")[0].partition(". This is typically")[0][:300]
            absent = self.arrivals.absent() if self.arrivals is not None else []
            names = ", ".join(map(str, absent[:20])) + (" ..." if len(absent) > 20 else "")
            who = f"rank {names}" if absent else "a rank"
            raise TimeoutError(
                f"{who} did not answer while the ranks {what}: {text}",
                f"rank {self.rank} of {self.count}",
                f"look at the output of the other ranks; the deadline is {self.timeout:g} s",
            ) from error

    def gather(self, data: bytes, size: int) -> list[bytes]:
        """The bytes of all ranks, on all ranks."""
        import torch

        own = torch.zeros(size, dtype=torch.uint8)
        if data:
            own[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        every = [torch.empty_like(own) for _ in range(self.count)]
        if self.arrivals is not None:
            self.arrivals.arrive()
        self.run("exchanged results", lambda: self.dist.all_gather(every, own, group=self.group))
        return [bytes(part.numpy()) for part in every]

    def share(self, data: bytes, size: int) -> bytes:
        """The bytes of rank 0, on all ranks."""
        return self.gather(data, size)[0]

    def agree(self, good: bool) -> bool:
        """Whether it is good on all ranks."""
        return all(part[0] for part in self.gather(bytes([good]), 1))

    def check(self, failure: BaseException | None) -> None:
        """Raises the failure of this rank, or on all other ranks an error that names the rank."""
        every = self.gather(_text_of(failure), _TEXT)
        if failure is not None:
            raise failure
        for rank, data in enumerate(every):
            said = _read_text(data)
            if said:
                raise RankError(
                    f"rank {rank} failed: {said}",
                    f"rank {self.rank} of {self.count}",
                    f"correct what the error of rank {rank} names, then try again",
                )

    def commit(
        self,
        step: int,
        save_id: str,
        part: bytes,
        digest: bytes,
        failure: BaseException | None,
        commit: Callable[[bytes], None],
    ) -> None:
        """Rank 0 commits if all ranks wrote this save. Raises on all ranks if one did not."""
        head = _PART + _SAVE + 32
        own = part.ljust(_PART, b"\0") + step.to_bytes(8, "little")
        own += save_id.encode().ljust(_SAVE - 8, b"\0") + digest
        every = self.gather(own + _text_of(failure), head + _TEXT)
        wrong = None
        for rank, data in enumerate(every):
            said = _read_text(data[head:])
            if said:
                wrong = wrong or f"rank {rank} failed: {said}"
            elif data[_PART : _PART + _SAVE] != every[0][_PART : _PART + _SAVE]:
                other, first = (
                    int.from_bytes(each[_PART : _PART + 8], "little") for each in (data, every[0])
                )
                wrong = wrong or (
                    f"rank {rank} saves step {other} while rank 0 saves step {first}"
                    if other != first
                    else f"rank {rank} is at another save of step {step} than rank 0"
                )
            elif data[_PART + _SAVE : head] != every[0][_PART + _SAVE : head]:
                wrong = wrong or f"rank {rank} has other tensors than rank 0"
        mine = b""
        if self.rank == 0 and wrong is None:
            try:
                commit(b"".join(data[: len(part)] for data in every))
            except BaseException as error:
                failure, mine = error, _text_of(error)
        said = _read_text(self.share(mine, _TEXT))
        wrong = wrong or (f"rank 0 could not commit: {said}" if said else None)
        if failure is not None:
            raise failure
        if wrong is not None:
            raise RankError(
                wrong,
                f"rank {self.rank} of {self.count}",
                "correct what the error of that rank names, then save again",
            )


class _Arrivals:
    """Which ranks came to the exchanges: a number of each rank in the store of torch.distributed.

    An exchange that failed says nothing about the rank that is missing; the numbers do.
    """

    def __init__(self, store: Any, rank: int, ranks: int) -> None:
        self._store, self._rank, self._ranks = store, rank, ranks
        self._number = 0

    @staticmethod
    def open(nonce: str, rank: int, ranks: int) -> _Arrivals | None:
        """None: this version of torch has no such store."""
        import torch.distributed as dist

        try:
            from torch.distributed.distributed_c10d import _get_default_store

            own = _get_default_store().clone()  # with a connection of its own
            own.set_timeout(datetime.timedelta(seconds=_STORE_S))
            store = dist.PrefixStore(f"stoker/{nonce}", own)
            store.set(str(rank), "0")
        except (ImportError, AttributeError, RuntimeError, NotImplementedError):
            return None
        return _Arrivals(store, rank, ranks)

    def arrive(self) -> None:
        """Before each exchange."""
        self._number += 1
        with contextlib.suppress(RuntimeError):  # the exchange will fail, too
            self._store.set(str(self._rank), str(self._number))

    def absent(self) -> list[int]:
        """The ranks that did not come to the last exchange. Waits a few seconds at most."""
        found: list[int] = []

        def ask() -> None:
            with contextlib.suppress(RuntimeError):
                names = [str(rank) for rank in range(self._ranks)]
                numbers = [int(number) for number in self._store.multi_get(names)]
                found.extend(r for r, number in enumerate(numbers) if number < self._number)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(2 * _STORE_S)
        return found


def _text_of(failure: BaseException | None) -> bytes:
    text = "" if failure is None else f"{type(failure).__name__}: {failure}"
    return text.encode(errors="replace")[: _TEXT - 1]


def _read_text(data: bytes) -> str:
    return data.rstrip(b"\0").decode(errors="replace")


def choose(tensors: Sequence[Tensor], local: set[str], rank: int, ranks: int) -> list[Tensor]:
    """The tensors that this rank writes: its own parts, and its share of what all ranks have."""
    loads = [0] * ranks
    mine = [tensor for tensor in tensors if tensor.name in local]
    both = [tensor for tensor in tensors if tensor.name not in local]
    for tensor in sorted(both, key=lambda tensor: (-_bytes(tensor), tensor.name)):
        least = loads.index(min(loads))
        loads[least] += _bytes(tensor) + 1
        if least == rank:
            mine.append(tensor)
    return mine


def _bytes(tensor: Tensor) -> int:
    size = getattr(tensor.owner, "nbytes", 0)
    return int(size)


def digest(tensors: Sequence[Tensor], local: set[str]) -> bytes:
    """Differs if the ranks do not have the same tensors, apart from their own parts."""
    lines = [f"{t.name} {t.dtype} {t.shape}" for t in tensors if t.name not in local]
    return hashlib.sha256("\n".join(sorted(lines)).encode()).digest()


# ---- parts of DTensors ----


def box_of(value: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Offsets and sizes of the part of a DTensor that this rank holds."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    sizes, offsets = compute_local_shape_and_global_offset(
        value.shape, value.device_mesh, value.placements
    )
    return tuple(offsets), tuple(sizes)


def is_writer(value: Any) -> bool:
    """Whether this rank is the first of those that hold the same part."""
    place = value.device_mesh.get_coordinate()
    return place is not None and all(
        at == 0 for at, kind in zip(place, value.placements, strict=True) if kind.is_replicate()
    )


def parts_of(name: str, names: dict[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    """The stored parts of a tensor: names with their offsets."""
    found = []
    for stored in names:
        head, at, tail = stored.rpartition("@")
        if at and head == name:
            found.append((stored, tuple(int(number) for number in tail.split(",") if number)))
    return found


def overlap(
    wanted: tuple[tuple[int, ...], tuple[int, ...]], part: tuple[tuple[int, ...], tuple[int, ...]]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Offsets and sizes of the box that two boxes share; None: they share none."""
    low = tuple(max(a, b) for a, b in zip(wanted[0], part[0], strict=True))
    high = tuple(
        min(a + n, b + m)
        for a, n, b, m in zip(wanted[0], wanted[1], part[0], part[1], strict=True)
    )
    if any(b <= a for a, b in zip(low, high, strict=True)):
        return None
    return low, tuple(b - a for a, b in zip(low, high, strict=True))
