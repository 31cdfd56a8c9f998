"""Attachments: files that come with an input. Checked before the first request, stored once by digest, sent unchanged.

`OfferedFile` is a file that somebody offers: from the command line, from a UI that sent it before, or by a zone address
that the caller may read. `check_attachments` checks it against the worker's policy by name and size;
`AttachmentStore.keep` reads it and returns the `Attachment` that a message carries. Raises AttachmentRefused, or what
the sandbox raises.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Final, Self

from golem_forge.agent.files.worker import AttachmentPolicy
from golem_forge.agent.model.interface import Attachment, Model
from golem_forge.core.decisions import Status
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import clip, escape_control_chars
from golem_forge.events.journal_files import journal_path
from golem_forge.sandbox import files
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.storage.home import READ_FLAGS, make_private_dir, write_private
from golem_forge.toolsets.file_access import has_binary_name, looks_binary, media_type

MAX_ADDRESSES: Final = 100
"""Maximum number of files offered by address; each stays open until it is read."""
_MAX_NAME: Final = 100
_MOST_UNNAMED: Final = 200


class AttachmentRefused(ForgeError, ConfigError):
    """A wrong command line for a person, an `input_invalid` for a worker that delegates."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status=Status.INPUT_INVALID, code="ATTACHMENT_REFUSED")


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedFile:
    name: str
    """Its last component, never a path of the host."""
    size: int
    read: Callable[[int], bytes]
    """(most bytes) → the content, or OSError, or what the sandbox raises."""
    effect: Effect | None = None
    """For a file handed to a sub-worker: the read effect for its caller."""
    close: Callable[[], None] = lambda: None
    """Closes what is held open for reading."""

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """A file the person names. It is opened when it is read."""
        name = path.name or "."
        try:
            found = os.stat(path)
        except OSError as error:
            raise _refused(name, (error.strerror or "cannot be read").lower()) from None
        if not stat.S_ISREG(found.st_mode):
            raise _refused(name, "is not a file")
        return cls(name=name, size=found.st_size, read=partial(_read_file, os.path.abspath(path)))

    @classmethod
    def of_bytes(cls, name: str, data: bytes) -> Self:
        """Builds an offered file from bytes that a UI received."""
        return cls(name=os.path.basename(name) or "attachment", size=len(data), read=lambda most: data[: most + 1])


def read_zone_attachments(sandbox: Sandbox, addresses: Iterable[str]) -> tuple[OfferedFile, ...]:
    """Files by zone address, judged as the caller's own reads; SandboxError for one it may not read."""
    wanted = list(addresses)
    if len(wanted) > MAX_ADDRESSES:
        raise AttachmentRefused(f"{len(wanted)} attachments; at most {MAX_ADDRESSES} can be handed over at once")
    found = []
    for address in wanted:
        target = sandbox.target(address, Verb.READ)
        target.must_be_file()
        size = target.stat.st_size if target.stat else 0
        read = partial(files.read_bytes, target)
        found.append(OfferedFile(name=target.name, size=size, read=read, effect=target.effect(), close=target.close))
    return tuple(found)


def check_count(count: int, policy: AttachmentPolicy) -> None:
    if count > policy.max_attachments:
        raise AttachmentRefused(f"{count} attachments; this worker takes at most {policy.max_attachments}")


