"""Products that can start `forge mcp serve`: where each keeps its MCP servers, and how it writes one down.

`entry` is one server in a product's own words. Paths are those of the person at this machine, so they are worked out
when asked for; a product with a file for each project has it in the directory that is served.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final


class Format(StrEnum):
    JSON = "json"
    TOML = "toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How the server is started."""

    command: str
    args: Sequence[str]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    title: str
    file: Callable[[Path], Path]
    """Where it keeps its servers, given the program's root."""
    key: str = "mcpServers"
    """Under which they are."""
    entry: Callable[[Start], dict[str, Any]]
    format: Format = Format.JSON
    then: str = ""
    """What the person has to do afterwards."""


def _plain(start: Start) -> dict[str, Any]:
    env = {"env": dict(start.env)} if start.env else {}
    return {"command": start.command, "args": list(start.args), **env}


def _typed(start: Start) -> dict[str, Any]:
    return {"type": "stdio", **_plain(start)}


def _zed(start: Start) -> dict[str, Any]:
    return {"source": "custom", "enabled": True, **_plain(start)}


def _opencode(start: Start) -> dict[str, Any]:
    env = {"environment": dict(start.env)} if start.env else {}
    return {"type": "local", "command": [start.command, *start.args], "enabled": True, **env}


def _copilot(start: Start) -> dict[str, Any]:
    return {"type": "local", **_plain(start), "tools": ["*"]}


def _home(*parts: str) -> Callable[[Path], Path]:
    return lambda root: Path.home().joinpath(*parts)


def _project(*parts: str) -> Callable[[Path], Path]:
    return lambda root: root.joinpath(*parts)


def _settings(mac: str, other: str, *parts: str) -> Callable[[Path], Path]:
    """In the folder for settings of this system: `~/Library/Application Support`, %APPDATA% or $XDG_CONFIG_HOME."""

    def place(root: Path) -> Path:
        if sys.platform == "darwin":
            return Path.home().joinpath("Library", "Application Support", mac, *parts)
        if sys.platform == "win32":
            return Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming").joinpath(mac, *parts)
        return _config_home().joinpath(other, *parts)

    return place


def _config_home() -> Path:
    named = os.environ.get("XDG_CONFIG_HOME", "")
    return Path(named) if os.path.isabs(named) else Path.home() / ".config"


def _under(variable: str, fallback: str, *parts: str) -> Callable[[Path], Path]:
    return lambda root: Path(os.environ.get(variable) or Path.home() / fallback).joinpath(*parts)


PRODUCTS: Final[Mapping[str, Product]] = {
    "claude-code": Product(
        title="Claude Code, in this project",
        file=_project(".mcp.json"),
        entry=_typed,
        then="Claude Code asks once whether it may use the servers of the project's .mcp.json.",
    ),
    "claude-desktop": Product(
        title="Claude Desktop",
        file=_settings("Claude", "Claude", "claude_desktop_config.json"),
        entry=_plain,
        then="Restart Claude Desktop.",
    ),
    "codex": Product(
        title="Codex",
        file=_under("CODEX_HOME", ".codex", "config.toml"),
        key="mcp_servers",
        entry=_plain,
        format=Format.TOML,
    ),
    "copilot-cli": Product(
        title="GitHub Copilot CLI",
        file=_under("COPILOT_HOME", ".copilot", "mcp-config.json"),
        entry=_copilot,
    ),
    "cursor": Product(title="Cursor", file=_home(".cursor", "mcp.json"), entry=_plain),
    "gemini-cli": Product(title="Gemini CLI", file=_home(".gemini", "settings.json"), entry=_plain),
    "lm-studio": Product(title="LM Studio", file=_home(".lmstudio", "mcp.json"), entry=_plain),
    "opencode": Product(
        title="opencode",
        file=lambda root: _config_home() / "opencode" / "opencode.json",
        key="mcp",
        entry=_opencode,
    ),
    "vscode": Product(
        title="VS Code, in this project",
        file=_project(".vscode", "mcp.json"),
        key="servers",
        entry=_typed,
        then="VS Code shows `Start` above the entry, and asks once whether the server is to be trusted.",
    ),
    "windsurf": Product(title="Windsurf", file=_home(".codeium", "windsurf", "mcp_config.json"), entry=_plain),
    "zed": Product(
        title="Zed",
        file=lambda root: (
            Path.home() / ".config" / "zed" / "settings.json"
            if sys.platform == "darwin"
            else _settings("Zed", "zed", "settings.json")(root)
        ),
        key="context_servers",
        entry=_zed,
    ),
}
