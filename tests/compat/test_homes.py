"""A person's files of an earlier version work now, without a question asked again.

`homes/v1` is a FORGE_HOME and a project as the version that wrote them left them; how, and why they belong at one fixed
path, is in `make_home.py`. Each test opens a copy of its own. Nothing here is ever rewritten: if a test fails, the code
cannot read what is on people's disks.

Of the times and ids in the fixture only its own are named here; it is read from outside, by the `forge` command (in
this process, and once at a terminal) and as files.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests import known_walls
from tests.compat.make_home import HOMES, PLACES, at_place, environment
from tests.deadlines import PATIENCE
from tests.ready import run_in_process

HOME = HOMES / "v1"
UNTRUSTED = "stranger"


class Opened:
    """A copy of the fixture at its place."""

    def __init__(self, place: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.place, self.home, self.project = place, place / ".forge", place / "shop"
        self._capture = capture

    def forge(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Without a terminal: whatever asks is denied."""
        ran = run_in_process(self._capture, *words, cwd=self.project, env=environment(self.place))
        assert ran.returncode == code, (words, ran.returncode, ran.stdout, ran.stderr)
        return ran

    def out(self, *words: str, code: int = 0) -> str:
        return self.forge(*words, code=code).stdout

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.out(*words, "--json", code=code))

    def session(self, began: str) -> str:
        """The id of the conversation that began with these words."""
        [found] = [each["id"] for each in self.json("sessions", "list") if each["input"] == began]
        return str(found)

    def records(self, session: str) -> list[dict[str, Any]]:
        journal = self.home / "sessions" / f"{session}.jsonl"
        return [json.loads(line) for line in journal.read_text().splitlines()]


@pytest.fixture
def opened(capfd: pytest.CaptureFixture[str], tried_walls: Path) -> Iterator[Opened]:
    with at_place("home") as place:
        shutil.copytree(HOME, place, dirs_exist_ok=True)
        _restore_modes(place)
        known_walls.put(tried_walls, place / ".forge")
        yield Opened(place, capfd)


def _restore_modes(place: Path) -> None:
    """A repository keeps no modes: the home is its owner's alone, and what is in the store is not writable."""
    for path in [place, *place.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)
    for folder in (place / ".forge/store").iterdir():
        for path in folder.rglob("*"):
            path.chmod(0o500 if path.is_dir() else 0o400)
        folder.chmod(0o500)


def test_the_program_is_still_trusted(opened: Opened) -> None:
    assert opened.out("trust", "--show").splitlines()[-1] == "~/shop is trusted. Nothing changed since then."
    with (opened.project / ".forge/rules.yaml").open("a") as file:
        file.write("# another byte\n")
    shown = opened.out("trust", "--show")
    assert "changed since ~/shop was trusted" in shown and "+# another byte" in shown
    assert shown.splitlines()[-1] == "~/shop is not trusted. `forge trust` asks for it."


def test_sessions_are_listed_shown_and_verified(opened: Opened) -> None:
    found = {each["input"]: each for each in opened.json("sessions", "list")}
    told = {began: (each["worker"], each["model"], each["state"], each["calls"]) for began, each in found.items()}
    assert told == {
        "How many mugs?": ("main", "scripted:words.yaml", "closed", 5),
        "Write the price": ("main", "scripted:asking.yaml", "closed", 4),
        "How many plates?": ("main", "scripted:talk.yaml", "closed", 0),
        "Wait": ("main", "scripted:slow.yaml", "not_closed", 1),
    }
    checked = opened.json("log", "verify")
    assert len(checked) == len(list((HOME / ".forge/sessions").glob("*.jsonl"))) == 11
    assert all(each["ok"] for each in checked), checked
    assert [each["session"] for each in checked if each["notes"]] == [found["Wait"]["id"]]
    shown = opened.out("sessions", "show", found["How many mugs?"]["id"]).splitlines()
    for line in ("> How many mugs?", "I will look.", "There are 7 mugs.", "session completed"):
        assert line in shown
    asked = opened.out("sessions", "export", found["Write the price"]["id"])
    events = [json.loads(line) for line in asked.splitlines()]
    answers = [each["data"]["approved"] for each in events if each["type"] == "approvalResolved"]
    assert answers == [True, False, True, True]


