"""A team: people with roles on one page and API, an inbox, four eyes, rules of the store, a store behind an address.

Real processes: `forge web --team`, a runner, the commands of people on other machines.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.mcp_bench import PYTHON
from tests.deadlines import PATIENCE
from tests.ready import ReadyForge, run_in_process
from tests.team.background import FORGE_YAML, Program, until, write_call
from tests.ui.web.bench import browsing
from tests.ui.web.person import APPROVE, Person
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync import client

from golem_forge.cli.team import VERBS
from golem_forge.team import remote
from golem_forge.team.database import TeamError
from golem_forge.team.people import Role, add_person
from golem_forge.team.project_secrets import fingerprint, make_key
from golem_forge.team.remote import RemoteStore
from golem_forge.team.rows import NewSession, program_id
from golem_forge.ui.web.api.team import team_operations
from golem_forge.ui.web.security import MAX_OF_PERSON
from golem_forge.ui.web.stream.socket import ACTIONS

ASKER_PROGRAM = Path(__file__).parents[1] / "mcp" / "programs" / "asker.py"
ASKER = f"""
mcp:
  servers:
    asker:
      command: {PYTHON}
      args: [-S, "${{zone:work}}/asker.py", modern]
      zones: {{work: rw}}
      approval: {{default: preApproved}}