def check_attachments(attached: Sequence[OfferedFile], policy: AttachmentPolicy) -> None:
    """Count, bytes and suffixes, before anything is read or sent."""
    check_count(len(attached), policy)
    allowed, denied = _suffixes(policy.allowed_suffixes), _suffixes(policy.denied_suffixes)
    for name in (each.name for each in attached):
        bare = name.lower().rstrip(". ")  # `a.exe.` is still meant as one
        if found := [suffix for suffix in denied if bare.endswith(suffix)]:
            raise _refused(name, f"suffix {max(found, key=len)} is denied")
        if allowed and not any(name.lower().endswith(suffix) and len(name) > len(suffix) for suffix in allowed):
            ending = os.path.splitext(name)[1].lower()
            what = f"suffix {ending} is not allowed" if ending else "has no suffix"
            raise _refused(name, f"{what}; allowed: {', '.join(sorted(allowed))}")
    total = sum(each.size for each in attached)
    if total > policy.max_total_bytes:
        raise AttachmentRefused(
            f"attachments have {total} bytes together; this worker takes at most {policy.max_total_bytes}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedFile:
    """A file that a UI sent, kept until an input names it."""

    digest: str
    name: str
    size: int


class AttachmentStore:
    """`FORGE_HOME/sessions/<session id>.files/<digest>`: goes with its session.

    What a UI sent and no input has named yet is bounded; beyond that the oldest goes.
    """

    def __init__(self, home: Path, session_id: str) -> None:
        self._folder = journal_path(home, session_id).with_suffix(".files")
        self._unnamed: dict[str, int] = {}
        """Digest → bytes, oldest first."""
        self._receiving = Lock()

    def keep(self, attached: OfferedFile, model: Model) -> Attachment:
        """Reads it and writes it down, unless the model cannot take its type."""
        try:
            data = attached.read(attached.size)
        except OSError as error:
            raise _refused(attached.name, (error.strerror or "cannot be read").lower()) from None
        if len(data) != attached.size:
            raise _refused(attached.name, "changed while it was read; attach it again")
        kind = media_type(attached.name, binary=has_binary_name(attached.name) or looks_binary(data))
        if not model.takes(kind):
            raise _refused(attached.name, f"{model.name} does not take {kind}")
        digest = hashlib.sha256(data).hexdigest()
        with self._receiving:
            self._write(digest, data)
            self._unnamed.pop(digest, None)
        return Attachment(name=escape_control_chars(attached.name), media_type=kind, size=len(data), digest=digest)

    def receive(self, name: str, data: bytes, room: int) -> ReceivedFile:
        """Keeps what a UI sent before the input that will name it. `room`: bytes that may wait for one at a time."""
        digest = hashlib.sha256(data).hexdigest()
        with self._receiving:
            if self._unnamed.pop(digest, None) is not None or not (self._folder / digest).is_file():
                self._unnamed[digest] = len(data)
            self._write(digest, data)
            while len(self._unnamed) > _MOST_UNNAMED or sum(self._unnamed.values()) > room:
                oldest = next(iter(self._unnamed))
                del self._unnamed[oldest]
                (self._folder / oldest).unlink(missing_ok=True)
        return ReceivedFile(digest=digest, name=os.path.basename(name) or "attachment", size=len(data))

    def offered(self, received: Mapping[str, Any]) -> OfferedFile:
        """Returns the file that an input names as `{digest, name}`. Raises AttachmentRefused if it was not received."""
        name = os.path.basename(str(received.get("name") or "")) or "attachment"
        try:
            return OfferedFile.of_bytes(name, self.read(str(received.get("digest") or "")))
        except ForgeError:
            raise _refused(name, "was not received; attach it again") from None

    def read(self, digest: str) -> bytes:
        """The bytes of a message's attachment; refused if they are gone or are no longer the same."""
        if len(digest) != 64 or not digest.isalnum():
            raise ForgeError("not the digest of an attachment", code="ATTACHMENT_LOST")
        try:
            with open(os.open(self._folder / digest, READ_FLAGS), "rb") as file:
                data = file.read()
        except OSError:
            raise _lost(digest, "is no longer there") from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise _lost(digest, "was changed on disk")
        return data

    def _write(self, digest: str, data: bytes) -> None:
        path = self._folder / digest
        if path.is_file() and path.stat().st_size == len(data):
            return
        make_private_dir(self._folder)
        try:
            write_private(path, data, durable=False)
        except OSError as error:
            raise ForgeError(f"an attachment could not be kept: {error.strerror}", code="ATTACHMENT_LOST") from None


def _read_file(path: str, most: int) -> bytes:
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        return file.read(most + 1)


def _suffixes(written: Iterable[str]) -> frozenset[str]:
    """Normalises file suffixes: `pdf` and `.PDF` mean `.pdf`."""
    return frozenset(f".{suffix.lower().lstrip('.')}" for suffix in written if suffix.strip("."))


def _refused(name: str, why: str) -> AttachmentRefused:
    shown = escape_control_chars(clip(name, _MAX_NAME))
    return AttachmentRefused(f"attachment '{shown}': {why}")


def _lost(digest: str, why: str) -> ForgeError:
    return ForgeError(f"an attachment of this session ({digest[:12]}) {why}", code="ATTACHMENT_LOST")
