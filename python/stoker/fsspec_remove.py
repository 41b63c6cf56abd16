"""Removes files and folders of fsspec's URLs: a part of :func:`stoker.rm`."""

from __future__ import annotations

import errno
import os
import stat as stat_module
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from . import _stoker, fsspec_source
from .errors import LimitError
from .fsspec_copy import (
    _DEPTH_MAX,
    _HIDDEN,
    _PART,
    _entries,
    _error,
    _Item,
    _Job,
    _join,
)

__all__ = ["remove"]


def remove(
    engine: _stoker.Engine,
    paths: Sequence[bytes],
    recursive: bool,
    unfinished_age_s: int | None,
    progress: Callable[[dict[str, Any]], object],
    dry_run: bool = False,
) -> None:
    """unfinished_age_s: removes only hidden files of killed copies that are at least so old."""
    names = [os.fsdecode(path) for path in paths]
    _Remove(engine, names, recursive, unfinished_age_s, dry_run).run(progress)


class _Remove(_Job):
    def __init__(
        self, engine: _stoker.Engine, names: Sequence[str], recursive: bool, age_s: int | None,
        dry_run: bool,
    ) -> None:
        super().__init__(engine, fsspec_source.THREADS)
        self.names, self.recursive, self.age_s = names, recursive, age_s
        self.dry_run = dry_run
        self.folders: list[str] = []  # parents before their children

    def _subject(self) -> str:
        return self.names[0]

    def plan(self, client: fsspec_source.Client) -> None:
        for alias in self.names:
            system, path = self.writable(client, alias)
            if self._is_link(system, path, alias):
                if alias.endswith("/"):
                    raise _error(errno.ENOTDIR, "this is a symbolic link, not a folder", alias,
                                 "remove the link by its name without the final '/'")
                if self.age_s is None:
                    self._put(alias, True)
                continue
            there = self.info(system, path, alias)
            if there is None:
                raise _error(errno.ENOENT, "no file has this name", alias,
                               "list the folder with stoker.ls")
            if there["type"] != "directory":
                self._put(alias)
            elif not self.recursive and self.age_s is None:
                raise _error(errno.EISDIR, "this is a folder", alias,
                               "remove it with recursive=True")
            else:
                self._plan_folder(client, alias, 0)

    def _is_link(self, system: Any, path: str, alias: str) -> bool:
        """True for a symbolic link, also to a folder or to nothing: its target is never removed."""
        lstat = getattr(getattr(system, "ftp", None), "lstat", None)
        with self.step(alias):
            if lstat is not None:  # paramiko
                with suppress(FileNotFoundError):
                    return stat_module.S_ISLNK(lstat(path.rstrip("/") or "/").st_mode or 0)
                return False
            with suppress(FileNotFoundError, NotADirectoryError):
                entry = system.info(path)
                return entry.get("type") == "link" or bool(entry.get("islink"))
        return False

    def _put(self, alias: str, link: bool = False) -> None:
        self.count(files=1)
        self.put(_Item(b"", alias, link=link))

    def _plan_folder(self, client: fsspec_source.Client, alias: str, depth: int) -> None:
        """Plans everything in a folder. Links are removed, and never followed."""
        system, path = self.system(client, alias)
        if depth > _DEPTH_MAX:
            raise LimitError("folders are nested too deep", repr(alias),
                             f"remove folders of at most {_DEPTH_MAX} levels")
        if self._is_link(system, path, alias):  # another process replaced the folder by a link
            return self._put(alias, True)
        self.folders.append(alias)
        with self.step(alias):
            entries = _entries(system, path)
        for name, entry in entries:
            child = _join(alias, name)
            if entry.get("type") == "directory":
                self._plan_folder(client, child, depth + 1)
            elif self.age_s is None or self._is_unfinished(name, entry):
                self._put(child, entry.get("type") == "link")

    def _is_unfinished(self, name: str, entry: dict[str, Any]) -> bool:
        modified_ns = fsspec_source.mtime_ns(entry)
        return (name.startswith(_HIDDEN) and name.endswith(_PART) and modified_ns != 0
                and time.time() - modified_ns / 1e9 >= (self.age_s or 0))

    def do(self, client: fsspec_source.Client, item: _Item) -> None:
        if self.dry_run:
            self.note("would remove", item.to)
            self.count(files_removed=1)
            return
        system, path = self.system(client, item.to)
        # paramiko's rm_file would follow a link to a folder, and remove the folder.
        unlink = getattr(getattr(system, "ftp", None), "remove", None) if item.link else None
        with self.step(item.to):
            (unlink or system.rm_file)(path)
        self.count(files_removed=1)

    def again(self, client: fsspec_source.Client, item: _Item) -> None:
        try:
            self.do(client, item)
        except FileNotFoundError:  # it was removed, only the response was lost
            self.count(files_removed=1)

    def finish(self, client: fsspec_source.Client) -> None:
        for alias in reversed(self.folders if self.age_s is None and not self.dry_run else []):
            system, path = self.system(client, alias)
            # Stores remove folders with their contents; the root stays.
            if path.strip("/"):
                with self.step(alias), suppress(FileNotFoundError, NotImplementedError):
                    system.rmdir(path)