"""
WORKER = """\
---
name: main
description: d
sandbox: {{zones: [{{name: work, mode: rw}}]}}
toolsets: {{{toolsets}}}
---
Do it.
"""
FORM = {
    "message": "The shop needs a key",
    "requestedSchema": {"type": "object", "properties": {"key": {"type": "string", "format": "password"}}},
}
ASK = {"method": "elicitation/create", "params": FORM}
SLOW = "Slowly the words of this answer come, one after another, until all of them stand there."
IN_SHOP = {"vic": "viewer", "omar": "operator", "ada-s": "admin"}
"""Who has a role in the project of the program, and none in others."""
IN_BANK = {"mallory": "admin"}
"""And who has one in another project alone."""
ROLES = {"ann": "admin", "olga": "operator", "bob": "operator", "vera": "viewer", "nemo": "none"}
CANARY = "canary-4482-of-the-shop"
connect = partial(client.connect, open_timeout=PATIENCE)


class Team:
    """A program with a runner, its page for a team, and somebody of each role."""

    capture: Any = None
    """The fixture `capfd` of the test that runs."""
    _waiting: tuple[str, str] | None = None

    def __init__(self, folder: Path, ready: ReadyForge) -> None:
        self.program = Program(folder / "shop", folder / "home", ready=ready, tools=False)
        self.laptop = folder / "laptop"
        self.laptop.mkdir()
        text = (self.program.folder / "forge.yaml").read_text()
        (self.program.folder / "forge.yaml").write_text(f"{text}approval: {{four_eyes: high}}\n")
        (self.program.folder / "main.worker").write_text(WORKER.format(toolsets="filesystem: {}"))
        store = self.program.store()
        self.tokens = {name: add_person(store, name, Role(role)) for name, role in ROLES.items()}
        bank = folder / "bank"
        bank.mkdir()
        for directory, people in ((self.program.folder, IN_SHOP), (bank, IN_BANK)):
            store.projects.add(program_id(directory), directory.name)
            for name, role in people.items():
                self.tokens[name] = add_person(store, name, Role.NONE)
                store.projects.grant(directory.name, name, role)
        self.program.forge("trust", "--yes")
        self.program.play(
            {"say": "I write.", "calls": [write_call("/work/a.txt", "one")]},
            {"say": "I delete.", "calls": [{"tool": "delete_file", "args": {"path": "/work/a.txt"}}]},
            {"say": "done"},
        )
        command = ["forge", "web", "--team", "--no-open"]
        self.server = ready.start(command, cwd=self.program.folder, env=self.program.environ)
        line = self.server.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
        assert found, line
        assert "#code=" not in line
        self.port = int(found[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.program.start_quick_runner(sweep_s=0.5)

    def ask(self, who: str, path: str, body: Any = None, method: str = "") -> tuple[int, Any]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        headers = {"Authorization": f"Bearer {self.tokens[who]}"} if who else {}
        data = None if body is None else json.dumps(body)
        headers |= {"Content-Type": "application/json"} if data else {}
        connection.request(method or ("POST" if data else "GET"), path, data, headers)
        answer = connection.getresponse()
        said = answer.read()
        connection.close()
        return answer.status, json.loads(said) if said else None

    def forge(self, who: str, *words: str, code: int | None = 0, alone: bool = False) -> str:
        """On a machine that knows the team's address and a token, and nothing else. `code`: None: any. `alone`: as a
        process of its own; else in this one."""
        home = self.laptop / "home"
        home.mkdir(exist_ok=True)
        (home / "config.yaml").write_text("store: {url: env:STORE_URL}\n")
        environ = {"FORGE_HOME": str(home), "STORE_URL": self.url, "FORGE_TEAM_TOKEN": self.tokens[who]}
        if alone:
            said = self.program.forge(*words, code=code, cwd=self.laptop, **environ)
        else:
            done = run_in_process(self.capture, *words, cwd=self.laptop, env=self.program.environ | environ)
            said = done.stdout + done.stderr
            assert code in (None, done.returncode), (words, done.returncode, said)
        assert self.tokens[who] not in said
        return said

    def start(self, who: str = "bob") -> str:
        status, made = self.ask(who, "/api/sessions", {"input": "write it"})
        assert status == 201, made
        return str(made["id"])

    def question(self, session: str) -> str:
        store = self.program.store()
        return str(until(lambda: store.questions.rows(session=session), or_else=self.program.logs)[0].id)

    def waiting(self) -> tuple[str, str]:
        """A session and its open question, for who changes neither: one for all."""
        row = self._waiting and self.program.store().questions.get(self._waiting[1])
        if self._waiting is None or row is None or row.state != "open":
            session = self.start()
            self._waiting = (session, self.question(session))
        return self._waiting

    def close(self) -> None:
        self.server.terminate()
        assert self.server.wait(PATIENCE) == 0
        self.program.close()


@pytest.fixture(scope="module")
def one_team(tmp_path_factory: pytest.TempPathFactory, ready_forge: ReadyForge) -> Iterator[Team]:
    made = Team(tmp_path_factory.mktemp("team"), ready_forge)
    yield made
    made.close()


@pytest.fixture
def team(one_team: Team, capfd: pytest.CaptureFixture[str]) -> Team:
    one_team.capture = capfd
    return one_team


def test_a_viewer_is_refused_on_every_door_and_it_is_recorded(team: Team) -> None:
    def refused() -> list[Any]:
        return [each for each in team.ask("ann", "/api/team/refusals")[1]["rows"] if each["person"] == "vera"]

    before = max((each["at"] for each in refused()), default=0)
    session, question = team.waiting()
    action = {"type": "approvalResponse", "data": {"requestId": question, "approved": True}}
    tried = [
        ("/api/sessions", {"input": "mine"}, "POST"),
        ("/api/team/sessions", {"input": "mine"}, "POST"),
        (f"/api/sessions/{session}/end", {}, "POST"),
        (f"/api/team/sessions/{session}/stop", {}, "POST"),
        (f"/api/sessions/{session}/actions", action, "POST"),
        (f"/api/sessions/{session}/actions", {"type": "interrupt", "data": {}}, "POST"),
        (f"/api/sessions/{session}/actions", {"type": "userInput", "data": {"requestId": "x", "content": "x"}}, "POST"),
        (f"/api/sessions/{session}/actions", {"type": "command", "data": {"requestId": "x", "text": "/stop"}}, "POST"),
        (f"/api/team/questions/{question}/answer", {"answer": {"approved": True}}, "POST"),
        (f"/api/team/sessions/{session}/messages", {"text": "x"}, "POST"),
        (f"/api/team/sessions/{session}/facts", None, "GET"),
        (f"/api/team/sessions/{session}/lines?private=true", None, "GET"),
        ("/api/team/people", None, "GET"),
        ("/api/team/people", {"name": "eve", "role": "admin"}, "POST"),
        ("/api/team/people/ann", None, "DELETE"),
        ("/api/team/refusals", None, "GET"),
        ("/api/team/rules/x", None, "DELETE"),
        ("/api/team/schedules", {"cron": "@daily", "input": "x"}, "POST"),
        ("/api/team/schedules/x", None, "DELETE"),
    ]
    for path, body, method in tried:
        status, said = team.ask("vera", path, body, method)
        assert (status, "vera is viewer here and may not" in said["problem"]) == (403, True), (path, said)
    for words in (
        ("inbox", "answer", question, "--approve"),
        ("send", session, "hello"),
        ("stop", session),
        ("run", "--background", "mine"),
        ("people", "list"),
    ):
        assert "vera is viewer here and may not" in team.forge("vera", *words, code=3)
    with connect(
        f"ws://127.0.0.1:{team.port}/api/sessions/{session}/stream", additional_headers=_bearer(team, "vera")
    ) as socket:
        hello = json.loads(socket.recv(PATIENCE))
        assert hello["session"]["answerable"] is False
        socket.send(json.dumps({"id": "1", **action}))
        frames = iter(lambda: json.loads(socket.recv(PATIENCE)), None)
        answer = next(frame for frame in frames if frame["kind"] == "answer")
        assert "may not answer" in answer["problem"]
    assert team.program.store().questions.get(question).state == "open"  # type: ignore[union-attr]
    assert team.ask("vera", f"/api/sessions/{session}")[0] == 200
    by_vera = [each for each in refused() if each["at"] > before]
    assert len(by_vera) == len(tried) + 5 + 1
    assert {each["door"] for each in by_vera} == {"api"}
    assert "vera" in team.program.forge("people", "refusals")
    for status, path in ((401, "/api/sessions"), (401, "/api/team/people"), (200, "/")):
        assert _status(team, "", path) == status


def test_a_person_with_a_token_at_the_store_itself_is_bound_by_their_role(team: Team) -> None:
    said = team.program.forge("send", team.waiting()[0], "hello", code=3, FORGE_TEAM_TOKEN=team.tokens["vera"])
    assert "may not send: that takes an operator" in said


def test_four_eyes_from_another_machine_and_the_record_says_who(team: Team) -> None:
    queued = team.forge("bob", "run", "--background", "write it", alone=True)
    session = team.program.store().find(queued.split()[1]).id
    assert session[:12] in team.forge("vera", "ps")
    first = team.question(session)
    team.forge("bob", "inbox", "answer", first[:12], "--approve")  # of risk medium: below four_eyes
    store = team.program.store()
    second = until(lambda: [each for each in store.questions.rows(session=session) if each.id != first])[0]
    assert second.risk == "high"
    assert "/work/a.txt" in team.forge("vera", "inbox", second.id[:12])
    said = team.forge("bob", "inbox", "answer", second.id[:12], "--approve", code=3)
    assert "bob is an author of this session, and approval.four_eyes asks for somebody else's answer" in said
    assert team.ask("bob", f"/api/team/questions/{second.id}/answer", {"answer": {"approved": True}})[0] == 403
    assert "bob started this session, wrote to it" in team.forge("vera", "inbox", second.id[:12])
    assert (team.program.folder / "work" / "a.txt").exists()
    team.forge("olga", "inbox", "answer", second.id[:12], "--approve", alone=True)
    until(lambda: not (team.program.folder / "work" / "a.txt").exists())
    lines = b"".join(line for _, line in until(lambda: _finished(store, session))).decode()
    assert '"answeredAs":"bob","door":"api"' in lines
    assert '"answeredAs":"olga","door":"api"' in lines
    events = team.ask("vera", f"/api/sessions/{session}/events")[1]["events"]
    by = [each["event"]["data"]["by"] for each in events if each["event"]["type"] == "approvalResolved"]
    assert by == ["bob (api)", "olga (api)"]
    assert str(team.program.folder) not in json.dumps(events)


def test_a_schedule_from_another_machine_is_bound_to_roles(team: Team) -> None:
    before = _schedules(team)  # of tests before this one
    said = team.forge("bob", "schedule", "add", "30 7 * * mon-fri", "write it", "--name", "morning", "--approval",
                      "auto_deny", "--timezone", "Europe/Berlin")  # fmt: skip
    assert "morning starts next at " in said
    assert "07:30 CE" in said
    assert "vera is viewer here and may not schedule" in team.forge("vera", "schedule", "add", "@daily", "x", code=3)
    assert "may not schedule" in team.forge("vera", "schedule", "remove", "morning", code=3)
    assert "may not remove what others schedule" in team.forge("olga", "schedule", "remove", "morning", code=3)
    assert "'61' is no minute" in team.forge("bob", "schedule", "add", "61 * * * *", "x", code=2)
    assert "no schedule 'none'" in team.forge("bob", "schedule", "remove", "none", code=4)
    listed = team.forge("vera", "schedule", "list", "--json")
    assert {(each["name"], each["person"]) for each in json.loads(listed)} - before == {("morning", "bob")}
    assert str(team.program.folder) not in listed + json.dumps(team.ask("vera", "/api/team/schedules")[1])
    for body in ({"cron": "nope", "input": "x"}, {"cron": "@daily", "input": "x", "timezone": "Mars/Base"}):
        assert team.ask("bob", "/api/team/schedules", body)[0] == 422
    store = team.program.store()
    with store.database.transaction() as connection:
        connection.execute("UPDATE schedules SET next_tick = 1 WHERE name = 'morning'")
    started = until(lambda: store.schedules.find("morning").last_session, or_else=team.program.logs)
    assert team.program.wait_for(started, "finished").person == "bob"
    team.forge("ann", "schedule", "remove", "morning")
    assert _schedules(team) == before


def _schedules(team: Team) -> set[tuple[str, str]]:
    return {(each["name"], each["person"]) for each in team.ask("vera", "/api/team/schedules")[1]["rows"]}


def test_a_batch_from_another_machine_runs_on_the_teams_and_only_an_admin_reads_its_whole_log(team: Team) -> None:
    (team.laptop / "tasks.txt").write_text("first\nsecond\n")
    said = team.forge("bob", "batch", "tasks.txt", "--approval", "auto_deny", "--json")
    rows, _ = json.JSONDecoder().raw_decode(said)
    assert [(row["input"], row["state"]) for row in rows] == [("first", "finished"), ("second", "finished")]
    session = rows[0]["session"]
    assert team.program.store().find(session).person == "bob"
    assert "approval_denied" in team.forge("ann", "log", "--session", session)
    for words in (["--session", session], ["--store"], ["verify"]):
        said = team.forge("bob", "log", *words, code=2)
        assert "bob is operator here and may not see host paths" in said
        assert "the log with arguments and paths is for admins; `forge attach ID` shows a session" in said


def test_an_admin_verifies_the_whole_log_from_another_machine(team: Team) -> None:
    session, _ = team.waiting()
    said = team.forge("ann", "log", "verify")
    assert f"{session[:12]}  ok" in said and "NOT ok" not in said


def test_more_sessions_than_one_answer_takes_are_read_in_pages(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    store = team.program.store()
    for number in range(40):
        store.stop(store.queue(NewSession(facts={}, input=str(number), batch="pages")), "root", "test")
    # The runner may have taken one before it was stopped.
    until(lambda: all(each.ended for each in store.sessions(batch="pages")))
    monkeypatch.setattr(remote, "_MOST_ROWS", 7)
    far = RemoteStore(team.url, team.tokens["ann"])
    assert far.sessions(batch="pages", limit=1_000_000) == store.sessions(batch="pages")
    assert far.sessions(batch="pages", limit=9) == store.sessions(batch="pages", limit=9)
    assert len(far.questions(limit=1_000_000)) == len(store.questions.rows())


def test_a_program_below_the_servers_directory_is_named_from_a_machine_that_has_no_such_directory(team: Team) -> None:
    (team.program.folder / "bakery").mkdir()
    store = team.program.store()
    team.forge("bob", "run", "--background", "-p", "bakery", "bake it")
    assert store.facts(store.sessions(limit=1)[0].id)["directory"] == str(team.program.folder / "bakery")
    team.forge("bob", "schedule", "add", "0 6 * * *", "bake", "--name", "bakes", "-p", "bakery")
    team.forge("bob", "schedule", "remove", "bakes")
    said = team.forge("bob", "run", "--background", "-p", "nowhere", "bake it", code=2)
    assert "not a directory below the one that this server offers" in said
    assert "no such directory" in team.program.forge("run", "--background", "-p", "nowhere", "bake it", code=2)


def test_a_page_gets_the_text_as_it_comes_and_answers_a_form_with_a_secret_to_the_runner(team: Team) -> None:
    folder = team.program.folder / "talk"  # a program of its own: whoever asks here starts with each session
    (folder / "work").mkdir(parents=True)
    shutil.copy(ASKER_PROGRAM, folder / "work")
    (folder / "forge.yaml").write_text(FORGE_YAML + ASKER)
    (folder / "main.worker").write_text(WORKER.format(toolsets="mcp: {servers: [asker]}"))
    team.program.forge("trust", "--yes", cwd=folder)
    team.program.forge("mcp", "approve", "asker", "--yes", cwd=folder)
    team.program.play(
        {"say": SLOW, "chunks": 20, "pause": 0.1, "until": "go", "calls": [{"tool": "asker__ask", "args": ASK}]},
        {"say": "Once more.", "calls": [{"tool": "asker__ask", "args": ASK}]},
        {"say": "Thank you."},
        script="talk/script.yaml",
    )
    session = team.ask("bob", "/api/sessions", {"input": "talk", "directory": "talk"})[1]["id"]
    stream = f"ws://127.0.0.1:{team.port}/api/sessions/{session}/stream"
    with (
        connect(stream, additional_headers=_bearer(team, "olga"), max_queue=None) as socket,
        connect(stream, additional_headers=_bearer(team, "vera"), max_queue=None) as viewer,
    ):  # frames that nobody reads would keep a connection with a bounded queue from closing, for ten seconds
        frames: list[Any] = []

        def event(type: str, of: Any = socket) -> Any:
            while True:
                frame = json.loads(of.recv(PATIENCE))
                frames.append(frame)
                if frame["kind"] == "event" and frame["event"]["type"] == type:
                    return frame["event"]["data"]

        first = event("streaming")
        shown = first.get("whole", "") + first["delta"]
        assert shown != SLOW and SLOW.startswith(shown), "it is shown before the model has shown all of it"
        (folder / "go").touch()
        while shown != SLOW:
            shown += event("streaming")["delta"]
        form = event("formRequired")
        answer = {"requestId": form["requestId"], "action": "accept", "values": {"key": "s3cret-of-the-shop"}}
        event("formRequired", viewer)
        for one in (viewer, socket):
            one.send(json.dumps({"id": "1", "type": "formResponse", "data": answer}))
        told = iter(lambda: json.loads(viewer.recv(PATIENCE)), None)
        said = next(frame for frame in told if frame["kind"] == "answer")
        assert "may not answer" in said["problem"]
        assert event("formResolved")["action"] == "accept"
        assert "key" in str(event("toolResult"))
        again = event("formRequired")
        laptop = RemoteStore(team.url, team.tokens["bob"])  # as `forge attach` on another machine
        frames_there, count = laptop.live(session, 0)
        assert count >= len(frames_there) > 4
        assert {"streaming"} <= {each["type"] for each in frames_there}
        assert laptop.live(session, count)[0] == []
        laptop.answer_form(session, {**answer, "requestId": again["requestId"]})
        assert event("formResolved")["action"] == "accept"
    assert "Once more." in team.forge("vera", "attach", session[:12], alone=True)
    row = until(
        lambda: (found := team.program.store().questions.get(form["requestId"])) and found.state != "open" and found
    )
    assert (row.state, row.person, row.door, dict(row.answer)) == ("answered", "olga", "api", {})
    until(lambda: team.program.store().find(session).state == "waiting")
    for path in (team.program.home / "state").glob("sessions.db*"):
        assert b"s3cret-of-the-shop" not in path.read_bytes()


def test_a_removed_token_stops_working_at_once_and_its_socket_is_closed(team: Team) -> None:
    token = team.ask("ann", "/api/team/people", {"name": "gone", "role": "viewer"})[1]["token"]
    team.tokens["gone"] = token
    session, _ = team.waiting()
    with connect(
        f"ws://127.0.0.1:{team.port}/api/sessions/{session}/stream", additional_headers=_bearer(team, "gone")
    ) as socket:
        assert json.loads(socket.recv(PATIENCE))["kind"] == "hello"
        team.program.forge("people", "remove", "gone")
        assert team.ask("gone", "/api/sessions")[0] == 401
        with pytest.raises(ConnectionClosed) as closed:
            list(iter(lambda: socket.recv(PATIENCE), None))
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401
    assert "not valid" in team.forge("gone", "ps", code=3)


def test_one_person_cannot_close_the_live_page_for_the_others(team: Team) -> None:
    stream = f"ws://127.0.0.1:{team.port}/api/sessions/{team.waiting()[0]}/stream"
    with ExitStack() as opened:
        for _ in range(MAX_OF_PERSON):
            socket = opened.enter_context(connect(stream, additional_headers=_bearer(team, "vera")))
            assert json.loads(socket.recv(PATIENCE))["kind"] == "hello"
        with connect(stream, additional_headers=_bearer(team, "vera")) as late:
            said = json.loads(late.recv(PATIENCE))
            assert (said["kind"], said["reason"][:20]) == ("bye", f"You have {MAX_OF_PERSON} pages op")
            with pytest.raises(ConnectionClosed):
                late.recv(PATIENCE)
        with connect(stream, additional_headers=_bearer(team, "olga")) as other:
            assert json.loads(other.recv(PATIENCE))["kind"] == "hello"


def test_removing_a_person_says_what_stays_of_them(team: Team) -> None:
    team.tokens["kim"] = team.ask("ann", "/api/team/people", {"name": "kim", "role": "operator"})[1]["token"]
    team.question(team.start("kim"))
    team.forge("kim", "schedule", "add", "0 6 * * *", "sweep", "--name", "kims")
    said = team.forge("ann", "people", "remove", "kim")
    assert "kim is removed; their token does not work any more\n" in said
    assert "kim's sessions go on (1 open); their schedules start nothing any more (1)" in said
    assert "kim" not in team.program.forge("people", "list")
    team.forge("ann", "schedule", "remove", "kims")


def test_the_only_admin_is_not_removed_from_another_machine(team: Team) -> None:
    said = team.forge("ann", "people", "remove", "ann", code=2)
    assert "ann is the only admin" in said and "`forge people add NAME --role admin`" in said
    status, said = team.ask("ann", "/api/team/people/ann", method="DELETE")
    assert status == 409 and "ann is the only admin" in said["problem"]
    assert team.ask("ann", "/api/team/people")[0] == 200


def test_an_answer_for_good_is_an_admins_and_counts_for_others_with_its_author(team: Team) -> None:
    session = team.start("bob")
    question = team.question(session)
    row = team.program.store().questions.get(question)
    assert row is not None
    always = next(each["id"] for each in row.wire["choices"] if each["scope"] == "always")
    status, said = team.ask(
        "olga", f"/api/team/questions/{question}/answer", {"answer": {"approved": True, "choice": always}}
    )
    assert (status, "may not remember: that takes an admin" in said["problem"]) == (403, True)
    offered = team.ask("olga", f"/api/team/questions?prefix={question}")[1]["rows"][0]["wire"]["choices"]
    assert {each["scope"] for each in offered} == {"session"}
    status, _ = team.ask(
        "ann", f"/api/team/questions/{question}/answer", {"answer": {"approved": True, "choice": always}}
    )
    assert status == 200
    rules = until(lambda: team.ask("vera", "/api/team/rules")[1]["rows"])
    assert [each["person"] for each in rules] == ["ann"]
    listed = team.forge("vera", "rules", "list", "--store")
    assert f"{rules[0]['id']}  ann" in listed
    assert "preApproved: path /work/" in listed
    assert "may not change rules" in team.forge("vera", "rules", "revoke", rules[0]["id"], "--store", code=3)
    assert not (team.program.home / "remembered.yaml").exists()
    other = team.start("olga")
    store = team.program.store()
    asked = until(lambda: store.questions.rows(session=other))[0]
    assert asked.title.startswith("delete_file")
    lines = b"".join(line for _, line in store.lines(other)).decode()
    assert "the store's rules, by ann" in lines
    own = team.start("ann")
    asked = until(lambda: store.questions.rows(session=own))[0]
    assert asked.title.startswith("write_file"), "under four eyes nobody's rule approves their own session's calls"
    assert "revoked" in team.forge("ann", "rules", "revoke", rules[0]["id"], "--store")
    third = team.start("olga")
    assert until(lambda: store.questions.rows(session=third))[0].title.startswith("write_file")


def test_the_link_of_a_team_is_its_address(team: Team) -> None:
    said = team.program.forge("web", "link")
    assert said.splitlines()[0] == f"{team.url}/"
    assert "log in there with their tokens" in said


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"input": "x", "directory": "/"}, "not a directory below"),
        ({"input": "x", "directory": "../.."}, "not a directory below"),
        ({"input": "x", "approval": "approve_all"}, "cannot be chosen by a person of a team"),
        ({"input": " "}, "The first message is missing"),
    ],
)
def test_an_operator_starts_only_what_the_server_offers(team: Team, body: dict[str, str], problem: str) -> None:
    status, said = team.ask("bob", "/api/sessions", body)
    assert (status, problem in said["problem"]) == (422, True), said


@browsing
async def test_a_person_logs_in_and_answers_in_the_inbox(team: Team, windows: Any) -> None:
    window, store = await windows(), team.program.store()
    closed_all(team)
    session = team.start("bob")
    question = team.question(session)
    window.expects("401")
    page = window.page

    async def has_a_provider(route: Any) -> None:
        answer = await route.fetch()
        said = await answer.json()
        said["fields"]["signIn"] = "login.example.com"
        await route.fulfill(response=answer, json=said)

    await page.route("**/api/me", has_a_provider)
    await window.open(f"{team.url}/#/inbox")
    provider = page.get_by_role("link", name="Sign in at login.example.com")
    assert await provider.get_attribute("href") == "/api/oidc/login"
    await page.unroute("**/api/me")
    await page.set_viewport_size({"width": 390, "height": 800})  # it is there on a phone too
    await page.get_by_label("Your token").fill("forge_wrong")
    await page.get_by_role("button", name="Log in").click()
    await page.get_by_text("This token is not valid").wait_for()
    await page.get_by_label("Your token").fill(team.tokens["olga"])
    await page.set_viewport_size({"width": 1280, "height": 800})
    await page.get_by_role("button", name="Log in").click()
    await page.get_by_text("started by bob").first.wait_for()
    viewer, starter = await windows(), await windows()
    await viewer.open(f"{team.url}/#code={team.tokens['vera']}")
    await starter.open(f"{team.url}/#code={team.tokens['bob']}")
    for one in (viewer, starter):
        one.expects("401")
        await one.page.get_by_role("link", name="Inbox").click()
    await viewer.sees("You are a viewer: you see what is asked. Operators and admins answer.")
    await viewer.sees("write it")
    assert await viewer.page.get_by_role("button", name=re.compile("Approve|Deny")).count() == 0
    await starter.page.get_by_role("button", name=APPROVE).wait_for()
    assert await starter.page.get_by_role("link", name="Inbox").inner_text() == "Inbox\n1"
    await Person(window).answer(APPROVE)
    answered = until(lambda: (row := store.questions.get(question)) is not None and row.state == "answered" and row)
    assert (answered.person, answered.door) == ("olga", "page")
    await starter.sees("Approved · answered by olga on the page")
    # of risk high: whoever started the session does not answer it
    await starter.sees("You started this session, and this call needs the answer of somebody else.")
    await page.get_by_role("link", name="Sessions").click()
    await window.sees("started by bob")
    await window.sees("answered by olga")
    with store.database.transaction() as connection:
        connection.execute("UPDATE sessions SET notice = 'They may have run: x.' WHERE id = :id", {"id": session})
    await window.sees("They may have run: x.")
    await page.get_by_label("State").select_option("finished")
    await window.sees_not("waits for delete_file")
    await viewer.page.get_by_role("link", name="Sessions").click()
    assert await viewer.page.get_by_role("button", name=re.compile("New session|End")).count() == 0
    assert team.ask("bob", "/api/team/schedules", BY_THE_CLOCK | {"name": "weekly"})[0] == 201
    await viewer.page.set_viewport_size({"width": 390, "height": 800})
    await viewer.page.get_by_role("link", name="Team").click()
    await viewer.page.get_by_role("row", name="weekly").wait_for()
    assert await viewer.page.get_by_role("button", name="Remove").count() == 0
    assert not await viewer.overflows()
    await viewer.picture("team-schedules-phone")
    team.forge("bob", "schedule", "remove", "weekly")
    await viewer.sees("No schedule yet.")


def asked_alike(team: Team, starter: str, *, risk: str = "low", tool: str = "write_file", number: int) -> str:
    """A question of a session that no runner of the test takes."""
    store = team.program.store()
    program = next(each.id for each in store.projects.all() if each.name == "shop")
    new = NewSession(facts={}, input="x", title=f"task {number}", person=starter, program=program, label="nobody")
    lease = store.leases.claim("other", ("nobody",), session_id=store.queue(new))
    assert lease is not None
    wire = {"requestId": f"{number:02x}{0:030x}", "tool": tool, "risk": risk, "toolCallId": "c", "fingerprint": tool}
    wire |= {"type": "tool_call", "description": "d", "args": {}, "payload": "a.txt", "effects": ["write /work/a.txt"]}
    wire |= {"why": "w", "riskReasons": [], "choices": [], "warnings": [], "workerPath": [{"name": "main"}]}
    return store.questions.ask(lease, wire, kind="approval", four_eyes=1).id


def closed_all(team: Team) -> None:
    """Questions and schedules of tests before."""
    store = team.program.store()
    for each in store.questions.rows():
        store.stop(each.session, "ann", "test")  # whoever is only denied goes on, and asks again
        with suppress(TeamError):  # it was withdrawn
            store.questions.answer(each.id, {"approved": False}, "ann", "test")
    until(lambda: not store.questions.rows())
    for schedule in store.schedules.all():
        store.schedules.remove(schedule.name)


@browsing
async def test_an_inbox_of_many_is_narrowed_and_answered_together_on_the_page(team: Team, windows: Any) -> None:
    closed_all(team)
    mine = [asked_alike(team, starter, number=number) for number, starter in enumerate(("bob", "bob", "olga"), 1)]
    other = asked_alike(team, "bob", risk="critical", tool="exec_command", number=9)
    window = await windows()
    window.expects("401")
    await window.open(f"{team.url}/#code={team.tokens['olga']}")
    page = window.page
    await page.get_by_role("link", name="Inbox").click()
    cards = page.locator(".inbox-entry")
    await cards.nth(3).wait_for()
    await window.sees("3 questions here ask for the same call.")
    assert await window.accessible() == []
    await window.picture("team-inbox-of-many")
    await page.get_by_label("Risk", exact=True).select_option("critical")
    await cards.nth(1).wait_for(state="detached")
    assert await cards.get_attribute("data-id") == other
    await page.get_by_label("Risk", exact=True).select_option("")
    await page.get_by_label("Search words, task, person").fill("olga task")
    await window.sees_not("task 1")
    assert await cards.get_attribute("data-id") == mine[2]
    await page.get_by_label("Search words, task, person").fill("no such thing")
    await window.sees("No open question fits.")
    await page.get_by_label("Search words, task, person").fill("")
    await page.get_by_role("button", name="Approve all of these…").first.click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_text("Approve 3 questions?").wait_for()
    await dialog.get_by_role("button", name="Approve", exact=True).click()
    await window.sees("2 of 3 questions answered. olga is an author of this session")
    store = team.program.store()
    assert [store.questions.get(each).state for each in (*mine, other)] == ["answered", "answered", "open", "open"]  # type: ignore[union-attr]
    await page.set_viewport_size({"width": 390, "height": 800})
    assert not await window.overflows()
    said = team.forge("ann", "inbox", "--risk", "critical", "--project", "shop")
    assert other[:12] in said and mine[2][:12] not in said
    assert json.loads(team.forge("olga", "inbox", "--mine", "--json"))[0]["question"] == mine[2]
    again = asked_alike(team, "bob", number=10)
    said = team.forge("ann", "inbox", "answer", again, "--approve", "--alike")
    assert "2 of 2 answered" in said and store.questions.get(mine[2]).person == "ann"  # type: ignore[union-attr]
    closed_all(team)


@browsing
async def test_a_projects_admin_gives_roles_and_sets_quotas_and_secrets_on_the_page(team: Team, windows: Any) -> None:
    """A secret leaves the browser sealed: the page and the database do not have it; a runner opens it."""
    store, home = team.program.store(), team.program.home
    shop = next(each.id for each in store.projects.all() if each.name == "shop")
    store.secrets.publish(make_key(home))
    team.waiting()
    window = await windows()
    window.expects("401", r"404 .*/api/team/quotas")  # for nobody of that name
    sent: list[str] = []
    window.page.on("request", lambda request: sent.append(f"{request.url} {request.post_data}"))
    before = len(team.ask("ann", "/api/team/refusals")[1]["rows"])
    await window.open(f"{team.url}/#code={team.tokens['ada-s']}")
    page = window.page
    await page.get_by_role("link", name="Team").click()
    await window.sees("You are an admin of some projects")
    await page.get_by_label("Person or @group").fill("mallory")
    await page.get_by_label("In project").select_option("shop")
    await page.get_by_label("Is", exact=True).select_option("viewer")
    await page.get_by_role("button", name="Give role").click()
    await window.sees("mallory is viewer in shop.")
    assert await window.accessible() == []
    await window.picture("team-project-roles")
    assert team.ask("mallory", "/api/team/sessions")[1]["rows"]
    await page.get_by_role("button", name="Take the role of mallory in shop back").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    await page.get_by_role("button", name="Take the role of mallory in shop back").wait_for(state="detached")
    assert team.ask("mallory", "/api/team/sessions")[1]["rows"] == []

    await window.sees("No quota: nothing bounds what a day costs.")
    assert await page.get_by_label("Quota of", exact=True).locator("option").all_inner_texts() == ["shop"]
    await page.get_by_role("button", name="Set quota").click()
    await window.sees("Type dollars, sessions or both")
    await page.get_by_label("Dollars a day").fill("12.5")
    await page.get_by_label("Sessions a day").fill("40")
    await page.get_by_role("button", name="Set quota").click()
    await window.sees("shop, everybody together: $12.50, 40 sessions a day.")
    await page.get_by_label("For", exact=True).select_option("one person")
    await page.get_by_label("Person", exact=True).fill("nobody-of-that-name")
    await page.get_by_role("button", name="Set quota").click()
    await window.sees("no person 'nobody-of-that-name'")
    await page.get_by_label("Person", exact=True).fill("omar")
    await page.get_by_label("Dollars a day").fill("")
    await page.get_by_role("button", name="Set quota").click()
    await page.get_by_role("row", name="shop omar 40 sessions").wait_for()
    assert [(each.person, each.cost, each.sessions) for each in store.quotas.all()] == [
        ("", 12.5, 40),
        ("omar", -1, 40),
    ]
    await page.get_by_role("button", name="Remove the quota of shop, omar").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    await page.get_by_role("row", name="shop omar").wait_for(state="detached")

    await page.get_by_label("Name of the secret").fill("DEPLOY_TOKEN")
    await page.get_by_label("Value").fill(CANARY)
    await page.get_by_role("button", name="Set secret").click()
    await window.sees("DEPLOY_TOKEN of shop is set, sealed for the runners' key " + fingerprint(make_key(home)))
    assert await page.get_by_label("Value").input_value() == ""
    assert store.secrets.opened(shop, home) == ({"DEPLOY_TOKEN": CANARY}, [])
    assert any("/api/team/secrets" in each for each in sent) and CANARY not in " ".join(sent)
    assert CANARY not in await page.content()
    await page.get_by_role("row", name="shop DEPLOY_TOKEN ada-s").wait_for()
    assert await window.accessible() == []
    await window.picture("team-project-settings")
    await page.set_viewport_size({"width": 390, "height": 800})
    assert not await window.overflows()
    await window.picture("team-project-settings-phone")
    await page.get_by_role("button", name="Remove the secret DEPLOY_TOKEN of shop").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    await window.sees("No secret yet.")
    assert await page.get_by_role("button", name="Put into group").count() == 0  # groups are for admins of all projects
    refusals = len(team.ask("ann", "/api/team/refusals")[1]["rows"])
    assert refusals == before, "the page asks for nothing that is not hers"
    team.forge("ada-s", "projects", "quota", "shop")


@browsing
async def test_an_admin_manages_people_rules_schedules_and_groups_on_the_page(team: Team, windows: Any) -> None:
    """And an operator sees what of it is theirs."""
    team.ask("vera", "/api/team/people")
    closed_all(team)
    store = team.program.store()
    store.accounts.add_rule({"verdict": "preApproved", "tool": "webfetch"}, "ann")
    listed = _has_started_by_the_clock(team, "morning")
    window, other = await windows(), await windows()
    await window.open(f"{team.url}/#code={team.tokens['ann']}")
    await window.page.get_by_role("link", name="Team").click()
    await window.sees("manage people")
    await window.page.get_by_label("Name", exact=True).fill("newcomer")
    await window.page.get_by_label("Role", exact=True).select_option("operator")
    await window.page.get_by_role("button", name="Add").click()
    token = await window.page.locator("code", has_text="forge_").inner_text()
    team.tokens["newcomer"] = token
    assert team.ask("newcomer", "/api/team/schedules", BY_THE_CLOCK | {"name": "weekly"})[0] == 201
    await window.page.get_by_role("row", name="weekly").wait_for()
    assert await window.accessible() == []
    await window.picture("team-schedules")
    other.expects("401", "4401")
    await other.open(f"{team.url}/#code={token}")
    await other.sees("newcomer · operator")
    await other.page.get_by_role("link", name="Team").click()
    await other.sees("You are an operator here. An admin adds and removes people and rules.")
    await other.sees("preApproved: tool webfetch")
    row = await other.page.get_by_role("row", name="morning").inner_text()
    for said in ("Update the prices", "30 7 * * mon-fri", "Europe/Berlin", "finished", "bob", *listed):
        assert said in row, (said, row)
    await other.page.get_by_role("button", name="Remove weekly").click()
    await other.page.get_by_role("dialog").get_by_text("Sessions that run go on").wait_for()
    await other.page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    await other.page.get_by_role("row", name="weekly").wait_for(state="detached")
    assert await other.page.get_by_role("button", name=re.compile("Remove")).count() == 0
    for what in ("Remove morning", "Remove preApproved: tool webfetch", "Remove newcomer"):
        await window.page.get_by_role("button", name=what).click()
        await window.page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        await window.page.get_by_role("button", name=what).wait_for(state="detached")
    await window.sees("No schedule yet.")
    assert store.accounts.rules() == [] and store.schedules.all() == []
    await other.sees("You are no longer logged in")

    page = window.page
    await page.get_by_label("Member", exact=True).fill("mallory")
    await page.get_by_label("Group", exact=True).fill("@auditors")
    await page.get_by_role("button", name="Put into group").click()
    await window.sees("mallory is in @auditors.")
    assert store.projects.groups() == {"auditors": ["mallory"]}
    assert "all projects together" in await page.get_by_label("Quota of", exact=True).inner_text()
    assert await window.accessible() == []
    await window.picture("team-groups")
    await page.get_by_role("button", name="Take mallory out of @auditors").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    await window.sees("No group yet.")
    assert store.projects.groups() == {}


BY_THE_CLOCK = {
    "cron": "30 7 * * mon-fri", "timezone": "Europe/Berlin", "input": "Update the prices", "approval": "auto_deny",
}  # fmt: skip


def _has_started_by_the_clock(team: Team, name: str) -> tuple[str, str, str]:
    """A schedule of bob's, once its session has finished: its session, its next time, its note as the list has them."""
    assert team.ask("bob", "/api/team/schedules", BY_THE_CLOCK | {"name": name})[0] == 201
    store = team.program.store()
    with store.database.transaction() as connection:
        connection.execute("UPDATE schedules SET next_tick = 1 WHERE name = :name", {"name": name})
    session = until(lambda: store.schedules.find(name).last_session, or_else=team.program.logs)
    team.program.wait_for(session, "finished")
    listed = next(each for each in team.forge("vera", "schedule", "list").splitlines() if each.startswith(name))
    day = str(re.search(r"\d{4}-\d\d-\d\d 07:30", listed)[0])  # type: ignore[index]
    return session[:12], day, listed[listed.index("started only the latest tick") :]


