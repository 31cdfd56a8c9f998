"""Who comes in to a team's page, and what the record says of it: tokens, sign-in with OpenID Connect, the audit.

Real processes: `forge web --team`, a provider of OpenID Connect, a browser.
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from tests.deadlines import PATIENCE
from tests.machine import free_port
from tests.mcp import foreign
from tests.ready import ReadyForge
from tests.team.background import TeamPage, until
from tests.team.openid_issuer import SECRET, Issuer
from tests.ui.web.bench import browsing
from websockets.exceptions import ConnectionClosed

from golem_forge.team.people import Role

PROVIDER = Path(__file__).parents[1] / "team" / "openid_provider.mjs"
OIDC = """\
store: {url: env:STORE_URL}
oidc: {client_id: forge, client_secret: env:CLIENT_SECRET, recheck: 1s, roles: {operator: [dev], admin: [ops]}}
"""


@pytest.fixture
def page(tmp_path: Path, ready_forge: ReadyForge) -> Iterator[TeamPage]:
    made = TeamPage(tmp_path, "sqlite", ready_forge)
    yield made
    made.close()


def test_a_revoked_token_and_wrong_ones_are_recorded_and_slowed_down(page: TeamPage) -> None:
    old, ann = page.add("eve", Role.OPERATOR), page.add("ann", Role.ADMIN)
    new = json.loads(page.program.forge("people", "rotate", "eve", "--expires", "30d", "--json"))["token"]
    assert page.person(page.log_in(new)) == "eve"
    said = [page.ask("/api/sessions", token="x" * 300)[0]]  # longer than any token
    said += [page.ask("/api/sessions", token="nobody ever had this")[0] for _ in range(29)]
    assert said == [401] * 20 + [429] * 10
    said = [page.ask("/api/login", body={"code": old})[0], *(page.ask("/api/me", token=old)[0] for _ in range(30))]
    assert said == [401] * 20 + [429] * 11, "those of a person are counted apart"
    assert page.ask("/api/me", token=new)[0] == 200, "a good one is never refused"
    rows = page.ask("/api/team/refusals", token=ann)[2]["rows"]
    told = [(each["person"], each["door"], each["action"]) for each in rows]
    assert told == [("eve", "api", "log in")] * 19 + [("eve", "page", "log in")] + [("", "api", "log in")] * 20
    assert "a token that was removed or renewed" in rows[0]["what"] and "from 127.0.0.1" in rows[0]["what"]
    page.program.forge("people", "remove", "eve")
    page.program.forge("ps", code=3, FORGE_TEAM_TOKEN=new)
    assert "a token that was removed" in page.program.forge("people", "refusals").splitlines()[1]


def test_an_admin_exports_the_audit_from_another_machine_and_sees_what_was_changed(page: TeamPage) -> None:
    tokens = {name: page.add(name, role) for name, role in (("ann", Role.ADMIN), ("vera", Role.VIEWER))}
    page.log_in(tokens["vera"])
    address = {"STORE_URL": f"http://127.0.0.1:{page.port}", "FORGE_TEAM_TOKEN": tokens["vera"]}
    assert "vera is viewer here and may not see the audit" in page.program.forge("audit", "export", code=3, **address)
    address["FORGE_TEAM_TOKEN"] = tokens["ann"]
    *lines, summary = page.program.forge("audit", "export", "--since", "1h", **address).splitlines()
    records = [json.loads(line) for line in lines]
    assert [(each["kind"], each["person"]) for each in records] == [
        ("person added", ""),
        ("person added", ""),
        ("login", "vera"),
        ("login", "vera"),
        ("refused", "vera"),
        ("login", "ann"),
    ]
    head = records[-1]["hash"]
    assert summary == f"6 records, the last one is 6 {head}"
    assert page.program.forge("audit", "verify", "--head", head, **address) == f"{summary}: ok\n"
    assert page.program.forge("audit", "export", "--project", ".") == "0 records\n"
    *lines, _ = page.program.forge("audit", "export", "--format", "csv").splitlines()
    assert [row["kind"] for row in csv.DictReader(lines)] == [each["kind"] for each in records]
    kept = page.program.folder / "audit.csv"
    kept.write_text("\n".join(lines).replace("vera", "eve") + "\n")
    said = page.program.forge("audit", "verify", str(kept), code=1)
    assert "record 5: its hash is not that of its words: it was changed" in said and "4 problems" in said
    assert "no record has the hash of --head" in page.program.forge("audit", "verify", "--head", "0" * 64, code=1)
    for words in (("export", "--since", "yesterday"), ("export", "x"), ("verify", "--since", "1d"), ("verify", "none")):
        page.program.forge("audit", *words, code=2)
    assert "no project 'bank'" in page.program.forge("audit", "export", "--project", "bank", code=4, **address)
    page.program.forge("projects", "add", ".")
    page.program.forge("projects", "grant", "shop", "vera", "--role", "operator")
    told = page.program.forge("audit", "export", "--project", "shop", **address).splitlines()
    assert json.loads(told[0])["kind"] == "project role changed" and len(told) == 2


class SignInPage(TeamPage):
    """`forge web --team --oidc ISSUER`, and browsers that sign in there."""

    def __init__(self, folder: Path, ready: ReadyForge, issuer: str, port: int = 0) -> None:
        super().__init__(folder, "sqlite", ready, "--oidc", issuer, port=port)

    def start(self) -> None:
        (self.program.home / "config.yaml").write_text(OIDC)
        self.program.environ["CLIENT_SECRET"] = SECRET
        super().start()

    def go(self, path: str, cookie: str = "", **headers: str) -> tuple[str, dict[str, str]]:
        """Where the browser is sent, and the cookies that it is given."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("GET", path, headers={"Cookie": cookie, **headers})
        answer = connection.getresponse()
        assert answer.status == 302, answer.read()
        given = [value for name, value in answer.getheaders() if name.lower() == "set-cookie"]
        return answer.headers["location"], dict(each.partition(";")[0].split("=", 1) for each in given)

    def sign_in(self, issuer: Issuer, subject: str = "1", *, stranger: bool = False) -> tuple[str, str]:
        """(where the browser ends up, its cookie). `stranger`: another browser brings the answer."""
        location, begun = self.go("/api/oidc/login", **{"Sec-Fetch-Site": "same-origin"})
        back = issuer.sign_in(location, subject)
        kept = "" if stranger else "; ".join(f"{name}={value}" for name, value in begun.items())
        place, given = self.go(f"/api/oidc/callback?{urlencode(back)}", kept, **{"Sec-Fetch-Site": "cross-site"})
        return place, f"forge_{self.port}={given.get(f'forge_{self.port}', '')}"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    yield made
    made.close()


