"""`forge sessions`: the conversations that were recorded: list, show again, export, delete. Only `delete` writes."""

from __future__ import annotations

import sys
from typing import Final

HELP: Final = """usage: forge sessions list [--all] [--limit N] [--json]
       forge sessions show ID [--trace quiet|summary|normal|debug]
       forge sessions export ID
       forge sessions delete ID

  list    the conversations there are, newest last: id, when, state, worker, model, where (`.`: here), and how it began
  show    one of them again, as text: nothing is asked, called or recorded
  export  its events, one JSON object a line
  delete  all that is kept of it: journal, attachments, stored outputs, its lines in the index

  ID       its id, the beginning of it, or `last`: the latest of the program in this directory, else the latest at all
  --all    also single calls (`forge call`), and starts in which no model was asked anything
  --limit  how many at most (20)

`forge run --resume ID` goes on with one. Single calls: `forge log`.
Exit: 0 done, 1 it failed (the session is in use), 2 usage, 4 no such session."""

_VERBS: Final = ("list", "show", "export", "delete")


def run(words: list[str]) -> int:
    if {"-h", "--help"} & set(words):
        print(HELP)
        return 0
    verb, rest = (words[0], words[1:]) if words and not words[0].startswith("-") else ("list", words)
    if verb == "list":
        from golem_forge.cli.sessions.listing import run_list

        return run_list(rest)
    if verb == "show":
        from golem_forge.cli.sessions.show import run_show

        return run_show(rest)
    if verb == "export":
        from golem_forge.cli.sessions.export import run_export

        return run_export(rest)
    if verb == "delete":
        from golem_forge.cli.sessions.deleting import run_delete

        return run_delete(rest)
    return _unknown(verb)


def _unknown(verb: str) -> int:
    from golem_forge.cli.plain import one_line
    from golem_forge.core.nearest import nearest

    close = nearest(verb, _VERBS)
    hint = f" (did you mean '{close}'?)" if close else ""
    print(f"forge sessions: no verb '{one_line(verb)}'{hint}. `forge sessions --help` lists them.", file=sys.stderr)
    return 2
