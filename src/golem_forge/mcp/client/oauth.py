"""OAuth for servers over HTTP: `login`, `logout`, stored credentials, and the `auth` object for the transport.

`provider` returns an `auth` object that sends the stored token and refreshes it; it never opens a browser and never
asks. Without a usable token the server's 401 stands, which the transport reports as `needs_login`. Tokens appear in no
event, log or card; a Redactor that is passed in learns them.

`CredentialStore` uses the OS keyring where there is one, else FORGE_HOME/state/oauth (0600). Records are stored by
issuer and resource; an index maps a resource to its issuer. Two servers with one URL share a login. A record that
cannot be read counts as missing: the person logs in again. One that is too large raises ForgeError: it may hold logins
that are still in use. Blocking; call it off the event loop.
"""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.core.errors import ForgeError
from golem_forge.core.json import digest
from golem_forge.mcp.client.untrusted_text import display_text
from golem_forge.storage.home import ForgeHome
from golem_forge.storage.private_file import JSON_FILE_ERRORS, locked, read_json, write_private
from golem_forge.tools.threads import run_in_thread

if TYPE_CHECKING:
    from golem_forge.events.redaction import Redactor
    from golem_forge.mcp import sdk

LOGIN_SECONDS: Final = 300.0
_REQUEST_SECONDS: Final = 30.0
_MOST_WORDS: Final = 300


def provider(spec: ServerSpec, home: ForgeHome, *, url: str = "", redactor: Redactor | None = None) -> sdk.httpx2.Auth:
    """`url`: the server's address with its variables put in, where it has any."""
    from golem_forge.mcp.client.oauth_flow import StoredTokenAuth

    return StoredTokenAuth(url or spec.url, CredentialStore(home), redactor)


async def login(
    spec: ServerSpec,
    home: ForgeHome,
    *,
    show_url: Callable[[str], object],
    url: str = "",
    seconds: float = LOGIN_SECONDS,
    metadata_url: str | None = None,
) -> None:
    """Shows the person the page to open and waits for what their browser brings back. Raises ForgeError.

    `metadata_url`: a published document that describes this client, for servers that take one instead of registering.
    """
    import asyncio

    from golem_forge.mcp import sdk
    from golem_forge.mcp.client.oauth_flow import CallbackListener, InteractiveAuth

    if not (url or spec.url):
        raise ForgeError(f"{spec.name} is started as a program; only servers with a url have a login", code="NO_LOGIN")
    asking = InteractiveAuth(url or spec.url, CredentialStore(home), show_url, metadata_url)
    try:
        async with asyncio.timeout(seconds), CallbackListener(await asking.wanted_port()) as listener:
            asking.listen_with(listener)
            async with sdk.httpx2.AsyncClient(auth=asking, timeout=_REQUEST_SECONDS, follow_redirects=False) as client:
                status = await _probe_server(client, asking.server_url)
    except TimeoutError:
        raise ForgeError(f"nobody finished the login within {seconds:g} seconds", code="LOGIN_TIMEOUT") from None
    except (sdk.OAuthFlowError, sdk.ValidationError) as error:
        raise ForgeError(f"the login failed: {_describe_failure(error)}", code="LOGIN_FAILED") from None
    except sdk.httpx2.HTTPError as error:
        raise ForgeError(f"{spec.name} cannot be reached ({type(error).__name__})", code="UNREACHABLE") from None
    if not asking.finished:
        raise ForgeError(f"{spec.name} did not ask for a login (it answered {status})", code="NO_LOGIN")
    if status in (401, 403):
        raise ForgeError(f"{spec.name} does not take the token it was given ({status})", code="LOGIN_REFUSED")


async def logout(spec: ServerSpec, home: ForgeHome, *, url: str = "") -> bool:
    """Forgets tokens and client registration. False: there were none."""
    return await run_in_thread(lambda: CredentialStore(home).remove(resource_of(url or spec.url)))


def _describe_failure(error: Exception) -> str:
    """Threat: what authorization servers answer may hold codes and tokens; it is repeated nowhere."""
    from golem_forge.mcp import sdk

    if isinstance(error, sdk.OAuthTokenError):
        return "the authorization server gave no token"
    if isinstance(error, sdk.OAuthRegistrationError):
        return "the authorization server did not register this client"
    if isinstance(error, sdk.ValidationError):
        return "the authorization server sent something that cannot be read"
    return display_text(str(error), _MOST_WORDS)


