"""stoker: training data, from files to batches, in one process.

A folder of images (torchvision's ImageFolder) or tars (WebDataset) becomes a stream of decoded,
augmented batches in an exact order::

    import stoker

    loader = stoker.Loader("train/", batch_size=256, seed=0,
                           image=[stoker.RandomResizedCrop(224),
                                  stoker.RandomHorizontalFlip(), stoker.Normalize()])
    for epoch in range(90):
        loader.set_epoch(epoch)
        for images, labels in loader:   # torch tensors, else NumPy arrays; no copy
            ...

With ``fields=`` the loop receives dicts::

    loader = stoker.Loader("train-{000..099}.tar", batch_size=256,
                           fields={"image": stoker.Image("jpg", [stoker.Resize((224, 224))]),
                                   "label": stoker.Int("cls"), "key": "__key__"})

:mod:`stoker.torch` has data sets for the workers of a ``torch.utils.data.DataLoader``.
"""

from __future__ import annotations

import importlib as _importlib
from collections.abc import Sequence as _Sequence
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from ._stoker import ORDER_VERSION, __version__
from ._stoker import Array as ArrayColumn
from ._stoker import Bytes as BytesColumn
from .cache import Cache
from .dataset import BadSample, Dataset, Member, Sample
from .engine import Engine, default_engine
from .errors import (
    ArgumentError,
    BudgetError,
    ChangedError,
    ClosedError,
    CorruptError,
    EmptyError,
    Error,
    ForkedError,
    FormatError,
    IOError,
    LimitError,
    MissingError,
    ScatteredError,
    StateError,
    TimeoutError,
    TruncatedError,
    UnsupportedError,
)
from .fields import (
    Array,
    Boxes,
    Bytes,
    Field,
    Float,
    Image,
    Int,
    Json,
    Label,
    Mask,
    MessagePack,
    Text,
)
from .files import (
    CopyEntry,
    CopyReport,
    FileInfo,
    Location,
    cat,
    cp,
    location,
    ls,
    mv,
    presign,
    rm,
    stat,
    sync,
)
from .indexing import IndexReport, index
from .loader import Loader
from .mix import Mix, Source
from .notices import StokerWarning
from .schedule import ScheduledSample, order_at
from .tensors import Ragged
from .token_files import Tokens
from .token_loader import TokenLoader
from .token_rows import FIM
from .transforms import (
    CenterCrop,
    ColorJitter,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    Transform,
)

if _TYPE_CHECKING:
    from .checkpoint_file import load, save
    from .checkpoint_random import RandomStates
    from .checkpoints import Checkpointer, CheckpointStep, Save
    from .comparison import Diff, Difference, diff
    from .packing import pack
    from .shard_writer import ShardWriter
    from .table_packing import BadRow, pack_table
    from .text_loader import TextLoader
    from .verification import Finding, Verify, verify

_Sequence.register(BytesColumn)

__all__ = [
    "FIM",
    "ORDER_VERSION",
    "ArgumentError",
    "Array",
    "ArrayColumn",
    "BadRow",
    "BadSample",
    "Boxes",
    "BudgetError",
    "Bytes",
    "BytesColumn",
    "Cache",
    "CenterCrop",
    "ChangedError",
    "CheckpointStep",
    "Checkpointer",
    "ClosedError",
    "ColorJitter",
    "CopyEntry",
    "CopyReport",
    "CorruptError",
    "Dataset",
    "Diff",
    "Difference",
    "EmptyError",
    "Engine",
    "Error",
    "Field",
    "FileInfo",
    "Finding",
    "Float",
    "ForkedError",
    "FormatError",
    "IOError",
    "Image",
    "IndexReport",
    "Int",
    "Json",
    "Label",
    "LimitError",
    "Loader",
    "Location",
    "Mask",
    "Member",
    "MessagePack",
    "MissingError",
    "Mix",
    "Normalize",
    "Ragged",
    "RandomStates",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "Sample",
    "Save",
    "ScatteredError",
    "ScheduledSample",
    "ShardWriter",
    "Source",
    "StateError",
    "StokerWarning",
    "Text",
    "TextLoader",
    "TimeoutError",
    "TokenLoader",
    "Tokens",
    "Transform",
    "TruncatedError",
    "UnsupportedError",
    "Verify",
    "__version__",
    "cat",
    "cp",
    "default_engine",
    "diff",
    "index",
    "load",
    "location",
    "ls",
    "mv",
    "order_at",
    "pack",
    "pack_table",
    "presign",
    "rm",
    "save",
    "stat",
    "sync",
    "verify",
]

# Modules that most programs do not use are imported when one of their names is first used.
_MODULES = {
    "RandomStates": "checkpoint_random",
    "Checkpointer": "checkpoints",
    "CheckpointStep": "checkpoints",
    "Save": "checkpoints",
    "load": "checkpoint_file",
    "save": "checkpoint_file",
    "Diff": "comparison",
    "Difference": "comparison",
    "diff": "comparison",
    "pack": "packing",
    "ShardWriter": "shard_writer",
    "BadRow": "table_packing",
    "pack_table": "table_packing",
    "TextLoader": "text_loader",
    "Finding": "verification",
    "Verify": "verification",
    "verify": "verification",
}


def __getattr__(name: str) -> _Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(_importlib.import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
