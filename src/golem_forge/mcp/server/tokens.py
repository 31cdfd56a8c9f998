"""Tokens of `forge mcp serve --http`: made by name, shown once, kept as hashes, revocable at once.

FORGE_HOME/state/mcp-tokens.json (0600, replaced as a whole, under a lock). A file that cannot be read admits nobody.

Threat: whoever reads the file must not be able to use it, and whoever guesses must not learn from the time it takes.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import nearest_hint
from golem_forge.events.serialization import iso_now
from golem_forge.net.server_guard import find_hash, secret_hash
from golem_forge.storage.home import JSON_FILE_ERRORS, ForgeHome, JsonFile

PREFIX: Final = "forge_mcp_"
MOST_TOKENS: Final = 1000
_NAME: Final = regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
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
        path, lock = home.path / "state" / _FILE, home.path / "state" / f".{_FILE}.lock"
        self._file = JsonFile(path, _parse, limit=_MOST_BYTES, lock=lock, name=home.shown(path))

    @property
    def path(self) -> Path:
        return self._file.path

    def create(self, name: str) -> str:
        """The token itself, which is nowhere else from now on. Refuses a name that is taken or cannot be one."""
        if not _NAME.fullmatch(name):
            raise ForgeError(f"{name!r} cannot name a token; use letters, digits, '.', '_' and '-', at most 64")
        secret = PREFIX + secrets.token_urlsafe(32)
        self._home.ensure("state")
        with self._file.locked():
            tokens = self.tokens()
            if any(token.name == name for token in tokens):
                raise ForgeError(f"a token named {name!r} exists; revoke it first, or choose another name")
            if len(tokens) >= MOST_TOKENS:
                raise ForgeError(f"there are {MOST_TOKENS} tokens; revoke some first")
            new = ClientToken(id=secrets.token_hex(8), name=name, sha256=secret_hash(secret), created=iso_now())
            self._write(*tokens, new)
        return secret

    def revoke(self, name: str) -> None:
        self._home.ensure("state")
        with self._file.locked():
            tokens = self.tokens()
            left = [token for token in tokens if token.name != name]
            if len(left) == len(tokens):
                hint = nearest_hint(name, [token.name for token in tokens], "; `forge mcp token list` shows them")
                raise ForgeError(f"there is no token named {name!r}{hint}")
            self._write(*left)

    def tokens(self) -> tuple[ClientToken, ...]:
        """Returns the tokens in the file. Raises ForgeError if it cannot be read."""
        try:
            return self._file.read() or ()
        except JSON_FILE_ERRORS:
            raise ForgeError(
                f"{self._home.shown(self.path)} cannot be read; remove it and create the tokens again"
            ) from None

    def holder(self, secret: str) -> ClientToken | None:
        """Returns the client of this token; None if there is none or the file cannot be read."""
        try:
            known = {token.sha256: token for token in self.tokens()}
        except ForgeError:
            return None
        found = find_hash(known, secret)
        return known[found] if found is not None else None

    def _write(self, *tokens: ClientToken) -> None:
        self._file.write(json.dumps({"tokens": [asdict(token) for token in tokens]}, indent=1))


def _parse(kept: Any) -> tuple[ClientToken, ...]:
    return tuple(ClientToken(**{name: str(entry[name]) for name in ClientToken.__slots__}) for entry in kept["tokens"])