@pytest.fixture
def signing(tmp_path: Path, ready_forge: ReadyForge, issuer: Issuer) -> Iterator[SignInPage]:
    made = SignInPage(tmp_path, ready_forge, issuer.url)
    yield made
    made.close()


def test_removal_here_acts_at_once_and_at_the_provider_within_the_recheck(signing: SignInPage, issuer: Issuer) -> None:
    issuer.people["2"] = {"preferred_username": "bob", "groups": ["ops"]}
    place, ada = signing.sign_in(issuer)
    _, bob = signing.sign_in(issuer, "2")
    assert place == "/"
    assert [signing.ask("/api/me", each)[2]["role"] for each in (ada, bob)] == ["operator", "admin"]
    token = json.loads(signing.program.forge("people", "rotate", "ada", "--json"))["token"]
    assert signing.ask("/api/me", token=token)[2]["person"] == "ada", "on the command line it is the same person"
    assert f"signs in at {issuer.url}, token until 20" in signing.program.forge("people", "list")
    session = signing.program.queue()
    with signing.stream(session, ada) as stream:
        assert json.loads(stream.recv(PATIENCE))["kind"] == "hello"
        rechecked = issuer.asked["/token"]
        until(lambda: issuer.asked["/token"] >= rechecked + 3)  # by the open socket alone
        assert signing.person(ada) == "ada"
        del issuer.people["1"]
        with pytest.raises(ConnectionClosed) as closed:
            list(iter(lambda: stream.recv(PATIENCE), None))
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 4401
    assert signing.person(ada) == ""
    until(lambda: signing.ask("/api/me", token=token)[0] == 401)
    assert signing.sign_in(issuer)[0] == "/#sign-in=refused"
    issuer.people["2"]["groups"] = ["dev"]
    until(lambda: signing.ask("/api/me", bob)[2]["role"] == "operator")
    signing.program.forge("people", "remove", "bob")
    assert signing.person(bob) == ""
    assert signing.sign_in(issuer, "2")[0] == "/#sign-in=removed"
    signing.program.forge("people", "restore", "bob")
    assert signing.person(signing.sign_in(issuer, "2")[1]) == "bob"
    said = signing.program.forge("audit", "export")
    kinds = [(each["kind"], each["person"]) for each in map(json.loads, said.splitlines()[:-1])]
    for told in (
        *(("login", "ada"), ("login ended", "ada"), ("role changed", "bob"), ("refused", ""), ("login", "bob")),
        *(("person added", "ada"), ("person removed", kinds[-5][1]), ("person restored", kinds[-3][1])),
    ):
        assert told in kinds, kinds


def test_while_the_provider_is_away_nobody_signs_in_or_answers_and_what_is_known_can_be_seen(
    signing: SignInPage, issuer: Issuer
) -> None:
    token = signing.add("ann", Role.ADMIN)
    _, cookie = signing.sign_in(issuer)
    session = signing.program.queue()
    answer = "/api/team/questions/none/answer", cookie, {"answer": {"approved": True}}
    assert signing.ask(*answer)[0] == 404
    issuer.answers["/token"] = (500, {})
    _, _, said = until(lambda: (found := signing.ask(*answer))[0] == 503 and found)
    assert "The sign-in provider does not answer" in said["problem"]
    assert signing.ask(f"/api/team/sessions/{session}/stop", cookie, {})[0] == 503
    assert signing.person(cookie) == "ada" and session in json.dumps(signing.ask("/api/sessions", cookie)[2])
    assert signing.sign_in(issuer)[0] == "/#sign-in=away"
    assert signing.ask("/api/team/people", token=token)[0] == 200, "a token needs no provider"
    issuer.answers.clear()
    until(lambda: signing.ask(*answer)[0] == 404)
    del issuer.people["1"]
    until(lambda: signing.person(cookie) == "")