def _bearer(team: Team, who: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {team.tokens[who]}"}


SEE, DO, MANAGE = ("vera", "olga", "ann"), ("olga", "ann"), ("ann",)
MAY: dict[str, tuple[tuple[str, ...], Any]] = {
    **dict.fromkeys(
        ("who_am_i", "describe", "list_sessions", "get_session", "list_questions", "get_question"), (SEE, None)
    ),
    **dict.fromkeys(("show_inbox", "read_output", "team_sessions", "team_schedules", "team_lines"), (SEE, None)),
    **dict.fromkeys(("team_live", "team_changes", "team_questions", "team_runners", "team_rules"), (SEE, None)),
    **dict.fromkeys(("list_events", "get_event"), (SEE, None)),
    **dict.fromkeys(("start_session", "team_start"), (DO, {"input": " "})),
    **dict.fromkeys(("end_session", "team_stop"), (DO, {})),
    "team_add_schedule": (DO, {"cron": "never", "input": "x"}),
    "team_remove_schedule": (DO, None),
    "team_send": (DO, {"text": "x"}),
    "team_answer": (DO, {"answer": {}}),
    "team_answer_alike": (DO, {"approved": False}),
    "act": (DO, {"type": "interrupt", "data": {}}),
    **dict.fromkeys(
        ("team_facts", "team_people", "team_refusals", "team_remove_person", "team_remove_rule", "team_audit"),
        (MANAGE, None),
    ),
    **dict.fromkeys(("team_rotate_token", "team_restore_person"), (MANAGE, {})),
    "team_add_person": (MANAGE, {"name": "no name", "role": "viewer"}),
    "team_projects": (SEE, None),
    "team_grant": (MANAGE, {"project": "shop", "subject": "nobody", "role": "viewer"}),
    "team_rename_project": (MANAGE, {"name": "no name"}),
    "team_groups": (MANAGE, None),
    "team_secrets": (SEE, None),
    "team_secrets_key": (MANAGE, None),
    "team_set_secret": (MANAGE, {"project": "shop", "name": "no name", "sealed": "x"}),
    "team_remove_secret": (MANAGE, None),
    "team_quotas": (SEE, None),
    "team_set_quota": (MANAGE, {"project": "shop", "person": "nobody", "sessions": 1}),
    "team_change_group": (MANAGE, {"group": "g", "person": "nobody", "member": True}),
}
"""By operation: who may, and a body. `log_in` and `log_out` are everybody's."""


LAST = ("end_session", "team_stop", "team_answer_alike")
"""After these the question is not open any more."""


def test_every_operation_asks_for_the_role_that_it_needs(team: Team) -> None:
    """All operations, all roles, on a session that is there: a new operation needs a line in the table."""
    operations = {each.name: each for each in team_operations()}
    assert set(MAY) == set(operations) - {"log_in", "log_out"}
    session = team.start()
    question = team.question(session)
    values = {
        "id": session,
        "requestId": question,
        "handle": "out_000000000000",
        "seq": "1",
        "name": "shop",
        "secret": "NONE",
    }
    places = [str(team.program.folder), str(team.program.home), str(team.laptop)]
    for name, (may, body) in sorted(MAY.items(), key=lambda each: each[0] in LAST):
        operation = operations[name]
        path = operation.path.format_map(values | ({"id": question} if name in ANSWERS else {}))
        assert team.ask("", path, body, operation.method)[0] == 401, name
        for who in SEE:
            status, said = team.ask(who, path, body, operation.method)
            assert (status == 403) == (who not in may), (name, who, status, said)
            assert status not in (401, 500), (name, who, said)
            shows_places = name in ("team_facts", "team_audit")  # for admins: rules that were made may name a path
            assert shows_places or not [each for each in places if each in json.dumps(said)], (name, who)
        for forged in ("..%2F..%2Fx", "%00", "%ED%A0%80", "x'%3B--", "%1b[2J"):
            hostile = operation.path.format_map(dict.fromkeys(values, forged))
            if hostile != operation.path:
                status, said = team.ask("ann", hostile, body, operation.method)
                assert status < 500 and "\x1b" not in json.dumps(said, ensure_ascii=False), (name, forged, status, said)


ANSWERS = ("team_answer", "team_answer_alike")
STORE_WIDE_OPERATIONS = {
    "team_people", "team_refusals", "team_remove_person", "team_add_person", "team_groups", "team_change_group",
    "team_audit", "team_rotate_token", "team_restore_person",
}  # fmt: skip
LISTS = {
    "who_am_i", "describe", "list_sessions", "list_questions", "show_inbox", "team_sessions", "team_schedules",
    "team_questions", "team_runners", "team_rules", "team_projects", "team_quotas", "team_secrets",
}  # fmt: skip


def test_every_operation_by_somebody_who_has_a_role_in_one_project(team: Team) -> None:
    """The same table for people of the session's project, and for an admin of another one: for her nothing of it is
    there, on each door."""
    operations = {each.name: each for each in team_operations()}
    session = team.start()
    question = team.question(session)
    values = {
        "id": session,
        "requestId": question,
        "handle": "out_000000000000",
        "seq": "1",
        "name": "shop",
        "secret": "NONE",
    }
    like = {"vic": "vera", "omar": "olga", "ada-s": "ann"}
    for name, (may, body) in sorted(MAY.items(), key=lambda each: each[0] in LAST):
        operation = operations[name]
        path = operation.path.format_map(values | ({"id": question} if name in ANSWERS else {}))
        status, said = team.ask("mallory", path, body, operation.method)
        assert (status == 200) == (name in LISTS) and status not in (201, 202, 204, 401, 500), (name, status, said)
        assert session not in json.dumps(said).replace(path, "") or status == 404, (name, said)
        assert question not in json.dumps(said) or status == 404, (name, said)
        status, said = team.ask("nemo", path, body, operation.method)
        assert status == (200 if name in ("who_am_i", "describe") else 403), (name, status, said)
        for who, role in like.items():
            status, said = team.ask(who, path, body, operation.method)
            expected = role in may and name not in STORE_WIDE_OPERATIONS
            assert (status != 403) == expected and status not in (401, 500), (name, who, status, said)
    assert team.program.store().questions.get(question).state in ("open", "answered", "withdrawn")  # type: ignore[union-attr]


ACTED: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "getDiff": (SEE, {"requestId": "QUESTION", "path": "/work/a.txt"}),
    "userInput": (DO, {"requestId": "x", "content": "x"}),
    "command": (DO, {"requestId": "x", "text": "/help"}),
    "manualToolInvoke": (DO, {"toolName": "list_files", "args": {}}),
    "formResponse": (DO, {"requestId": "QUESTION", "action": "decline"}),
    "approvalResponse": (DO, {"requestId": "QUESTION", "approved": False}),
    "interrupt": (DO, {}),
}
"""By action of a socket: who may, and its data. After the last of them there may be nothing left to answer."""


