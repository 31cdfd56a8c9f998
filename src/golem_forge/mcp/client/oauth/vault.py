"""The vault: tokens and client registrations. In the OS keyring where there is one, else FORGE_HOME/state/oauth, 0600.

A record is kept by issuer and resource; an index says which issuer a resource's login belongs to, since that is not
known before the server was asked. Two servers with one URL share a login. A record that cannot be read is none: the
person logs in again. Blocking; call it off the event loop.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from golem_forge.config.home import ForgeHome
from golem_forge.core.canonical import digest

Record = dict[str, Any]
_SERVICE: Final = "golem-forge"
_INDEX: Final = "index.json"
_LOCK: Final = "lock"
_MOST_BYTES: Final = 1 << 20


def resource_of(url: str) -> str:
    """A server's address as the name of what its tokens are for: no fragment, scheme and host in small letters."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme.lower(), parts.netloc.lower(), parts.path.rstrip("/"), parts.query, ""))


def secrets_of(record: Record) -> Iterator[str]:
    """The values in it that nobody else may see."""
    tokens, client = record.get("tokens") or {}, record.get("client") or {}
    for value in (tokens.get("access_token"), tokens.get("refresh_token"), client.get("client_secret")):
        if isinstance(value, str) and value:
            yield value


class Vault:
    def __init__(self, home: ForgeHome) -> None:
        self._home = home

    def load(self, resource: str) -> Record | None:
        issuer = self._index().get(resource)
        if not isinstance(issuer, str):
            return None
        key = _key(issuer, resource)
        record = _read_json(_from_keyring(key)) or _read_json(self._file(key))
        return record if record is not None and record.get("resource") == resource else None

    def save(self, resource: str, issuer: str, record: Record) -> None:
        key = _key(issuer, resource)
        text = json.dumps({**record, "resource": resource, "issuer": issuer})
        with self._locked():
            index = self._index()
            before = index.get(resource)
            if isinstance(before, str) and before != issuer:
                self._forget(_key(before, resource))
            if _to_keyring(key, text):
                self._unlink(key)
            else:
                self._write(key, text)
            self._write(_INDEX, json.dumps({**index, resource: issuer}))

    def remove(self, resource: str) -> bool:
        with self._locked():
            index = self._index()
            issuer = index.pop(resource, None)
            if not isinstance(issuer, str):
                return False
            self._forget(_key(issuer, resource))
            self._write(_INDEX, json.dumps(index))
            return True

    def _index(self) -> dict[str, Any]:
        return _read_json(self._file(_INDEX)) or {}

    def _forget(self, key: str) -> None:
        _out_of_keyring(key)
        self._unlink(key)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Two sessions may refresh at once; neither may lose the other's login from the index."""
        folder = self._home.ensure("state", "oauth")
        with open(os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600), "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _file(self, name: str) -> str | None:
        path = self._home.path / "state" / "oauth" / name
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), encoding="utf-8") as file:
                return file.read(_MOST_BYTES)
        except (OSError, ValueError):
            return None

    def _write(self, name: str, text: str) -> None:
        """Whole or not at all, and never for a moment readable by others."""
        folder = self._home.ensure("state", "oauth")
        temporary = folder / f".{name}.{secrets.token_hex(6)}"
        try:
            with open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, folder / name)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def _unlink(self, name: str) -> None:
        (self._home.path / "state" / "oauth" / name).unlink(missing_ok=True)


def _key(issuer: str, resource: str) -> str:
    return f"{digest([issuer, resource])[:32]}.json"


def _read_json(text: str | None) -> dict[str, Any] | None:
    try:
        read = json.loads(text) if text else None
    except ValueError:
        return None
    return read if isinstance(read, dict) else None


def _keyring() -> Any:
    """The keyring package where it is installed and has a real keyring behind it; else None."""
    try:
        import keyring  # type: ignore[import-not-found, unused-ignore]

        return keyring if keyring.get_keyring().priority >= 1 else None
    except Exception:  # its back ends raise what they like
        return None


def _from_keyring(key: str) -> str | None:
    ring = _keyring()
    with contextlib.suppress(Exception):
        found = ring.get_password(_SERVICE, key) if ring is not None else None
        return found if isinstance(found, str) else None
    return None


def _to_keyring(key: str, text: str) -> bool:
    """False: there is none, or it did not take it."""
    ring = _keyring()
    with contextlib.suppress(Exception):
        if ring is not None:
            ring.set_password(_SERVICE, key, text)
            return bool(ring.get_password(_SERVICE, key) == text)
    return False


def _out_of_keyring(key: str) -> None:
    ring = _keyring()
    with contextlib.suppress(Exception):
        if ring is not None:
            ring.delete_password(_SERVICE, key)