def test_a_sign_in_belongs_to_the_browser_that_began_it(signing: SignInPage, issuer: Issuer) -> None:
    assert signing.sign_in(issuer, stranger=True)[0] == "/#sign-in=again"
    forged = f"forge_{signing.port}_oidc=forged.{'0' * 64}"
    assert signing.go("/api/oidc/callback?state=x&code=y", forged)[0] == "/#sign-in=again"
    location, begun = signing.go("/api/oidc/login")
    assert location.startswith(f"{issuer.url}/auth?response_type=code&client_id=forge&redirect_uri=http%3A%2F%2F127")
    back = issuer.sign_in(location) | {"state": "of another"}
    kept = "; ".join(f"{name}={value}" for name, value in begun.items())
    assert signing.go(f"/api/oidc/callback?{urlencode(back)}", kept)[0] == "/#sign-in=again"
    issuer.people["1"]["groups"] = ["guests"]
    assert signing.sign_in(issuer)[0] == "/#sign-in=role"
    status, _, said = signing.ask("/api/me")
    assert (status, said["fields"]) == (401, {"team": "token", "signIn": "127.0.0.1"})
    assert signing.ask("/api/oidc/login", body={})[0] == 401, "it is no way in for what changes something"
    # after a restart people sign in again: nothing that is worth a login is on the disk
    issuer.people["1"]["groups"] = ["dev"]
    _, cookie = signing.sign_in(issuer)
    signing.log_in(signing.add("ann"))
    text = signing.file.read_text()
    assert not [each for each in (*issuer.refresh, "oidc") if each in text]
    signing.restart()
    assert signing.person(cookie) == ""


def test_what_is_missing_is_said_before_anything_listens(tmp_path: Path, ready_forge: ReadyForge) -> None:
    page = TeamPage(tmp_path, "sqlite", ready_forge)
    page.stop()
    at, bare = ("--team", "--oidc", "https://login.example.com"), OIDC.replace(", client_secret: env:CLIENT_SECRET", "")
    for config, words, problem in (
        ("", at, "--oidc needs `oidc: {client_id"),
        (OIDC, at, "the variable CLIENT_SECRET is not set"),
        (bare, ("--team", "--oidc", "http://login.example.com"), "by https"),
        (bare, ("--oidc", "https://login.example.com"), "add --team"),
        ("oidc: {client_id: x, roles: {boss: [x]}}", ("--team",), "boss"),
    ):
        (page.program.home / "config.yaml").write_text(config)
        said = page.program.forge("web", *words, code=2)
        assert problem in said, said
    page.close()


class Provider:
    """`oidc-provider`, the real one, as a process."""

    def __init__(self, back: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        library = foreign.NODE_MODULES / "oidc-provider" / "lib" / "index.js"
        command = [*foreign.node(), str(PROVIDER), str(library), str(self.port), back]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, **pipes, env=foreign.environ())
        assert self._line() == "listening"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def knows(self, person: str, *groups: str) -> None:
        """Without groups: not any more."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"person": person, "groups": groups or None}) + "\n")
        self.process.stdin.flush()
        assert self._line() == "known"

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.mark.long
@browsing
async def test_a_person_signs_in_with_a_browser_at_a_real_provider(
    tmp_path: Path, ready_forge: ReadyForge, windows: Any
) -> None:
    port = free_port()
    provider = Provider(f"http://127.0.0.1:{port}/api/oidc/callback")
    page: SignInPage | None = None
    try:
        provider.knows("ada", "dev")
        page = SignInPage(tmp_path, ready_forge, provider.url, port)
        window = await windows()
        window.expects("401")
        await window.open(f"http://127.0.0.1:{port}/")
        await window.page.get_by_role("link", name="Sign in at 127.0.0.1").click()
        await window.page.get_by_placeholder("Enter any login").fill("ada")
        await window.page.get_by_placeholder("and password").fill("anything")
        await window.page.get_by_role("button", name="Sign-in").click()
        await window.page.get_by_role("button", name="Continue").click()
        await window.sees("ada · operator")
        assert urlsplit(window.page.url).netloc == f"127.0.0.1:{port}" and "code=" not in window.page.url
        window.asked[:] = [each for each in window.asked if not each.startswith(provider.url)]
        provider.knows("ada", "ops")
        await window.page.get_by_role("link", name="Team").click()
        until(lambda: "ada" in page.program.forge("people", "list") and "admin" in page.program.forge("people", "list"))
        await window.page.reload()
        await window.sees("ada · admin")
        provider.knows("ada")
        await window.sees(re.compile("no longer logged in|Your token"))
        await window.page.reload()
        await window.page.get_by_role("link", name="Sign in at 127.0.0.1").wait_for()
    finally:
        if page is not None:
            page.close()
        provider.close()
