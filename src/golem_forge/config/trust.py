"""Program trust: one record per program root, holding what its owner read and agreed to, byte for byte.

The digest covers forge.yaml, everything in `.forge/` and whatever `extra` adds; any changed byte, new file or moved
link ends the trust until it is given again. The record keeps the text, so that the change can be shown as a diff.

Threat: the files come from strangers. Links are recorded as links and never followed, and a tree too large to be read
by a person is never trusted.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from golem_forge.config.program import PROGRAM_FILE
from golem_forge.core.changes import file_diff
from golem_forge.core.errors import ConfigError
from golem_forge.core.json import digest
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.storage.home import JSON_FILE_ERRORS, ForgeHome, file_stamp, read_json, target_stamp, write_private

MAX_FILES: Final = 500
MAX_FILE_BYTES: Final = 1 << 20
MAX_TOTAL_BYTES: Final = 8 << 20
_MAX_RECORD_BYTES: Final = 64 << 20
"""JSON writes one byte of a text as six at most."""
_MAX_DEPTH: Final = 16
_KINDS: Final = {"text": "a text", "binary": "binary", "link": "a link", "other": "no file"}

ExtraFiles = Callable[[Path], Iterable[tuple[str, bytes]]]
"""(root) → further (name, content) pairs that the trust covers, e.g. worker front matter and tool modules."""


@dataclass(frozen=True, slots=True)
class TrustSnapshot:
    """The files to be trusted: shown to the person first, then trusted exactly as shown."""

    digest: str
    files: dict[str, str]
    """Name → text. A link's text is `link to <target>`, a binary file's names its size and hash."""
    kinds: dict[str, str]
    """Name → `text`, `binary`, `link` or `other`: a text may say of itself what is said of a link."""


class TrustStore:
    def __init__(self, home: ForgeHome, extra: ExtraFiles | None = None) -> None:
        self._home = home
        self._extra = extra
        self._known: dict[Path, tuple[list[object], bool]] = {}

    def trusted(self, root: Path) -> bool:
        """Whether trust was given for the present content. What cannot be read is not trusted.

        Asked again and again while a session runs, so an answer holds as long as every stamp stays the same.
        """
        root = _real(root)
        try:
            stamps, settled = self._stamps(root)
        except (ConfigError, OSError):
            return False
        known = self._known.get(root)
        if known is not None and known[0] == stamps:
            return known[1]
        answer = self._holds(root)
        if settled:
            self._known[root] = (stamps, answer)
        return answer

    def trusted_with(self, root: Path, read: Mapping[str, bytes]) -> bool:
        """Whether the present content is trusted and `read` (name → bytes, each of a covered file) is part of it.

        For whoever parses a file: the bytes that are judged are the bytes that were parsed, swaps in between included.
        """
        return self._holds(_real(root), read)

    def _holds(self, root: Path, read: Mapping[str, bytes] | None = None) -> bool:
        record = self._record(root)
        if record is None:
            return False
        try:
            present = self.snapshot(root, read)
        except (ConfigError, OSError):
            return False
        return bool(record["digest"] == present.digest) and (read or {}).keys() <= present.files.keys()

    def _stamps(self, root: Path) -> tuple[list[object], bool]:
        paths = [self._home.trust_dir / self._record_name(root), root / PROGRAM_FILE]
        for name, _ in _tree(root, ".forge", 0):
            paths.append(root / name)
            if len(paths) > MAX_FILES + 2:
                raise too_large_to_trust()
        stamps = [file_stamp(path) for path in paths]
        program = target_stamp(root / PROGRAM_FILE)  # forge.yaml may be a link
        further = [(name, hashlib.sha256(data).digest()) for name, data in self._extra(root)] if self._extra else []
        settled = all(each.settled for each in (*stamps, program) if each is not None)
        return [sorted(zip(paths, stamps, strict=True)), program, *further], settled

    def snapshot(self, root: Path, read: Mapping[str, bytes] | None = None) -> TrustSnapshot:
        """Reads what trust would cover; ConfigError if it is too large or unreadable. `read`: what is known already."""
        root = _real(root)
        found: list[tuple[str, str, bytes]] = []
        total = 0
        for name, kind, content in self._contents(root, read or {}):
            total += len(content)
            if len(found) >= MAX_FILES or total > MAX_TOTAL_BYTES:
                raise too_large_to_trust()
            found.append((name, kind, content))
        found.sort()
        shown = {name: _as_text(kind, content) for name, kind, content in found}
        hashes = [[name, kind, hashlib.sha256(content).hexdigest()] for name, kind, content in found]
        return TrustSnapshot(
            digest({"v": 1, "files": hashes}),
            files={name: text for name, (_, text) in shown.items()},
            kinds={name: kind for name, (kind, _) in shown.items()},
        )

    def give(self, root: Path, snapshot: TrustSnapshot | None = None) -> TrustSnapshot:
        """Records trust for the snapshot the person saw (default: what is there now)."""
        root = _real(root)
        snapshot = snapshot or self.snapshot(root)
        record = {"version": 1, "root": str(root), "digest": snapshot.digest}
        record |= {"files": snapshot.files, "kinds": snapshot.kinds}
        write_private(self._home.ensure("trust") / self._record_name(root), json.dumps(record).encode())
        return snapshot

    def withdraw(self, root: Path) -> bool:
        """Withdraws trust. Returns False if there was none."""
        try:
            os.unlink(self._home.trust_dir / self._record_name(_real(root)))
        except FileNotFoundError:
            return False
        return True

    def was_given(self, root: Path) -> bool:
        """Whether there is something to compare the present content with."""
        return self._record(root) is not None

    def changes(self, root: Path, snapshot: TrustSnapshot | None = None) -> str:
        """Unified diff from what was trusted to `snapshot` (or what is there now); empty if nothing changed.

        Show the diff of the snapshot that is then given to `give`: files may change while a person reads.
        """
        record = self._record(root) or {"files": {}}
        before: dict[str, str] = record["files"]
        kinds: dict[str, str] = record.get("kinds", {})
        after = snapshot or self.snapshot(root)
        rows: list[str] = []
        for name in sorted(before.keys() | after.files.keys()):
            old, new = before.get(name), after.files.get(name)
            was, now = kinds.get(name, ""), after.kinds.get(name, "")
            exchanged = bool(was and now) and was != now
            if old != new or exchanged:
                rows += file_diff(name, old, new)
            if exchanged:
                rows.append(f"# It was {_KINDS.get(was, was)} and is {_KINDS[now]} now.")
        return "\n".join(rows)

    def _record_name(self, root: Path) -> str:
        return hashlib.sha256(os.fsencode(root)).hexdigest()[:32] + ".json"

    def _record(self, root: Path) -> dict[str, Any] | None:
        """Returns the record; None if there is none or it is not valid."""
        root = _real(root)
        try:
            record = read_json(self._home.trust_dir / self._record_name(root), _MAX_RECORD_BYTES)
        except JSON_FILE_ERRORS:
            return None
        if not isinstance(record, dict) or record.get("version") != 1 or record.get("root") != str(root):
            return None
        usable = isinstance(record.get("digest"), str) and isinstance(record.get("files"), dict)
        return record if usable else None

    def _contents(self, root: Path, read: Mapping[str, bytes]) -> Iterator[tuple[str, str, bytes]]:
        """(name, kind, content) of everything the trust covers; kind is `file`, `link`, `other` or `extra`."""
        if (root / PROGRAM_FILE).exists():
            known = read.get(PROGRAM_FILE)
            content = _content(root / PROGRAM_FILE, PROGRAM_FILE, os.O_RDONLY) if known is None else known
            yield PROGRAM_FILE, "file", content
        for name, mode in _tree(root, ".forge", 0):
            if stat.S_ISLNK(mode):
                yield name, "link", os.fsencode(os.readlink(root / name))
            elif stat.S_ISREG(mode):
                known = read.get(name)
                content = _content(root / name, name, os.O_RDONLY | os.O_NOFOLLOW) if known is None else known
                yield name, "file", content
            else:
                yield name, "other", b""
        for name, content in self._extra(root) if self._extra else ():
            known = read.get(name)
            yield name, "extra", content if known is None else known


def _tree(root: Path, relative: str, depth: int) -> Iterator[tuple[str, int]]:
    """(name, mode) of everything in `.forge` that is not a directory, links not followed."""
    try:
        mode = (root / relative).lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(mode):
        yield relative, mode
        return
    if depth >= _MAX_DEPTH:
        raise ConfigError(f"{relative}: is nested too deeply to be trusted")
    try:
        with os.scandir(root / relative) as entries:
            names = [entry.name for entry in entries]
    except PermissionError:  # what is in it may count later, and nobody has seen it
        raise ConfigError(
            f"{relative}: cannot be read, so nobody can trust it; make it readable, or remove it"
        ) from None
    for name in names:
        yield from _tree(root, f"{relative}/{name}", depth + 1)


def too_large_to_trust() -> ConfigError:
    return ConfigError(
        f".forge: a program with more than {MAX_FILES} files or {MAX_TOTAL_BYTES} bytes to trust cannot be trusted; "
        "move what is not configuration out of it"
    )


def _content(path: Path, name: str, flags: int) -> bytes:
    try:
        with os.fdopen(os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read ({error.strerror})") from None
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"{name}: is larger than {MAX_FILE_BYTES} bytes, which cannot be trusted")
    return content


def _as_text(kind: str, content: bytes) -> tuple[str, str]:
    """Returns the kind of a file, and the text to show."""
    if kind in ("link", "other"):
        what = f"link to {os.fsdecode(content)}" if kind == "link" else ""
        return kind, what.encode("utf-8", "backslashreplace").decode()
    try:
        return "text", content.decode("utf-8")
    except UnicodeDecodeError:
        return "binary", f"binary, {len(content)} bytes, sha256 {hashlib.sha256(content).hexdigest()}"


def _real(root: Path) -> Path:
    return Path(os.path.realpath(root))
