"""`forge web link` and `forge web status`: about a server that runs already, by its socket in FORGE_HOME.

Only the user who runs it is answered. Exit: 0 done or running, 1 nothing runs, 2 usage, or several to choose from.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Final

from golem_forge.cli.plain import columns, complain, parser, print_json
from golem_forge.config.home import forge_home

if TYPE_CHECKING:
    from collections.abc import Sequence

    from golem_forge.ui.web.door.control import RunningServer

NOT_RUNNING: Final = 1
_LINK: Final = "web link"
_IS_LINK: Final = re.compile(r"https?://[\w.:\[\]/-]+#code=[\w-]+", re.ASCII)
_STATUS: Final = "web status"
_LINK_HELP: Final = """usage: forge web link [--port N]

Prints a link to the page of a server that runs already. It lets you in once, within 5 minutes.

      --port N   of the server that listens there, if several run

Exit: 0 printed, 1 nothing runs, 2 usage, or several run."""
_STATUS_HELP: Final = """usage: forge web status [--port N] [--json]

Where pages are served for this FORGE_HOME, since when, by which process, and which sessions they run.

      --port N   only the server that listens there
      --json     as JSON: {"running", "servers": [{"address", "port", "pid", "since", "starts_sessions", "sessions"}]}

Exit: 0 running, 1 nothing runs, 2 usage."""


def run_link(words: list[str]) -> int:
    from golem_forge.ui.web.door.control import LINK, ask_server

    reader = parser(_LINK, _LINK_HELP)
    reader.add_argument("--port", type=int)
    asked = reader.parse_args(words)
    found = _servers(_LINK, asked.port)
    if not found:
        return _nothing_runs(_LINK, asked.port)
    server = _chosen(found)
    if server is None:
        ports = ", ".join(f"--port {one.port}" for one in found)
        complain(_LINK, f"{len(found)} servers run; choose one with {ports}. `forge web status` says which is which.")
        return 2
    answer = ask_server(forge_home(), server, LINK)
    if answer is None or "link" not in answer:
        complain(_LINK, "the server does not answer; try again, or start another with `forge web`.")
        return NOT_RUNNING
    link = answer["link"]
    if not isinstance(link, str) or not _IS_LINK.fullmatch(link):  # it goes to a terminal, and then to a browser
        complain(_LINK, "what the server answers is not a link; end it and start another with `forge web`.")
        return NOT_RUNNING
    print(link, flush=True)
    if sys.stderr.isatty():
        print("It lets you in once, within 5 minutes.", file=sys.stderr)
    return 0


def run_status(words: list[str]) -> int:
    reader = parser(_STATUS, _STATUS_HELP)
    reader.add_argument("--port", type=int)
    reader.add_argument("--json", action="store_true")
    asked = reader.parse_args(words)
    found = _servers(_STATUS, asked.port)
    if asked.json:
        print_json({"running": bool(found), "servers": [dict(one.status) for one in found]})
    elif found:
        print(columns([("ADDRESS", "PID", "SINCE", "SESSIONS"), *(_row(one.status) for one in found)]))
    else:
        return _nothing_runs(_STATUS, asked.port)
    return 0 if found else NOT_RUNNING


def _servers(verb: str, port: int | None) -> list[RunningServer]:
    from golem_forge.ui.web.door.control import running_servers

    try:
        found = running_servers(forge_home())
    except OSError as error:
        complain(verb, f"{error.strerror or error}.")
        return []
    return [one for one in found if port is None or one.port == port]


def _chosen(found: Sequence[RunningServer]) -> RunningServer | None:
    """The only one, or the only `forge web` among pages of single sessions."""
    if len(found) == 1:
        return found[0]
    for_all = [one for one in found if one.status.get("starts_sessions")]
    return for_all[0] if len(for_all) == 1 else None


def _row(status: Any) -> tuple[str, str, str, str]:
    ids = [str(each) for each in status.get("sessions", ())]
    return str(status.get("address")), str(status.get("pid")), str(status.get("since")), " ".join(ids) or "none"


def _nothing_runs(verb: str, port: int | None) -> int:
    at = f" on port {port}" if port is not None else ""
    complain(verb, f"no server runs{at} for this FORGE_HOME; `forge web` starts one.")
    return NOT_RUNNING
