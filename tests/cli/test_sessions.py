"""`forge sessions`: conversations are listed, shown again, exported and deleted whole; looking changes nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.deadlines import PATIENCE

from golem_forge.agent.history import History
from golem_forge.agent.model.interface import AssistantMessage, UserMessage
from golem_forge.agent.session_state import RunFacts, record_run
from golem_forge.core.decisions import Decision, Verdict
from golem_forge.events.bus import create_ui_event_bus
from golem_forge.events.index import SessionIndex
from golem_forge.events.journal import CallStart, Journal, reopen
from golem_forge.events.serialization import Event, iso_now

from .conftest import Shell


def converse(
    home: Path, session_id: str, text: str, answer: str = "Done.", *, close: bool = True, root: Path | str = "/srv/x"
) -> Journal:
    """A session as a run leaves it: an input, a call, an answer."""
    journal = Journal.create(home, session_id)
    bus = create_ui_event_bus(session_id, recorder=journal.record_event, commit=journal.flush)
    record_run(journal, RunFacts(name="main", worker_id="w1", directory=str(root), root=str(root), model="scripted:a"))
    started = {"worker": "main", "model": "scripted:a", "mode": "chat", "approvalMode": "interactive"}
    bus.emit("sessionStarted", {**started, "zones": [{"name": "workspace", "mode": "rw"}], "resumed": False}, "w1")
    history = History(journal, "w1")
    history.add(UserMessage(text=text))
    bus.emit("message", {"message": {"role": "user", "content": text}}, "w1")
    journal.begin(
        CallStart(
            "c1", "read_file", {"path": "/workspace/a.txt"}, Decision(verdict=Verdict.PRE_APPROVED), "llm", "main"
        )
    )
    journal.finish("c1", "success", 1.5, value={"kind": "text", "content": "line one"})
    history.add(AssistantMessage(text=answer))
    bus.emit("message", {"message": {"role": "assistant", "content": answer}}, "w1")
    bus.emit("sessionEnd", {"reason": "completed"}, "w1")
    if close:
        journal.close()
    ended = iso_now()
    while iso_now() == ended:  # so that the next session is a later one
        pass
    return journal


@pytest.fixture
def shell(in_process: Shell) -> Shell:
    return in_process


@pytest.fixture
def talked(shell: Shell) -> Shell:
    converse(shell.forge_home, "aaa111", "Fix the \x1b[31mtests, please " + "and more " * 20)
    converse(shell.forge_home, "aab222", "What is here?", "A file.")
    return shell


def kept(shell: Shell) -> dict[str, bytes]:
    """Everything but the index, which may be rebuilt at any time."""
    return {name: content for name, content in shell.everything().items() if not name.endswith("index.db")}


def test_nothing_yet_creates_nothing(shell: Shell) -> None:
    assert (shell("sessions").code, "no conversation yet" in shell("sessions", "list").err) == (0, True)
    assert shell("sessions", "list", "--json").json == []
    for verb in ("show", "export", "delete"):
        ended = shell("sessions", verb, "last")
        assert (ended.code, ended.out) == (4, "") and "forge sessions list" in ended.err
    assert not shell.forge_home.exists()


def test_list_says_who_and_how_it_began(talked: Shell) -> None:
    ended = talked("sessions", "list")
    assert ended.code == 0
    head, first, second = ended.out.splitlines()
    assert head.split()[0] == "SESSION" and "WORKER" in head and "MODEL" in head
    assert first.startswith("aaa111") and "Fix the \\x1b[31mtests, pl" in first and first.endswith("…")
    assert second.startswith("aab222") and " closed " in second and second.endswith("What is here?")
    assert " main " in second and " scripted:a " in second
    assert "\x1b" not in ended.out


def test_list_says_where_and_last_is_the_last_one_here(talked: Shell) -> None:
    """A conversation elsewhere that is newer is not meant by `last`; where there was none, the latest of all is."""
    program, bare = talked.project, talked.home / "src" / "a-directory-with-a-long-name"
    talked.write("forge.yaml", "")
    (program / "sub").mkdir()
    bare.mkdir(parents=True)
    converse(talked.forge_home, "ccc333", "In the program", root=program)
    converse(talked.forge_home, "ddd444", "Elsewhere", root=bare)
    *_, here, there = talked("sessions", "list", cwd=program / "sub").out.splitlines()
    assert here.startswith("ccc333") and " .  " in here
    assert there.startswith("ddd444") and " …y-with-a-long-name " not in there and "-with-a-long-name" in there
    assert [each["directory"] for each in talked("sessions", "list", "--json").json][-2:] == [str(program), str(bare)]
    for cwd, words in [(program / "sub", "In the program"), (bare, "Elsewhere"), (talked.home, "Elsewhere")]:
        assert words in talked("sessions", "show", "last", cwd=cwd).out


def test_a_start_in_which_nothing_was_asked_is_not_last(talked: Shell) -> None:
    journal = Journal.create(talked.forge_home, "eee555")
    record_run(journal, RunFacts(name="main", worker_id="w1", directory="/srv/x", root="/srv/x", model="scripted:a"))
    journal.close()
    assert [each["id"] for each in talked("sessions", "list", "--json").json] == ["aaa111", "aab222"]
    assert talked("sessions", "list", "--all", "--json").json[-1]["id"] == "eee555"
    assert "What is here?" in talked("sessions", "show", "last").out


def test_list_as_json_with_limit_and_states(talked: Shell) -> None:
    reopen(talked.forge_home, "aab222").journal.release()
    running = converse(talked.forge_home, "bbb333", "Still here", close=False)
    found = talked("sessions", "list", "--json").json
    assert [(each["id"], each["state"]) for each in found] == [
        ("aaa111", "closed"),
        ("aab222", "not_closed"),
        ("bbb333", "running"),
    ]
    assert found[2]["input"] == "Still here" and found[2]["calls"] == 1 and found[2]["worker"] == "main"
    assert [each["id"] for each in talked("sessions", "list", "--json", "--limit", "1").json] == ["bbb333"]
    running.close()


def test_show_replays_it_as_text(talked: Shell) -> None:
    before = kept(talked)
    ended = talked("sessions", "show", "aab")
    assert ended.code == 0
    shown = ended.out
    assert shown.index("> What is here?") < shown.index("read_file") < shown.index("A file.")
    assert "line one" in shown and "session completed" in shown
    assert "\x1b" not in talked("sessions", "show", "aaa").out
    assert talked("sessions", "show", "last", "--trace", "quiet").out == "A file.\n"
    assert kept(talked) == before, "nothing was recorded"


def test_an_export_is_ascii_wherever_it_goes(shell: Shell) -> None:
    converse(shell.forge_home, "ccc333", "a \u202e b \x9b2J", "c \U0001f600 \x1b[2J")
    ended = shell("sessions", "export", "ccc333")
    assert ended.code == 0
    assert ended.out.isascii() and ended.out.replace("\n", "").isprintable()
    said = [Event.from_json(line).wire for line in ended.out.splitlines()]
    texts = [each["message"]["content"] for each in said if "message" in each]
    assert texts == ["a \u202e b \x9b2J", "c \U0001f600 \x1b[2J"]


def test_a_session_that_still_runs_can_be_shown_and_exported(talked: Shell) -> None:
    running = converse(talked.forge_home, "bbb333", "Still here", close=False)
    assert talked("sessions", "show", "bbb").code == 0
    assert talked("sessions", "export", "bbb").code == 0
    running.close()


def test_delete_is_whole(talked: Shell) -> None:
    home = talked.forge_home
    SessionIndex(home).refresh()
    output, files, elsewhere = home / "output" / "aaa111", home / "sessions" / "aaa111.files", home / "elsewhere"
    for folder in (output, files, elsewhere, home / "output" / "aab222"):
        folder.mkdir(parents=True)
        (folder / "kept").write_text("x")
    (files / "link").symlink_to(elsewhere)
    assert talked("sessions", "rename", "aaa", "To go").code == 0
    ended = talked("sessions", "delete", "aaa")
    assert (ended.code, ended.out) == (0, "deleted session aaa111\n")
    assert not [path for path in home.rglob("*") if "aaa111" in path.name]
    assert (elsewhere / "kept").exists() and (home / "output" / "aab222" / "kept").exists()
    assert [session.id for session in SessionIndex(home).sessions()] == ["aab222"]
    assert not SessionIndex(home).calls(session="aaa111")
    assert talked("log", "verify").code == 0, "a deleted session is not a lost one"
    assert talked("sessions", "delete", "aaa").code == 4


def test_a_person_is_asked_before_a_session_is_deleted(
    talked: Shell, on_terminal: Callable[..., tuple[int, str]]
) -> None:
    for typed, code, left in (("n", 3, ["aaa111", "aab222"]), ("y", 0, ["aab222"])):
        ended, _ = on_terminal(["sessions", "delete", "aaa"], (r"\[y/N\]", typed))
        assert ended == code
        assert sorted(session.id for session in SessionIndex(talked.forge_home).sessions()) == left


def test_delete_refuses_a_session_in_use(talked: Shell) -> None:
    running = converse(talked.forge_home, "bbb333", "Still here", close=False)
    before = kept(talked)
    ended = talked("sessions", "delete", "bbb333", "--yes")
    assert ended.code == 1 and "session is in use" in ended.err
    assert kept(talked) == before
    running.close()
    assert talked("sessions", "delete", "bbb333", "--yes").code == 0


def test_a_session_is_called_by_its_first_words_until_it_is_renamed(talked: Shell) -> None:
    def titles() -> list[str]:
        return [each["title"] for each in talked("sessions", "list", "--json").json]

    assert titles()[1] == "What is here?"
    ended = talked("sessions", "rename", "aab", "Notes", "of\x1b[2J\nMonday")
    assert ended.code == 0 and "\x1b" not in ended.out and titles()[1] == "Notes of\\x1b[2J Monday"
    assert talked("sessions", "list").out.splitlines()[-1].endswith("Notes of\\x1b[2J Monday")
    assert talked("log", "verify").code == 0, "the record stays as it was"
    talked("sessions", "rename", "aab", "x" * 5000)
    assert len(titles()[1]) == 200
    assert talked("sessions", "rename", "aab", "").code == 0 and titles()[1] == "What is here?"
    assert not list((talked.forge_home / "sessions").glob("*.title"))


def test_a_title_file_that_leads_elsewhere_is_not_read(talked: Shell) -> None:
    secret = talked.home / "secret"
    secret.write_text("private")
    (talked.forge_home / "sessions" / "aab222.title").symlink_to(secret)
    assert "private" not in talked("sessions", "list", "--json").out
    assert talked("sessions", "rename", "aab", "mine").code == 0 and secret.read_text() == "private"


def test_a_session_is_exported_as_markdown_or_as_one_json_document(talked: Shell) -> None:
    converse(talked.forge_home, "ccc333", "## Person\n```\nforged", "````\nfour\n````")
    text = talked("sessions", "export", "ccc333", "--format", "markdown").out
    assert text.startswith("# ## Person") and "- Session: `ccc333`" in text
    assert text.count("\n## Person\n") == 1 and "> ## Person\n> ```\n> forged" in text and "## Worker main" in text
    whole = json.loads(talked("sessions", "export", "ccc333", "--format", "json").out)
    assert (whole["id"], whole["worker"]) == ("ccc333", "main")
    lines = talked("sessions", "export", "ccc333").out.splitlines()
    assert whole["events"] == [json.loads(line) for line in lines]

    for name, begins in [("talk.md", "# ##"), ("talk.json", '{"id": "ccc333"'), ("talk.jsonl", '{"type":')]:
        ended = talked("sessions", "export", "ccc333", "-o", name)
        file = talked.project / name
        assert (ended.code, ended.out) == (0, f"wrote {name}\n")
        assert file.read_text().startswith(begins) and file.stat().st_mode & 0o077 == 0
    again = talked("sessions", "export", "ccc333", "-o", "talk.md")
    assert again.code == 1 and "exists already" in again.err


@pytest.mark.parametrize("verb", ["show", "export", "delete"])
def test_what_is_typed_must_name_one(talked: Shell, verb: str) -> None:
    before = kept(talked)
    several = talked("sessions", verb, "aa")
    assert several.code == 4 and "several sessions start with 'aa'" in several.err
    unknown = talked("sessions", verb, "zzz")
    assert unknown.code == 4 and "no session 'zzz'" in unknown.err
    assert talked("sessions", verb).code == 2
    assert talked("sessions", verb, "../../x").code == 4
    assert kept(talked) == before


def test_a_damaged_journal_is_shown_as_far_as_it_goes(talked: Shell) -> None:
    path = talked.forge_home / "sessions" / "aab222.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[3] = "not a record at all\n"
    broken = json.loads(lines[-2])
    lines[-2] = lines[-2].replace('"data":{', '"dada":{') if "data" in broken else lines[-2]
    path.write_text("".join(lines))
    ended = talked("sessions", "export", "aab222")
    assert ended.code == 1 and "forge log verify" in ended.err and ended.out.count("\n") >= 3


def test_looking_loads_neither_models_nor_terminals(talked: Shell) -> None:
    program = (
        "import sys; from golem_forge.cli.main import main; "
        "codes = [main(['sessions', *words.split()]) for words in sys.argv[1:]]; "
        "print(codes, {'pydantic_ai', 'prompt_toolkit', 'rich'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "list", "export last", "show last"],
        cwd=talked.project,
        env=talked.environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stderr.splitlines()[-1] == "[0, 0, 0] set()", done.stderr


def test_list_fits_100_columns_whatever_is_in_it(talked: Shell) -> None:
    """The ends of directories and the beginnings of texts stay."""
    bare = talked.home / "a-directory-with-a-name" / "that-is-much-too-long-for-a-table"
    bare.mkdir(parents=True)
    converse(talked.forge_home, "eee555", "Say what you like " * 10, root=bare)
    *rows, last = talked("sessions", "list").out.splitlines()
    assert max(len(row) for row in [*rows, last]) <= 100
    assert "table  Say what" in last and last.endswith("…")


def test_a_dry_run_names_the_file_that_the_model_stands_in(shell: Shell) -> None:
    (shell.home / ".forge").mkdir(exist_ok=True)
    (shell.home / ".forge" / "config.yaml").write_text("model: scripted:yours.yaml\n")
    assert shell("run", "--dry-run", "--json").json["model"]["from"] == "~/.forge/config.yaml:1"
    shell.write("forge.yaml", "model: scripted:mine.yaml\n")
    assert shell("run", "--dry-run", "--json").json["model"]["from"] == "forge.yaml"


def test_a_dry_run_names_instructions_skills_and_what_is_wrong_with_them(shell: Shell) -> None:
    shell.write("AGENTS.md", "Use tabs.")
    shell.write(".agents/skills/good/SKILL.md", "---\nname: good\ndescription: Does good.\n---\nBe good.\n")
    shell.write(".agents/skills/bad/SKILL.md", "nothing")
    notices = shell("run", "--dry-run", "--json").json["notices"]
    assert any(each.startswith("AGENTS.md of this project is read as instructions (9 bytes).") for each in notices)
    assert any(
        each.startswith("skills: 1 offered (good); .agents/skills/bad: SKILL.md has no front") for each in notices
    )
