"""`forge sandbox`: the walls from the person's side. `exec` is their own shell inside; `explain` starts nothing."""

from __future__ import annotations

from typing import Final

HELP: Final = """usage: forge sandbox exec [-p DIR] [--timeout S] -- COMMAND [WORD …]
       forge sandbox explain [-p DIR] [--json] PATH
       forge sandbox explain [-p DIR] [--json] -- COMMAND [WORD …]

  exec     runs your command inside the walls that the tools of this directory get: same zones, same masks, no network,
           empty environment. It is recorded, not judged: you are the one who asks. A single word is a shell script.
           On a terminal it gets a terminal. The exit code is the command's.
  explain  says what zones and walls allow for a path, or where the parts of a command would lead. Starts nothing.

Exit of exec: the command's; 125 walls could not be built, 124 timed out. Of explain: 0, 2 usage."""


def run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(HELP)
        return 0
    verb, rest = words[0], words[1:]
    if verb == "exec":
        from golem_forge.cli.sandbox.running import run as run_exec

        return run_exec(rest)
    if verb == "explain":
        from golem_forge.cli.sandbox.explaining import run as run_explain

        return run_explain(rest)
    import sys

    from golem_forge.core.nearest import nearest
    from golem_forge.core.visible import visible

    close = nearest(verb, ("exec", "explain"))
    hint = f" (did you mean '{close}'?)" if close else ""
    print(f"forge sandbox: unknown verb '{visible(verb)}'{hint}. `forge sandbox --help` says more.", file=sys.stderr)
    return 2
