"""Sign-in with OpenID Connect: authorization code with PKCE, at one provider.

`OpenIdClient` takes what the person's configuration says of the provider. `begin` gives the address at which somebody
signs in; `complete` exchanges the code that comes back for a `SignInGrant`: who it is, with the role that their groups
give them, and a refresh token; `renew` asks the provider again whether they are still the same. PyJWT checks tokens,
httpx2 fetches; both are loaded at first use.

Refuses (`SignInRefused`): a token of another issuer, audience, nonce or subject, one that is expired or not yet valid
by more than `SKEW_S`, one that is not signed by a key that the provider publishes now, or with an algorithm that is not
asymmetric; a provider that gives no refresh token, because nobody could be removed there; somebody without a group that
gives a role. Raises `ProviderAway` where it does not answer: nothing is known then.
Threat: a code of another's sign-in that is brought to this one (state, nonce, PKCE, RFC 9207 `iss`), a provider's
answers that never end (bounded in size and time), a redirect to elsewhere (none is followed), an address without TLS
(on this machine only).
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import secrets
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from golem_forge.config.store_block import SignInSettings
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import one_line
from golem_forge.net.server_guard import is_loopback
from golem_forge.team.accounts import SignedIn
from golem_forge.team.database import TeamError

SKEW_S: Final = 60.0
"""Allowed difference between the clocks of the provider and this machine, in seconds."""
_TIMEOUT_S: Final = 10.0
_MAX_BYTES: Final = 1 << 20
_MAX_KEPT_S: Final = 300.0
"""TTL of the provider's published data; `recheck` counts if it is shorter."""
_MAX_CLAIM: Final = 255
_MAX_GROUPS: Final = 2000
_LEAST_RSA_BITS: Final = 2048
_AT_ONCE: Final = 16
_RETRY_S: Final = 2.0
"""Seconds until a provider that did not answer is asked again."""
_KEY_TYPES: Final = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "OKP",
}
"""Signing algorithm of a token → key type."""
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._@-]+")
_ROLES: Final = ("admin", "operator", "viewer")
_EVERYBODY: Final = "*"


class SignInRefused(TeamError):
    """The provider, or what it says, lets this person not in."""

    def __init__(self, message: str, code: str = "SIGN_IN_REFUSED") -> None:
        super().__init__(message, code)


