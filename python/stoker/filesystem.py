"""Old path of :mod:`stoker.fsspec_filesystem`, for pickles and configurations that name it."""

from .fsspec_filesystem import StokerFileSystem as StokerFileSystem
