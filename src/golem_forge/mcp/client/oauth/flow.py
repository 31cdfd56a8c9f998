"""The SDK's OAuth client, twice: one that only uses what is stored, one that asks a person. Imported when one is used.

Both keep what they learn in the vault: tokens with their expiry, the registration, and where tokens are refreshed, so
that the next session needs no discovery. Threat: a server that sends us to addresses on this machine or without TLS to
hand out codes and tokens, or that answers with more than anybody can hold; each request of the flow's own is checked
and each answer is read to a limit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

from golem_forge.config.mcp.address import is_loopback
from golem_forge.core.errors import ForgeError
from golem_forge.core.visible import visible
from golem_forge.mcp import sdk
from golem_forge.mcp.client.asking.elicited_url import checked_url
from golem_forge.mcp.client.asking.request_errors import Refused
from golem_forge.mcp.client.oauth.callback import CallbackListener
from golem_forge.mcp.client.oauth.stored import StoredLogin, read_model
from golem_forge.mcp.client.oauth.vault import Record, Vault, resource_of, secrets_of

if TYPE_CHECKING:
    from golem_forge.events.redaction import Redactor

_CLIENT_NAME: Final = "Golem Forge"
_NO_PORT_YET: Final = "http://127.0.0.1/callback"
_MOST_BYTES: Final = 256 * 1024
_EARLY_S: Final = 30.0
"""A token that is about to expire is refreshed before it does."""
_Flow = AsyncGenerator[sdk.httpx2.Request, sdk.httpx2.Response]

for _name in ("mcp.client.auth.oauth2", "mcp.client.auth.utils"):
    # Threat: they log what authorization servers answer, and the state of a login, word by word.
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)


class _Login(sdk.OAuthClientProvider):
    def __init__(
        self, url: str, vault: Vault, redactor: Redactor | None = None, metadata_url: str | None = None
    ) -> None:
        self.server_url = url
        self._redactor = redactor
        self.stored = StoredLogin(vault, resource_of(url))
        self.stored.issuer = self._expected_issuer
        self.stored.learnt = self._learnt
        self.stored.told = self._keep_secret
        super().__init__(url, _client_metadata(_NO_PORT_YET), self.stored, client_metadata_url=metadata_url)

    async def _initialize(self) -> None:
        record = await self.stored.load()
        context = self.context
        context.oauth_metadata = read_model(sdk.OAuthMetadata, record.get("metadata"))
        context.protected_resource_metadata = read_model(sdk.ProtectedResourceMetadata, record.get("resourceMetadata"))
        context.auth_server_url = record.get("authServer") or None
        await super()._initialize()
        expires = record.get("expiresAt")
        context.token_expiry_time = float(expires) if isinstance(expires, (int, float)) else None

    def _learnt(self) -> Record:
        context = self.context
        parts = {"metadata": context.oauth_metadata, "resourceMetadata": context.protected_resource_metadata}
        known = {name: part.model_dump(mode="json", exclude_none=True) for name, part in parts.items() if part}
        return {**known, "authServer": context.auth_server_url, "expiresAt": context.token_expiry_time}

    def _keep_secret(self, record: Record) -> None:
        redactor = self._redactor
        for value in secrets_of(record):
            if redactor is not None and value not in redactor.secrets:
                redactor.add_secret("OAUTH_TOKEN", value)

    def _checked(self, request: sdk.httpx2.Request) -> sdk.httpx2.Request:
        """A request of the flow's own. Plain http is for this machine, and only where the server itself is on it."""
        url = request.url
        at_home = is_loopback(str(url.host)) and is_loopback(urlsplit(self.server_url).hostname or "")
        if url.scheme != "https" and not (url.scheme == "http" and at_home):
            host = visible(str(url.host)[:100])
            raise ForgeError(f"the login leads to {host} without TLS; that is not followed", code="LOGIN_REFUSED")
        return request