async def _probe_server(client: sdk.httpx2.AsyncClient, url: str) -> int:
    """A request that does nothing at any server, and that one which wants a login answers with 401. The body, which
    may be a stream without end, is not read."""
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {"accept": "application/json, text/event-stream"}
    async with client.stream("POST", url, json=ping, headers=headers) as response:
        return response.status_code


LoginRecord = dict[str, Any]
_SERVICE: Final = "golem-forge"
_FOLDER: Final = ("state", "oauth")
_INDEX: Final = "index.json"
_LOCK: Final = "lock"
_MOST_BYTES: Final = 1 << 20


def resource_of(url: str) -> str:
    """A server's address as the name of what its tokens are for: no fragment, scheme and host in small letters."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme.lower(), parts.netloc.lower(), parts.path.rstrip("/"), parts.query, ""))


def secrets_of(record: LoginRecord) -> Iterator[str]:
    """The values in it that nobody else may see."""
    tokens, client = record.get("tokens") or {}, record.get("client") or {}
    for value in (tokens.get("access_token"), tokens.get("refresh_token"), client.get("client_secret")):
        if isinstance(value, str) and value:
            yield value


class CredentialStore:
    def __init__(self, home: ForgeHome) -> None:
        self._home = home

    def load(self, resource: str) -> LoginRecord | None:
        issuer = self._index().get(resource)
        if not isinstance(issuer, str):
            return None
        key = _key(issuer, resource)
        record = _from_keyring(key) or self._read(key)
        return record if record is not None and record.get("resource") == resource else None

    def save(self, resource: str, issuer: str, record: LoginRecord) -> None:
        key = _key(issuer, resource)
        text = json.dumps({**record, "resource": resource, "issuer": issuer})
        if len(text) > _MOST_BYTES:
            raise ForgeError(f"the login at {issuer} has more than {_MOST_BYTES} bytes", code="LOGIN_TOO_LARGE")
        in_keyring = _to_keyring(key, text)  # without the lock: the keyring may ask its user first
        with self._locked():
            index = self._index()
            before = index.get(resource)
            if in_keyring:
                self._unlink(key)
            else:
                self._write(key, text)
            self._write(_INDEX, json.dumps({**index, resource: issuer}))
        if isinstance(before, str) and before != issuer:
            self._forget(_key(before, resource))

    def remove(self, resource: str) -> bool:
        with self._locked():
            issuer = self._index().get(resource)
        if not isinstance(issuer, str):
            return False
        self._forget(_key(issuer, resource))
        with self._locked():
            index = self._index()
            index.pop(resource, None)
            self._write(_INDEX, json.dumps(index))
        return True

    def _index(self) -> dict[str, Any]:
        return self._read(_INDEX) or {}

    def _forget(self, key: str) -> None:
        _keyring("delete_password", key)
        self._unlink(key)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Two sessions may refresh at once; neither may lose the other's login from the index."""
        lock = self._home.ensure(*_FOLDER) / _LOCK
        with locked(lock, self._home.shown(lock)):
            yield

    def _path(self, name: str) -> Path:
        return self._home.path.joinpath(*_FOLDER, name)

    def _read(self, name: str) -> LoginRecord | None:
        path = self._path(name)
        try:
            return _mapping(read_json(path, _MOST_BYTES))
        except JSON_FILE_ERRORS as error:
            if isinstance(error, OSError) and error.errno == errno.EFBIG:
                raise ForgeError(
                    f"{self._home.shown(path)} is larger than {_MOST_BYTES} bytes; remove it and log in again",
                    code="LOGIN_UNREADABLE",
                ) from None
            return None

    def _write(self, name: str, text: str) -> None:
        self._home.ensure(*_FOLDER)
        write_private(self._path(name), text.encode())

    def _unlink(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)


def _key(issuer: str, resource: str) -> str:
    return f"{digest([issuer, resource])[:32]}.json"


def _mapping(value: Any) -> LoginRecord | None:
    return value if isinstance(value, dict) else None


def _keyring(operation: str, *args: str) -> Any:
    """What the OS keyring answers; None where the package is missing, has no real keyring behind it, or fails."""
    with contextlib.suppress(Exception):  # its back ends raise what they like
        import keyring  # type: ignore[import-not-found, unused-ignore]

        if keyring.get_keyring().priority >= 1:
            return getattr(keyring, operation)(_SERVICE, *args)
    return None


def _from_keyring(key: str) -> LoginRecord | None:
    try:
        return _mapping(json.loads(_keyring("get_password", key)))
    except (TypeError, ValueError, RecursionError):
        return None


def _to_keyring(key: str, text: str) -> bool:
    """False: there is none, or it did not take it."""
    _keyring("set_password", key, text)
    return bool(_keyring("get_password", key) == text)
