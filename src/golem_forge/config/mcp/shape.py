"""What one server's block in forge.yaml or config.yaml may look like: a check for each key, and the two transports.

`SERVER` is a Shape like any other; `server_block` gives a `ServerBlock` with the origin of every value, and says what
belongs to the other transport. Values of `env`, `headers` and `url` may hold credentials written out by mistake, so no
problem repeats one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from golem_forge.config.mcp.address import normal_target, unexpanded_url_problem
from golem_forge.config.mcp.spec import Auth, Login, Trust
from golem_forge.config.modes import Setting
from golem_forge.config.shape import Check, Problems, Shape, flag, list_of, map_of, one_of, positive, refuse, text
from golem_forge.config.variable_names import VARIABLE, refused_name
from golem_forge.config.yaml_file import Path as Place
from golem_forge.config.zones import VERDICT
from golem_forge.core.verdict import Verdict
from golem_forge.core.visible import visible

STDIO_KEYS: Final = ("command", "args", "env", "pass_env", "cwd", "zones", "network")
HTTP_KEYS: Final = ("url", "headers", "auth")
STDIO: Final = "stdio"
HTTP: Final = ("http", "streamable-http", "streamable_http")
NO_SSE: Final = "SSE is not supported; use streamable HTTP"
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}")
_OUR_HEADERS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "mcp-session-id", "mcp-protocol-version"}
)
_UNUSABLE: Final = re.compile("[\0\ud800-\udfff]")
_LINE_ENDS: Final = re.compile(r"[\r\n]")
_NOT_TEXT: Final = "expected a text (put numbers and true/false in quotes)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerBlock:
    """One file's words about one server."""

    keys: Mapping[str, Any]
    """As checked; what did not pass is not there."""
    origin: str
    """`forge.yaml:7`, where the server is named."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """By key, also of those that did not pass; a single zone's is `zones.<name>`."""
    problem: str = ""
    """Why it cannot be used, where that is no error of the whole file (`.mcp.json`)."""

    def at(self, key: str) -> str:
        return self.origins.get(key, self.origin)


def is_text(value: object) -> bool:
    return isinstance(value, str) and not _UNUSABLE.search(value)


def environment_problems(env: Mapping[str, Any]) -> dict[str, str]:
    """By name, why a fixed variable cannot be given."""
    found: dict[str, str] = {}
    for name, value in env.items():
        if why := refused_name(name):
            found[name] = why
        elif not is_text(value):
            found[name] = _NOT_TEXT
    return found


def header_problems(headers: Mapping[str, Any]) -> dict[str, str]:
    """By name, why a header cannot be sent."""
    found: dict[str, str] = {}
    seen: set[str] = set()
    for name, value in headers.items():
        if not _HEADER.fullmatch(name):
            found[name] = "is not the name of a header"
        elif name.lower() in _OUR_HEADERS:
            found[name] = "is set by Forge"
        elif name.lower() in seen:
            found[name] = "is there twice: names of headers ignore case"
        elif not is_text(value) or _LINE_ENDS.search(value):
            found[name] = "expected a text of one line (put numbers and true/false in quotes)"
        seen.add(name.lower())
    return found


def _word(value: Any, path: Place, problems: Problems) -> Any:
    if not is_text(value):
        problems.add(path, _NOT_TEXT)
        return ""
    return value


def _command(value: Any, path: Place, problems: Problems) -> Any:
    return value if is_text(value) and value.strip() else refuse(problems, path, value, "the name or path of a program")


def _env(value: Any, path: Place, problems: Problems) -> Any:
    if not isinstance(value, dict):
        return refuse(problems, path, value, "a mapping")
    for name, why in environment_problems(value).items():
        problems.add((*path, name), why if why == _NOT_TEXT else f"{name!r} {why}")
    return value


def _pass_env(value: Any, path: Place, problems: Problems) -> Any:
    names = list_of(text)(value, path, problems)
    for index, name in enumerate(value if isinstance(names, list) else ()):
        if isinstance(name, str) and name and (why := refused_name(name)):
            problems.add((*path, index), f"{name!r} {why}")
    return names


