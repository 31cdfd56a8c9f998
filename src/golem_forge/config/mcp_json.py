"""`.mcp.json` in a program's root: servers as other programs write them.

Takes the root; gives the servers by name, each in the words of forge.yaml, and warnings. Refuses nothing aloud: the
file belongs to others, so what is broken or unknown in it is a warning with file and key, and a server that cannot be
used says why when it is looked at. Threats: a file that is no file, leads out of the program, is huge, nests without
end or says a key twice (two readers, two meanings); keys of other programs that would let calls run unasked; an entry
that starts Forge, which stands there for other programs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from golem_forge.config.mcp_blocks import (
    HTTP,
    HTTP_KEYS,
    NO_SSE,
    STDIO,
    STDIO_KEYS,
    ServerBlock,
    environment_problems,
    header_problems,
    is_text,
)
from golem_forge.config.mcp_spec import server_name, unexpanded_url_problem
from golem_forge.config.yaml_file import read_bytes
from golem_forge.core.errors import ConfigError
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.text import escape_control_chars, nearest_hint

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
    """Why the whole file is not used."""


def read_mcp_json(root: Path) -> JsonServers:
    """`root` is a real path. Nothing there: no servers, no warning."""
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
        """Leaves the keys of one transport."""
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
