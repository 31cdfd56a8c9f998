"""`forge web`: sessions on a page in the browser; `forge web link` and `status` ask a server that runs already.

Reads where the page is served from the arguments and the configuration, and refuses before anything listens. A running
server is found by its socket in FORGE_HOME; only the user who runs it is answered.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.session_plan import read_program
from golem_forge.agent.trust import trust_store
from golem_forge.cli.command import FAILED, fail, print_error, print_json, read_args
from golem_forge.core.errors import ForgeError
from golem_forge.core.regex import regex
from golem_forge.core.signals import run_to_exit_code
from golem_forge.core.text import columns
from golem_forge.storage.home import forge_home

if TYPE_CHECKING:
    from golem_forge.config.program import UiSettings
    from golem_forge.ui.web.listen import ListenAddress, RunningServer

HELP: Final = """usage: forge web [DIR] [--port N] [--host ADDR --allow-host NAME] [--no-open]
       forge web --team [DIR] [--oidc ISSUER] [--port N] [--host ADDR --allow-host NAME]
       forge web link [--port N]
       forge web status [--port N] [--json]

Serves a page on this machine: start and resume sessions there, answer what they ask, look at all earlier ones. It
prints a link that lets you in once, within 5 minutes, and opens it where there is a desktop. DIR (default: here) is
where new sessions start unless the page says otherwise. `forge run --ui web` shows one session only; `/web` shows the
one you are in.

      --port N             listen there (default: `ui.web.port`, else any free port)
      --host ADDR          listen at another address than 127.0.0.1; other machines may then reach it
      --allow-host NAME    the host name (or name:port) that browsers use; needed with --host, repeat for more
      --no-open            print the link, open nothing
      --team               serve the sessions of the store to the people of `forge people`: each logs in with their
                           token, sees and does what their role says; new sessions start in DIR or below
      --oidc ISSUER        with --team: people also sign in at this provider of OpenID Connect; `oidc` in config.yaml
                           says which of its groups have which role

Enter prints another link. Ctrl-C ends the server and every session it runs.

`forge web link` prints another link of a server that runs already, e.g. as a service or in a container; `forge web
status` says where and since when it runs, and which sessions. With several, --port chooses. A directory of that name
is ./link.
Exit: 0 ended, done or running; 1 it cannot listen there, or nothing runs; 2 usage or configuration."""


def run(words: list[str]) -> int:
    if words and words[0] in ("link", "status"):
        return (run_link if words[0] == "link" else run_status)(words[1:])
    declared = ("directory:DIR?", "--port N", "--no-open", "--team", "--oidc ISSUER", *ADDRESS_OPTIONS)
    asked = read_args("web", HELP, words, *declared, directory=".")
    directory = Path(asked.directory).absolute()
    settings = web_settings(directory)
    try:
        reach = parse_address_options(asked, asked.port if asked.port is not None else settings.web_port)
    except ForgeError as refused:
        return fail("web", refused.message, 2)
    if asked.team:
        from golem_forge.cli.team.web import serve_team

        return serve_team(directory, reach, asked.oidc or "")
    if asked.oidc:
        return fail("web", "--oidc is for the page of a team: add --team.", 2)
    from golem_forge.cli.web_server import serve

    return run_to_exit_code(serve(directory, reach, notify=settings.web_notify, open_browser=not asked.no_open))


ADDRESS_OPTIONS: Final = ("--host ADDR", "--allow-host NAME…")
_HIGHEST_PORT: Final = 65535


def parse_address_options(asked: Any, port: int) -> ListenAddress:
    """Raises ForgeError for an address that others could reach without a name for it, and where parts are missing."""
    from golem_forge.ui.web import need_web
    from golem_forge.ui.web.listen import ListenAddress, check_address

    need_web()
    if not 0 <= port <= _HIGHEST_PORT:
        raise ForgeError(f"--port takes 0 to {_HIGHEST_PORT}, not {port}")
    reach = ListenAddress(host=asked.host or "127.0.0.1", port=port, allow_hosts=tuple(asked.allow_host))
    check_address(reach)
    return reach


def web_settings(directory: Path, overrides: Sequence[str] = ()) -> UiSettings:
    """Returns the UI settings of the program around a directory. Raises ConfigError."""
    home = forge_home()
    return read_program(directory, home, trust_store(home), overrides).ui


_IS_LINK: Final = regex(r"https?://[\w.:\[\]/-]+#code=[\w-]+", re.ASCII)
_IS_ADDRESS: Final = regex(r"https?://[\w.:\[\]/-]+", re.ASCII)
_LINK_HELP: Final = """usage: forge web link [--port N]

