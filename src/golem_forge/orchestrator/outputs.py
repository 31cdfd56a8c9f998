"""Kept outputs: results that are too long, and pictures, sounds and files in results, stored whole under a handle.

`bound_result` takes a result and gives one that fits: head and tail, cut between characters, at line ends where one is
near. The whole is on disk before the result is returned; an output that cannot be stored makes the call fail rather
than lose data. `OutputStore` keeps outputs until the session is 7 days old or the store passes 1 GiB, oldest first,
never one of a live session.

`keep_media` takes a result and returns a MediaPart for each content block that holds bytes, in their order; the blocks
stay as they are. A block that is not valid base64, and one for which the session has no room, is left out: its text
stays. `media_bytes` reads a kept part back. `with_handles` writes the handles into the text that a model reads. Bytes
are stored as base64 lines, as those of MCP resources are, so `read_output` can show them.

Threat: a server chooses type and bytes. The type is checked for its form, the bytes are never decoded here, and the
size of a picture is read from the few bytes of its header.
"""

from __future__ import annotations

import binascii
import contextlib
import json
import logging
import os
import secrets
import time
from base64 import b64decode, b64encode, encodebytes
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from golem_forge.core.calls import MediaPart
from golem_forge.core.errors import ToolFailed
from golem_forge.core.images import image_size
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.regex import regex
from golem_forge.core.results import ToolResult, block_text
from golem_forge.core.text import FixedText, head_and_tail
from golem_forge.events.journal_files import is_locked
from golem_forge.storage.home import create_private, replacing

_log = logging.getLogger(__name__)
MAX_PARTS: Final = 20
"""Maximum number of stored parts (pictures and other media) of one result."""
_MEDIA_TYPE: Final = regex(r"[a-z]{1,20}/[a-z0-9!#$&^_.+-]{1,80}")
_UNKNOWN_TYPE: Final = "application/octet-stream"


def keep_media(result: ToolResult, outputs: OutputStore, worker: str) -> tuple[MediaPart, ...]:
    parts: list[MediaPart] = []
    for block in result.content[: 10 * MAX_PARTS]:
        found = _bytes_in(block)
        if found is None or len(parts) == MAX_PARTS:
            continue
        media_type, data = found
        try:
            handle = outputs.keep_pieces((encodebytes(data),), worker)
        except (OSError, ToolFailed) as error:
            _log.warning("a part of a result could not be kept (%s)", type(error).__name__)
            break
        width, height = image_size(data)
        parts.append(MediaPart(handle=handle, media_type=media_type, size=len(data), width=width, height=height))
    return tuple(parts)


def _bytes_in(block: Any) -> tuple[str, bytes] | None:
    """(media type, bytes) of a content block that has any."""
    if not isinstance(block, Mapping):
        return None
    if block.get("type") in ("image", "audio"):
        said, written = block.get("mimeType"), block.get("data")
    elif block.get("type") == "resource" and isinstance(resource := block.get("resource"), Mapping):
        said, written = resource.get("mimeType"), resource.get("blob")
    else:
        return None
    if not isinstance(written, str):
        return None
    try:
        data = b64decode(written, validate=True)
    except (binascii.Error, ValueError):
        return None
    plain = said.partition(";")[0].strip().lower() if isinstance(said, str) else ""
    return (plain if _MEDIA_TYPE.fullmatch(plain) else _UNKNOWN_TYPE), data


def media_bytes(outputs: OutputStore, handle: str, worker: str) -> bytes | None:
    """Returns the bytes of a stored part, or None if it is gone or unreadable."""
    kept = outputs.find(handle, worker)
    if kept is None:
        return None
    try:
        return b64decode(kept.path.read_bytes())
    except (OSError, binascii.Error, ValueError):
        return None


MOST_SHOWN: Final = 12 * 1024 * 1024
"""Maximum bytes of a stored part that are shown to a person."""


def stored_picture(path: Path) -> str:
    """Returns a kept picture as base64. Returns an empty text if it is missing, is no picture, or is too large."""
    try:
        with path.open("rb") as file:
            written = file.read(MOST_SHOWN + 1)
        data = b64decode(written) if len(written) <= MOST_SHOWN else b""
    except (OSError, binascii.Error, ValueError):
        return ""
    return b64encode(data).decode() if image_size(data) != (0, 0) else ""


