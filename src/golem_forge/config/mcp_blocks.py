"""The blocks `mcp` and `tools` of forge.yaml and config.yaml: MCP servers, and when their tools are too many to send.

`SERVER_CHECK` checks one server's block, key by key; `server_block` gives a `ServerBlock` with the origin of every
value. `mcp_file` takes the checked top level of one file and gives an `McpFile`; `mcp_merge` puts the files together.
`mcp_servers`, as other programs write it, is another spelling of `mcp.servers`. Values of `env`, `headers` and `url`
may hold credentials written out by mistake, so no problem repeats one. Threat: a stranger's program could say that a
server's own annotations count, or that nobody is asked, so of an untrusted program `trust: trusted` and every
`preApproved` do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from golem_forge.config.approval_modes import VERDICT_CHECK, Setting, approval_settings
from golem_forge.config.mcp_spec import (
    NAME_RULE,
    AuthKind,
    ServerAuth,
    ServerTrust,
    is_server_name,
    normalise_target,
    server_name,
    unexpanded_url_problem,
)
from golem_forge.config.sandbox_block import variable_holding, variable_problem, whole_number
from golem_forge.config.schema import (
    Check,
    ConfigProblems,
    MappingSchema,
    flag,
    list_of,
    map_of,
    one_of,
    positive,
    refuse,
    text,
    value_that,
)
from golem_forge.config.yaml_file import YamlFile, YamlPath, is_override
from golem_forge.core.decisions import Verdict
from golem_forge.core.errors import ConfigError
from golem_forge.core.host_groups import named_group
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars

STDIO_KEYS: Final = ("command", "args", "env", "pass_env", "cwd", "zones", "network")
HTTP_KEYS: Final = ("url", "headers", "auth")
STDIO: Final = "stdio"
HTTP: Final = ("http", "streamable-http", "streamable_http")
NO_SSE: Final = "SSE is not supported; use streamable HTTP"
_HEADER: Final = regex(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}")
_RESERVED_HEADERS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "mcp-session-id", "mcp-protocol-version"}
)
_UNUSABLE_CHAR: Final = regex("[\0\ud800-\udfff]")
_LINE_ENDS: Final = regex(r"[\r\n]")
_NOT_TEXT: Final = "expected a text (put numbers and true/false in quotes)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerBlock:
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
    return isinstance(value, str) and not _UNUSABLE_CHAR.search(value)


def environment_problems(env: Mapping[str, Any]) -> dict[str, str]:
    """By name, why a fixed variable cannot be given."""
    found: dict[str, str] = {}
    for name, value in env.items():
        if why := variable_problem(name):
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
        elif name.lower() in _RESERVED_HEADERS:
            found[name] = "is set by Forge"
        elif name.lower() in seen:
            found[name] = "is given twice: header names do not differ by upper and lower case"
        elif not is_text(value) or _LINE_ENDS.search(value):
            found[name] = "expected a text of one line (put numbers and true/false in quotes)"
        seen.add(name.lower())
    return found


def _argument(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    if not is_text(value):
        problems.add(path, _NOT_TEXT)
        return ""
    return value


_command: Final = value_that(lambda value: is_text(value) and value.strip(), "the name or path of a program")


def _named_texts(find_problems: Callable[[Mapping[str, Any]], dict[str, str]]) -> Check:
    def check_texts(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
        if not isinstance(value, dict):
            return refuse(problems, path, value, "a mapping")
        for name, why in find_problems(value).items():
            named = why if why.startswith("expected") else f"{escape_control_chars(name[:80])!r} {why}"
            problems.add((*path, name), named)
        return value

    return check_texts


def _pass_env(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    names = list_of(text)(value, path, problems)
    for index, name in enumerate(value if isinstance(names, list) else ()):
        if isinstance(name, str) and name and (why := variable_problem(name)):
            problems.add((*path, index), f"{name!r} {why}")
    return names


def _url(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    why = unexpanded_url_problem(value) if isinstance(value, str) else "expected an address like https://host/mcp"
    if why:
        problems.add(path, why)
    return value if isinstance(value, str) else ""


def _network(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    if isinstance(value, bool):
        return value
    if not isinstance(value, list):
        return refuse(problems, path, value, "true, false or a list of hosts")
    hosts: list[str] = []
    for index, written in enumerate(list_of(text)(value, path, problems)):
        try:
            hosts.append(written if named_group(written) else normalise_target(written))
        except ValueError as error:
            problems.add((*path, index), f"{escape_control_chars(written[:80])!r}: {error}")
    return tuple(dict.fromkeys(hosts)) or False


_BEARER_CHECK: Final = MappingSchema({"bearer_env": variable_holding("token")}, required=("bearer_env",))


def _auth(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    if isinstance(value, dict):
        before = len(problems.found)
        checked = _BEARER_CHECK(value, path, problems)
        return ServerAuth(AuthKind.BEARER, checked["bearer_env"]) if len(problems.found) == before else ServerAuth()
    if value in (AuthKind.NONE.value, AuthKind.OAUTH.value):
        return ServerAuth(AuthKind(value))
    problems.add(path, "expected none, oauth or {bearer_env: NAME} (never the token itself)")
    return ServerAuth()


def _type(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    """As other programs write it: which of the two kinds it is, which `command` and `url` say already."""
    if value == "sse":
        problems.add(path, f"{NO_SSE} (`type: http`)")
        return HTTP[0]
    return one_of(STDIO, *HTTP)(value, path, problems)


_KEY_CHECKS: Final[dict[str, Check]] = {
    "type": _type,
    "command": _command,
    "args": list_of(_argument),
    "env": _named_texts(environment_problems),
    "pass_env": _pass_env,
    "cwd": text,
    "zones": map_of(one_of("ro", "rw")),
    "network": _network,
    "url": _url,
    "headers": _named_texts(header_problems),
    "auth": _auth,
    "enabled": flag,
    "required": flag,
    "trust": one_of(*(trust.value for trust in ServerTrust)),
    "tools": MappingSchema({"allow": list_of(text), "deny": list_of(text)}),
    "always_load": list_of(text),
    "approval": approval_settings,
    "sampling": VERDICT_CHECK,
    "connect_timeout": positive,
    "idle_timeout": positive,
    "total_timeout": positive,
    "close_after": positive,
    "protocol": one_of("auto", "legacy"),
}
SERVER_CHECK: Final = MappingSchema(_KEY_CHECKS)


def server_block(checked: Mapping[str, Any], path: YamlPath, problems: ConfigProblems) -> ServerBlock:
    """From the checked mapping at `path` of the file."""
    at = problems.file.at
    written: Any = problems.file.value
    for part in path:
        written = written[part]
    origins = {key: at((*path, key)) for key in written or ()}
    origins |= {f"zones.{zone}": at((*path, "zones", zone)) for zone in checked.get("zones", ())}
    return ServerBlock(keys=checked, origin=at(path), origins=origins)


MCP_KEYS: Final[dict[str, Check]] = {
    "mcp": MappingSchema({"servers": map_of(SERVER_CHECK)}),
    "tools": MappingSchema({"defer_above": whole_number, "defer_tokens": whole_number, "always_load": list_of(text)}),
}
FOREIGN_SERVERS_KEY: Final = "mcp_servers"


@dataclass(frozen=True, slots=True, kw_only=True)
class McpFile:
    servers: Mapping[str, ServerBlock] = field(default_factory=dict)
    tools: Mapping[str, Any] = field(default_factory=dict)
    """`defer_above`, `defer_tokens` and `always_load`, where written."""


def normalise_keys(file: YamlFile) -> YamlFile:
    """The file with its `mcp_servers` at `mcp.servers`, every line kept. Raises ConfigError where both say something
    and not the same."""
    if FOREIGN_SERVERS_KEY not in file.value:
        return file
    value = {key: said for key, said in file.value.items() if key != FOREIGN_SERVERS_KEY}
    said, mcp = file.value[FOREIGN_SERVERS_KEY], value.get("mcp")
    if isinstance(mcp, dict) and mcp.get("servers") is not None and mcp["servers"] != said:
        raise ConfigError(
            f"{file.at((FOREIGN_SERVERS_KEY,))}: {FOREIGN_SERVERS_KEY}: is another spelling of `mcp.servers`, "
            f"and that says something else ({file.at(('mcp', 'servers'))}); keep one of the two"
        )
    if mcp is not None and not isinstance(mcp, dict):
        return replace(file, value=value)  # `mcp` itself is a mistake, and is told of
    value["mcp"] = {**(mcp or {}), "servers": {} if said is None else said}
    moved = {
        ("mcp", "servers", *path[1:]): line for path, line in file.lines.items() if path[:1] == (FOREIGN_SERVERS_KEY,)
    }
    return replace(file, value=value, lines={**file.lines, **moved})


def mcp_file(values: Mapping[str, Any], problems: ConfigProblems) -> McpFile:
    """From the checked top level; a name that no server can have is one problem more."""
    servers: dict[str, ServerBlock] = {}
    for name, checked in values.get("mcp", {}).get("servers", {}).items():
        path = ("mcp", "servers", name)
        if is_server_name(name):
            servers[name] = server_block(checked, path, problems)
        else:
            problems.add(path, f"not a name of a server ({NAME_RULE}); for example {server_name(name)!r}")
    return McpFile(servers=servers, tools=values.get("tools", {}))


def without_pre_approval(said: Setting[Verdict], where: str, unused: list[str]) -> Setting[Verdict]:
    """An untrusted program's `preApproved` counts as `ask`, unless the command line said it."""
    if said.value is not Verdict.PRE_APPROVED or is_override(said.origin):
        return said
    unused.append(f"{said.origin}: {where}: preApproved counts as ask")
    return Setting(Verdict.ASK, said.origin)