def _headers(value: Any, path: Place, problems: Problems) -> Any:
    if not isinstance(value, dict):
        return refuse(problems, path, value, "a mapping")
    for name, why in header_problems(value).items():
        problems.add((*path, name), f"{visible(name[:80])!r} {why}" if not why.startswith("expected") else why)
    return value


def _url(value: Any, path: Place, problems: Problems) -> Any:
    why = unexpanded_url_problem(value) if isinstance(value, str) else "expected an address like https://host/mcp"
    if why:
        problems.add(path, why)
    return value if isinstance(value, str) else ""


def _network(value: Any, path: Place, problems: Problems) -> Any:
    if isinstance(value, bool):
        return value
    if not isinstance(value, list):
        return refuse(problems, path, value, "true, false or a list of hosts")
    hosts: list[str] = []
    for index, written in enumerate(list_of(text)(value, path, problems)):
        try:
            hosts.append(normal_target(written))
        except ValueError as error:
            problems.add((*path, index), f"{visible(written[:80])!r}: {error}")
    return tuple(dict.fromkeys(hosts)) or False


def _auth(value: Any, path: Place, problems: Problems) -> Any:
    if isinstance(value, dict):
        before = len(problems.found)
        checked = Shape({"bearer_env": _variable}, required=("bearer_env",))(value, path, problems)
        return Auth(Login.BEARER, checked["bearer_env"]) if len(problems.found) == before else Auth()
    if value in (Login.NONE.value, Login.OAUTH.value):
        return Auth(Login(value))
    problems.add(path, "expected none, oauth or {bearer_env: NAME} (never the token itself)")
    return Auth()


def _variable(value: Any, path: Place, problems: Problems) -> Any:
    if isinstance(value, str) and VARIABLE.fullmatch(value):
        return value
    problems.add(path, "expected the name of an environment variable that holds the token (never the token itself)")
    return ""


def _type(value: Any, path: Place, problems: Problems) -> Any:
    """As other programs write it: which of the two kinds it is, which `command` and `url` say already."""
    if value == "sse":
        problems.add(path, f"{NO_SSE} (`type: http`)")
        return HTTP[0]
    return one_of(STDIO, *HTTP)(value, path, problems)


_APPROVAL: Final = Shape({"default": VERDICT, "tools": map_of(VERDICT)})


def _approval(value: Any, path: Place, problems: Problems) -> Any:
    """By `default` and, under `tools`, raw tool names: Settings with the line of each."""
    checked = _APPROVAL(value, path, problems)
    said: dict[str, Any] = checked if isinstance(checked, dict) else {}

    def setting(word: str, *where: str) -> Setting[Verdict]:
        return Setting(Verdict(word), problems.file.at((*path, *where)))

    made: dict[str, Any] = {
        "tools": {name: setting(word, "tools", name) for name, word in said.get("tools", {}).items()}
    }
    if "default" in said:
        made["default"] = setting(said["default"], "default")
    return made


_KEYS: Final[dict[str, Check]] = {
    "type": _type,
    "command": _command,
    "args": list_of(_word),
    "env": _env,
    "pass_env": _pass_env,
    "cwd": text,
    "zones": map_of(one_of("ro", "rw")),
    "network": _network,
    "url": _url,
    "headers": _headers,
    "auth": _auth,
    "enabled": flag,
    "required": flag,
    "trust": one_of(*(trust.value for trust in Trust)),
    "tools": Shape({"allow": list_of(text), "deny": list_of(text)}),
    "always_load": list_of(text),
    "approval": _approval,
    "sampling": VERDICT,
    "connect_timeout": positive,
    "idle_timeout": positive,
    "total_timeout": positive,
    "close_after": positive,
    "protocol": one_of("auto", "legacy"),
}
SERVER: Final = Shape(_KEYS)


def server_block(checked: Mapping[str, Any], path: Place, problems: Problems) -> ServerBlock:
    """From the checked mapping at `path` of the file."""
    at = problems.file.at
    written: Any = problems.file.value
    for part in path:
        written = written[part]
    origins = {key: at((*path, key)) for key in written or ()}
    origins |= {f"zones.{zone}": at((*path, "zones", zone)) for zone in checked.get("zones", ())}
    return ServerBlock(keys=checked, origin=at(path), origins=origins)