class ProviderAway(TeamError):
    """The provider does not answer; trying again may help."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "SIGN_IN_AWAY")


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInBegun:
    """The state that the browser keeps until it comes back from the provider."""

    url: str
    state: str
    nonce: str
    verifier: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInGrant:
    who: SignedIn
    refresh_token: str
    nonce: str


def issuer_problem(issuer: str) -> str:
    """Why this cannot be the address of a provider; empty: it can."""
    try:
        parts = urlsplit(issuer)
        fits = bool(parts.hostname) and parts.port != 0 and not parts.query and not parts.fragment
    except ValueError:
        return "it cannot be read"
    if not fits or "@" in parts.netloc or parts.scheme not in ("https", "http"):
        return "write an address like https://login.example.com/realms/team"
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        return "a provider is reached by https (http only on this machine)"
    return ""


class OpenIdClient:
    def __init__(
        self, issuer: str, settings: SignInSettings, secret: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`issuer` must pass `issuer_problem`."""
        self.issuer = issuer
        self.settings = settings
        self._secret = secret
        self._clock = clock
        self._kept_s = min(settings.recheck, _MAX_KEPT_S)
        self._http: Any = None
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._strangers = asyncio.Semaphore(_AT_ONCE // 2)
        """Of those who are not known yet: however many they are, others are asked about in time."""
        self._kept: dict[str, tuple[float, dict[str, Any]]] = {}
        self._failed: dict[str, tuple[float, ProviderAway]] = {}

    # ---- signing in

    async def begin(self, redirect_uri: str) -> SignInBegun:
        async with self._strangers:
            metadata = await self.metadata()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = base64.urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(self.settings.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        if "offline_access" in self.settings.scopes:
            asked["prompt"] = "consent"  # without it a provider need not give a refresh token (OpenID Connect, 11)
        address = metadata["authorization_endpoint"]
        url = f"{address}{'&' if urlsplit(address).query else '?'}{urlencode(asked)}"
        return SignInBegun(url=url, state=state, nonce=nonce, verifier=verifier)

    async def complete(self, begun: SignInBegun, redirect_uri: str, given: Mapping[str, str]) -> SignInGrant:
        """Completes a sign-in. `given`: the parameters that came back with the browser."""
        async with self._strangers:
            return await self._complete(begun, redirect_uri, given)

    async def _complete(self, begun: SignInBegun, redirect_uri: str, given: Mapping[str, str]) -> SignInGrant:
        if not secrets.compare_digest(given.get("state", "").encode(), begun.state.encode()):
            raise SignInRefused("This is not the sign-in that this browser began.", "SIGN_IN_AGAIN")
        metadata = await self.metadata()
        issuer = given.get("iss")
        if issuer != self.issuer and (
            issuer is not None or metadata.get("authorization_response_iss_parameter_supported") is True
        ):
            raise SignInRefused("The answer comes from another provider.")
        if problem := given.get("error"):
            raise SignInRefused(f"The provider did not let you in ({one_line(problem)[:100]}).")
        told = await self._token(
            {
                "grant_type": "authorization_code",
                "code": given.get("code", ""),
                "redirect_uri": redirect_uri,
                "code_verifier": begun.verifier,
            }
        )
        claims = await self._claims(told.get("id_token"), begun.nonce, is_first=True)
        refresh_token = told.get("refresh_token")
        if not isinstance(refresh_token, str) or not refresh_token:
            raise SignInRefused(
                "The provider gave no refresh token, so nobody could be removed there. Allow the scope offline_access "
                "and the grant refresh_token for this client."
            )
        who = self._person(await self._with_groups(claims, told))
        return SignInGrant(who=who, refresh_token=refresh_token, nonce=begun.nonce)

    async def renew(self, grant: SignInGrant) -> SignInGrant:
        """Renews a grant with the provider's present data of the same person."""
        told = await self._token({"grant_type": "refresh_token", "refresh_token": grant.refresh_token})
        if "id_token" in told:
            claims = await self._claims(told["id_token"], grant.nonce, is_first=False)
            if claims["sub"] != grant.who.subject:
                raise SignInRefused("The provider answered with another person.")
        else:
            claims = {"sub": grant.who.subject}
        claims = await self._with_groups(claims, told)
        if self.settings.groups in claims:
            who = self._person({self.settings.name: grant.who.name, **claims})
        elif self._role(()):  # everybody has it
            who = grant.who
        else:
            raise SignInRefused("The provider does not say any more to which groups this person belongs.")
        newer = told.get("refresh_token")
        return SignInGrant(
            who=who._replace(name=grant.who.name),
            refresh_token=newer if isinstance(newer, str) and newer else grant.refresh_token,
            nonce=grant.nonce,
        )

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    # ---- who it is

    async def _claims(self, token: Any, nonce: str, *, is_first: bool) -> dict[str, Any]:
        """Verifies an ID token and returns its claims. Raises SignInRefused."""
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            keys = await self._keys(header)
            claims = self._decoded(jwt, token, header, keys)
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise SignInRefused(f"The provider's token cannot be believed: {one_line(str(error))[:200]}.") from None
        said = claims.get("nonce")
        if (is_first or said is not None) and not (
            isinstance(said, str) and secrets.compare_digest(said.encode(), nonce.encode())
        ):
            raise SignInRefused("The provider's token is of another sign-in (nonce).")
        audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        party = claims.get("azp", self.settings.client_id if len(audiences) == 1 else None)
        if party != self.settings.client_id:
            raise SignInRefused("The provider's token was made for another client (azp).")
        if not isinstance(claims["sub"], str) or not 0 < len(claims["sub"]) <= _MAX_CLAIM:
            raise SignInRefused("The provider's token names nobody.")
        return claims

    def _decoded(self, jwt: Any, token: str, header: Mapping[str, Any], keys: list[dict[str, Any]]) -> dict[str, Any]:
        algorithm, required = header["alg"], ["iss", "sub", "aud", "exp", "iat"]
        problem: Exception | None = None
        for each in keys:
            try:
                key = jwt.PyJWK(each, algorithm).key
                if each["kty"] == "RSA" and key.key_size < _LEAST_RSA_BITS:
                    raise ValueError("its key is too short")
                found: dict[str, Any] = jwt.decode(
                    token,
                    key,
                    algorithms=[algorithm],
                    audience=self.settings.client_id,
                    issuer=self.issuer,
                    leeway=SKEW_S,
                    options={"require": required},
                )
                return found
            except (jwt.PyJWTError, ValueError, TypeError) as error:
                problem = error
        raise problem or ValueError("it is signed by a key that the provider does not publish (any more)")

    async def _keys(self, header: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Returns the keys that may have signed a token with this header; fetches them again for an unknown key."""
        algorithm = header.get("alg")
        if algorithm not in _KEY_TYPES:
            raise ValueError(f"the algorithm {one_line(str(algorithm))[:20]} is not one for it")
        address = (await self.metadata())["jwks_uri"]
        for again in (False, True):
            published = (await self._fetched(address, again=again)).get("keys")
            found = [
                each
                for each in (published if isinstance(published, list) else ())
                if isinstance(each, dict)
                and each.get("kty") == _KEY_TYPES[algorithm]
                and each.get("alg", algorithm) == algorithm
                and each.get("use", "sig") == "sig"
                and header.get("kid") in (None, each.get("kid"))
            ]
            if found:
                return found[:_AT_ONCE]
        return []

    async def _with_groups(self, claims: dict[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
        """Adds the groups from the provider's userinfo endpoint if the token names none."""
        address = (await self.metadata()).get("userinfo_endpoint")
        access = told.get("access_token")
        if self.settings.groups in claims or not isinstance(address, str) or not isinstance(access, str):
            return claims
        said = await self._ask("GET", address, headers={"Authorization": f"Bearer {access}"})
        if said.get("sub") != claims["sub"]:
            raise SignInRefused("The provider answered with another person.")
        return {**said, **claims}

    def _person(self, claims: Mapping[str, Any]) -> SignedIn:
        given = claims.get(self.settings.groups)
        groups = [given] if isinstance(given, str) else given if isinstance(given, list) else []
        role = self._role([each for each in groups[:_MAX_GROUPS] if isinstance(each, str)])
        subject = claims["sub"]
        if not role:
            raise SignInRefused(
                f"None of the groups of {one_line(subject)[:80]} gives a role here (oidc.roles).", "SIGN_IN_ROLE"
            )
        named = claims.get(self.settings.name) or claims.get("email") or subject
        name = _NOT_IN_NAMES.sub("-", str(named)).strip("._@-")[:50] or sha256(subject.encode()).hexdigest()[:12]
        return SignedIn(self.issuer, subject, name, role)

    def _role(self, groups: list[str] | tuple[()]) -> str:
        """The highest that one of these groups gives; empty: none does."""
        mapped = self.settings.roles
        return next((role for role in _ROLES if {_EVERYBODY, *groups} & set(mapped.get(role, ()))), "")

    # ---- requests

    async def metadata(self) -> dict[str, Any]:
        """Returns the provider's metadata. Raises SignInRefused if it cannot be used."""
        found = await self._fetched(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != self.issuer:
            said = one_line(str(found.get("issuer")))[:200]
            raise SignInRefused(f"The provider calls itself {said}; write this very address: --oidc {said}.")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri", "userinfo_endpoint"):
            address = found.get(name)
            if (address is not None or name != "userinfo_endpoint") and (
                not isinstance(address, str) or self._address_problem(address)
            ):
                raise SignInRefused(f"The provider's {name} is not an address with https.")
        return found

    def _address_problem(self, address: str) -> bool:
        """http only if the provider is on this machine, and the address too."""
        try:
            parts = urlsplit(address)
            own = parts.scheme == "http" and self.issuer.startswith("http://") and is_loopback(parts.hostname or "")
        except ValueError:
            return True
        return not ((parts.scheme == "https" or own) and parts.hostname)

    async def _fetched(self, address: str, *, again: bool = False) -> dict[str, Any]:
        kept = self._kept.get(address)
        if kept is not None and not again and self._clock() - kept[0] < self._kept_s:
            return kept[1]
        asked, (failed, why) = self._clock(), self._failed.get(address, (-_RETRY_S, None))
        if why is not None and asked - failed < _RETRY_S:
            raise ProviderAway(why.message)
        try:
            found = await self._ask("GET", address)
        except ProviderAway as away:
            self._failed[address] = (asked, away)
            raise
        self._kept[address] = (asked, found)
        return found

    async def _token(self, asked: dict[str, str]) -> dict[str, Any]:
        metadata = await self.metadata()
        client, headers = self.settings.client_id, {}
        methods = metadata.get("token_endpoint_auth_methods_supported")
        if not self._secret:
            asked["client_id"] = client
        elif isinstance(methods, list) and "client_secret_basic" not in methods and "client_secret_post" in methods:
            asked |= {"client_id": client, "client_secret": self._secret}
        else:
            pair = f"{quote(client, safe='')}:{quote(self._secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return await self._ask("POST", metadata["token_endpoint"], headers=headers, data=asked)

    async def _ask(self, method: str, address: str, **more: Any) -> dict[str, Any]:
        """A JSON object. Raises SignInRefused where the answer is no, ProviderAway where there is none."""
        import httpx2

        from golem_forge.net.tls import client_tls

        away = f"The sign-in provider {urlsplit(self.issuer).hostname} does not answer now"
        if self._http is None:
            own = is_loopback(urlsplit(self.issuer).hostname or "")
            self._http = httpx2.AsyncClient(
                timeout=_TIMEOUT_S, follow_redirects=False, trust_env=not own, verify=client_tls(trust_env=not own)
            )
        data = b""
        try:
            async with (
                self._at_once,
                asyncio.timeout(2 * _TIMEOUT_S),
                self._http.stream(method, address, **more) as answer,
            ):
                async for piece in answer.aiter_bytes():
                    data += piece
                    if len(data) > _MAX_BYTES:
                        raise ProviderAway(f"{away} with less than {_MAX_BYTES >> 20} MiB.")
        except (httpx2.HTTPError, OSError, TimeoutError) as error:
            raise ProviderAway(f"{away} ({type(error).__name__}).") from None
        try:
            said = json.loads(data)
        except (ValueError, RecursionError):
            said = None
        status = int(answer.status_code)
        if status == 200 and isinstance(said, dict):
            return said
        if 400 <= status < 500 and status not in (404, 408, 425, 429):
            why = said.get("error") if isinstance(said, dict) else None
            raise SignInRefused(f"The provider did not let you in ({one_line(str(why or status))[:100]}).")
        raise ProviderAway(f"{away} as a provider of OpenID Connect does (status {status}).")
