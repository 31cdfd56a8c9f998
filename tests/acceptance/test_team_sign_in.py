"""Who comes in to a team's page, and what the record says of it: tokens, sign-in with OpenID Connect, the audit.

Real processes: `forge web --team`, a provider of OpenID Connect, a browser.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ready import ReadyForge
from tests.team.background import TeamPage

from golem_forge.team.people import Role


@pytest.fixture
def page(tmp_path: Path, ready_forge: ReadyForge) -> Iterator[TeamPage]:
    made = TeamPage(tmp_path, "sqlite", ready_forge)
    yield made
    made.close()


def test_a_revoked_token_and_wrong_ones_are_recorded_and_slowed_down(page: TeamPage) -> None:
    old, ann = page.add("eve", Role.OPERATOR), page.add("ann", Role.ADMIN)
    new = json.loads(page.program.forge("people", "rotate", "eve", "--expires", "30d", "--json"))["token"]
    assert page.person(page.log_in(new)) == "eve"
    said = [page.ask("/api/sessions", token="nobody ever had this")[0] for _ in range(30)]
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
