"""bound: from what a tool returned to what its caller gets. Checked, redacted, bounded; refuses with
`execution_failed`.

Takes the raw value of a run (or how it was aborted), gives the Outcome. It contains no secret and no host path.

Only known secrets are removed from a result: a result that happens to have a member named `token` belongs to its
caller, and the content of a file keeps its paths, or it could not be written back. (Events and the journal also redact
by name.) Secrets that a user types are learned here. `failure_text` is what a caller reads when a tool's own code
raised.

Results that are too long, and pictures, sounds and files in results, are stored whole under a handle. `bound_result`
takes a result and gives one that fits: head and tail, cut between characters, at line ends where one is near. The whole
is on disk before the result is returned; an output that cannot be stored makes the call fail rather than lose data.
`OutputStore` keeps outputs until the session is 7 days old or the store passes 1 GiB, oldest first, never one of a live
session.

`keep_media` takes a result and returns a MediaPart for each content block that holds bytes, in their order; the blocks
stay as they are. A block that is not valid base64, and one for which the session has no room, is left out: its text
stays. `media_bytes` reads a kept part back. `with_handles` writes the handles into the text that a model reads. Bytes
are stored as base64 lines, as those of MCP resources are, so `read_output` can show them.

Threat: a server chooses type and bytes. The type is checked for its form, the bytes are never decoded here, and type
and size of a picture are read from the few bytes of its header.
"""

from __future__ import annotations

import asyncio
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
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final, Protocol

from golem_forge.core.calls import MediaPart, Outcome, ToolCompletion
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError, ToolFailed, error_name
from golem_forge.core.images import file_type, image_size
from golem_forge.core.json import safe_json
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.regex import regex
from golem_forge.core.results import ToolResult, block_text
from golem_forge.core.text import FixedText, head_and_tail, shorten_middle
from golem_forge.events.journal_files import is_locked
from golem_forge.events.redaction import Redactor, joined_texts
from golem_forge.orchestrator.call_state import CallState
from golem_forge.orchestrator.limits import CallAborted, aborted_text
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.storage.home import create_private, replacing
from golem_forge.tools.results import text_is_complete, to_result

_log = logging.getLogger(__name__)
MAX_PARTS: Final = 20
"""Maximum number of stored parts (pictures and other media) of one result."""
_MEDIA_TYPE: Final = regex(r"[a-z]{1,20}/[a-z0-9!#$&^_.+-]{1,80}")
_UNKNOWN_TYPE: Final = "application/octet-stream"
_USUAL_TYPES: Final = {"audio/mp3": "audio/mpeg", "audio/wave": "audio/wav", "audio/x-wav": "audio/wav"} | {
    "audio/x-aiff": "audio/aiff",
    "audio/x-flac": "audio/flac",
    "image/jpg": "image/jpeg",
}
"""Other names of a type → the one that providers and their libraries know."""


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
    plain = _USUAL_TYPES.get(plain, plain)
    return file_type(data) or (plain if _MEDIA_TYPE.fullmatch(plain) else _UNKNOWN_TYPE), data


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


def bound_result(result: ToolResult, keep: OutputStore, worker: str) -> tuple[ToolResult, str]:
    text, handle = bound_text(result.text, TEXT_LIMIT, keep, worker)
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


_MAX_ERROR_CHARS: Final = 1 << 20


_FINISHED_TYPES: Final = frozenset({str, int, float, bool, dict, list, tuple, type(None), ToolResult})
"""Result types that need no further check; nearly every tool returns one of them."""


def refuse_unfinished(name: str, value: Any) -> None:
    """Raises ToolFailed if a tool returned a generator, coroutine or future: its work never happened."""
    if type(value) in _FINISHED_TYPES:
        return
    if isinstance(value, (GeneratorType, AsyncGeneratorType)):
        raise ToolFailed(f"tool '{name}' returned a generator; return its items as a list")
    if isinstance(value, CoroutineType):
        value.close()
        raise ToolFailed(f"tool '{name}' returned a coroutine; await it and return its value")
    if isinstance(value, asyncio.Future):
        raise ToolFailed(f"tool '{name}' returned a future; await it and return its value")


