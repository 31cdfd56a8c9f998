"""One scan of one folder below FORGE_HOME/tools, and the cache of scans between two starts.

`scan_folder` takes a folder's name and gives a FolderScan: an entry, a diagnostic, or nothing. A scan knows the mark
(times, size, inode) of every file and folder it read, so it is not repeated while the marks stay. What is a tool has
its snapshot in the content store: the bytes that were hashed are the bytes that were stored.

The cache is FORGE_HOME/cache/registry, 0600, safe to delete: a header, then a line per folder with its name and JSON
of its marks, digest, files and manifest. A line counts while every mark is the same; later lines win. Any other line
is ignored, and so is the whole file when Forge itself was changed.

Threat: a forged line. It can name only what is in the content store under a digest that its files give; its manifest
is compared with the stored YAML before the tool is used (`Registry.snapshot`). It is JSON: reading it runs nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from golem_forge._version import __version__
from golem_forge.core.errors import error_name
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import display_name
from golem_forge.storage.content_store import ContentStore, FileMark, file_mark, unchanged
from golem_forge.storage.home import ForgeHome, read_private, write_private
from golem_forge.usertools.diagnostics import Diagnostic, DiagnosticCode, Unusable, name_problem
from golem_forge.usertools.folder import (
    FileFact,
    FolderFiles,
    ToolEntry,
    Validity,
    files_digest,
    find_entrypoint,
    try_folder,
    validity_since,
)
from golem_forge.usertools.manifest import MANIFEST_FILE, manifest_from_json, manifest_to_json
from golem_forge.usertools.manifest.reader import read_manifest

ScanResult = ToolEntry | Diagnostic | None
"""None means no tool and no error (a folder without `tool.yaml`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderScan:
    result: ScanResult
    paths: tuple[str, ...]
    marks: list[FileMark]
    validity: Validity

    @property
    def is_current(self) -> bool:
        return self.validity is Validity.WHILE_MARKED and unchanged(self.paths, self.marks)


def scan_folder(tools: str, name: str, store: ContentStore) -> FolderScan | None:
    """Scans a folder; None if there is no folder of that name. A link to a folder gets a diagnosis; anything else is
    ignored.
    """
    folder = f"{tools}/{name}"
    started = time.time_ns()
    try:
        status = os.lstat(folder)
        if stat.S_ISLNK(status.st_mode):
            if not os.path.isdir(folder):
                return None
            problem = _diagnostic(name, DiagnosticCode.SYMLINK, "the folder is a symbolic link")
            return _make_scan(folder, {"": file_mark(status)}, problem, Validity.WHILE_MARKED)
        if not stat.S_ISDIR(status.st_mode):
            return None
        os.lstat(f"{folder}/{MANIFEST_FILE}")
    except FileNotFoundError:
        if not os.path.lexists(folder):
            return None
        mark = file_mark(status)
        return _make_scan(folder, {"": mark}, None, validity_since((mark,), started))
    except OSError:
        pass  # what cannot be looked at cannot be read either, and that says why
    reading = try_folder(Path(folder))
    validity = reading.validity
    result: ScanResult
    try:
        if isinstance(reading.found, Unusable):
            raise reading.found
        result = _read_entry(Path(folder), name, reading.found, store)
    except Unusable as error:
        result = error.diagnostic_for(display_name(name))
    except Exception as error:  # one folder never hides another, whatever it makes a reader do; a full disk may empty
        why = (error.strerror if isinstance(error, OSError) else "") or error_name(error)
        what = f"its snapshot could not be kept or it could not be understood ({why})"
        result, validity = _diagnostic(name, DiagnosticCode.UNREADABLE, what), Validity.NOT
    return _make_scan(folder, reading.marks, result, validity)


def _diagnostic(folder: str, code: DiagnosticCode, message: str) -> Diagnostic:
    return Diagnostic(tool=display_name(folder), code=code, message=message)


def _read_entry(folder: Path, name: str, found: FolderFiles, store: ContentStore) -> ToolEntry | None:
    if MANIFEST_FILE not in found.files:
        if MANIFEST_FILE in found.folders:
            raise Unusable(DiagnosticCode.UNREADABLE, f"{MANIFEST_FILE}: is a directory")
        return None
    manifest = read_manifest(found.files[MANIFEST_FILE], folder=name)
    if problem := name_problem(name):
        raise Unusable(DiagnosticCode.NAME_INVALID, problem)
    find_entrypoint(manifest.entrypoint, found)
    store.put(found.files, executable=found.executable)
    return ToolEntry(name=name, folder=folder, manifest=manifest, digest=found.digest, files=found.facts)


def _make_scan(folder: str, marks: Mapping[str, FileMark], result: ScanResult, validity: Validity) -> FolderScan:
    paths = tuple(f"{folder}/{name}" if name else folder for name in marks)
    return FolderScan(result=result, paths=paths, marks=list(marks.values()), validity=validity)


_CACHE_FORMAT: Final = 1
_LARGEST_CACHE: Final = 128 << 20
_SPARE_LINES: Final = 200
"""Lines that no longer count are kept up to as many as those that do, and this many more."""


class RegistryCache:
    def __init__(self, home: ForgeHome) -> None:
        self._home = home
        self._path = home.path / "cache" / "registry"
        self._lines = 0
        """In the file; 0: there is none that could be added to."""

    def load(self) -> dict[str, str]:
        """Returns the cached texts by name, for `restore_scan`."""
        try:
            lines = read_private(self._path, _LARGEST_CACHE).decode().splitlines()
        except (OSError, ValueError):
            return {}
        if not lines or lines[0] != _cache_header():
            return {}
        self._lines = len(lines)
        return {name: rest for name, _, rest in (line.partition("\t") for line in lines[1:]) if rest}

    def add(self, scans: Mapping[str, FolderScan], fresh: Collection[str]) -> None:
        """Keeps what was read anew; `scans` is all there is, for when the file is written as a whole."""
        news = _cache_lines({name: scans[name] for name in fresh})
        if not news:
            return
        with contextlib.suppress(OSError):  # without it the next start is slower, and that is all
            if not self._lines or self._lines + len(news) > 2 * len(scans) + _SPARE_LINES:
                lines = [f"{_cache_header()}\n", *_cache_lines(scans)]
                write_private(self._home.ensure("cache") / "registry", "".join(lines).encode(), durable=False)
                self._lines = len(lines)
            else:
                handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
                with open(handle, "ab", buffering=0) as file:
                    file.write("".join(news).encode())
                self._lines += len(news)

    def remove(self) -> None:
        self._lines = 0
        self._path.unlink(missing_ok=True)


def restore_scan(tools: str, name: str, line: str, stored: Collection[str]) -> FolderScan | None:
    """The scan that the line records, if the folder still has every mark. `stored`: names of snapshots."""
    try:
        kept: dict[str, Any] = json.loads(line)
        digest: str = kept["digest"]
        marks = [(int(c), int(m), int(size), int(inode)) for _, c, m, size, inode in kept["marks"]]
        folder = f"{tools}/{name}"
        paths = tuple(f"{folder}/{mark[0]}" if mark[0] else folder for mark in kept["marks"])
        if paths[0] != folder or digest.removeprefix("sha256:") not in stored or not unchanged(paths, marks):
            return None
        files = tuple(FileFact(path, bool(may), int(size), sha256) for path, may, size, sha256 in kept["files"])
        if files_digest(files) != digest:
            return None
        manifest = manifest_from_json(kept["manifest"])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        return None
    if manifest.name != name:
        return None
    entry = ToolEntry(name=name, folder=Path(folder), manifest=manifest, digest=digest, files=files)
    return FolderScan(result=entry, paths=paths, marks=marks, validity=Validity.WHILE_MARKED)


def _cache_lines(scans: Mapping[str, FolderScan]) -> list[str]:
    return [line for name, scan in scans.items() if (line := _cache_line(name, scan))]


def _cache_line(name: str, scan: FolderScan) -> str:
    """Empty for what is not worth or not safe to keep."""
    entry = scan.result
    if not isinstance(entry, ToolEntry) or scan.validity is not Validity.WHILE_MARKED:
        return ""
    above = len(scan.paths[0]) + 1
    kept = {
        "digest": entry.digest,
        "marks": [(path[above:], *mark) for path, mark in zip(scan.paths, scan.marks, strict=True)],
        "files": [(fact.path, fact.executable, fact.size, fact.sha256) for fact in entry.files],
        "manifest": manifest_to_json(entry.manifest),
    }
    try:
        text = json.dumps(kept, separators=(",", ":"), allow_nan=False)
        same = manifest_from_json(json.loads(text)["manifest"]) == entry.manifest
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
    return f"{name}\t{text}\n" if same else ""


def _cache_header() -> str:
    """Names the format and the rules a manifest was read by: another Forge reads everything anew."""
    package = os.path.dirname(__file__)
    with os.scandir(package) as listing:
        rules = sorted(
            (each.name, (own := each.stat()).st_size, own.st_mtime_ns) for each in listing if each.name.endswith(".py")
        )
    return json.dumps([_CACHE_FORMAT, __version__, rules])
