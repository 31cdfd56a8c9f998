"""MCP servers as people write them: the blocks `mcp` and `tools` of forge.yaml and config.yaml, and `.mcp.json`.

`SERVER_CHECK` checks one server's block, key by key; `server_block` gives a `ServerBlock` with the origin of every
value. `mcp_file` takes the checked top level of one file and gives an `McpFile`; `read_mcp_json` takes a program's root
and gives the servers of its `.mcp.json`, each in the words of forge.yaml, with warnings. `mcp_merge` puts all of them
together. `mcp_servers`, as other programs write it, is another spelling of `mcp.servers`.

Values of `env`, `headers` and `url` may hold credentials written out by mistake, so no problem repeats one. Threat: a
stranger's program could say that a server's own annotations count, or that nobody is asked, so of an untrusted program
`trust: trusted` and every `preApproved` do not count.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

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
from golem_forge.config.run_block import approval_settings
from golem_forge.config.sandbox_block import variable_holding, variable_problem, whole_number
from golem_forge.config.validation import (
    VERDICT_CHECK,
    Check,
    ConfigProblems,
    MappingSchema,
    Setting,
    flag,
    list_of,
    map_of,
    one_of,
    positive,
    refuse,
    text,
    value_that,
)
from golem_forge.config.yaml_file import YamlFile, YamlPath, is_override, read_bytes
from golem_forge.core.decisions import Verdict
from golem_forge.core.errors import ConfigError
from golem_forge.core.globs import named_group
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars, nearest_hint

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
    """The checked keys; invalid ones are left out."""
    origin: str
    """Where the server is named, e.g. `forge.yaml:7`."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Origin by key, also of invalid keys; that of a single zone is `zones.<name>`."""
    problem: str = ""
    """Why it cannot be used, where that is no error of the whole file (`.mcp.json`)."""

    def at(self, key: str) -> str:
        return self.origins.get(key, self.origin)


def is_text(value: object) -> bool:
    return isinstance(value, str) and not _UNUSABLE_CHAR.search(value)


def environment_problems(env: Mapping[str, Any]) -> dict[str, str]:
    """Returns by name why a fixed variable is not allowed."""
    found: dict[str, str] = {}
    for name, value in env.items():
        if why := variable_problem(name):
            found[name] = why
        elif not is_text(value):
            found[name] = _NOT_TEXT
    return found


def header_problems(headers: Mapping[str, Any]) -> dict[str, str]:
    """Returns by name why a header cannot be sent."""
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
    """Checks the key `type` of other programs, which repeats what `command` and `url` already say."""
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
    """Builds the block from the checked mapping at `path` of the file."""
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
    """Builds the MCP part from the checked top level; adds a problem for an invalid server name."""
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


MCP_JSON: Final = ".mcp.json"
_SERVERS: Final = "mcpServers"
_USED_KEYS: Final = ("command", "args", "env", "cwd", "url", "headers")
_KNOWN_KEYS: Final = (*_USED_KEYS, "type", "disabled")
_APPROVAL_KEYS: Final = frozenset({"autoapprove", "alwaysallow", "trust", "approval", "allow", "yolo"})
"""Keys, in small letters, by which other programs let calls run unasked."""
_FORGE_NAMES: Final = frozenset({"forge", "golem-forge", "golem_forge"})
"""Names of this very program, as a command or behind `python -m`."""
MAX_SERVERS: Final = 100
_MAX_WARNINGS: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonServers:
    servers: Mapping[str, ServerBlock] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    """Names of those that start Forge itself: what forge.yaml says over them is about no server."""
    warnings: tuple[str, ...] = ()


class _FileRefused(Exception):
    """Raised with the reason why the whole file is not used."""