class SilentLogin(_Login):
    """Sends the stored token, refreshes it, and leaves the server's 401 as it is where neither helps."""

    async def _auth_flow(self, request: sdk.httpx2.Request) -> _Flow:
        """The lock is held while a token is renewed, not while the server works: calls go on side by side."""
        async with self.context.lock:
            if not self._initialized:
                await self._initialize()
            if self._is_old() and (renewal := await self._renewal()) is not None:
                await self._renewed((yield renewal))
        sent = self._authorize(request)
        response = yield request
        if response.status_code == 403:
            await self._note_scope(response)
        if response.status_code != 401 or not sent:
            return
        _bounded(response)
        renewal = None
        async with self.context.lock:  # revoked, or expired before its time
            if self._token() == sent and (renewal := await self._renewal()) is not None:
                await self._renewed((yield renewal))
        if renewal is not None or self._token() != sent:  # the last answer has to be the server's, not the renewal's
            self._authorize(request)
            yield request

    def _token(self) -> str:
        tokens = self.context.current_tokens
        return tokens.access_token if tokens is not None else ""

    def _authorize(self, request: sdk.httpx2.Request) -> str:
        """Puts the token on the request and gives it; empty: there is none."""
        request.headers.pop("Authorization", None)
        if token := self._token():
            request.headers["Authorization"] = f"Bearer {token}"
        return token

    def _is_old(self) -> bool:
        expires = self.context.token_expiry_time
        return expires is not None and time.time() >= expires - _EARLY_S

    async def _renewal(self) -> sdk.httpx2.Request | None:
        """None: another session renewed the token meanwhile, or there is nothing to renew it with."""
        held = self._token()
        await self._initialize()
        if (self._token() != held and not self._is_old()) or not self.context.can_refresh_token():
            return None
        return self._checked(await self._refresh_token())

    async def _renewed(self, response: sdk.httpx2.Response) -> None:
        if response.status_code >= 500:
            return  # says nothing about the token
        tried = self._token()
        if await self._handle_refresh_response(_bounded(response)):
            return
        await self._initialize()  # another session may have been quicker: the refresh token is then spent, not refused
        if self._token() == tried:
            self.context.clear_tokens()

    async def _note_scope(self, response: sdk.httpx2.Response) -> None:
        if wanted := sdk.extract_scope_from_www_auth(response):
            await self.stored.note_scope(wanted)


class AskingLogin(_Login):
    """The whole flow, with a person and their browser in the middle. For one login."""

    def __init__(
        self, url: str, vault: Vault, show_url: Callable[[str], object], metadata_url: str | None = None
    ) -> None:
        super().__init__(url, vault, metadata_url=metadata_url)
        self._show_url = show_url
        self._listener: CallbackListener | None = None
        self._state = ""
        self.finished = False
        """Whether a token was given."""

    async def wanted_port(self) -> int:
        """The port this client registered with before: not every authorization server takes another one."""
        await self.stored.load()
        client = await self.stored.get_client_info()
        ports = [uri.port for uri in (client.redirect_uris or ()) if uri.host == "127.0.0.1"] if client else []
        return ports[0] or 0 if ports else 0

    def listen_with(self, listener: CallbackListener) -> None:
        self._listener = listener
        self.context.client_metadata = _client_metadata(listener.url)
        self.context.redirect_handler = self._show
        self.context.callback_handler = self._brought

    async def _initialize(self) -> None:
        """A login begins without tokens, and with a registration only if that is for the port we listen on."""
        await super()._initialize()
        self.context.clear_tokens()
        client = self.context.client_info
        assert self._listener is not None
        if client is not None and self._listener.url not in [str(uri) for uri in client.redirect_uris or ()]:
            self.context.client_info = None

    async def _auth_flow(self, request: sdk.httpx2.Request) -> _Flow:
        flow = super()._auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                response = yield (request if outgoing is request else self._checked(outgoing))
                outgoing = await flow.asend(_bounded(response))
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    async def _perform_authorization_code_grant(self) -> tuple[str, str]:
        metadata = self.context.client_metadata
        metadata.scope = sdk.union_scopes(metadata.scope, self.stored.record.get("wantedScope"))
        return await super()._perform_authorization_code_grant()

    async def _handle_token_response(self, response: sdk.httpx2.Response) -> None:
        await super()._handle_token_response(response)
        self.finished = True

    async def _show(self, url: str) -> None:
        import inspect

        try:
            checked_url(url)
        except Refused as refusal:
            raise ForgeError(f"the login page cannot be shown: {refusal.message}", code="LOGIN_REFUSED") from None
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[-1]
        shown = self._show_url(url)
        if inspect.isawaitable(shown):
            await shown

    async def _brought(self) -> sdk.AuthorizationCodeResult:
        assert self._listener is not None
        brought = await self._listener.brought(self._state)
        return sdk.AuthorizationCodeResult(code=brought.code, state=brought.state, iss=brought.iss)


def _client_metadata(redirect_uri: str) -> sdk.OAuthClientMetadata:
    return sdk.OAuthClientMetadata.model_validate({"client_name": _CLIENT_NAME, "redirect_uris": [redirect_uri]})


class _Bounded(sdk.httpx2.AsyncByteStream):
    """A body that is read to a limit, by the flow or by the HTTP client itself."""

    def __init__(self, stream: sdk.httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = _MOST_BYTES
        async for piece in self._stream:
            left -= len(piece)
            if left < 0:
                raise ForgeError("the login server sends more than anybody can hold", code="LOGIN_REFUSED")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


def _bounded(response: sdk.httpx2.Response) -> sdk.httpx2.Response:
    if isinstance(response.stream, sdk.httpx2.AsyncByteStream):
        response.stream = _Bounded(response.stream)
    return response