Prints a link to the page of a server that runs already. It lets you in once, within 5 minutes. Of a team's server it
prints the address, where people log in with their tokens.

      --port N   of the server that listens there, if several run

Exit: 0 printed, 1 nothing runs, 2 usage, or several run."""
_STATUS_HELP: Final = """usage: forge web status [--port N] [--json]

Where pages are served for this FORGE_HOME, since when, by which process, and which sessions they run.

      --port N   only the server that listens there
      --json     as JSON: {"running", "servers": [{"address", "port", "pid", "since", "starts_sessions", "sessions"}]}

Exit: 0 running, 1 nothing runs, 2 usage."""


def run_link(words: list[str]) -> int:
    from golem_forge.ui.web.listen import LINK, ask_server

    asked = read_args("web link", _LINK_HELP, words, "--port N")
    found = _servers("web link", asked.port)
    if not found:
        return _print_not_running("web link", asked.port)
    for_all = [one for one in found if one.status.get("starts_sessions")]  # not the page of a single session
    chosen = found if len(found) == 1 else for_all
    if len(chosen) != 1:
        ports = ", ".join(f"--port {one.port}" for one in found)
        which = "`forge web status` says which is which."
        return fail("web link", f"{len(found)} servers run; choose one with {ports}. {which}", 2)
    answer = ask_server(forge_home(), chosen[0], LINK)
    if answer is None or "link" not in answer:
        return fail("web link", "the server does not answer; try again, or start another with `forge web`.", FAILED)
    link = answer["link"]
    if isinstance(link, str) and _IS_ADDRESS.fullmatch(link):  # of a team: no link lets anybody in
        print(link, flush=True)
        print("People of the team log in there with their tokens (`forge people add NAME` makes one).", file=sys.stderr)
        return 0
    if not isinstance(link, str) or not _IS_LINK.fullmatch(link):  # it goes to a terminal, and then to a browser
        return fail(
            "web link", "the server did not answer with a link; end it and start another with `forge web`.", FAILED
        )
    print(link, flush=True)
    if sys.stderr.isatty():
        print("It lets you in once, within 5 minutes.", file=sys.stderr)
    return 0


def run_status(words: list[str]) -> int:
    asked = read_args("web status", _STATUS_HELP, words, "--port N", "--json")
    found = _servers("web status", asked.port)
    if asked.json:
        print_json({"running": bool(found), "servers": [dict(one.status) for one in found]})
    elif found:
        print(columns([("ADDRESS", "PID", "SINCE", "SESSIONS"), *(_status_row(one.status) for one in found)]))
    else:
        return _print_not_running("web status", asked.port)
    return 0 if found else FAILED


def _servers(verb: str, port: int | None) -> list[RunningServer]:
    from golem_forge.ui.web.listen import running_servers

    try:
        found = running_servers(forge_home())
    except OSError as error:
        print_error(verb, f"{error.strerror or error}.")
        return []
    return [one for one in found if port is None or one.port == port]


def _status_row(status: Any) -> tuple[str, str, str, str]:
    ids = [str(each) for each in status.get("sessions", ())]
    return str(status.get("address")), str(status.get("pid")), str(status.get("since")), " ".join(ids) or "none"


def _print_not_running(verb: str, port: int | None) -> int:
    at = f" on port {port}" if port is not None else ""
    return fail(verb, f"no server runs{at} for this FORGE_HOME; `forge web` starts one.", FAILED)