def with_handles(text: str, result: ToolResult | None, media: Sequence[MediaPart]) -> str:
    """The text with each part's line in the place of what stood for it, else at the end."""
    if not media:
        return text
    shown = [block_text(block) for block in result.content if _bytes_in(block) is not None] if result else []
    for stood, part in zip(shown, media, strict=False):
        text = text.replace(stood, part.text, 1) if stood and stood in text else f"{text}\n{part.text}".lstrip()
    return text


MAX_AGE_SECONDS: Final = 7 * 24 * 3600
MAX_TOTAL_BYTES: Final = 1 << 30
MAX_SESSION_BYTES: Final = 512 << 20
"""Maximum bytes that one session may keep; its outputs are never pruned while it is open."""
ARCHIVED_PIECE: Final = 256 * 1024
_INDEX: Final = "index.jsonl"


@dataclass(frozen=True, slots=True)
class KeptOutput:
    handle: str
    worker: str
    path: Path


class OutputArchive(Protocol):
    """A second store for a session's outputs, readable from other machines (`team.journal`)."""

    def add_output(self, handle: str, worker: str, pieces: Iterable[bytes]) -> None:
        """Queues an output to be written with the next record, so it is stored before the result that names it."""

    def find_output(self, handle: str) -> tuple[str, Iterable[bytes]] | None:
        """Returns the worker and the pieces of an output. Blocks."""

    @property
    def kept_bytes(self) -> int:
        """How many bytes the archive held for this session when this machine took it over."""


class OutputStore:
    def __init__(self, root: Path, session_id: str, archive: OutputArchive | None = None) -> None:
        self._root = root
        self._archive = archive
        self._folder = root / session_id
        self._kept: dict[str, KeptOutput] = {}
        self._kept_bytes = archive.kept_bytes if archive is not None else 0

    def keep(self, text: str, worker: str) -> str:
        """Writes the whole text and returns its handle. Raises OSError if it cannot be stored."""
        return self.keep_pieces((text.encode("utf-8", "surrogateescape"),), worker)

    def keep_pieces(self, pieces: Iterable[bytes], worker: str) -> str:
        """Stores UTF-8 text that arrives in pieces and returns its handle; only one piece at a time is in memory."""
        if not self._folder.is_dir():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.prune()
        handle = f"out_{secrets.token_hex(6)}"
        path = self._folder / handle
        with create_private(path) as file:
            for piece in pieces:
                self._kept_bytes += len(piece)
                if self._kept_bytes > MAX_SESSION_BYTES:
                    self._kept_bytes -= file.tell() + len(piece)
                    path.unlink()
                    raise ToolFailed(
                        f"The session already keeps {MAX_SESSION_BYTES >> 20} MiB of outputs and has no room for this "
                        "one. Ask for less at a time, or start a new session.",
                        code="TOO_MUCH_OUTPUT",
                    )
                file.write(piece)
        line = json.dumps({"handle": handle, "worker": worker}) + "\n"
        with open(os.open(self._folder / _INDEX, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600), "a") as index:
            index.write(line)
        self._kept[handle] = KeptOutput(handle, worker, path)
        if self._archive is not None:
            with path.open("rb") as file:
                self._archive.add_output(handle, worker, iter(partial(file.read, ARCHIVED_PIECE), b""))
        return handle

    def find(self, handle: str, worker: str, *, any_session: bool = False) -> KeptOutput | None:
        """Returns an output of this worker or of one below it. `any_session` also searches other sessions, for the
        person at the keyboard.
        """
        output = self._kept.get(handle) or self._from_index(self._folder, handle) or self._from_archive(handle)
        if output is None and any_session and self._root.is_dir():
            folders = (folder for folder in self._root.iterdir() if folder.is_dir())
            return next((found for f in folders if (found := self._from_index(f, handle))), None)
        if output is None or not (output.worker == worker or output.worker.startswith(f"{worker}/")):
            return None
        return output

    def _from_archive(self, handle: str) -> KeptOutput | None:
        """Copies an output of a session that ran on another machine into the local folder, once."""
        found = self._archive.find_output(handle) if self._archive is not None else None
        if found is None:
            return None
        worker, pieces = found
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / handle
        with replacing(path, durable=False) as file:
            for piece in pieces:
                file.write(piece)
        self._kept[handle] = KeptOutput(handle, worker, path)
        return self._kept[handle]

    def _from_index(self, folder: Path, handle: str) -> KeptOutput | None:
        with contextlib.suppress(OSError, ValueError), open(folder / _INDEX, encoding="utf-8") as index:
            for line in index:
                entry = json.loads(line)
                if entry["handle"] == handle and (folder / handle).is_file():
                    return KeptOutput(handle, entry["worker"], folder / handle)
        return None

    def prune(self) -> None:
        """Removes outputs that are too old or too large in sum; sessions that are still being written stay."""
        folders = [f for f in self._root.iterdir() if f.is_dir() and f != self._folder] if self._root.is_dir() else []
        sized = sorted(((f.stat().st_mtime, _size(f), f) for f in folders), key=lambda item: item[0])
        total = sum(size for _, size, _ in sized)
        now = time.time()
        for modified, size, folder in sized:
            too_much = now - modified > MAX_AGE_SECONDS or total > MAX_TOTAL_BYTES
            if too_much and not is_locked(self._root.parent / "sessions" / f"{folder.name}.jsonl"):
                total -= size
                with contextlib.suppress(OSError):
                    for entry in os.scandir(folder):
                        os.unlink(entry.path)
                    folder.rmdir()


