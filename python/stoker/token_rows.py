"""Rows of tokens: options, fields of a batch, and fill in the middle by tokens."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from . import _stoker
from ._options import count, word
from .errors import ArgumentError
from .tensors import Ragged
from .token_files import dtype_name

__all__ = ["FIM", "POSITIONS", "Fields", "field_values", "fields_of", "row_options"]

ROWS = {
    "windows": _stoker.ROWS_WINDOWS,
    "packed": _stoker.ROWS_PACKED,
    "documents": _stoker.ROWS_DOCUMENTS,
    "padded": _stoker.ROWS_PADDED,
}
POSITIONS = {
    "none": _stoker.POSITIONS_NONE,
    "reset": _stoker.POSITIONS_RESET,
    "row": _stoker.POSITIONS_ROW,
}
LABELS = {
    _stoker.LABELS_NONE: False,
    _stoker.LABELS_SHIFTED: True,
    _stoker.LABELS_UNSHIFTED: "model",
}
"""Labels in the state of a TextLoader."""
DTYPES = {"int64": _stoker.INT64, "int32": _stoker.INT32}


class FIM(NamedTuple):
    """Fill in the middle (Bavarian et al. 2022): splits a share of the documents at two random
    places into prefix, middle and suffix, and reorders them as prefix, suffix, middle (PSM) or
    suffix, prefix and middle (SPM), with sentinel tokens before the parts.

    The choice and the splits depend only on (seed, epoch, sample). Options have the names of
    Megatron's ``GPTFIMDataset`` (``fim_rate`` ...); :class:`TextLoader` also accepts names of
    tokens.
    """

    prefix: int | str
    suffix: int | str
    middle: int | str
    rate: float = 0.5
    """Share of documents; of their pieces, if rows cut them."""
    spm_rate: float = 0.5
    """Share of those that begin with the suffix."""
    split_sample: int | str | None = None
    """A token: in the documents that ``rate`` selects, each fragment between two such tokens (files
    of a repository) is split by itself."""
    fragment_rate: float = 0.5
    """Share of such fragments."""
    fragments_max: int = 4
    """Most fragments of a document that are split: rows reserve space for their sentinels."""
    no_prefix: Sequence[int] | str = ()
    """Tokens: fragments that begin with them are not split."""
    whole: bool = False
    """Split only documents that no row cuts (Code Llama's rule)."""
    level: str = "tokens"
    """Positions of splits: between ``"tokens"``, or (only :class:`TextLoader`) ``"characters"``:
    then complete documents are split, each part is tokenised alone, and rows are cut afterwards."""


def _places(rows: str, positions: str | None) -> str:
    return positions if positions is not None else "reset" if rows == "packed" else "none"


def row_options(
    where: str,
    *,
    rows: str,
    labels: int,
    dtype: Any,
    pad: int,
    eod: int | None,
    append_eod: bool,
    mask_ends: bool | None,
    positions: str | None,
    fim: FIM | None,
) -> dict[str, Any]:
    """Checks the options of rows, and converts them for the extension. labels: see Fields."""
    ends = 0
    if mask_ends is not None:
        ends = _stoker.BOUNDARY_MASKED if mask_ends else _stoker.BOUNDARY_NEXT
    return {
        "rows": word(rows, ROWS, f"{where} rows"),
        "labels": labels,
        "dtype": word(dtype_name(dtype), DTYPES, f"{where} dtype"),
        "pad": count(pad, f"{where} pad", high=2**31 - 1),
        "has_eod": int(eod is not None),
        "append_eod": int(bool(append_eod)),
        "eod": count(eod, f"{where} eod", high=2**31 - 1),
        "boundary_labels": ends,
        "positions": word(_places(rows, positions), POSITIONS, f"{where} positions"),
        **_fim_options(fim, where),
    }


def _fim_options(fim: FIM | None, where: str) -> dict[str, Any]:
    if fim is None:
        return {}
    if not isinstance(fim, FIM):
        raise ArgumentError(
            f"fim {fim!r} is not a FIM", where, "pass a stoker.FIM(prefix, suffix, middle)"
        )
    if fim.level not in ("tokens", "characters"):
        raise ArgumentError(
            f"unknown fim level {fim.level!r}", where, "pass 'tokens' or 'characters'"
        )
    if fim.level == "characters":
        raise ArgumentError("fim with level='characters' needs text", where, "use a TextLoader")
    options: dict[str, Any] = {
        f"fim_{name}": count(getattr(fim, name), f"{where} fim {name}", high=2**31 - 1)
        for name in ("prefix", "suffix", "middle")
    }
    for name in ("rate", "spm_rate"):
        options[f"fim_{name}"] = _share(fim, name, where)
    # Only options that are set: so the digest of options without them does not change.
    if fim.split_sample is not None:
        options["has_fim_split"] = 1
        options["fim_split"] = count(fim.split_sample, f"{where} fim split_sample", high=2**31 - 1)
        options["fim_fragment_rate"] = _share(fim, "fragment_rate", where)
        options["fim_fragments_max"] = count(
            fim.fragments_max, f"{where} fim fragments_max", low=1, high=2**24
        )
    if fim.no_prefix:
        if isinstance(fim.no_prefix, str):
            raise ArgumentError(
                f"fim no_prefix {fim.no_prefix!r} is not a list of tokens", where, "pass token ids"
            )
        ids = [count(each, f"{where} fim no_prefix", high=2**31 - 1) for each in fim.no_prefix]
        options["fim_no_prefix"] = array("i", ids).tobytes()
    if fim.whole:
        options["fim_whole"] = 1
    return options


def _share(fim: FIM, name: str, where: str) -> float:
    value = getattr(fim, name)
    if not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ArgumentError(
            f"fim {name} {value!r} is not a share", where, "pass a number from 0 to 1"
        )
    return float(value)


class Fields(NamedTuple):
    """The fields of a batch."""

    names: tuple[str, ...] | None
    """None: the loop receives tuples."""
    count: int
    bounds: int
    """Index of cu_seqlens; -1: none."""
    labels: int
    """The meaning of the labels, as the extension numbers it."""
    flash: bool
    """cu_seqlens is delivered as the arguments of Transformers' flash attention."""


LABEL_WORDS = {False: "none", True: "by the name", "shifted": "shifted", "model": "model"}


def fields_of(
    names: Sequence[str] | None, rows: str, labels: bool | str, positions: str | None, flash: bool
) -> Fields:
    """The names of the fields, and what the labels are: a field with Hugging Face's name ``labels``
    has Hugging Face's meaning (the model shifts), others are shifted."""
    if not isinstance(labels, (bool, str)) or labels not in LABEL_WORDS:
        raise ArgumentError(
            f"unknown value {labels!r}", "labels", "pass True, False, 'model' or 'shifted'"
        )
    places, bounds = _places(rows, positions), -1
    usual = ["input_ids"]
    usual += [] if labels is False else ["targets" if labels == "shifted" else "labels"]
    usual += ["position_ids"] if places != "none" else []
    if rows == "packed" or places == "reset":
        bounds = len(usual)
        usual.append("cu_seqlens")
    if flash and bounds < 0:
        raise ArgumentError(
            "flash_attention needs the starts of documents",
            "flash_attention",
            "use rows='packed', or positions='reset'",
        )
    named = len(usual) - bool(flash)
    if names is not None and (isinstance(names, str) or len(names) != named):
        raise ArgumentError(
            f"names {names!r} do not fit the fields",
            "names",
            f"pass {named}: one each for {', '.join(usual[:named])}",
        )
    used = tuple(usual if names is None else [*names, *usual[named:]])
    if names is None and bounds < 0 and len(usual) <= 2:
        used = ()
    return Fields(used or None, len(usual), bounds, _label_kind(labels, used), bool(flash))


def _label_kind(labels: bool | str, names: tuple[str, ...]) -> int:
    if labels is False:
        return int(_stoker.LABELS_NONE)
    is_named = len(names) > 1 and names[1] == "labels"
    if labels == "shifted" and is_named:
        raise ArgumentError(
            "labels='shifted' with a field called 'labels'",
            "names",
            "call it 'targets' or 'shift_labels': models of Transformers shift 'labels' themselves",
        )
    is_unshifted = labels == "model" or (labels is True and is_named)
    return int(_stoker.LABELS_UNSHIFTED if is_unshifted else _stoker.LABELS_SHIFTED)


def field_values(
    batch: _stoker.Batch, convert: Callable[[Any], Any], rows: str, fields: Fields
) -> tuple[Any, ...] | dict[str, Any]:
    """The fields of a batch, converted; see :func:`fields_of`. A dict if they have names."""
    values: list[Any] = []
    for field in range(fields.count):
        array = batch.array(field)
        if rows == "documents":
            values.append(Ragged(*(None if part is None else convert(part) for part in array)))
        else:
            values.append(convert(array[0] if field == fields.bounds else array))
    if fields.names is None:
        return tuple(values)
    named = dict(zip(fields.names, values, strict=True))
    if fields.flash:
        starts = named.pop(fields.names[fields.bounds])
        longest = _longest(batch.array(fields.bounds)[0])
        named |= {f"cu_seq_lens_{name}": starts for name in "qk"}
        named |= {f"max_length_{name}": longest for name in "qk"}
    return named


def _longest(starts: Any) -> int:
    """The largest difference of two neighbours."""
    bounds = memoryview(starts).tolist()
    return max((end - first for first, end in pairwise(bounds)), default=0)
