"""The key `ui` of forge.yaml and config.yaml: where a page is served, and whether it may call for attention.

    ui: {web: {port: 8100, notify: true}}

Takes the checked top level of each file, gives what is in force: the program's words over the person's, key by key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from golem_forge.config.modes import Setting
from golem_forge.config.shape import Check, Problems, Shape, flag, refuse
from golem_forge.config.yaml_file import Path, YamlFile

_LOWEST_PORT: Final = 1024
_HIGHEST_PORT: Final = 65535


def _port(value: Any, path: Path, problems: Problems) -> Any:
    usable = isinstance(value, int) and not isinstance(value, bool) and _LOWEST_PORT <= value <= _HIGHEST_PORT
    return value if usable else refuse(problems, path, value, f"a port from {_LOWEST_PORT} to {_HIGHEST_PORT}")


UI_KEYS: Final[dict[str, Check]] = {"ui": Shape({"web": Shape({"port": _port, "notify": flag})})}


@dataclass(frozen=True, slots=True, kw_only=True)
class UiSettings:
    web_port: int = 0
    """0: any that is free."""
    web_notify: bool = False
    """Whether a page that is not looked at tells that an answer is awaited."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """`web.port` and `web.notify` → where it was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UiBlock:
    """One file's words about UIs."""

    web: Mapping[str, Setting[Any]] = field(default_factory=dict)


def ui_block(file: YamlFile, values: Mapping[str, Any]) -> UiBlock:
    web: Mapping[str, Any] = (values.get("ui") or {}).get("web") or {}
    return UiBlock(web={name: Setting(value, file.at(("ui", "web", name))) for name, value in web.items()})


def ui_in_force(project: UiBlock | None, person: UiBlock | None) -> UiSettings:
    said: dict[str, Setting[Any]] = {}
    for block in (person, project):
        said |= block.web if block is not None else {}
    return UiSettings(
        **{f"web_{name}": each.value for name, each in said.items()},
        origins={f"web.{name}": each.origin for name, each in said.items()},
    )
