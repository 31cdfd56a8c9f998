"""OAuth for servers over HTTP: `login`, `logout`, stored credentials, and the `auth` object for the transport.

`provider` returns an `auth` object that sends the stored token and refreshes it; it never opens a browser and never
asks. Without a usable token the server's 401 stands, which the transport reports as `needs_login`. Tokens appear in no
event, log or card; a Redactor that is passed in learns them.

`CredentialStore` keeps logins in the system keyring where there is one, else in FORGE_HOME/state/oauth
(`storage.home`). Records are stored by issuer and resource; an index maps a resource to its issuer. Two servers
with one URL share a login. A login that cannot be read counts as missing: the person logs in again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.core.errors import ForgeError
from golem_forge.core.json import digest
from golem_forge.mcp import lazy_sdk as sdk
from golem_forge.mcp.client.approval_text import display_text
from golem_forge.storage.home import MAX_CREDENTIAL, CredentialFolder, CredentialRecord, ForgeHome
from golem_forge.tools.threads import run_in_thread

if TYPE_CHECKING:
    from golem_forge.events.redaction import Redactor
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
    from golem_forge.mcp.client.oauth_flow import CallbackListener, InteractiveAuth
    from golem_forge.net.tls import client_tls

    if not (url or spec.url):
        raise ForgeError(f"{spec.name} is started as a program; only servers with a url have a login", code="NO_LOGIN")
    asking = InteractiveAuth(url or spec.url, CredentialStore(home), show_url, metadata_url)
    try:
        async with asyncio.timeout(seconds), CallbackListener(await asking.wanted_port()) as listener:
            asking.listen_with(listener)
            async with sdk.httpx2.AsyncClient(
                auth=asking, timeout=_REQUEST_SECONDS, follow_redirects=False, verify=client_tls()
            ) as client:
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
        raise ForgeError(f"{spec.name} does not accept the new token ({status})", code="LOGIN_REFUSED")


async def logout(spec: ServerSpec, home: ForgeHome, *, url: str = "") -> bool:
    """Forgets tokens and client registration. False: there were none."""
    return await run_in_thread(lambda: CredentialStore(home).remove(resource_of(url or spec.url)))


def _describe_failure(error: Exception) -> str:
    """Threat: what authorization servers answer may hold codes and tokens; it is repeated nowhere."""
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


LoginRecord = CredentialRecord
_FOLDER: Final = ("state", "oauth")


def resource_of(url: str) -> str:
    """A server's address as the name of what its tokens are for: no fragment, scheme and host in small letters."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme.lower(), parts.netloc.lower(), parts.path.rstrip("/"), parts.query, ""))


def secrets_of(record: LoginRecord) -> Iterator[str]:
    tokens, client = record.get("tokens") or {}, record.get("client") or {}
    for value in (tokens.get("access_token"), tokens.get("refresh_token"), client.get("client_secret")):
        if isinstance(value, str) and value:
            yield value


class CredentialStore:
    def __init__(self, home: ForgeHome) -> None:
        self._records = CredentialFolder(home, *_FOLDER, again="log in again")

    def load(self, resource: str) -> LoginRecord | None:
        issuer = self._records.index().get(resource)
        if not isinstance(issuer, str):
            return None
        record = self._records.load(_key(issuer, resource))
        return record if record is not None and record.get("resource") == resource else None

    def save(self, resource: str, issuer: str, record: LoginRecord) -> None:
        whole = {**record, "resource": resource, "issuer": issuer}
        if len(json.dumps(whole)) > MAX_CREDENTIAL:
            raise ForgeError(f"the login at {issuer} has more than {MAX_CREDENTIAL} bytes", code="LOGIN_TOO_LARGE")
        before = self._records.save(resource, issuer, _key(issuer, resource), whole)
        if isinstance(before, str) and before != issuer:
            self._records.forget(_key(before, resource))

    def remove(self, resource: str) -> bool:
        issuer = self._records.read_entry(resource)
        if not isinstance(issuer, str):
            return False
        self._records.forget(_key(issuer, resource))
        self._records.remove_entry(resource)
        return True


def _key(issuer: str, resource: str) -> str:
    return f"{digest([issuer, resource])[:32]}.json"