def _size(folder: Path) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False))


TEXT_LIMIT: Final = 32 * 1024
VALUE_LIMIT: Final = 256 * 1024
CONTENT_LIMIT: Final = 16 * 1024 * 1024
"""Maximum size of all content blocks, which are not shortened (images are among them)."""
SHORT_TEXT_CHARS: Final = 4096
"""A text of at most this many characters fits without counting its bytes."""


def bound_text(text: str, limit: int, keep: OutputStore, worker: str) -> tuple[str, str]:
    """Returns the text, shortened if needed, and the handle of the whole text (empty if it was not shortened)."""
    if len(text) <= limit // 4 or len(data := text.encode("utf-8", "replace")) <= limit:
        return text, ""
    handle = keep.keep(text, worker)
    return head_and_tail(FixedText(data), limit, handle), handle


def bound_result(result: ToolResult, keep: OutputStore, worker: str, limit: int = TEXT_LIMIT) -> tuple[ToolResult, str]:
    text, handle = bound_text(result.text, limit, keep, worker)
    value = result.value if _fits(result.value, VALUE_LIMIT) else _without_bulk(result.value)
    structured = result.structured if _fits(result.structured, VALUE_LIMIT) else None
    content = result.content if _fits(list(result.content), CONTENT_LIMIT) else ()
    if not handle and value is result.value and structured is result.structured and content is result.content:
        return result, ""
    return replace(result, text=text, value=value, structured=structured, content=content), handle


def _fits(value: Any, room: int) -> bool:
    return _remaining_room(value, room) >= 0


def _remaining_room(value: Any, room: int) -> int:
    """Returns what is left of `room` after this value; negative once it is used up."""
    if isinstance(value, (str, bytes)):
        return room - len(value)
    if isinstance(value, dict):
        items = ((item, len(str(key)) + 4) for key, item in value.items())
    elif isinstance(value, (list, tuple)):
        items = ((item, 1) for item in value)
    else:
        return room - 8
    for item, overhead in items:
        room = _remaining_room(item, room - overhead)
        if room < 0:
            break
    return room


def _without_bulk(value: dict[str, Any]) -> dict[str, Any]:
    """Returns the value without its large members, and names those."""
    fitting: dict[str, Any] = {"kind": value["kind"]}
    left_out: list[str] = []
    room = VALUE_LIMIT // 4
    for key, item in value.items():
        rest = _remaining_room(item, room - len(key)) if key != "kind" else room
        if rest >= 0:
            fitting[key], room = item, rest
        elif len(left_out) < 20:
            left_out.append(key[:100])
    return {**fitting, "leftOut": left_out}
