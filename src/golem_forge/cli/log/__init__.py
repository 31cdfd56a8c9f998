"""`forge log`: what was called, decided and done, from the journals of all sessions. Never writes to one."""

from __future__ import annotations

from typing import Final

HELP: Final = """usage: forge log [--session ID|last] [--tool NAME] [--status STATUS] [--limit N] [--json]
       forge log show CALL [--json]
       forge log sessions [--limit N] [--json]
       forge log verify [SESSION|last|all] [--json]

  (nothing)  the latest calls, newest last: time, id, status, tool, arguments, milliseconds, and who decided why
  show       every record of one call; CALL is its id or the beginning of it
  sessions   the sessions there are, newest last
  verify     whether the journals are what was written: a changed, cut, moved or inserted line is named

  --session  only that session (the beginning of its id is enough); `last` is the one with the latest record
  --status   success, execution_failed, input_invalid, tool_not_found, approval_denied, policy_denied, sandbox_denied,
             timeout, interrupted, skipped; or running, may_have_run, never_started
  --limit    how many at most (20)

A call that was about to run when its session died is shown as `may have run`.
Exit: 0 done, 1 verify found problems, 2 usage, 4 no such session or call."""


def run(words: list[str]) -> int:
    verb = words[0] if words else ""
    if {"-h", "--help"} & set(words):
        print(HELP)
        return 0
    if verb == "show":
        from golem_forge.cli.log.show import run_show

        return run_show(words[1:])
    if verb == "sessions":
        from golem_forge.cli.log.sessions import run_sessions

        return run_sessions(words[1:])
    if verb == "verify":
        from golem_forge.cli.log.verifying import run_verify

        return run_verify(words[1:])
    from golem_forge.cli.log.calls import run_calls

    return run_calls(words)
