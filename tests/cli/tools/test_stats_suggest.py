"""`forge tools suggest` at the command line; what the journals of sessions lead to is the acceptance test c54."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def shell(in_process):
    return in_process


def test_words_that_do_not_fit(shell):
    for words in (("--dismiss", "a", "--restore", "b"), ("extra",), ("--json", "--dismiss", "a")):
        ended = shell("tools", "suggest", *words)
        assert ended.code == 2 and "forge tools suggest --help" in ended.err, words
    assert not shell.forge_home.exists()


def test_a_suggestion_steers_no_terminal_and_goes_away_until_it_is_restored(shell):
    """Its journals were written by a stranger."""
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
    keys = [each["key"] for each in shell("tools", "suggest", "--json").json["suggestions"]]
    assert said.out.startswith(f"{keys[0]}  ")

    for key in keys:
        ended = shell("tools", "suggest", "--dismiss", key)
        assert ended.code == 0 and "--restore" in ended.out
    gone = shell("tools", "suggest")
    assert gone.code == 0 and gone.out == "" and "nothing to suggest" in gone.err
    assert shell("tools", "suggest", "--restore", keys[0]).code == 0
    assert shell("tools", "suggest").out.startswith(f"{keys[0]}  ")
    unknown = shell("tools", "suggest", "--dismiss", "s000000000000")
    assert unknown.code == 4 and "no suggestion 's000000000000'" in unknown.err