def read_mcp_json(root: Path) -> JsonServers:
    """`root` is a real path. Nothing there: no servers, no warning. Raises nothing: the file belongs to other programs,
    so what is broken or unknown in it is a warning with file and key, and a server that cannot be used has a `problem`.

    Threats: a file that is no regular file, leads out of the program, is huge, nests without end or says a key twice
    (two readers, two meanings); keys of other programs that would let calls run unasked; an entry that starts Forge,
    which stands there for other programs.
    """
    path = root / MCP_JSON
    if not os.path.lexists(path):
        return JsonServers()
    warnings = _Warnings()
    try:
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(root):
            raise _FileRefused(": leads out of the program")
        found = _server_entries(_parse_json(read_bytes(real, MCP_JSON)), warnings)
    except ConfigError as error:
        return JsonServers(warnings=(f"{error.problems[0]}; none of its servers is used",))
    except _FileRefused as refusal:
        return JsonServers(warnings=(f"{MCP_JSON}{refusal}; none of its servers is used",))
    return json_servers(found, warnings)


def json_servers(found: dict[str, Any], warnings: _Warnings | None = None) -> JsonServers:
    """The servers of the object `mcpServers`, by the names that it gives them."""
    warnings = warnings or _Warnings()
    itself = {raw for raw, entry in found.items() if _starts_forge(entry)}
    servers = _named_blocks({raw: entry for raw, entry in found.items() if raw not in itself}, warnings)
    left_out = frozenset(map(server_name, itself)) - servers.keys()
    return JsonServers(servers=servers, left_out=left_out, warnings=warnings.all())


class _Warnings:
    """Bounded: a hostile file could have a hundred thousand keys that nobody knows."""

    def __init__(self) -> None:
        self._said: list[str] = []
        self._more = 0

    def add(self, problem: str, *keys: str) -> None:
        if len(self._said) >= _MAX_WARNINGS:
            self._more += 1
            return
        where = ".".join(escape_control_chars(key[:80]) for key in keys)
        self._said.append(f"{MCP_JSON}: {where}: {problem}" if where else f"{MCP_JSON}: {problem}")

    def all(self) -> tuple[str, ...]:
        return (*self._said, *((f"{MCP_JSON}: and {self._more} more of this kind",) if self._more else ()))


