"""The SDK's OAuth client in two forms: one uses stored tokens, one asks a person. Imports the SDK; import it when used.

Both keep what they learn in the credential store: tokens with expiry, the client registration, and the token endpoint,
so that the next session needs no discovery. `CallbackListener` waits once on a loopback port for the authorization
code: only `GET /callback` with the current `state` counts, and nothing of a request is repeated in an answer.

Threat: a server that sends us to addresses on this machine or without TLS, or that answers without end: every request
of the flow is checked and every answer is read to a limit. Any page in the browser and any local program can call the
loopback port.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from secrets import compare_digest
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel

from golem_forge.config.mcp_spec import is_loopback
from golem_forge.core.errors import ForgeError
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars
from golem_forge.mcp import sdk
from golem_forge.mcp.client.active_calls import RequestRefused, checked_url
from golem_forge.mcp.client.oauth import CredentialStore, LoginRecord, resource_of, secrets_of
from golem_forge.tools.threads import run_in_thread

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


class _OAuthLogin(sdk.OAuthClientProvider):
    def __init__(
        self, url: str, vault: CredentialStore, redactor: Redactor | None = None, metadata_url: str | None = None
    ) -> None:
        self.server_url = url
        self._redactor = redactor
        self.stored = StoredLogin(vault, resource_of(url))
        self.stored.issuer = self._expected_issuer
        self.stored.discovered = self._learnt
        self.stored.on_secrets = self._keep_secret
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

    def _learnt(self) -> LoginRecord:
        context = self.context
        parts = {"metadata": context.oauth_metadata, "resourceMetadata": context.protected_resource_metadata}
        known = {name: part.model_dump(mode="json", exclude_none=True) for name, part in parts.items() if part}
        return {**known, "authServer": context.auth_server_url, "expiresAt": context.token_expiry_time}

    def _keep_secret(self, record: LoginRecord) -> None:
        redactor = self._redactor
        for value in secrets_of(record):
            if redactor is not None and value not in redactor.secrets:
                redactor.add_secret("OAUTH_TOKEN", value)

    def _checked(self, request: sdk.httpx2.Request) -> sdk.httpx2.Request:
        """A request of the flow's own. Plain http is for this machine, and only where the server itself is on it."""
        url = request.url
        at_home = is_loopback(str(url.host)) and is_loopback(urlsplit(self.server_url).hostname or "")
        if url.scheme != "https" and not (url.scheme == "http" and at_home):
            host = escape_control_chars(str(url.host)[:100])
            raise ForgeError(f"the login leads to {host} without TLS; Forge does not follow it", code="LOGIN_REFUSED")
        return request


class StoredTokenAuth(_OAuthLogin):
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
        if response.status_code == 403 and await self._has_newer(response, sent):
            self._authorize(request)
            yield request
            return
        if response.status_code != 401 or not sent:
            return
        _bound_response(response)
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
        """Returns the request that renews the token; None if another session renewed it meanwhile, or it cannot be
        renewed.
        """
        held = self._token()
        await self._initialize()
        if (self._token() != held and not self._is_old()) or not self.context.can_refresh_token():
            return None
        return self._checked(await self._refresh_token())

    async def _renewed(self, response: sdk.httpx2.Response) -> None:
        if response.status_code >= 500:
            return  # says nothing about the token
        tried = self._token()
        if await self._handle_refresh_response(_bound_response(response)):
            return
        await self._initialize()  # another session may have been quicker: the refresh token is then spent, not refused
        if self._token() == tried:
            self.context.clear_tokens()

    async def _has_newer(self, response: sdk.httpx2.Response, sent: str) -> bool:
        """Whether the token lacked a scope, and another session or a login has stored another one meanwhile. Else the
        next login asks for that scope. What is stored now counts: a login that was renewed or removed stays so.
        """
        if not (wanted := sdk.extract_scope_from_www_auth(response)):
            return False
        async with self.context.lock:
            await self._initialize()
            if self._token() == sent:
                await self.stored.note_scope(wanted)
            return self._token() not in ("", sent)


