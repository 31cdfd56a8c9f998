"""The registry's memory between two starts: FORGE_HOME/cache/registry, 0600, safe to delete.

A line per folder: its name, then JSON of the marks it had, the digest and facts of its files, and its manifest. A line
counts only while every mark is the same; later lines win, so a change is one line at the end. Anything that is not
such a line is as if it were not there, and so is all of it when Forge itself was changed.

Threat: a forged line. It can name only what is in the content store under a digest that its facts give; its manifest
is held against the stored YAML before the tool is used (`Registry.snapshot`). It is JSON and no pickle: reading it
runs nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from golem_forge._version import __version__
from golem_forge.config.home import ForgeHome
from golem_forge.custom.entry import Entry, FileFact
from golem_forge.custom.manifest.as_json import manifest_from_json, manifest_to_json
from golem_forge.custom.registry.folder import Lasts, digest_of
from golem_forge.custom.registry.scan import Look, unchanged

_FORMAT: Final = 1
_LARGEST: Final = 128 << 20
_SPARE: Final = 200
"""Lines that no longer count are kept up to as many as those that do, and this many more."""


class RegistryCache:
    def __init__(self, home: ForgeHome) -> None:
        self._home = home
        self._lines = 0
        """In the file; 0: there is none that could be added to."""

    def load(self) -> dict[str, str]:
        """Name → what `recall` takes."""
        lines = _text(self._home.path / "cache" / "registry").splitlines()
        if not lines or lines[0] != _head():
            return {}
        self._lines = len(lines)
        return {name: rest for name, _, rest in (line.partition("\t") for line in lines[1:]) if rest}

    def add(self, looks: Mapping[str, Look], fresh: Collection[str]) -> None:
        """Keeps what was read anew; `looks` is all there is, for when the file is written as a whole."""
        news = [line for name in fresh if (line := _line(name, looks[name]))]
        if not news:
            return
        with contextlib.suppress(OSError):  # without it the next start is slower, and that is all
            if not self._lines or self._lines + len(news) > 2 * len(looks) + _SPARE:
                self._write_whole([line for name, look in looks.items() if (line := _line(name, look))])
            else:
                _append(self._home.path / "cache" / "registry", news)
                self._lines += len(news)

    def remove(self) -> None:
        self._lines = 0
        (self._home.path / "cache" / "registry").unlink(missing_ok=True)

    def _write_whole(self, lines: list[str]) -> None:
        folder = self._home.ensure("cache")
        made = folder / f".registry-{os.urandom(8).hex()}"
        handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with open(handle, "w", encoding="utf-8", newline="\n") as file:
                file.writelines((f"{_head()}\n", *lines))
            os.replace(made, folder / "registry")
        except BaseException:
            os.unlink(made)
            raise
        self._lines = len(lines) + 1


def recall(tools: str, name: str, line: str, stored: Collection[str]) -> Look | None:
    """The look the line tells of, if the folder still has every mark; `stored`: names of snapshots that are there."""
    try:
        kept: dict[str, Any] = json.loads(line)
        digest: str = kept["digest"]
        marks = [(int(c), int(m), int(size), int(inode)) for _, c, m, size, inode in kept["marks"]]
        folder = f"{tools}/{name}"
        paths = tuple(f"{folder}/{mark[0]}" if mark[0] else folder for mark in kept["marks"])
        if paths[0] != folder or digest.removeprefix("sha256:") not in stored or not unchanged(paths, marks):
            return None
        files = tuple(FileFact(path, bool(may), int(size), sha256) for path, may, size, sha256 in kept["files"])
        if digest_of(files) != digest:
            return None
        manifest = manifest_from_json(kept["manifest"])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        return None
    if manifest.name != name:
        return None
    entry = Entry(name=name, folder=Path(folder), manifest=manifest, digest=digest, files=files)
    return Look(outcome=entry, paths=paths, marks=marks, lasts=Lasts.WHILE_MARKED)


def _line(name: str, look: Look) -> str:
    """Empty for what is not worth or not safe to keep."""
    entry = look.outcome
    if not isinstance(entry, Entry) or look.lasts is not Lasts.WHILE_MARKED:
        return ""
    above = len(look.paths[0]) + 1
    kept = {
        "digest": entry.digest,
        "marks": [(path[above:], *mark) for path, mark in zip(look.paths, look.marks, strict=True)],
        "files": [(fact.path, fact.executable, fact.size, fact.sha256) for fact in entry.files],
        "manifest": manifest_to_json(entry.manifest),
    }
    try:
        text = json.dumps(kept, separators=(",", ":"), allow_nan=False)
        same = manifest_from_json(json.loads(text)["manifest"]) == entry.manifest
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
    return f"{name}\t{text}\n" if same else ""


def _head() -> str:
    """Names the format and the rules a manifest was read by: another Forge reads everything anew."""
    package = os.path.dirname(__file__)
    with os.scandir(package) as listing:
        rules = sorted((each.name, (own := each.stat()).st_size, own.st_mtime_ns) for each in listing if _is_rule(each))
    return json.dumps([_FORMAT, __version__, rules])


def _is_rule(file: os.DirEntry[str]) -> bool:
    return file.name.endswith(".py")


def _text(path: Path) -> str:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
                return ""
            return file.read(_LARGEST).decode("utf-8")
    except (OSError, ValueError):
        return ""


def _append(path: Path, lines: Iterable[str]) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(handle, "ab", buffering=0) as file:
        file.write("".join(lines).encode())