def test_every_action_of_a_socket_asks_for_the_role_that_it_needs(team: Team) -> None:
    assert set(ACTED) == ACTIONS
    session = team.start()
    question = team.question(session)
    stream = f"ws://127.0.0.1:{team.port}/api/sessions/{session}/stream"
    for who in ("vera", "vic", "olga"):
        with connect(stream, additional_headers=_bearer(team, who), max_queue=None) as socket:
            for type, (may, data) in ACTED.items():
                given = {name: question if value == "QUESTION" else value for name, value in data.items()}
                socket.send(json.dumps({"id": type, "type": type, "data": given}))
                frames = iter(lambda: json.loads(socket.recv(PATIENCE)), None)
                answer = next(each for each in frames if each["kind"] == "answer" and each["id"] == type)
                role = "vera" if who == "vic" else who
                assert ("may not" in (answer.get("problem") or "")) == (role not in may), (who, type, answer)
    assert team.program.store().questions.get(question).person == "olga"  # type: ignore[union-attr]
    with connect(stream, additional_headers=_bearer(team, "mallory")) as socket:
        assert json.loads(socket.recv(PATIENCE))["kind"] == "bye"
        with pytest.raises(ConnectionClosed):
            socket.recv(PATIENCE)
    with pytest.raises(InvalidStatus, match="403"):
        connect(stream, additional_headers=_bearer(team, "nemo"))