class InteractiveAuth(_OAuthLogin):
    """The whole flow, with a person and their browser in the middle. For one login."""

    def __init__(
        self, url: str, vault: CredentialStore, show_url: Callable[[str], object], metadata_url: str | None = None
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
                outgoing = await flow.asend(_bound_response(response))
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
        try:
            checked_url(url)
        except RequestRefused as refusal:
            raise ForgeError(f"the login page cannot be shown: {refusal.message}", code="LOGIN_REFUSED") from None
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[-1]
        shown = self._show_url(url)
        if inspect.isawaitable(shown):
            await shown

    async def _brought(self) -> sdk.AuthorizationCodeResult:
        assert self._listener is not None
        brought = await self._listener.wait_code(self._state)
        return sdk.AuthorizationCodeResult(code=brought.code, state=brought.state, iss=brought.iss)


def _client_metadata(redirect_uri: str) -> sdk.OAuthClientMetadata:
    return sdk.OAuthClientMetadata.model_validate({"client_name": _CLIENT_NAME, "redirect_uris": [redirect_uri]})


class _BoundedStream(sdk.httpx2.AsyncByteStream):
    """A body that is read to a limit, by the flow or by the HTTP client itself."""

    def __init__(self, stream: sdk.httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = _MOST_BYTES
        async for piece in self._stream:
            left -= len(piece)
            if left < 0:
                raise ForgeError("the login server sends too much data", code="LOGIN_REFUSED")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


def _bound_response(response: sdk.httpx2.Response) -> sdk.httpx2.Response:
    if isinstance(response.stream, sdk.httpx2.AsyncByteStream):
        response.stream = _BoundedStream(response.stream)
    return response


_M = TypeVar("_M", bound=BaseModel)
_LONGEST_SCOPE: Final = 4096


class StoredLogin:
    def __init__(self, vault: CredentialStore, resource: str) -> None:
        self._vault = vault
        self._resource = resource
        self.record: LoginRecord = {}
        self.issuer: Callable[[], str] = lambda: ""
        self.discovered: Callable[[], LoginRecord] = dict
        """What the flow knows beside tokens and registration; set by it."""
        self.on_secrets: Callable[[LoginRecord], None] = lambda record: None

    async def load(self) -> LoginRecord:
        self.record = await run_in_thread(lambda: self._vault.load(self._resource) or {})
        self.on_secrets(self.record)
        return self.record

    async def get_tokens(self) -> sdk.OAuthToken | None:
        return read_model(sdk.OAuthToken, self.record.get("tokens"))

    async def get_client_info(self) -> sdk.OAuthClientInformationFull | None:
        return read_model(sdk.OAuthClientInformationFull, self.record.get("client"))

    async def set_tokens(self, tokens: sdk.OAuthToken) -> None:
        self.record.pop("wantedScope", None)
        await self._save({"tokens": tokens.model_dump(mode="json", exclude_none=True)})

    async def set_client_info(self, client_info: sdk.OAuthClientInformationFull) -> None:
        await self._save({"client": client_info.model_dump(mode="json", exclude_none=True)})

    async def note_scope(self, scope: str) -> None:
        """Stores the scope that the server wanted beyond the granted one, for the next login."""
        if self.record:
            await self._save({"wantedScope": scope[:_LONGEST_SCOPE]})

    async def _save(self, news: LoginRecord) -> None:
        self.record = {**self.record, **self.discovered(), **news}
        self.on_secrets(self.record)
        issuer = self.issuer()
        await run_in_thread(lambda: self._vault.save(self._resource, issuer, self.record))


def read_model(model: type[_M], value: Any) -> _M | None:
    """A stored part, or None where it is not there or not what it was."""
    try:
        return model.model_validate(value) if value is not None else None
    except sdk.ValidationError:
        return None


CALLBACK_PATH: Final = "/callback"
_HOST: Final = "127.0.0.1"
_MAX_HEADER_BYTES: Final = 16 * 1024
_READ_S: Final = 10.0
_ERROR_CODE: Final = regex(r"[a-z_]{1,60}")
_PAGE: Final = (
    "<!doctype html><meta charset=utf-8><title>Golem Forge</title>"
    "<body style='font-family:system-ui;margin:4em auto;max-width:30em'><p>{words}</p>"
)


class CallbackResult(NamedTuple):
    code: str
    state: str
    iss: str | None


class CallbackListener:
    def __init__(self, port: int = 0) -> None:
        """`port`: the one that was registered before, if it is free; else any."""
        self._wanted = port
        self._server: asyncio.Server | None = None
        self._state = ""
        self._brought: asyncio.Future[CallbackResult]
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self.port}{CALLBACK_PATH}"

    async def __aenter__(self) -> CallbackListener:
        self._brought = asyncio.get_running_loop().create_future()
        try:
            self._server = await asyncio.start_server(self._take, _HOST, self._wanted, limit=_MAX_HEADER_BYTES)
        except OSError:
            self._server = await asyncio.start_server(self._take, _HOST, 0, limit=_MAX_HEADER_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()

    async def wait_code(self, state: str) -> CallbackResult:
        """Waits for the browser's callback of the login with this state. Raises ForgeError if the person
        was refused.
        """
        self._state = state
        return await self._brought

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_READ_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, words = self._judge(head.split(b"\r\n", 1)[0].decode("ascii", "replace"))
                body = _PAGE.format(words=words).encode()
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
                    "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    def _judge(self, request_line: str) -> tuple[str, str]:
        method, _, rest = request_line.partition(" ")
        target = urlsplit(rest.rpartition(" ")[0])
        if method != "GET" or target.path != CALLBACK_PATH:
            return "404 Not Found", "There is nothing here."
        given = {name: values[0] for name, values in parse_qs(target.query, max_num_fields=20).items()}
        state = given.get("state", "")
        ours = bool(self._state) and compare_digest(state.encode(), self._state.encode())
        if not ours or self._brought.done():
            return "400 Bad Request", "Forge does not wait for this login."
        if code := given.get("code"):
            self._brought.set_result(CallbackResult(code, state, given.get("iss")))
            return "200 OK", "You are logged in. You can close this page and go back to Forge."
        found = _ERROR_CODE.fullmatch(given.get("error", ""))
        reason = found[0] if found else "no code was sent"
        self._brought.set_exception(ForgeError(f"the login was refused: {reason}", code="LOGIN_REFUSED"))
        return "200 OK", "The login was refused. You can close this page."
