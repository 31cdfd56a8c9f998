"""BuildCache: FORGE_HOME/cache/build, one directory per key, there only when it is finished.

A build gets a working directory of its own (`.work-…`, all that its walls can write); what it made is put beside a note
of ours and then renamed to its key, read-only. Two that want one key build it once: the second waits for the first, in
this process or another. Safe to delete at any time.

Threats: a half-made result (it has no name), a result that leads elsewhere (links are never followed when it is made
read-only), and a note that the build could have written (it lies outside of what the walls show).
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

from golem_forge.config.home import ForgeHome
from golem_forge.core.canonical import canonical, sha256_hex
from golem_forge.custom.building.waiting_lock import held
from golem_forge.custom.rooms import claimed, remove_forgotten, remove_tree

_FOLDER: Final = ("cache", "build")
_LOCKS: Final = ".locks"
_WORK: Final = ".work-"
_INNER: Final = "room"
_NOTE: Final = "made.json"
_OUT: Final = "out"
_LONGEST_NOTE: Final = 64 << 10
_FORGOTTEN_S: Final = 6 * 3600.0
"""Longer than any build: a working directory of that age was left by a Forge that was killed."""


def build_key(**facts: Any) -> str:
    """From everything that decides the result."""
    return sha256_hex(canonical({"v": 1, **facts}))


class BuildCache:
    def __init__(self, home: ForgeHome) -> None:
        self._home = home

    def made(self, key: str) -> Mapping[str, Any] | None:
        """The note of a finished build; None if there is none."""
        place = self._place(key)
        try:
            with open(place / _NOTE, "rb") as file:
                note = json.loads(file.read(_LONGEST_NOTE))
            whole = stat.S_ISDIR(os.lstat(place / _OUT).st_mode)
        except (OSError, ValueError):
            return None
        return note if whole and isinstance(note, dict) and note.get("key") == key else None

    def out(self, key: str) -> str:
        """The real directory of what was made."""
        return os.path.realpath(self._place(key) / _OUT)

    @contextlib.asynccontextmanager
    async def building(self, key: str) -> AsyncIterator[None]:
        """Nobody else builds this key meanwhile. Look again for a result once you are in."""
        # A file per first byte of a key: their number stays bounded, and none ever has to be removed.
        async with held(self._home.ensure(*_FOLDER, _LOCKS) / key[:2]):
            yield

    @contextlib.asynccontextmanager
    async def work(self) -> AsyncIterator[Path]:
        """A new directory, gone afterwards; its `out` may have become a result by then."""
        folder = self._real_folder()
        remove_forgotten(folder, after_s=_FORGOTTEN_S, prefix=_WORK)
        made = folder / f"{_WORK}{secrets.token_hex(8)}"
        made.mkdir(mode=0o700)
        with claimed(made):
            inner = made / _INNER  # walls lock it for themselves
            inner.mkdir(mode=0o700)
            try:
                yield inner
            finally:
                if any(inner.iterdir()):
                    import asyncio

                    await asyncio.shield(asyncio.to_thread(remove_tree, made))
                else:
                    remove_tree(made)

    def keep(self, key: str, work: Path, **note: Any) -> None:
        """`work/out` becomes the result of this key; call it inside `building`."""
        folder = self._home.ensure(*_FOLDER)
        finished = folder / f"{_WORK}{secrets.token_hex(8)}"
        finished.mkdir(mode=0o700)
        try:
            out = work / _OUT
            out.mkdir(mode=0o700, exist_ok=True)
            os.rename(out, finished / _OUT)
            (finished / _NOTE).write_text(json.dumps({"key": key, **note}), encoding="utf-8")
            _make_read_only(finished)
            place = self._place(key)
            if os.path.lexists(place):  # no result, or `made` would have found it
                remove_tree(place)
            os.rename(finished, place)
        finally:
            if os.path.lexists(finished):
                remove_tree(finished)

    def _real_folder(self) -> Path:
        return Path(os.path.realpath(self._home.ensure(*_FOLDER)))

    def _place(self, key: str) -> Path:
        return self._home.path.joinpath(*_FOLDER, key)


def _make_read_only(folder: Path) -> None:
    """Everything below it; the folder itself stays its owner's to rename. Links are left alone: what they lead to (an
    interpreter of the system) is not ours."""
    for place, names, files in os.walk(folder, topdown=False):
        for name in (*files, *names):
            path = os.path.join(place, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISDIR(mode):
                os.chmod(path, 0o500)
            elif stat.S_ISREG(mode):
                os.chmod(path, 0o500 if mode & stat.S_IXUSR else 0o400)
