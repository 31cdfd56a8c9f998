"""Tokens of `forge mcp serve --http`: made by name, shown once, kept as hashes, revocable at once.

FORGE_HOME/state/mcp-tokens.json (0600, replaced as a whole, under a lock). A file that cannot be read admits nobody.

Threat: whoever reads the file must not be able to use it, and whoever guesses must not learn from the time it takes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import closest_match
from golem_forge.events.serialization import iso_now
from golem_forge.storage.file_stamp import FileStamp, file_stamp
from golem_forge.storage.home import ForgeHome

PREFIX: Final = "forge_mcp_"
MOST_TOKENS: Final = 1000
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FILE: Final = "mcp-tokens.json"
_MOST_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientToken:
    id: str
    name: str
    sha256: str
    created: str


class TokenStore:
    def __init__(self, home: ForgeHome) -> None:
        self._home = home
        self._seen: FileStamp | None = None
        self._tokens: tuple[ClientToken, ...] = ()

    @property
    def path(self) -> Path:
        return self._home.path / "state" / _FILE

    def create(self, name: str) -> str:
        """The token itself, which is nowhere else from now on. Refuses a name that is taken or cannot be one."""
        if not _NAME.fullmatch(name):
            raise ForgeError(f"{name!r} cannot name a token; use letters, digits, '.', '_' and '-', at most 64")
        secret = PREFIX + secrets.token_urlsafe(32)
        with self._changing() as tokens:
            if any(token.name == name for token in tokens):
                raise ForgeError(f"a token named {name!r} exists; revoke it first, or choose another name")
            if len(tokens) >= MOST_TOKENS:
                raise ForgeError(f"there are {MOST_TOKENS} tokens; revoke some first")
            tokens.append(ClientToken(id=secrets.token_hex(8), name=name, sha256=_hashed(secret), created=iso_now()))
        return secret

    def revoke(self, name: str) -> None:
        with self._changing() as tokens:
            left = [token for token in tokens if token.name != name]
            if len(left) == len(tokens):
                close = closest_match(name, [token.name for token in tokens])
                hint = f"; did you mean {close!r}?" if close else "; `forge mcp token list` shows them"
                raise ForgeError(f"there is no token named {name!r}{hint}")
            tokens[:] = left

    def tokens(self) -> tuple[ClientToken, ...]:
        """As the file has them now. Raises ForgeError if it cannot be read."""
        try:
            present = file_stamp(self.path)
            if present is None:
                return ()
            if present != self._seen:
                self._tokens, self._seen = _read(self.path), present if present.settled else None
            return self._tokens
        except (OSError, ValueError, TypeError, KeyError):
            self._seen, self._tokens = None, ()
            raise ForgeError(
                f"{self._home.shown(self.path)} cannot be read; remove it and create the tokens anew"
            ) from None

    def holder(self, secret: str) -> ClientToken | None:
        """Whose token this is. Every one is compared, so that the time it takes tells nothing."""
        given, found = _hashed(secret), None
        try:
            known = self.tokens()
        except ForgeError:
            return None
        for token in known:
            if hmac.compare_digest(token.sha256, given):
                found = token
        return found

    @contextlib.contextmanager
    def _changing(self) -> Iterator[list[ClientToken]]:
        folder = self._home.ensure("state")
        with open(os.open(folder / f".{_FILE}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600), "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._seen = None
            tokens = list(self.tokens())
            yield tokens
            _write(self.path, tokens)
            self._seen = None


def _hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _read(path: Path) -> tuple[ClientToken, ...]:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError("too large")
    kept: Any = json.loads(data)
    return tuple(ClientToken(**{name: str(entry[name]) for name in ClientToken.__slots__}) for entry in kept["tokens"])


def _write(path: Path, tokens: list[ClientToken]) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{_FILE}.")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            json.dump({"tokens": [asdict(token) for token in tokens]}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