def test_the_log_has_every_call(opened: Opened) -> None:
    calls = opened.json("log", "--limit", "100")
    assert [(each["tool"], each["status"], each["caller"]) for each in calls] == [
        ("headings", "success", "human"),
        ("headings", "success", "human"),
        ("headings", "execution_failed", "human"),
        ("shelf__count", "success", "human"),
        ("save_memory", "success", "human"),
        ("save_memory", "success", "human"),
        ("write_file", "approval_denied", "human"),
        ("helper", "success", "llm"),
        ("read_file", "success", "llm"),
        ("read_file", "success", "llm"),
        ("note", "success", "llm"),
        ("write_file", "success", "llm"),
        ("write_file", "success", "llm"),
        ("write_file", "approval_denied", "llm"),
        ("write_file", "success", "llm"),
        ("exec_command", "success", "llm"),
        ("exec_command", "may_have_run", "llm"),
    ]


def test_sessions_go_on(opened: Opened) -> None:
    """With their history; a call that was running when it was killed is told, and not repeated."""
    (opened.project / "begun").unlink()
    for began in ("How many mugs?", "Write the price", "Wait"):
        session = opened.session(began)
        before = opened.records(session)
        ran = opened.forge("run", "--resume", session, "-m", "scripted:next.yaml", "-i", "go on")
        assert ran.stdout == "I went on.\n"
        assert "new form" not in ran.stderr, "the worker's files are those it began with"
        after = opened.records(session)
        assert after[: len(before)] == before
        assert opened.out("log", "verify", session).startswith(f"{session[:12]}  ok, {len(after)} lines")
        said = [each["message"] for each in after if each["type"] == "history" and each["message"]["role"] != "results"]
        assert [said[0]["text"], said[-2]["text"], said[-1]["text"]] == [began, "go on", "I went on."]
        assert not (opened.project / "begun").exists(), "nothing is repeated"
    [ended] = [each for each in after if each["type"] == "finished"]
    assert (ended["status"], ended["error"]) == ("interrupted", "may have run before the crash")


def test_rules_hold(opened: Opened) -> None:
    """Those of the person, remembered ones, those of the trusted project: listed, explained, and in calls."""
    listed = {(each["id"], each["source"], each["verdict"]) for each in opened.json("rules", "list")}
    assert listed >= {
        ("81fd92743a6d", "user", "blocked"),
        ("1e83239390b2", "user", "preApproved"),
        ("6392dff399a2", "remembered", "preApproved"),
        ("e861fe32ddfd", "remembered", "preApproved"),
        ("a9c3b553f232", "project", "preApproved"),
        ("0223945cde53", "project", "blocked"),
    }
    opened.out("rules", "check")
    for words, code, decided in ((("git", "push"), 4, "81fd92743a6d"), (("pytest", "-q"), 0, "e861fe32ddfd")):
        told = json.loads(opened.out("rules", "explain", "--json", "--", *words, code=code))
        assert told["decision"]["decidedBy"]["id"] == decided, words
    wrote = opened.json("call", "write_file", "--path", "docs/b.md", "--content", "b")
    assert wrote["decision"]["decidedBy"]["id"] == "a9c3b553f232"
    assert (opened.project / "docs/b.md").read_text() == "b"
    refused = opened.json("call", "write_file", "--path", "sealed/b.md", "--content", "b", code=3)
    assert refused["decision"]["decidedBy"]["id"] == "0223945cde53"
    assert "sealed by the project" in refused["error"] and not (opened.project / "sealed").exists()
    opened.out("call", "write_file", "--path", "lists/a.txt", "--content", "again")
    assert (opened.project / "lists/a.txt").read_text() == "again"
    remembered, other = (json.dumps({"path": f"lists/{name}.txt", "content": "x"}) for name in "ab")
    opened.out("rules", "explain", "write_file", other, code=3)
    opened.out("rules", "explain", "write_file", remembered)
    revoked = opened.out("rules", "revoke", "6392dff399a2")
    assert revoked == "revoked 6392dff399a2.\n"
    opened.out("rules", "explain", "write_file", remembered, code=3)


