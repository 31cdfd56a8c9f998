"""The book's file: what is in it, or why it cannot be believed; written by one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from golem_forge.config.stamps import Stamp, stamp_of
from golem_forge.core.errors import ForgeError
from golem_forge.mcp.client.trust.book_records import Records, from_json, to_json
from golem_forge.mcp.client.trust.own_files import read_whole, replace_whole

MAX_FILE_BYTES: Final = 64 << 20
_LOCK_WAIT: Final = 2.0
_LOCK_STEP: Final = 0.01


class Broken(Exception):
    """The file is there and cannot be believed; the text says why."""


class BookError(ForgeError):
    """What was agreed to could not be written down."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="MCP_TRUST_BOOK")


def read_records(path: Path) -> tuple[Records, Stamp | None]:
    """(what it holds, the stamp of what was read); nothing and None if there is no file. Raises Broken."""
    try:
        content, status = read_whole(path, MAX_FILE_BYTES)
        return from_json(json.loads(content)), stamp_of(status)
    except (FileNotFoundError, NotADirectoryError):
        return {}, None
    except OSError as error:
        raise Broken(error.strerror or "it cannot be read") from None
    except json.JSONDecodeError:
        raise Broken("it is not JSON") from None
    except (ValueError, RecursionError) as error:
        raise Broken(str(error)[:100]) from None


def write_records(path: Path, records: Records) -> None:
    content = json.dumps(to_json(records), separators=(",", ":")).encode()
    if len(content) > MAX_FILE_BYTES:
        raise BookError("the book of MCP approvals is full; run `forge mcp list` and remove servers that are not used")
    replace_whole(path, content)


def put_aside(path: Path) -> None:
    """A broken book is kept for whoever wants to look at it, out of the way of the next one."""
    with contextlib.suppress(OSError):
        os.replace(path, path.with_name(f"{path.name}.broken"))


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """The lock is a file of its own: the one it guards is replaced by each change. Waits two seconds at most."""
    handle = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _take(handle)
        yield
    finally:
        os.close(handle)


def _take(handle: int) -> None:
    end = time.monotonic() + _LOCK_WAIT
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise BookError("the book of MCP approvals is in use by another process; try again") from None
            time.sleep(_LOCK_STEP)
