"""The keys of a `sandbox` block that speak about walls: `read`, `toolchains`, `walls` and `limits`.

Takes the checked block of one file, gives a `WallBlock` with the line of every value. `walls_in_force` puts a program's
block over the person's. Threat: a stranger's program could ask for more than its user would give, so of an untrusted
one only what is stricter counts, and no program at all may switch walls off.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from golem_forge.config.modes import Setting
from golem_forge.config.shape import Check, Problems, Shape, list_of, one_of, positive, refuse, text
from golem_forge.config.wall_settings import Limits, WallSettings
from golem_forge.config.yaml_file import Path as Place
from golem_forge.config.yaml_file import YamlFile

_UNITS: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,3})?) ?(KiB|MiB|GiB|TiB)")
_MOST: Final = 1 << 62
"""What the kernel takes for a limit, with room."""


def size(value: Any, path: Place, problems: Problems) -> Any:
    """Bytes, as a number or like `512MiB`."""
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    amount = int(float(match[1]) * _UNITS[match[2]]) if match else value
    if isinstance(amount, int) and not isinstance(amount, bool) and 0 < amount <= _MOST:
        return amount
    return refuse(problems, path, value, "a number of bytes above 0, or a size like 512MiB or 2GiB")


def whole(value: Any, path: Place, problems: Problems) -> Any:
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST
    return value if usable else refuse(problems, path, value, "a whole number above 0")


_LIMITS: Final[dict[str, Check]] = {
    "timeout_s": positive,
    "memory": size,
    "processes": whole,
    "cpu_s": whole,
    "file_size": size,
    "open_files": whole,
    "output": size,
}
WALL_KEYS: Final[dict[str, Check]] = {
    "read": list_of(text),
    "toolchains": one_of("on", "off"),
    "walls": one_of("on", "off"),
    "limits": Shape(_LIMITS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WallBlock:
    """One file's words about walls."""

    read: tuple[Setting[str], ...] = ()
    """Absolute directories, as written: links are not resolved."""
    toolchains: Setting[bool] | None = None
    walls: Setting[bool] | None = None
    limits: dict[str, Setting[float]] = field(default_factory=dict)


def wall_block(file: YamlFile, sandbox: dict[str, Any], folder: Path) -> WallBlock:
    """From a checked `sandbox` block; relative directories begin at `folder`."""

    def switch(key: str) -> Setting[bool] | None:
        return Setting(sandbox[key] == "on", file.at(("sandbox", key))) if key in sandbox else None

    return WallBlock(
        read=tuple(
            Setting(os.path.abspath(folder / os.path.expanduser(directory)), file.at(("sandbox", "read", index)))
            for index, directory in enumerate(sandbox.get("read", ()))
        ),
        toolchains=switch("toolchains"),
        walls=switch("walls"),
        limits={
            name: Setting(value, file.at(("sandbox", "limits", name)))
            for name, value in sandbox.get("limits", {}).items()
        },
    )


def distrusted_walls(block: WallBlock, person: WallBlock | None, unused: list[str]) -> WallBlock:
    """What of a stranger's block still counts: what is stricter than the person's own; the rest goes to `unused`."""
    if block.read:
        unused.append(f"{block.read[0].origin}: sandbox.read")
    toolchains = block.toolchains
    if toolchains and toolchains.value and person and person.toolchains and not person.toolchains.value:
        unused.append(f"{toolchains.origin}: sandbox.toolchains: on")
        toolchains = None
    own = _limits({name: said.value for name, said in person.limits.items()} if person else {})
    kept: dict[str, Setting[float]] = {}
    for name, said in block.limits.items():
        most = getattr(own, name)
        if most is not None and said.value > most:
            unused.append(f"{said.origin}: sandbox.limits.{name}")
        else:
            kept[name] = said
    return replace(block, read=(), toolchains=toolchains, limits=kept)


def walls_in_force(project: WallBlock | None, person: WallBlock | None) -> WallSettings:
    """The program over the person's defaults, key by key; what may be read adds up; `walls` is the person's alone."""
    blocks = [block for block in (project, person) if block is not None]
    limits: dict[str, float] = {}
    for block in reversed(blocks):
        limits |= {name: said.value for name, said in block.limits.items()}
    return WallSettings(
        read=tuple(dict.fromkeys(said.value for block in reversed(blocks) for said in block.read)),
        toolchains=next((block.toolchains.value for block in blocks if block.toolchains), True),
        off=bool(person and person.walls and not person.walls.value),
        limits=_limits(limits),
    )


def walls_notice(project: WallBlock | None) -> str:
    """What a person must hear about a program that speaks about walls themselves, trusted or not."""
    if project is None or project.walls is None:
        return ""
    where = project.walls.origin
    return f"{where}: sandbox.walls is ignored: only your own config.yaml or the command line can switch walls off."


def _limits(values: Mapping[str, Any]) -> Limits:
    return replace(Limits(), **values)
