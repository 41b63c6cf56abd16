"""Fill in the middle by characters: splits texts before they are tokenised."""

from __future__ import annotations

import hashlib
import struct
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from . import _stoker
from .errors import ArgumentError
from .token_rows import FIM, row_options

__all__ = ["Middle"]

WHERE = "TextLoader fim"


class Middle:
    """Makes ids from texts, with a share of the documents as prefix, suffix and middle.

    The result depends only on (seed, epoch, document): each fragment of a document draws four
    numbers of 64 bits from BLAKE2b.
    """

    def __init__(self, fim: FIM, encode: Any, seed: int, room: int) -> None:
        # The code of fill in the middle by tokens checks tokens and rates.
        split = fim.split_sample
        if split is not None and not (isinstance(split, str) and split):
            raise ArgumentError(
                f"split_sample {split!r} is not text", WHERE, "for level='characters' pass its text"
            )
        if not isinstance(fim.no_prefix, (str, tuple)) or (
            fim.no_prefix and not isinstance(fim.no_prefix, str)
        ):
            raise ArgumentError(
                f"no_prefix {fim.no_prefix!r} is not text",
                WHERE,
                "for level='characters' pass a text",
            )
        self._split: tuple[int, str] | None = None
        if split is not None:
            self._split = encode.id_of(split), split
        checked = fim._replace(
            level="tokens", no_prefix=(), split_sample=self._split[0] if self._split else None
        )
        row_options(
            WHERE,
            rows="packed",
            labels=int(_stoker.LABELS_SHIFTED),
            dtype="int64",
            pad=0,
            eod=None,
            append_eod=False,
            mask_ends=None,
            positions=None,
            fim=checked,
        )
        self._fim, self._seed, self._room = fim, seed, room

    def __call__(
        self,
        texts: Sequence[str],
        numbers: Sequence[int],
        epoch: int,
        ids: Callable[[list[str]], list[array[int]]],
    ) -> list[array[int]]:
        made = [self._document(*each, epoch) for each in zip(texts, numbers, strict=True)]
        found = _joined(made, ids)
        if self._fim.whole and self._room > 0:
            # A row would cut these documents: they stay unchanged.
            cut = [i for i, each in enumerate(found) if len(each) > self._room and len(made[i]) > 1]
            again = ids([texts[i] for i in cut]) if cut else []
            for i, each in zip(cut, again, strict=True):
                found[i] = each
        return found

    def _document(self, text: str, number: int, epoch: int) -> list[int | str]:
        fim = self._fim
        fragments = text.split(self._split[1]) if self._split else [text]
        if len(fragments) == 1:
            return self._fragment(text, fim.rate, (number, epoch, 0))
        if self._draws(number, epoch, 0)[0] >= fim.rate:
            return [text]
        drawn = [
            i
            for i, fragment in enumerate(fragments)
            if self._is_drawn(fragment, fim.fragment_rate, (number, epoch, i + 1))
        ]
        surplus = len(drawn) - fim.fragments_max
        if surplus > 0:  # splits only some consecutive ones, from a random one on
            first = int(self._draws(number, epoch, 0)[3] * (surplus + 1))
            drawn = drawn[first : first + fim.fragments_max]
        if not drawn:
            return [text]
        pieces: list[int | str] = []
        for i, fragment in enumerate(fragments):
            if i > 0 and self._split:
                pieces.append(self._split[0])
            place = (number, epoch, i + 1)
            pieces += self._cut(fragment, place) if i in drawn else [fragment]
        return pieces

    def _fragment(self, text: str, rate: float, place: tuple[int, int, int]) -> list[int | str]:
        return self._cut(text, place) if self._is_drawn(text, rate, place) else [text]

    def _is_drawn(self, text: str, rate: float, place: tuple[int, int, int]) -> bool:
        prefix = str(self._fim.no_prefix or "")
        excluded = bool(prefix) and text.startswith(prefix)
        return bool(text) and not excluded and self._draws(*place)[0] < rate

    def _cut(self, text: str, place: tuple[int, int, int]) -> list[int | str]:
        _, spm, *cuts = self._draws(*place)
        low, high = sorted(int(cut * (len(text) + 1)) for cut in cuts)
        prefix, middle, suffix = text[:low], text[low:high], text[high:]
        fim = self._fim
        if spm < fim.spm_rate:
            return [fim.prefix, fim.suffix, suffix, fim.middle, prefix, middle]
        return [fim.prefix, prefix, fim.suffix, suffix, fim.middle, middle]

    def _draws(self, number: int, epoch: int, fragment: int) -> tuple[float, float, float, float]:
        """Numbers in [0, 1), of 53 bits: the choice, SPM, and two splits."""
        key = struct.pack("<4Q", self._seed, epoch, number, fragment)
        drawn = struct.unpack("<4Q", hashlib.blake2b(key, digest_size=32).digest())
        a, b, c, d = ((each >> 11) * 2.0**-53 for each in drawn)
        return a, b, c, d


def _joined(
    documents: Sequence[Sequence[int | str]], ids: Callable[[list[str]], list[array[int]]]
) -> list[array[int]]:
    """Tokenises all texts in one call, and returns the ids in their places."""
    texts = [piece for pieces in documents for piece in pieces if isinstance(piece, str) and piece]
    made = iter(ids(texts))
    found = []
    for pieces in documents:
        document = array("i")
        for piece in pieces:
            if isinstance(piece, int):
                document.append(piece)
            elif piece:
                document.extend(next(made))
        found.append(document)
    return found
