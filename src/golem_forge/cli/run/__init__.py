"""`forge run`, and `forge` alone: a worker on the terminal, or one answer on standard output."""

from __future__ import annotations

import sys
from typing import Final

HELP: Final = """usage: forge [run] [DIR|FILE|NAME] [INPUT…]

Starts the worker of a program: its directory, a .worker or .yaml file, or the name of one of its workers; without any,
the program around this directory, or the built-in worker where there is none. With INPUT it answers once; on a
terminal without one it is a conversation.

  -m, --model PROVIDER:NAME   the root worker's model (also FORGE_MODEL)
  -a, --approval MODE         interactive, strict, approve_all or auto_deny
  -i, --input TEXT            the input; or -f, --file FILE; or words; or standard input
  -A, --attach FILE           hand a file over with the input (repeat for more)
  -p, --program DIR           run the program in that directory instead of this one
  -t, --trace LEVEL           quiet, summary, normal (default) or debug
      --ui terminal|web|terminal,web
                              which UI: this terminal, a page in the browser, or both at once
      --host ADDR             serve the page at another address than 127.0.0.1; needs --allow-host
      --allow-host NAME       a name (or name:port) under which the page may be reached (repeat for more)
      --headless              no questions: what would ask is denied; only the answer on standard output
      --json                  headless, one event a line on standard output, the result last
      --resume ID             go on with an earlier session (the beginning of its id, or `last`: the latest of the
                              program in this directory, else the latest at all); words are its input
      --set KEY.PATH=VALUE    a value of forge.yaml for this run (repeat for more)
      --dry-run               show tools, verdicts and zones (--json for programs); ask no model, start no process
      --max-cost USD          end the run before it costs more

Exit: 0 an answer, 1 the run failed, 2 usage or configuration, 3 program not trusted, 4 a limit was reached,
5 model not available, 130 interrupted, 143 terminated."""


def run(words: list[str]) -> int:
    if {"-h", "--help"} & set(words):
        print(HELP)
        return 0
    from golem_forge.cli.run.words import UsageError, read_words

    try:
        asked = read_words(words)
    except UsageError as error:
        from golem_forge.core.visible import visible

        print(f"forge run: {visible(str(error))}. `forge run --help` says more.", file=sys.stderr)
        return 2
    if asked.dry_run:
        from golem_forge.cli.run.dry_run import show

        return show(asked)
    import asyncio

    from golem_forge.cli.run.running import start

    return asyncio.run(start(asked))
