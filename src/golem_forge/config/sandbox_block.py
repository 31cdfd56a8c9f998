"""The `sandbox` block of forge.yaml and config.yaml: zones, walls, limits, and which variables a child may get.

Zones are named directories with a mode, verdicts, and the line they stand on. Only the text is checked here. Whether
the directories exist, overlap or reach where no zone may is the sandbox's check (`sandbox.zones.check_zones`); `origin`
says which line its problems belong to.

`WallSettings` and `ResourceLimits` are plain data: limits of a child, what it may read besides zones, walls on or off.
`wall_block` takes the checked block of one file; `effective_walls` puts a program's block over the user's. Threat: a
stranger's program could ask for more than its user would give, so of an untrusted program only what is stricter counts,
and no program at all may switch walls off.

`variable_problem` says why an environment variable must not be given to a child (sandbox.md §11). Threat: a variable
that decides which code runs there (`LD_PRELOAD`, `BASH_ENV`) is a command in disguise, and one that Forge sets itself
(`PATH`, `HOME`, `FORGE_*`) must hold Forge's value.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final, Literal

from golem_forge.config.approval_modes import Setting
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
)
from golem_forge.config.yaml_file import YamlFile, YamlPath
from golem_forge.core.decisions import Verdict
from golem_forge.core.lazy_dataclass import dataclass, field, replace

VERDICT_CHECK: Final = one_of(*(verdict.value for verdict in Verdict))
ZONES_CHECK: Final = map_of(
    MappingSchema(
        {
            "path": text,
            "mode": one_of("ro", "rw"),
            "approval": MappingSchema({"write": VERDICT_CHECK, "delete": VERDICT_CHECK}),
            "at_host_path": flag,
        },
        required=("path",),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneEntry:
    name: str
    path: Path
    """Absolute host directory, as written: links are not resolved."""
    mode: Literal["ro", "rw"] = "rw"
    write: Verdict | None = None
    """None: nobody wrote one; it then is `ask`."""
    delete: Verdict | None = None
    at_host_path: bool = True
    """Inside walls it stands at its host path; False: at `/<name>` only."""
    origin: str = "default"
    """`forge.yaml:5`, or `default` for the workspace of a program that names no zones."""

    def is_inside(self, root: Path) -> bool:
        """Whether the real directory is `root` (a real path) or below it."""
        return Path(os.path.realpath(self.path)).is_relative_to(root)


def zone_entries(file: YamlFile, zones: dict[str, Any], start: Path) -> tuple[ZoneEntry, ...]:
    """The zones of one checked `sandbox` block; relative directories begin at `start`."""
    return tuple(
        ZoneEntry(
            name=name,
            path=Path(os.path.abspath(start / os.path.expanduser(block["path"]))),
            mode=block.get("mode", "rw"),
            write=_zone_verdict(block, "write"),
            delete=_zone_verdict(block, "delete"),
            at_host_path=block.get("at_host_path", True),
            origin=file.at(("sandbox", "zones", name)),
        )
        for name, block in zones.items()
        if "path" in block
    )


def _zone_verdict(block: dict[str, Any], verb: str) -> Verdict | None:
    word = block.get("approval", {}).get(verb)
    return None if word is None else Verdict(word)


GIB = 1 << 30
MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimits:
    """Limits of one child process tree, whatever level of walls stands around it."""

    timeout_s: float | None = None
    """None: the caller watches the time itself."""
    memory: int = 2 * GIB
    """Private memory of the whole tree, in bytes."""
    processes: int = 256
    """Of the whole tree."""
    cpu_s: int = 600
    """Per process."""
    file_size: int = GIB
    """Per file, in bytes."""
    open_files: int = 1024
    output: int = 64 * MIB
    """Standard output and standard error together, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WallSettings:
    read: tuple[str, ...] = ()
    """Further host directories that children may read (`sandbox.read`)."""
    toolchains: bool = True
    """False: `sandbox.toolchains: off`."""
    off: bool = False
    """True: `sandbox.walls: off`, by the person's own config or command line."""
    limits: ResourceLimits = field(default_factory=ResourceLimits)


