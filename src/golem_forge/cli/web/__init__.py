"""`forge web`: sessions on a page in the browser, those of this process live and all others to look at."""

from __future__ import annotations

from typing import Final

HELP: Final = """usage: forge web [DIR] [--port N] [--host ADDR --allow-host NAME] [--no-open]
       forge web link [--port N]
       forge web status [--port N] [--json]

Serves a page on this machine: start and resume sessions there, answer what they ask, look at all earlier ones. It
prints a link that lets you in once, within 5 minutes, and opens it where there is a desktop. DIR (default: here) is
where new sessions start unless the page says otherwise. `forge run --ui web` shows one session only; `/web` shows the
one you are in.

      --port N             listen there (default: `ui.web.port`, else any free port)
      --host ADDR          listen at another address than 127.0.0.1; other machines may then reach it
      --allow-host NAME    the name (or name:port) it is reached by there; needed with --host, repeat for more
      --no-open            print the link, open nothing

Enter prints another link. Ctrl-C ends it, and every session it runs.

`forge web link` prints another link of a server that runs already, e.g. as a service or in a container; `forge web
status` says where and since when it runs, and which sessions. With several, --port chooses. A directory of that name
is ./link.
Exit: 0 ended, done or running; 1 it cannot listen there, or nothing runs; 2 usage or configuration."""


def run(words: list[str]) -> int:
    if words and words[0] in ("link", "status"):
        from golem_forge.cli.web.running import run_link, run_status

        return (run_link if words[0] == "link" else run_status)(words[1:])
    from golem_forge.cli.plain import complain, parser
    from golem_forge.cli.web.words import add_reach, read_reach

    reader = parser("web", HELP)
    reader.add_argument("directory", metavar="DIR", nargs="?", default=".")
    reader.add_argument("--port", type=int)
    reader.add_argument("--no-open", action="store_true")
    add_reach(reader)
    asked = reader.parse_args(words)
    import asyncio
    from pathlib import Path

    from golem_forge.cli.web.words import web_settings
    from golem_forge.core.errors import ForgeError

    directory = Path(asked.directory).absolute()
    settings = web_settings(directory)
    try:
        reach = read_reach(asked, asked.port if asked.port is not None else settings.web_port)
    except ForgeError as refused:
        complain("web", refused.message)
        return 2
    from golem_forge.cli.web.serving import serve

    return asyncio.run(serve(directory, reach, notify=settings.web_notify, open_browser=not asked.no_open))