def _parse_json(data: bytes) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, value in pairs:
            if name in made:
                raise _FileRefused(f": key {escape_control_chars(name[:80])!r} appears twice")
            made[name] = value
        return made

    def no_number(word: str) -> Any:
        raise _FileRefused(f": {word} is not JSON")

    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=once, parse_constant=no_number)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _FileRefused(f":{line}: is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise _FileRefused(f":{error.lineno}:{error.colno}: not valid JSON: {error.msg}") from None
    except RecursionError:
        raise _FileRefused(": too deeply nested") from None
    except ValueError:  # a number of thousands of digits
        raise _FileRefused(": has an invalid number") from None


def _server_entries(value: Any, warnings: _Warnings) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _FileRefused(': expected an object, {"mcpServers": {…}}')
    for key in value:
        if key != _SERVERS:
            warnings.add(_unknown(key, (_SERVERS,)), key)
    found = value.get(_SERVERS, {})
    if not isinstance(found, dict):
        raise _FileRefused(f": {_SERVERS}: expected an object, a server by each name")
    if len(found) > MAX_SERVERS:
        raise _FileRefused(f": {_SERVERS}: more than {MAX_SERVERS} servers")
    return found


def _named_blocks(found: dict[str, Any], warnings: _Warnings) -> dict[str, ServerBlock]:
    servers: dict[str, ServerBlock] = {}
    for raw in sorted(found, key=lambda raw: server_name(raw) != raw):  # who has the name goes before who becomes it
        name = server_name(raw)
        if name in servers:
            warnings.add(f"not used: {name!r} is another server's name", _SERVERS, raw)
            continue
        if name != raw:
            warnings.add(f"is called {name!r} here", _SERVERS, raw)
        servers[name] = _Entry(raw, warnings).block(found[raw])
    return servers


def _starts_forge(entry: Any) -> bool:
    """`forge mcp serve`, however it is started. It stands there for other products: Forge is not a tool of itself."""
    if not isinstance(entry, dict) or not isinstance(args := entry.get("args"), list):
        return False
    words = [str(word) for word in (entry.get("command", ""), *args)]
    return any(
        words[at : at + 2] == ["mcp", "serve"] and os.path.basename(words[at - 1]) in _FORGE_NAMES
        for at in range(1, len(words) - 1)
    )


def _unknown(key: str, known: tuple[str, ...]) -> str:
    if key.replace("_", "").replace("-", "").lower() in _APPROVAL_KEYS:
        return "grants nothing here: your own rules and forge.yaml decide which calls ask"
    return f"unknown key, not used{nearest_hint(key, known)}"


class _Entry:
    """One server of the file. What is wrong with it ends up in its `problem`, the first one found."""

    def __init__(self, raw: str, warnings: _Warnings) -> None:
        self._raw = raw
        self._warnings = warnings
        self._problem = ""

    def block(self, value: Any) -> ServerBlock:
        if not isinstance(value, dict):
            problem = f"{MCP_JSON}: expected an object with `command` or `url`"
            return ServerBlock(keys={}, origin=MCP_JSON, problem=problem)
        for key in value:
            if key not in _KNOWN_KEYS:
                self._warn(_unknown(key, _KNOWN_KEYS), key)
        keys: dict[str, Any] = {key: self._checked(key, value[key]) for key in _USED_KEYS if key in value}
        self._choose_transport(keys, value.get("type"))
        disabled = value.get("disabled", False)
        if not isinstance(disabled, bool):
            self._warn("expected true or false; it counts as true", "disabled")
        if disabled is not False:
            keys["enabled"] = False
        return ServerBlock(keys=keys, origin=MCP_JSON, problem=self._problem)

    def _choose_transport(self, keys: dict[str, Any], kind: Any) -> None:
        """Keeps only the keys of one transport."""
        if kind == "sse":
            self._problem = NO_SSE
            return
        if kind is not None and kind != STDIO and kind not in HTTP:
            shown = escape_control_chars(str(kind)[:40])
            self._fail(f"type: expected {STDIO} or http, got {shown!r}")
            return
        if kind is None:
            if ("command" in keys) == ("url" in keys):
                self._fail("needs exactly one of `command` and `url`")
                return
            kind = STDIO if "command" in keys else HTTP[0]
        needed, others = ("command", HTTP_KEYS) if kind == STDIO else ("url", STDIO_KEYS)
        if needed not in keys:
            self._fail(f"type {kind} needs `{needed}`")
        for key in others:
            if keys.pop(key, None) is not None:
                self._warn(f"has no effect for a server with `{needed}`", key)

    def _checked(self, key: str, value: Any) -> Any:
        if key == "args":
            if not isinstance(value, list) or not all(is_text(word) for word in value):
                self._fail("args: expected a list of texts")
                return []
            return value
        if key in ("env", "headers"):
            return self._mapping(key, value)
        if not is_text(value) or not value.strip():
            self._fail(f"{key}: expected a text")
            return ""
        if key == "url" and (why := unexpanded_url_problem(value)):
            self._fail(f"url: {why}")
        return value

    def _mapping(self, key: str, value: Any) -> dict[str, str]:
        if not isinstance(value, dict):
            self._fail(f"{key}: expected an object")
            return {}
        wrong = environment_problems(value) if key == "env" else header_problems(value)
        for name, why in wrong.items():
            if is_text(value[name]) and key == "env":  # `PATH` is common there; the server gets Forge's own
                self._warn(f"not used: {why}", key, name)
            else:
                self._fail(f"{key}.{escape_control_chars(name[:80])}: {why}")
        return {name: text for name, text in value.items() if name not in wrong}

    def _warn(self, problem: str, *keys: str) -> None:
        self._warnings.add(problem, _SERVERS, self._raw, *keys)

    def _fail(self, problem: str) -> None:
        self._problem = self._problem or f"{MCP_JSON}: {problem}"