_SIZE_UNITS: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,3})?) ?(KiB|MiB|GiB|TiB)")
_MAX_LIMIT: Final = 1 << 62
"""What the kernel takes for a limit, with room."""


def size(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    """Bytes, as a number or like `512MiB`."""
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    amount = int(float(match[1]) * _SIZE_UNITS[match[2]]) if match else value
    if isinstance(amount, int) and not isinstance(amount, bool) and 0 < amount <= _MAX_LIMIT:
        return amount
    return refuse(problems, path, value, "a number of bytes above 0, or a size like 512MiB or 2GiB")


def whole_number(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MAX_LIMIT
    return value if usable else refuse(problems, path, value, "a whole number above 0")


_LIMIT_CHECKS: Final[dict[str, Check]] = {
    "timeout_s": positive,
    "memory": size,
    "processes": whole_number,
    "cpu_s": whole_number,
    "file_size": size,
    "open_files": whole_number,
    "output": size,
}
WALL_KEYS: Final[dict[str, Check]] = {
    "read": list_of(text),
    "toolchains": one_of("on", "off"),
    "walls": one_of("on", "off"),
    "limits": MappingSchema(_LIMIT_CHECKS),
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


def restrict_untrusted_walls(block: WallBlock, person: WallBlock | None, unused: list[str]) -> WallBlock:
    """What of a stranger's block still counts: what is stricter than the person's own; the rest goes to `unused`."""
    if block.read:
        unused.append(f"{block.read[0].origin}: sandbox.read")
    toolchains = block.toolchains
    if toolchains and toolchains.value and person and person.toolchains and not person.toolchains.value:
        unused.append(f"{toolchains.origin}: sandbox.toolchains: on")
        toolchains = None
    limits: dict[str, Any] = {name: said.value for name, said in person.limits.items()} if person else {}
    own = ResourceLimits(**limits)
    kept: dict[str, Setting[float]] = {}
    for name, said in block.limits.items():
        most = getattr(own, name)
        if most is not None and said.value > most:
            unused.append(f"{said.origin}: sandbox.limits.{name}")
        else:
            kept[name] = said
    return replace(block, read=(), toolchains=toolchains, limits=kept)


def effective_walls(project: WallBlock | None, person: WallBlock | None) -> WallSettings:
    """The program over the person's defaults, key by key; what may be read adds up; `walls` is the person's alone."""
    blocks = [block for block in (project, person) if block is not None]
    limits: dict[str, Any] = {}
    for block in reversed(blocks):
        limits |= {name: said.value for name, said in block.limits.items()}
    return WallSettings(
        read=tuple(dict.fromkeys(said.value for block in reversed(blocks) for said in block.read)),
        toolchains=next((block.toolchains.value for block in blocks if block.toolchains), True),
        off=bool(person and person.walls and not person.walls.value),
        limits=ResourceLimits(**limits),
    )


def walls_notice(project: WallBlock | None) -> str:
    """What a person must hear about a program that speaks about walls themselves, trusted or not."""
    if project is None or project.walls is None:
        return ""
    where = project.walls.origin
    return f"{where}: sandbox.walls is ignored: only your own config.yaml or the command line can switch walls off."


VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")


def variable_holding(what: str) -> Check:
    """The name of an environment variable. No problem repeats the text, which may be the credential itself."""

    def check_name(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
        if isinstance(value, str) and VARIABLE_NAME.fullmatch(value):
            return value
        expected = f"the name of an environment variable that holds the {what} (never the {what} itself)"
        problems.add(path, f"expected {expected}")
        return ""

    return check_name


_REFUSED_NAMES: Final = frozenset({"BASH_ENV", "ENV", "PATH", "HOME"})
_REFUSED_PREFIXES: Final = ("LD_", "BASH_FUNC_", "FORGE_")


def variable_problem(name: str) -> str:
    """Why a variable of this name is not handed to a child; empty if it is."""
    if not VARIABLE_NAME.fullmatch(name):
        return "is not the name of a variable (letters, digits and _)"
    if name in _REFUSED_NAMES or name.startswith(_REFUSED_PREFIXES):
        return "cannot be given to a child: Forge sets it, or it decides what code runs there"
    return ""