def restrict_untrusted_mcp(file: McpFile, unused: list[str]) -> McpFile:
    """Keeps what an untrusted program may say, and what the command line said; the rest goes to `unused`."""
    servers = {name: _restrict_untrusted(name, block, unused) for name, block in file.servers.items()}
    return replace(file, servers=servers)


def _restrict_untrusted(name: str, block: ServerBlock, unused: list[str]) -> ServerBlock:
    where = f"mcp.servers.{name}"
    keys = dict(block.keys)

    def asking(said: Setting[Verdict], what: str) -> Setting[Verdict]:
        return without_pre_approval(said, f"{where}.{what}", unused)

    if keys.get("trust") == ServerTrust.TRUSTED.value and not is_override(block.at("trust")):
        unused.append(f"{block.at('trust')}: {where}.trust: trusted")
        del keys["trust"]
    if "sampling" in keys:
        keys["sampling"] = asking(Setting(Verdict(keys["sampling"]), block.at("sampling")), "sampling").value.value
    if "approval" in keys:
        said: dict[str, Any] = keys["approval"]
        tools = {tool: asking(each, f"approval.tools.{tool}") for tool, each in said["tools"].items()}
        default = {"default": asking(said["default"], "approval.default")} if "default" in said else {}
        keys["approval"] = {"tools": tools, **default}
    return replace(block, keys=keys)