NOT_THERE, REFUSED, SEEN = "no (session|question|project|rule|schedule) '", "may not", ""
DATABASE = "this needs the address of the database"
TYPED: dict[str, tuple[tuple[str, ...], str, str]] = {
    "ps": (SEE, SEEN, "--all"),
    "inbox": (SEE, SEEN, ""),
    "inbox answer": (DO, NOT_THERE, "QUESTION --deny"),
    "attach": (SEE, NOT_THERE, "SESSION"),
    "diff": (SEE, NOT_THERE, "SESSION"),
    "apply": (DO, NOT_THERE, "SESSION"),
    "send": (DO, NOT_THERE, "SESSION hello"),
    "stop": (DO, NOT_THERE, "SESSION"),
    "batch": (DO, REFUSED, "tasks.txt --approval auto_deny"),
    "schedule add": (DO, REFUSED, "@daily x --name typed"),
    "schedule list": (SEE, SEEN, ""),
    "schedule remove": (DO, NOT_THERE, "typed"),
    **{f"people {each}": (MANAGE, REFUSED, "nobody") for each in ("rotate", "remove", "restore")},
    **{f"people {each}": (MANAGE, REFUSED, "") for each in ("list", "refusals")},
    "people add": (MANAGE, REFUSED, "no/name"),
    "projects list": (SEE, SEEN, ""),
    "projects quotas": (SEE, SEEN, ""),
    "projects add": (SEE, DATABASE, "."),
    "projects rename": (MANAGE, NOT_THERE, "shop no/name"),
    "projects grant": (MANAGE, NOT_THERE, "shop nobody --role viewer"),
    "projects quota": (MANAGE, NOT_THERE, "shop nobody --sessions 1"),
    "projects groups": (MANAGE, REFUSED, ""),
    **{f"projects {each}": (MANAGE, REFUSED, "crew nobody") for each in ("join", "leave")},
    "secrets set": (MANAGE, NOT_THERE, "NONE --project shop"),
    "secrets remove": (MANAGE, NOT_THERE, "NONE --project shop"),
    "secrets list": (SEE, SEEN, ""),
    "secrets key": (SEE, DATABASE, ""),
    **{f"audit {each}": (MANAGE, REFUSED, "") for each in ("export", "verify")},
    **{f"store {each}": (SEE, DATABASE, "") for each in ("init", "status", "upgrade", "verify", "copy", "prune")},
    "runner": (SEE, DATABASE, ""),
}
"""By command: who may, what somebody with a role in another project alone is told, and the words behind it."""
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_every_command_of_a_team_is_in_the_table() -> None:
    """By the usage of each verb, which the reference has from the code."""
    found = set()
    for verb, words in re.findall(r"^(?:usage: {1}| {7})forge (\w+)(.*)$", REFERENCE.read_text(), re.MULTILINE):
        if verb in VERBS:
            subs = re.match(r"(?: \|? ?([a-z]+))*", words)
            said = re.findall(r"[a-z]+", subs[0]) if subs else []
            found |= {f"{verb} {each}".strip() for each in said or [""]}
    assert found == set(TYPED)