class BoundStage:
    def __init__(self, redactor: Redactor, outputs: OutputStore, worker: str, sandbox: Sandbox | None) -> None:
        self._redactor = redactor
        self._outputs = outputs
        self._worker = worker
        self._sandbox = sandbox

    def ran(self, state: CallState, value: Any) -> Outcome:
        tool = state.tool
        if isinstance(value, ToolCompletion):
            return self._finished(state, value)
        refuse_unfinished(tool.name, value)
        if tool.output is not None:
            value = tool.output.check(tool.name, value)
        given = to_result(value)
        result, handle = self._bounded(given)
        outcome = state.outcome(Status.SUCCESS, result=result)
        if state.keeps_whole and result is not given:
            outcome.whole = redact_result(given, self._redactor)
        if result.content and not state.reads_secret:
            outcome.media = keep_media(result, self._outputs, self._worker)
        if result.is_error:
            outcome.status, outcome.error = Status.EXECUTION_FAILED, result.text or "the tool reported an error"
        if handle:
            outcome.truncated, outcome.output_handle = True, handle
        return outcome

    def ended(self, state: CallState, ended: CallAborted) -> Outcome:
        """Builds the Outcome of a call that was ended from outside; keeps what the tool still returned."""
        text = aborted_text(state, ended)
        if ended.finished is None:
            return state.outcome(ended.status, error=text)
        outcome = self._finished(state, ended.finished)
        outcome.status, outcome.error = ended.status, text
        return outcome

    def failed(self, state: CallState, error: BaseException) -> Outcome:
        """Builds the Outcome of an exception of a stage or of the tool."""
        if isinstance(error, CallAborted):
            return self.ended(state, error)
        if isinstance(error, ForgeError):
            return state.outcome(error.status, error=self.safe(error.message), code=error.code)
        return state.outcome(Status.EXECUTION_FAILED, error=self.safe(failure_text(error)))

    def safe(self, text: str) -> str:
        """Returns the text for the caller: without secrets and host paths, then shortened."""
        text = self._redactor.text(text[:_MAX_ERROR_CHARS])
        return shorten_middle(self._sandbox.virtualise(text) if self._sandbox else text, _MAX_SHOWN_CHARS, " … ")

    def _finished(self, state: CallState, finished: ToolCompletion) -> Outcome:
        """Builds the Outcome from a tool that reports how its call ended; an output that it stored is not shortened
        again.
        """
        handle = finished.output_handle
        if handle or finished.bounded:
            result = redact_result(finished.result, self._redactor)
        else:
            result, handle = self._bounded(finished.result)
        error = self.safe(finished.error) if finished.error else ""
        if not error and finished.status is not Status.SUCCESS:
            error = result.text
        outcome = state.outcome(finished.status, result=result, error=error, code=finished.code)
        if state.keeps_whole and not (finished.output_handle or finished.bounded) and result is not finished.result:
            outcome.whole = redact_result(finished.result, self._redactor)
        if result.content and not state.reads_secret:
            outcome.media = keep_media(result, self._outputs, self._worker)
        outcome.denials = finished.denials
        outcome.protected_created = tuple(map(self.safe, finished.protected_created))
        outcome.leftovers = tuple(
            replace(one, text=self.safe(one.text), paths=tuple(map(self.safe, one.paths))) for one in finished.leftovers
        )
        outcome.stop_turn = outcome.stop_turn or finished.stop_turn
        if handle:
            outcome.truncated, outcome.output_handle = True, handle
        return outcome

    def _bounded(self, result: ToolResult) -> tuple[ToolResult, str]:
        """Redacts and shortens a result. Most results are short plain text with nothing to redact and take a quick
        path.
        """
        text = result.text
        if len(text) <= SHORT_TEXT_CHARS:
            if text_is_complete(result) and result.meta is None and self._redactor.redact_secrets(text) is text:
                return result, ""
            if is_clean(result, self._redactor):
                return result, ""
        return bound_result(redact_result(result, self._redactor), self._outputs, self._worker)


_MIN_TYPED_SECRET_CHARS: Final = 6


def learn_typed_secrets(name: str, typed: Iterable[str], redactor: Redactor) -> None:
    """Adds what a person typed into a secret field of a tool or a server's form to the redactor. Threat: a tool or
    server that repeats it in its result, error or progress. Texts shorter than a password are left out: they would
    match ordinary words.
    """
    for text in typed:
        if len(text) >= _MIN_TYPED_SECRET_CHARS and text not in redactor.secrets:
            redactor.add_secret(name, text)


def redact_result(result: ToolResult, redactor: Redactor) -> ToolResult:
    def clean(value: Any) -> Any:
        """A tool's own ToolResult may hold anything; what is not JSON could not be searched."""
        plain = safe_json(value)[0]
        return _redact_value(plain, redactor) if redactor.secrets else plain

    return replace(
        result,
        text=redactor.redact_secrets(str(result.text)),
        value=clean(result.value),
        content=tuple(map(clean, result.content)),
        structured=clean(result.structured),
        meta=clean(result.meta),
    )


def is_clean(result: ToolResult, redactor: Redactor) -> bool:
    """Whether the value is short, pure ASCII JSON without a secret, as most results are. False only means that this
    quick test cannot tell.
    """
    clean = redactor.redact_secrets
    if type(result.text) is not str or clean(result.text) is not result.text:
        return False
    value, structured = result.value, result.structured
    if structured is not None and value.get("data") is structured:
        structured = None  # the value holds it
    texts = joined_texts(value, structured, result.meta, *result.content)
    return texts is not None and texts.isascii() and clean(texts) is texts


def _redact_value(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, str):
        return redactor.redact_secrets(value)
    if isinstance(value, dict):
        return {redactor.redact_secrets(key): _redact_value(item, redactor) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_redact_value(item, redactor) for item in value]
    return value


_MAX_SHOWN_CHARS: Final = 2000


def failure_text(error: BaseException) -> str:
    """Describes an exception. The text is not shortened yet, because redaction must see secrets whole."""
    kind = error_name(error)[:200]
    try:
        words = str(error)[:_MAX_ERROR_CHARS]
    except BaseException:  # an exception that cannot be read is still only one failed call
        words = "(its words cannot be read)"
    return f"{kind}: {words}" if words else kind