def test_user_tools_are_active_with_their_history(opened: Opened) -> None:
    listed = opened.json("tools", "list", "--source", "custom")
    assert {each["name"] for each in listed["tools"]} >= {"greet", "headings"}
    assert [(each["tool"], each["code"]) for each in listed["skipped"]] == [(UNTRUSTED, "untrusted")]
    assert opened.out("call", "headings", "--file", "guide.md", "--depth", "1") == "# One\n"
    denied = opened.forge("call", UNTRUSTED, code=3)
    assert "is not trusted" in denied.stderr
    opened.out("tools", "verify")
    assert "no difference" in opened.out("tools", "diff", "headings")
    versions = opened.json("tools", "log", "headings")
    assert [each["digest"][7:19] for each in versions["versions"]] == ["ef765e4bd7f2", "b35998eacf65"]
    counted = {each["name"]: each["calls"] for each in opened.json("tools", "stats")["tools"]}
    assert counted == {"greet": 0, "headings": 4, UNTRUSTED: 1}
    opened.out("tools", "undo", "headings")
    assert "version: 1.0.0" in (opened.home / "tools/headings/tool.yaml").read_text()
    assert opened.out("call", "headings", "--file", "guide.md", "--depth", "2") == "# One\n## Two\n", "trusted before"


def test_the_server_is_still_trusted_and_pinned(opened: Opened) -> None:
    [server] = opened.json("mcp", "list")["servers"]
    assert (server["name"], server["state"]) == ("shelf", "known")
    assert opened.out("call", "shelf__count", "--item", "plate") == "12\n"
    shown = opened.json("mcp", "show", "shelf")
    assert {each["name"]: each["pin"] for each in shown["tools"]} == {
        "shelf__count": "pinned",
        "shelf__restock": "pinned",
    }
    opened.out("call", "shelf__restock", "--item", "plate", code=3)
    assert [each["name"] for each in opened.json("mcp", "token", "list")["tokens"]] == ["editor"]


def test_memory_and_typed_lines_are_there(opened: Opened, ready_forge: Any) -> None:
    for scope in ("project", "user"):
        said = opened.out("call", "get_memory", "--memory_id", "mugs", "--scope", scope)
        assert said == f"Mugs are blue ({scope}).\n"
    assert (opened.home / "history").read_text() == "How many plates?\n/exit\n"
    env = environment(opened.place) | {"TERM": "xterm"}
    command = ready_forge.expecting(
        ["run", "-m", "scripted:talk.yaml"], cwd=str(opened.project), env=env, timeout=PATIENCE
    )
    command.expect("main")
    command.send("\x1b[A\x1b[A\r")  # two up: the line before `/exit`
    command.expect("12 plates")
    command.send("/exit\r")
    command.wait()
    command.close()
    assert (opened.home / "history").read_text() == "How many plates?\n/exit\n" * 2


def test_databases_are_what_they_were(opened: Opened) -> None:
    """Tables, columns and version: of those that were opened, and of new ones. Whoever changes them must bring
    people's databases along. The index may gain columns: it is written anew from the journals."""
    names = ("state/custom.db", "index.db")
    gained = set()
    for _ in ("opened", "new"):
        opened.out("log")
        opened.out("tools", "list")
        before, now = (_columns(home / "index.db") for home in (HOME / ".forge", opened.home))
        assert before <= now
        gained.add(frozenset(now - before))
        for name in names:
            if name != "index.db":
                assert _schema(opened.home / name) == _schema(HOME / ".forge" / name), name
            for file in (opened.home / name).parent.glob(f"{Path(name).name}*"):
                file.unlink()
    assert gained == {frozenset({("sessions", "cost"), ("sessions", "prices")})}


def _columns(database: Path) -> set[tuple[str, str]]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as opened:
        tables = [row[0] for row in opened.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {(table, row[1]) for table in tables for row in opened.execute(f"PRAGMA table_info({table})")}


def _schema(database: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as opened:
        rows = opened.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name").fetchall()
        return [*rows, *opened.execute("PRAGMA user_version").fetchall()]


def test_the_fixture_names_no_machine() -> None:
    for path in HOME.rglob("*"):
        if path.is_file():
            content = path.read_bytes().replace(str(PLACES).encode(), b"")
            assert not any(word in content for word in (b"/root/", b"/home/u", b"/work/", b"/builds/")), path
