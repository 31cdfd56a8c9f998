"""What a command left behind, at the doors of the command line: `call`, `sandbox exec`, `log`."""

from __future__ import annotations

import json

from .conftest import Shell

CREATED = "Protected file created: /workspace/.envrc"


def test_a_call_says_it_on_standard_error_and_in_json_and_the_log_knows(in_process: Shell) -> None:
    shell = in_process
    words = ("call", "exec_command", "--cmd", "touch .envrc", "--approval", "approve_all")
    done = shell(*words)
    assert done.code == 0 and CREATED not in done.out
    assert f"forge: {CREATED}" in done.err.splitlines()
    (shell.project / ".envrc").unlink()
    outcome = shell(*words, "--json").json
    assert outcome["protectedCreated"] == ["/workspace/.envrc"] and outcome["leftovers"] == []
    assert CREATED in outcome["text"].splitlines()
    [newest] = shell("log", "--limit", "1", "--json").json
    assert newest["protectedCreated"] == ["/workspace/.envrc"] and newest["leftovers"] == []
    shown = shell("log", "show", newest["id"]).out.splitlines()
    assert shown[shown.index("left behind") + 1].strip() == CREATED


def test_a_call_that_failed_or_ran_on_says_it_too(in_process: Shell) -> None:
    shell = in_process
    words = ("call", "exec_command", "--approval", "approve_all", "--cmd")
    failed = shell(*words, "touch .envrc; exit 4")
    assert failed.code == 1 and f"forge: {CREATED}" in failed.err.splitlines()
    (shell.project / ".envrc").unlink()
    followed = shell(*words, "touch .envrc; sleep 0.3", "--yield_time_ms", "1")
    assert followed.code == 0 and f"forge: {CREATED}" in followed.err.splitlines()


def test_a_command_of_the_persons_own_says_it_and_is_recorded(shell: Shell, in_process: Shell) -> None:
    done = shell("sandbox", "exec", "--", "touch .envrc; echo fine")
    assert done.out == "fine\n" and any(line.endswith(CREATED) for line in done.err.splitlines())
    [newest] = in_process("log", "--limit", "1", "--json").json
    assert newest["tool"] == "sandbox exec" and newest["protectedCreated"] == ["/workspace/.envrc"]
    journal = next((shell.forge_home / "sessions").glob("*.jsonl")).read_text()
    [more] = [json.loads(line)["more"] for line in journal.splitlines() if '"more"' in line]
    assert more["protectedCreated"] == ["/workspace/.envrc"]
