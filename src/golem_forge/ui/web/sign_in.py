"""Sign-in of browsers at a provider of OpenID Connect, and how long it counts.

`begin` sends the browser to the provider; what belongs to this sign-in (state, nonce, PKCE verifier) goes with it in a
signed cookie, so that nothing is kept for those who never come back. `complete` takes the code, and logs in. From then
on the provider is asked again after `oidc.recheck`: before a request is answered, and for open sockets by `watch`.
Somebody who was removed there, or has no role any more, is logged out. While the provider does not answer, nobody signs
in, and those who are logged in only see (`is_confirmed`).

Threat: refresh tokens are worth a login at the provider. They are in the memory of this process alone, so after a
restart people sign in again. A page of another site can neither finish its own sign-in here (the cookie) nor read why
one failed: the page shows a sentence of its own for one of five words.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hmac
import json
import logging
import secrets
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.net.server_guard import has_port, header_values, is_loopback, secret_hash
from golem_forge.team.accounts import SIGN_IN_DOOR
from golem_forge.team.audit import LOG_IN
from golem_forge.team.database import StoreUnavailable, TeamError
from golem_forge.team.openid import OpenIdClient, ProviderAway, SignInBegun, SignInGrant
from golem_forge.team.store import Store
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.sdk import Request, Response
from golem_forge.ui.web.security import cookie_name
from golem_forge.ui.web.team import PAGE_DOOR, TeamLogin

BEGIN: Final = "/api/oidc/login"
CALLBACK: Final = "/api/oidc/callback"
_BEGUN_S: Final = 600.0
_MAX_GIVEN: Final = 8192
_RETRY_S: Final = 5.0
_WORDS: Final = {
    "SIGN_IN_AWAY": "away", "STORE_UNAVAILABLE": "away", "REMOVED": "removed", "SIGN_IN_ROLE": "role",
    "SIGN_IN_AGAIN": "again",
}  # fmt: skip
"""Code of a refusal → the word for the page; any other code is `refused`."""
_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Confirmed:
    """A login, and when the provider was last asked about it."""

    grant: SignInGrant
    name: str
    at: float
    retry: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class SignIn:
    def __init__(
        self,
        client: OpenIdClient,
        store: Store,
        login: TeamLogin,
        page: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`page`: the address that people type; empty: the one that a request names."""
        self.client = client
        self.paths = frozenset({BEGIN, CALLBACK})
        self.shown = urlsplit(client.issuer).hostname or ""
        self._store = store
        self._login = login
        self._page = page.rstrip("/")
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._confirmed: dict[str, _Confirmed] = {}
        """By the hash of the login's cookie."""

    # ---- coming in

    async def begin(self, request: Request) -> Response:
        try:
            begun = await self.client.begin(self._redirect_uri(request))
        except TeamError as error:
            return self._back(request, error)
        facts = {"state": begun.state, "nonce": begun.nonce, "verifier": begun.verifier}
        answer = Response(status_code=302, headers={"location": begun.url})
        self._set_begun(request, answer, self._signed(facts | {"until": self._clock() + _BEGUN_S}), int(_BEGUN_S))
        return answer

    async def complete(self, request: Request) -> Response:
        try:
            return await self._complete(request)
        except TeamError as error:
            _log.warning("a sign-in was refused: %s", error.message)
            refusal, accounts = error, self._store.accounts
        if not isinstance(refusal, ProviderAway | StoreUnavailable):
            with contextlib.suppress(TeamError):
                await run_in_thread(lambda: accounts.refuse("", SIGN_IN_DOOR, LOG_IN, refusal.message))
        return self._back(request, refusal)

    async def _complete(self, request: Request) -> Response:
        begun = self._begun(request)
        given = dict(request.query_params)
        if begun is None or len(str(request.url.query)) > _MAX_GIVEN:
            raise TeamError("This browser began no sign-in, or too long ago.", "SIGN_IN_AGAIN")
        asked = self._clock()
        grant = await self.client.complete(begun, self._redirect_uri(request), given)
        accounts, who = self._store.accounts, grant.who
        name = await run_in_thread(lambda: accounts.sign_in(who))
        await run_in_thread(lambda: accounts.log_in(name, PAGE_DOOR, f"OpenID Connect, {who.issuer}"))
        cookie = self._login.enter(who.key)
        self._confirmed[secret_hash(cookie)] = _Confirmed(grant=grant, name=name, at=asked)
        answer = self._back(request)
        self._login.set_cookie(request, answer, cookie, secure=self._is_secure(request))
        return answer

    def _back(self, request: Request, problem: TeamError | None = None) -> Response:
        """Redirects to the page, which shows the reason or the content."""
        word = f"#sign-in={_WORDS.get(problem.code, 'refused')}" if problem is not None else ""
        answer = Response(status_code=302, headers={"location": f"/{word}"})
        self._set_begun(request, answer, "", 0)
        return answer

    # ---- what the browser keeps meanwhile

    def _signed(self, facts: dict[str, Any]) -> str:
        words = base64.urlsafe_b64encode(json.dumps(facts).encode()).decode()
        return f"{words}.{self._mac(words)}"

    def _mac(self, words: str) -> str:
        return hmac.new(self._key, words.encode(), "sha256").hexdigest()

    def _begun(self, request: Request) -> SignInBegun | None:
        words, _, mac = request.cookies.get(_begun_name(request), "").partition(".")
        if not words or not hmac.compare_digest(self._mac(words).encode(), mac.encode()):
            return None
        try:
            facts = json.loads(base64.urlsafe_b64decode(words))
        except (ValueError, binascii.Error):
            return None
        until = facts.pop("until")
        return SignInBegun(url="", **facts) if until > self._clock() else None

    def _set_begun(self, request: Request, answer: Response, value: str, seconds: int) -> None:
        """Lax: it must come along when the provider sends the browser back."""
        kept = f"{_begun_name(request)}={value}; Max-Age={seconds}; Path={CALLBACK}; HttpOnly; SameSite=Lax"
        answer.headers.append("set-cookie", kept + ("; Secure" if self._is_secure(request) else ""))

    def _origin(self, request: Request) -> str:
        """The guard has checked that the host is ours. A proxy in front speaks https to everybody but this machine."""
        if self._page:
            return self._page
        [host] = header_values(request.scope, b"host")
        bare = host.rpartition(":")[0] if has_port(host) else host
        return f"{'http' if is_loopback(bare) else 'https'}://{host}"

    def _is_secure(self, request: Request) -> bool:
        return self._origin(request).startswith("https://")

    def _redirect_uri(self, request: Request) -> str:
        return self._origin(request) + CALLBACK

    # ---- whether it still counts

    def is_confirmed(self, cookie: str) -> bool:
        """Whether the provider was asked about this login within `oidc.recheck`."""
        found = self._confirmed.get(secret_hash(cookie))
        return found is not None and self._clock() - found.at < self.client.settings.recheck

    async def confirm(self, cookie: str) -> bool:
        """Asks the provider, if it is time. False: this login is over."""
        return await self._confirm(secret_hash(cookie), self.client.settings.recheck)

    async def _confirm(self, cookie_hash: str, age: float) -> bool:
        found = self._confirmed.get(cookie_hash)
        if found is None:
            return False
        async with found.lock:
            if cookie_hash not in self._confirmed:  # it ended while this one waited: a page asks many things at once
                return False
            now = self._clock()
            if now - found.at < age or now < found.retry:
                return True
            try:
                found.grant = await self.client.renew(found.grant)
                await run_in_thread(lambda: self._store.accounts.sign_in(found.grant.who))
            except (ProviderAway, StoreUnavailable) as error:
                found.retry = self._clock() + min(_RETRY_S, self.client.settings.recheck)
                _log.warning("%s is not confirmed: %s", found.name, error.message)
            except TeamError as error:
                await self._end(cookie_hash, found, error.message)
                return False
            else:
                found.at = now
        return True

    async def _end(self, cookie_hash: str, found: _Confirmed, why: str) -> None:
        self._confirmed.pop(cookie_hash, None)  # `watch` may have dropped it while the provider was asked
        self._login.end(cookie_hash)
        with contextlib.suppress(TeamError):
            await run_in_thread(lambda: self._store.accounts.log_out(found.name, SIGN_IN_DOOR, why))

    async def watch(self) -> None:
        """Confirms logins with open sockets in time and drops ended ones, until it is cancelled."""
        recheck = self.client.settings.recheck
        while True:
            await asyncio.sleep(recheck / 4)
            for cookie_hash in [each for each in self._confirmed if not self._login.has(each)]:
                del self._confirmed[cookie_hash]
            due = [each for each in self._confirmed if self._login.is_watched(each)]
            await asyncio.gather(*(self._confirm(each, recheck / 2) for each in due), return_exceptions=True)


def _begun_name(request: Request) -> str:
    return f"{cookie_name(request.scope)}_oidc"
