"""`forge tools suggest`: what the journals of real sessions lead to, at the command line."""

from __future__ import annotations

import json
from pathlib import Path

SCRIPT = """
turns:
  - calls: [{tool: read_file, args: {path: /workspace/NOTE.md}}]
  - calls:
      - {tool: grep_files, args: {pattern: TODO, path: /workspace/NOTE.md}}
      - {tool: write_file, args: {path: /workspace/done.md, content: "NOTE\\n"}}
  - {say: "Done."}
"""


def tidied(shell, note: str) -> Path:
    """The journal of a session of the built-in worker whose model read, searched and wrote."""
    shell.write(f"{note}.md", "TODO\n")
    shell.write("turns.yaml", SCRIPT.replace("NOTE", note))
    ended = shell("run", "--model", "scripted:turns.yaml", "--approval", "approve_all", f"tidy {note}")
    assert ended.code == 0, ended.err
    return max((shell.forge_home / "sessions").glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)


def once_more(journal: Path, session: str, before: str, after: str) -> None:
    """As if the same had been done in another session, on another note."""
    text = journal.read_text().replace(f"/{before}.md", f"/{after}.md").replace(f'"{before}\\n"', f'"{after}\\n"')
    journal.with_name(f"{session}.jsonl").write_text(text)


def test_from_sessions_to_a_suggestion_and_away_again_54(shell):
    journal = tidied(shell, "a")
    once_more(journal, "second", "a", "b")
    assert shell("tools", "suggest", "--json").json == {"suggestions": []}
    once_more(journal, "third", "a", "c")
    (found,) = shell("tools", "suggest", "--json").json["suggestions"]
    assert [each["name"] for each in found["sequence"]] == ["read_file", "grep_files", "write_file"]
    assert (found["occurrences"], found["sessions"], found["name"]) == (3, 3, "read_grep_write")
    assert [each["name"] for each in found["parameters"]] == ["name"]
    assert found["sequence"][1]["arguments"] == {"pattern": "TODO"}
    said = shell("tools", "suggest").out
    key = found["key"]
    assert said.startswith(f"{key}  read_file → grep_files → write_file\n  seen 3 times in 3 sessions")
    assert (
        'grep_files  pattern="TODO" path="/workspace/{name}.md"' in said and "forge tools new read_grep_write" in said
    )

    ended = shell("tools", "suggest", "--dismiss", key)
    assert ended.code == 0 and "--restore" in ended.out
    gone = shell("tools", "suggest")
    assert gone.code == 0 and gone.out == "" and "nothing to suggest" in gone.err
    assert shell("tools", "suggest", "--restore", key).code == 0
    unknown = shell("tools", "suggest", "--dismiss", "s000000000000")
    assert unknown.code == 4 and "no suggestion 's000000000000'" in unknown.err


def test_words_that_do_not_fit(shell):
    for words in (("--dismiss", "a", "--restore", "b"), ("extra",), ("--json", "--dismiss", "a")):
        ended = shell("tools", "suggest", *words)
        assert ended.code == 2 and "forge tools suggest --help" in ended.err, words
    assert not shell.forge_home.exists()


def test_a_journal_that_a_stranger_wrote_steers_no_terminal(shell):
    sessions = shell.forge_home / "sessions"
    sessions.mkdir(parents=True)
    shell.forge_home.chmod(0o700)
    hash = "0" * 64
    for session in ("one", "two"):
        records = [{"type": "session", "sessionId": session}]
        for n in range(4):
            for k, tool in enumerate(("a\x1b[2J", "b\u202e")):
                known = {"call": f"{n}{k}", "tool": tool, "args": {"p\x1b": "\x1b]0;x\x07"}, "caller": "llm"}
                moment = {"ts": "2999-01-01T00:00:00.000Z"}
                records.append({**moment, "type": "done", **known, "worker": "w", "status": "success", "ms": "soon"})
        lines = [
            json.dumps({"n": n, "ts": "", **each}, separators=(",", ":"))[:-1] + f',"hash":"{hash}"}}'
            for n, each in enumerate(records, 1)
        ]
        (sessions / f"{session}.jsonl").write_text("\n".join(lines) + "\n")
    said = shell("tools", "suggest")
    assert said.code == 0 and "8 times in 2 sessions" in said.out and "\\x1b" in said.out
    assert "\x1b" not in said.out and "\u202e" not in said.out and "\x07" not in said.out
