"""Every value of the configuration in force, and where it was written: the data behind `/config` and the settings page.

Takes a running worker; gives a row for each key. The files are read again to say where a value stands, so it may take a
moment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from golem_forge.config.program import PROGRAM_FILE
from golem_forge.config.wall_settings import Limits
from golem_forge.config.yaml_file import YamlFile, read_yaml
from golem_forge.core.errors import ConfigError

if TYPE_CHECKING:
    from golem_forge.workers.slash.host import SlashHost

_DEFAULT: Final = "default"


class Row(NamedTuple):
    key: str
    value: str
    origin: str


def config_in_force(host: SlashHost) -> list[Row]:
    return [Row(*row) for row in (*_run_rows(host), *_approval_rows(host), *_sandbox_rows(host), *_ui_rows(host))]


def is_stranger(host: SlashHost) -> bool:
    """A program that nobody trusts: what it may not say does not count."""
    return host.program.file is not None and not host.program.trusted


def _run_rows(host: SlashHost) -> Iterator[tuple[str, str, str]]:
    settings = host.program.run
    origins = settings.origins
    for each in fields(settings):
        if each.name == "origins":
            continue
        value = getattr(settings, each.name)
        for key, part in _parts(each.name, value):
            yield key, _spelled(part), _nearest_origin(key, origins)
    if host.model_name and host.model_name != settings.model:
        yield "model in use", host.model_name, "--model, the environment, the worker file or /model"


def _parts(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """`budget` → `budget.max_tokens`, …; limits that nobody set are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        value = {name: each for name, each in asdict(value).items() if each is not None}
    if not isinstance(value, Mapping):
        yield key, value
        return
    for name, each in value.items():
        yield from _parts(f"{key}.{name}", each)


def _nearest_origin(key: str, origins: Mapping[str, str]) -> str:
    """Of the key itself, or of the block it stands in."""
    while key not in origins and "." in key:
        key = key.rpartition(".")[0]
    return origins.get(key, _DEFAULT)


def _approval_rows(host: SlashHost) -> Iterator[tuple[str, str, str]]:
    approval = host.program.approval
    mode = host.program.mode()
    in_force = host.controller.mode
    origin = mode.origin if mode.value is in_force else "--approval, or nobody can be asked"
    yield "approval.mode", in_force.value, origin
    said = approval.default
    yield "approval.default", said.value.value if said else "ask", said.origin if said else _DEFAULT
    for name, verdict in approval.tools.items():
        yield f"approval.tools.{name}", verdict.value.value, verdict.origin
    timeout = approval.timeout
    yield "approval.timeout", f"{timeout.value:g} s" if timeout else "none", timeout.origin if timeout else _DEFAULT


def _sandbox_rows(host: SlashHost) -> Iterator[tuple[str, str, str]]:
    program = host.program
    for zone in program.zones:
        key = f"sandbox.zones.{zone.name}"
        said = f"{zone.mode}, write {(zone.write or 'ask')!s}, delete {(zone.delete or 'ask')!s}"
        yield key, f"{_shown_path(host, str(zone.path))} ({said})", zone.origin
    files = list(_files(host))
    walls = program.walls
    if program.unprotect:
        yield "sandbox.unprotect", ", ".join(program.unprotect), _written(files, "sandbox", "unprotect")
    for directory in walls.read:
        yield "sandbox.read", directory, _written(files, "sandbox", "read")
    yield "sandbox.toolchains", "on" if walls.toolchains else "off", _written(files, "sandbox", "toolchains")
    yield (
        "sandbox.walls",
        "off" if walls.off else "on",
        _written(files[-1:], "sandbox", "walls") if walls.off else _DEFAULT,
    )
    usual = Limits()
    for each in fields(usual):
        value = getattr(walls.limits, each.name)
        if value is not None:
            origin = _DEFAULT if value == getattr(usual, each.name) else _written(files, "sandbox", "limits", each.name)
            yield f"sandbox.limits.{each.name}", f"{value:g}" if isinstance(value, float) else str(value), origin


def _ui_rows(host: SlashHost) -> Iterator[tuple[str, str, str]]:
    """Only what somebody wrote: everywhere else there is no page."""
    settings = host.program.ui
    for name, origin in settings.origins.items():
        yield f"ui.{name}", str(getattr(settings, name.replace(".", "_"))).lower(), origin


def _files(host: SlashHost) -> Iterator[YamlFile]:
    """The files as they are now, the program's first; one that broke meanwhile is left out."""
    home = host.home
    with suppress(ConfigError, OSError):
        if host.program.file is not None:
            yield read_yaml(host.program.file, PROGRAM_FILE)
    with suppress(ConfigError, OSError):
        if os.path.lexists(home.config):
            yield read_yaml(home.config, home.shown(home.config))


def _written(files: list[YamlFile], *key: str) -> str:
    """The first file that has the key; of an untrusted program the value may come from the file behind it."""
    for file in files:
        value: Any = file.value
        for part in key:
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            return file.at(key)
    return _DEFAULT


def _shown_path(host: SlashHost, path: str) -> str:
    root = str(host.program.root)
    if path == root:
        return "."
    return os.path.relpath(path, root) if path.startswith(root + "/") else path


def _spelled(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "-"
    return f"{value:g}" if isinstance(value, float) else str(value) if value not in ("", None) else "-"
