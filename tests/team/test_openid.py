"""Sign-in with OpenID Connect: what a provider may say, and what is refused. A provider that lies is played by a small
one of our own; the real one signs people in in tests/acceptance/test_team_sign_in.py."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from golem_forge.config.store_block import SignInSettings
from golem_forge.core.lazy_dataclass import replace
from golem_forge.team.openid import OpenIdClient, ProviderAway, SignInGrant, SignInRefused, issuer_problem

from .openid_issuer import CLIENT, SECRET, Issuer, ec_key, published, rsa_key

BACK = "http://127.0.0.1:8100/api/oidc/callback"
ROLES = {"admin": ("ops",), "operator": ("dev",)}
SETTINGS = SignInSettings(client_id=CLIENT, client_secret="env:X", roles=ROLES)
SHORT, OTHER = rsa_key(1024), ec_key()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    yield made
    made.close()


class Client(OpenIdClient):
    """With a clock that the test sets."""

    def __init__(self, issuer: Issuer, **settings: Any) -> None:
        self.now = 0.0
        super().__init__(issuer.url, replace(SETTINGS, **settings), SECRET, lambda: self.now)

    async def sign_in(self, issuer: Issuer, subject: str = "1", **given: str) -> SignInGrant:
        begun = await self.begin(BACK)
        return await self.complete(begun, BACK, issuer.sign_in(begun.url, subject) | given)


async def test_somebody_signs_in_with_the_highest_role_of_their_groups_and_is_asked_for_again(issuer: Issuer) -> None:
    client = Client(issuer)
    grant = await client.sign_in(issuer)
    assert (grant.who.issuer, grant.who.subject, grant.who.name, grant.who.role) == (issuer.url, "1", "ada", "operator")
    issuer.people["1"] = {"preferred_username": "eve", "groups": ["dev", "ops", 7]}
    again = await client.renew(grant)
    assert (again.who.name, again.who.role) == ("ada", "admin"), "a name that changes there changes nothing here"
    assert again.refresh_token != grant.refresh_token
    issuer.people["1"]["groups"] = ["guests"]
    with pytest.raises(SignInRefused, match="None of the groups") as refused:
        await client.renew(again)
    assert refused.value.code == "SIGN_IN_ROLE"
    with pytest.raises(SignInRefused, match="invalid_grant"):
        await client.renew(again)
    await client.close()


def in_(seconds: float) -> Callable[[], float]:
    """As of when the token is signed."""
    return lambda: time.time() + seconds


def short_key(issuer: Issuer) -> None:
    issuer.key, issuer.algorithm, issuer.keys = SHORT, "RS256", [published(SHORT, "first")]


def encryption_key(issuer: Issuer) -> None:
    issuer.keys = [published(issuer.key, "first", use="enc")]


def unknown_key(issuer: Issuer) -> None:
    issuer.kid = "never published"


def another_key(issuer: Issuer) -> None:
    issuer.key = OTHER


def shared_secret(issuer: Issuer) -> None:
    """The public key, which everybody knows, taken for a secret."""
    issuer.key, issuer.algorithm = b64encode(json.dumps(issuer.keys[0]).encode()), "HS256"


def not_signed(issuer: Issuer) -> None:
    issuer.key, issuer.algorithm = None, "none"


TOKENS: list[tuple[str, dict[str, Any] | Callable[[Issuer], None], str]] = [
    ("as it should be", {}, ""),
    ("two audiences, made for us", {"aud": [CLIENT, "other"], "azp": CLIENT}, ""),
    ("their clock is behind", {"exp": in_(-30), "iat": in_(-330)}, ""),
    ("their clock is ahead", {"iat": in_(45), "nbf": in_(45)}, ""),
    ("another audience", {"aud": "other"}, "Audience"),
    ("two audiences, made for nobody", {"aud": [CLIENT, "other"]}, "azp"),
    ("made for another", {"azp": "other"}, "azp"),
    ("another issuer", {"iss": "https://elsewhere.example"}, "issuer"),
    ("another nonce", {"nonce": "of somebody else"}, "nonce"),
    ("no nonce", {"nonce": None}, "nonce"),
    ("expired", {"exp": in_(-120)}, "expired"),
    ("from the future", {"iat": in_(300)}, "not yet valid"),
    ("not yet", {"nbf": in_(300)}, "not yet valid"),
    *((f"without {name}", {name: None}, name) for name in ("exp", "iat", "aud", "iss", "sub")),
    ("an empty subject", {"sub": ""}, "names nobody"),
    ("a subject without end", {"sub": "x" * 300}, "names nobody"),
    ("a short key", short_key, "too short"),
    ("a key for something else", encryption_key, "does not publish"),
    ("a key that is not published", unknown_key, "does not publish"),
    ("another key of the same name", another_key, "Signature"),
    ("signed with what is public", shared_secret, "the algorithm HS256"),
    ("not signed", not_signed, "the algorithm none"),
    ("a header that must be understood", lambda issuer: issuer.header.update(crit=["x"], x=1), "critical"),
    ("no token", lambda issuer: issuer.answers.update({"/token": (200, {"access_token": "x"})}), "cannot be believed"),
    ("no group", {"groups": []}, "None of the groups"),
    ("no refresh token", lambda issuer: setattr(issuer, "gives_refresh", False), "gave no refresh token"),
]


@pytest.mark.parametrize(("case", "change", "problem"), TOKENS, ids=[case for case, *_ in TOKENS])
async def test_a_token_is_believed_only_as_it_should_be(
    issuer: Issuer, case: str, change: dict[str, Any] | Callable[[Issuer], None], problem: str
) -> None:
    if isinstance(change, dict):
        issuer.claims = change
    else:
        change(issuer)
    client = Client(issuer)
    if not problem:
        assert (await client.sign_in(issuer)).who.name == "ada"
    else:
        with pytest.raises(SignInRefused, match=problem):
            await client.sign_in(issuer)
    await client.close()


async def test_a_new_key_counts_at_once_and_an_old_one_no_longer_than_the_recheck(issuer: Issuer) -> None:
    client = Client(issuer)
    await client.sign_in(issuer)
    old, issuer.key, issuer.kid = issuer.key, OTHER, "second"
    issuer.keys = [published(OTHER, "second")]
    await client.sign_in(issuer)
    assert issuer.asked["/jwks"] == 2
    issuer.key, issuer.kid = old, "first"
    with pytest.raises(SignInRefused, match="does not publish"):
        await client.sign_in(issuer)
    again = Client(issuer)
    issuer.keys = [published(old, "first")]
    await again.sign_in(issuer)
    issuer.keys = [published(OTHER, "second")]  # withdrawn; this client has read the old list
    again.now = 61
    with pytest.raises(SignInRefused, match="does not publish"):
        await again.sign_in(issuer)
    await client.close()
    await again.close()


async def test_a_browser_brings_back_only_what_it_was_given(issuer: Issuer) -> None:
    client = Client(issuer)
    for given, problem in (
        ({"state": "of another"}, "not the sign-in that this browser began"),
        ({"state": ""}, "not the sign-in that this browser began"),
        ({"iss": "https://elsewhere.example"}, "another provider"),
        ({"error": "access_denied"}, "access_denied"),
        ({"code": "guessed"}, "invalid_grant"),
    ):
        with pytest.raises(SignInRefused, match=problem):
            await client.sign_in(issuer, **given)
    begun, other = await client.begin(BACK), await client.begin(BACK)
    stolen = issuer.sign_in(other.url) | {"state": begun.state}
    with pytest.raises(SignInRefused, match="invalid_grant"):  # the verifier is not of this code
        await client.complete(begun, BACK, stolen)
    await client.close()


async def test_groups_may_stand_on_the_page_of_the_same_person(issuer: Issuer) -> None:
    issuer.claims = {"groups": None}
    client = Client(issuer)
    grant = await client.sign_in(issuer)
    assert grant.who.role == "operator"
    issuer.answers["/me"] = (200, {"sub": "2", "groups": ["ops"]})
    with pytest.raises(SignInRefused, match="another person"):
        await client.sign_in(issuer)
    with pytest.raises(SignInRefused, match="another person"):
        await client.renew(grant)
    issuer.answers["/token"] = (200, {"refresh_token": "x"})
    with pytest.raises(SignInRefused, match="does not say any more"):
        await client.renew(grant)
    everybody = Client(issuer, roles={"viewer": ("*",)})
    assert (await everybody.renew(grant)).who.role == "operator"
    await client.close()
    await everybody.close()


async def test_renewal_is_of_the_same_person(issuer: Issuer) -> None:
    issuer.people["2"] = issuer.people["1"]
    client = Client(issuer)
    grant, other = await client.sign_in(issuer), await client.sign_in(issuer, "2")
    with pytest.raises(SignInRefused, match="another person"):
        await client.renew(replace(grant, refresh_token=other.refresh_token))
    issuer.claims = {"nonce": "another"}
    with pytest.raises(SignInRefused, match="nonce"):
        await client.renew(grant)
    await client.close()


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/jwks", "/token"])
async def test_a_provider_that_does_not_answer_as_one_is_away(issuer: Issuer, path: str) -> None:
    client = Client(issuer)
    for answer in (
        (500, {}),
        (503, b"no"),
        (302, {}),
        (404, {}),
        (200, b"<html>"),
        (200, b"[1]"),
        (200, b"x" * 2_000_000),
    ):
        issuer.answers[path] = answer
        client.now += 1000
        with pytest.raises(ProviderAway, match="does not answer now"):
            await client.sign_in(issuer)
    assert issuer.asked["/elsewhere"] == 0
    if path != "/token":
        asked = issuer.asked[path]
        with pytest.raises(ProviderAway):
            await client.sign_in(issuer)
        assert issuer.asked[path] == asked, "it is not asked again at once"
    issuer.answers.clear()
    client.now += 1000
    grant = await client.sign_in(issuer)
    issuer.close()
    client.now += 1000
    with pytest.raises(ProviderAway):
        await client.renew(grant)
    await client.close()


async def test_a_provider_names_itself_and_only_safe_addresses(issuer: Issuer) -> None:
    client, path = Client(issuer), "/.well-known/openid-configuration"
    _, usual = issuer._answer(path, {}, "")
    for change in (
        {"issuer": issuer.url + "/"},
        {"issuer": None},
        {"token_endpoint": "http://elsewhere.example/token"},
        {"jwks_uri": None},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"userinfo_endpoint": "ftp://127.0.0.1/"},
    ):
        issuer.answers[path] = (200, usual | change)
        with pytest.raises(SignInRefused, match=r"calls itself|is not an address"):
            await client.begin(BACK)
        client.now += 1000
    await client.close()


@pytest.mark.parametrize(
    ("issuer_url", "fits"),
    [
        ("https://login.example.com", True),
        ("https://login.example.com:8443/realms/team", True),
        ("http://127.0.0.1:4000", True),
        ("http://localhost/x", True),
        ("http://[::1]:4000", True),
        ("http://login.example.com", False),
        ("http://127.0.0.1.example.com", False),
        ("http://localhost.example.com", False),
        ("https://user:pw@login.example.com", False),
        ("https://login.example.com?x=1", False),
        ("https://login.example.com#x", False),
        ("login.example.com", False),
        ("file:///etc/passwd", False),
        ("https://", False),
        ("https://x:notaport", False),
    ],
)
def test_an_issuer_is_https_or_on_this_machine(issuer_url: str, fits: bool) -> None:
    assert (issuer_problem(issuer_url) == "") is fits