@pytest.mark.parametrize("command", TYPED)
def test_every_command_asks_for_the_role_that_it_needs(team: Team, command: str) -> None:
    may, told, words = TYPED[command]
    session = question = "-"
    if command in ("inbox answer", "send", "stop"):
        session = team.start()
        question = team.question(session)
    elif "SESSION" in words:
        session, question = team.waiting()
    if session != "-":
        words = words.replace("SESSION", session).replace("QUESTION", question)
    (team.laptop / "tasks.txt").write_text("first\n")
    line = [*command.split(), *words.split()]
    said = team.forge("mallory", *line, code=None)
    assert re.search(told, said) and (told or "may not" not in said), said
    told = said.replace(session, "").replace(question, "")
    assert not [
        each for each in ("write it", "a.txt", f"{session:.12}", f"{question:.12}") if len(each) > 1 and each in told
    ]
    for who in ("vera", "olga"):
        said = team.forge(who, *line, code=None)
        assert ("may not" in said) == (who not in may), (who, said)


def test_another_projects_admin_finds_nothing_by_socket_and_command_line(team: Team) -> None:
    session, question = team.waiting()
    stream = f"ws://127.0.0.1:{team.port}/api/sessions/{session}/stream"
    with connect(stream, additional_headers=_bearer(team, "mallory")) as socket:
        assert json.loads(socket.recv(PATIENCE)) == {
            "kind": "bye", "reason": "There is no such session; the list of sessions shows all."
        }  # fmt: skip
    for words, code in (
        (("ps", "--all"), 0), (("inbox",), 0), (("schedule", "list"), 0), (("stop", session), 4),
        (("send", session, "hello"), 4), (("attach", session), 4), (("inbox", question), 4),
        (("inbox", "answer", question, "--approve"), 4), (("diff", session), 4), (("run", "--background", "mine"), 3),
        (("people", "list"), 3), (("projects", "grant", "shop", "mallory", "--role", "admin"), 4),
        (("projects", "join", "crew", "mallory"), 3), (("log", "--session", session), 4),
    ):  # fmt: skip
        said = team.forge("mallory", *words, code=code)
        assert session[:12] not in said.replace(session, "") and "write it" not in said, (words, said)
    assert team.program.store().questions.get(question).state == "open"  # type: ignore[union-attr]
    assert [each["name"] for each in json.loads(team.forge("mallory", "projects", "list", "--json"))] == ["bank"]
    assert session[:12] in team.forge("vic", "ps") and question[:12] in team.forge("omar", "inbox")
    team.forge("ada-s", "projects", "grant", "shop", "mallory", "--role", "viewer")
    with connect(stream, additional_headers=_bearer(team, "mallory")) as socket:
        assert json.loads(socket.recv(PATIENCE))["session"]["answerable"] is False
        team.forge("ada-s", "projects", "grant", "shop", "mallory", "--role", "none")
        with pytest.raises(ConnectionClosed):
            list(iter(lambda: socket.recv(PATIENCE), None))
    refused = [each for each in team.ask("ann", "/api/team/refusals")[1]["rows"] if each["person"] == "mallory"]
    assert {"start", "manage people", "see (another project)"} <= {each["action"] for each in refused}


@pytest.mark.parametrize("door", ["/api/sessions", "/api/team/sessions", "/api/team/schedules"])
def test_another_projects_admin_does_not_learn_which_directories_are_there(team: Team, door: str) -> None:
    body = {"input": "x"} | ({"cron": "@daily"} if "schedules" in door else {})
    said = {name: team.ask("mallory", door, body | {"directory": name}) for name in ("work", "nope", "/etc", "..", "")}
    assert {status for status, _ in said.values()} == {403}, said
    assert len({json.dumps(answer) for _, answer in said.values()}) == 1, said
    assert team.ask("bob", door, body | {"directory": "nope"})[0] == 422  # who may start everywhere is told


def _finished(store: Any, session: str) -> list[tuple[int, bytes]]:
    found = store.lines(session)
    row = store.find(session)
    return found if row.state == "finished" or row.waits_for == "the next message" else []


def _status(team: Team, who: str, path: str) -> int:
    connection = HTTPConnection("127.0.0.1", team.port, timeout=PATIENCE)
    connection.request("GET", path, headers=_bearer(team, who) if who else {})
    return connection.getresponse().status
