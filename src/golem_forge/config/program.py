"""The program: forge.yaml over the user's own config.yaml, and what of it counts while the program is untrusted.

Takes a directory. Gives a `Program` whose every value is the effective one, with its origin. Raises ConfigError for a
file with any problem, all of them listed. An untrusted program can only make things stricter: its `preApproved` counts
as `ask`; `models`, `pricing`, `unprotect`, `read`, wider limits, a server's `trust: trusted` and zones outside its root
are not used, and `notice` says so once. `overrides` (`--set`) are put into forge.yaml first, and count as the user's
own.

The key `ui` says where a page is served and whether it may notify: `ui: {web: {port: 8100, notify: true}}`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from golem_forge.config.approval_modes import ApprovalMode, Setting, choose_mode, is_stricter_mode
from golem_forge.config.mcp_blocks import (
    MCP_KEYS,
    McpFile,
    mcp_file,
    normalise_keys,
    restrict_untrusted_mcp,
    without_pre_approval,
)
from golem_forge.config.mcp_json import JsonServers, read_mcp_json
from golem_forge.config.mcp_merge import ProgramZones, check_own_servers, effective_mcp
from golem_forge.config.mcp_spec import McpSettings
from golem_forge.config.run_block import (
    RUN_KEYS,
    RunBlock,
    RunSettings,
    effective_run,
    restrict_untrusted_run,
    run_block,
)
from golem_forge.config.sandbox_block import (
    VERDICT_CHECK,
    WALL_KEYS,
    ZONES_CHECK,
    WallBlock,
    WallSettings,
    ZoneEntry,
    effective_walls,
    restrict_untrusted_walls,
    wall_block,
    walls_notice,
    zone_entries,
)
from golem_forge.config.schema import (
    Check,
    ConfigProblems,
    MappingSchema,
    check,
    flag,
    list_of,
    map_of,
    one_of,
    positive,
    refuse,
    text,
)
from golem_forge.config.yaml_file import YamlFile, YamlPath, is_override, parse_yaml, read_bytes, with_overrides
from golem_forge.core.decisions import Verdict, strictest
from golem_forge.core.errors import ConfigError
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.storage.home import ForgeHome

_LOWEST_PORT: Final = 1024
_HIGHEST_PORT: Final = 65535


def _port(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    usable = isinstance(value, int) and not isinstance(value, bool) and _LOWEST_PORT <= value <= _HIGHEST_PORT
    return value if usable else refuse(problems, path, value, f"a port from {_LOWEST_PORT} to {_HIGHEST_PORT}")


UI_KEYS: Final[dict[str, Check]] = {"ui": MappingSchema({"web": MappingSchema({"port": _port, "notify": flag})})}


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
    web: Mapping[str, Setting[Any]] = field(default_factory=dict)


def ui_block(file: YamlFile, values: Mapping[str, Any]) -> UiBlock:
    web: Mapping[str, Any] = (values.get("ui") or {}).get("web") or {}
    return UiBlock(web={name: Setting(value, file.at(("ui", "web", name))) for name, value in web.items()})


def effective_ui(project: UiBlock | None, person: UiBlock | None) -> UiSettings:
    said: dict[str, Setting[Any]] = {}
    for block in (person, project):
        said |= block.web if block is not None else {}
    return UiSettings(
        **{f"web_{name}": each.value for name, each in said.items()},
        origins={f"web.{name}": each.origin for name, each in said.items()},
    )


PROGRAM_FILE: Final = "forge.yaml"
PROJECT_RULES: Final = ".forge/rules.yaml"

_SCHEMA: Final = MappingSchema(
    {
        **RUN_KEYS,
        **MCP_KEYS,
        **UI_KEYS,
        "sandbox": MappingSchema({"root": text, "zones": ZONES_CHECK, "unprotect": list_of(text), **WALL_KEYS}),
        "approval": MappingSchema(
            {
                "mode": one_of(*(mode.value for mode in ApprovalMode)),
                "default": VERDICT_CHECK,
                "tools": map_of(VERDICT_CHECK),
                "timeout": positive,
            }
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSettings:
    """The `approval` blocks of both files as they count now."""

    default: Setting[Verdict] | None = None
    tools: dict[str, Setting[Verdict]] = field(default_factory=dict)
    timeout: Setting[float] | None = None
    user_mode: Setting[ApprovalMode] | None = None
    project_mode: Setting[ApprovalMode] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    root: Path
    file: Path | None
    """None: a directory without a forge.yaml around it."""
    trusted: bool
    zones: tuple[ZoneEntry, ...]
    unprotect: tuple[str, ...]
    approval: ApprovalSettings
    walls: WallSettings = field(default_factory=WallSettings)
    run: RunSettings = field(default_factory=RunSettings)
    mcp: McpSettings = field(default_factory=McpSettings)
    ui: UiSettings = field(default_factory=UiSettings)
    withheld_zones: frozenset[str] = frozenset()
    """Zones that the program's file names and that it is not trusted to name: a worker goes without them."""
    unused: tuple[str, ...] = ()
    """What the program's files say and the program is not trusted to say."""
    remarks: tuple[str, ...] = ()
    """What a person must hear besides, trusted or not."""

    @property
    def notice(self) -> str:
        """What the person should know at the start, as one text; empty if there is nothing."""
        return self.notice_with()

    def notice_with(self, unused: Sequence[str] = ()) -> str:
        """The same with what further files (worker files) say and may not."""
        lines = [f"  {item}" for item in (*self.unused, *unused)]
        if lines:
            lines.insert(0, "This program is not trusted. Not used until you have read it and run `forge trust`:")
        return "\n".join((*lines, *self.remarks, *self.mcp.warnings))

    @property
    def strange_zones(self) -> frozenset[str]:
        """Zones that an untrusted program named itself, other than the usual `workspace`."""
        own = (zone.name for zone in self.zones if zone.origin.startswith(PROGRAM_FILE) and zone.name != "workspace")
        return frozenset() if self.trusted else frozenset(own)

    def mode(self, flag: ApprovalMode | None = None) -> Setting[ApprovalMode]:
        """The approval mode in force; `flag` is the command line's."""
        return choose_mode(flag, self.approval.user_mode, self.approval.project_mode, project_trusted=self.trusted)


def find_root(start: Path) -> Path | None:
    """The nearest directory, from `start` upward, that has a forge.yaml."""
    directory = Path(os.path.realpath(start))
    return next((d for d in (directory, *directory.parents) if (d / PROGRAM_FILE).is_file()), None)


def program_root(start: Path) -> Path:
    """The root of the program around a directory; one without a forge.yaml is its own."""
    return find_root(start) or Path(os.path.realpath(start))


def load_program(
    start: Path,
    home: ForgeHome,
    *,
    trusted: Callable[[Path], bool],
    trusted_with: Callable[[Path, Mapping[str, bytes]], bool] | None = None,
    overrides: Sequence[str] = (),
) -> Program:
    """`trusted_with` is asked about the very bytes of forge.yaml that were parsed; an override is `key.path=value`."""
    found = find_root(start)
    root = found or Path(os.path.realpath(start))
    problems: list[str] = []
    person = _read_block(home.config, home.shown(home.config), problems) if os.path.lexists(home.config) else None
    if person is not None:
        check_own_servers(person.mcp, problems)
    project = _read_block(root / PROGRAM_FILE, PROGRAM_FILE, problems, overrides) if found or overrides else None
    foreign = read_mcp_json(root)
    written = _zones(project, person, root)
    modes = {zone.name: zone.mode for zone in written}
    _servers(project, person, foreign, ProgramZones(root=root, zones=written, written=modes), problems)
    if problems:
        raise ConfigError(*problems)
    trust = trusted(root)
    if trust and found and project is not None and trusted_with is not None:
        trust = trusted_with(root, {PROGRAM_FILE: project.data})
    unused: list[str] = []
    named = {zone.name for zone in project.zones or ()} if project else set()
    if project is not None and found and not trust:
        project = _restrict_untrusted(project, person, root, unused)
    if not trust and (root / PROJECT_RULES).is_file():
        unused.append(f"{PROJECT_RULES}: ignored")
    zones = _zones(project, person, root)
    remark = walls_notice(project.walls if project else None)
    return Program(
        root=root,
        file=root / PROGRAM_FILE if found else None,
        trusted=trust,
        zones=zones,
        unprotect=next((block.unprotect for block in (project, person) if block and block.unprotect), ()),
        approval=_effective_approval(project, person),
        walls=effective_walls(project.walls if project else None, person.walls if person else None),
        run=effective_run(project.run if project else None, person.run if person else None),
        mcp=_servers(project, person, foreign, ProgramZones(root=root, zones=zones, written=modes), []),
        ui=effective_ui(project.ui if project else None, person.ui if person else None),
        withheld_zones=frozenset(named - {zone.name for zone in (project.zones if project else None) or ()}),
        unused=tuple(unused),
        remarks=(remark,) if remark else (),
    )


def _zones(project: _ConfigBlock | None, person: _ConfigBlock | None, root: Path) -> tuple[ZoneEntry, ...]:
    workspace = (ZoneEntry(name="workspace", path=root),)
    return next((block.zones for block in (project, person) if block and block.zones is not None), workspace)


def _servers(
    project: _ConfigBlock | None,
    person: _ConfigBlock | None,
    foreign: JsonServers,
    ground: ProgramZones,
    problems: list[str],
) -> McpSettings:
    program, own = (block.mcp if block else McpFile() for block in (project, person))
    return effective_mcp(program, foreign, own, ground, problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ConfigBlock:
    data: bytes
    """What was parsed."""
    zones: tuple[ZoneEntry, ...] | None
    unprotect: tuple[str, ...]
    unprotect_origin: str
    walls: WallBlock
    run: RunBlock
    mcp: McpFile
    ui: UiBlock
    mode: Setting[ApprovalMode] | None
    default: Setting[Verdict] | None
    tools: dict[str, Setting[Verdict]]
    timeout: Setting[float] | None


def _read_block(path: Path, name: str, found: list[str], overrides: Sequence[str] = ()) -> _ConfigBlock | None:
    """None, with its problems added to `found`, where the file cannot be used. With overrides it need not exist."""
    try:
        data = b"" if overrides and not os.path.lexists(path) else read_bytes(path, name)
        file = with_overrides(normalise_keys(parse_yaml(data, name)), overrides)
    except ConfigError as error:
        found.extend(error.problems)
        return None
    problems = ConfigProblems(file)
    values = check(_SCHEMA, file, problems)
    sandbox: dict[str, Any] = values.get("sandbox", {})
    approval: dict[str, Any] = values.get("approval", {})
    zones = None
    if "zones" in sandbox:
        zones = zone_entries(file, sandbox["zones"], path.parent / os.path.expanduser(sandbox.get("root", ".")))
    elif "root" in sandbox:
        problems.add(("sandbox", "root"), "has no effect without `zones`")
    mcp = mcp_file(values, problems)
    found.extend(problems.found)
    return _ConfigBlock(
        data=data,
        zones=zones,
        unprotect=tuple(sandbox.get("unprotect", ())),
        unprotect_origin=file.at(("sandbox", "unprotect")),
        walls=wall_block(file, sandbox, path.parent),
        run=run_block(file, values),
        mcp=mcp,
        ui=ui_block(file, values),
        mode=_setting(file, approval, "mode", ApprovalMode),
        default=_setting(file, approval, "default", Verdict),
        tools={
            name: Setting(Verdict(word), file.at(("approval", "tools", name)))
            for name, word in approval.get("tools", {}).items()
        },
        timeout=_setting(file, approval, "timeout", float),
    )


def _setting(file: YamlFile, block: dict[str, Any], key: str, kind: Callable[[Any], Any]) -> Setting[Any] | None:
    return Setting(kind(block[key]), file.at(("approval", key))) if key in block else None


def _restrict_untrusted(
    block: _ConfigBlock, person: _ConfigBlock | None, root: Path, unused: list[str]
) -> _ConfigBlock:
    """The block with everything taken out that would loosen something; each is named in `unused`."""
    own = {zone.name: zone for zone in person.zones or ()} if person else {}

    def asking(said: Setting[Verdict], what: str) -> Setting[Verdict]:
        return without_pre_approval(said, what, unused)

    def asking_zone(zone: ZoneEntry, verb: str, said: Verdict | None) -> Verdict | None:
        what = f"sandbox.zones.{zone.name}.approval.{verb}"
        return None if said is None else asking(Setting(said, zone.origin), what).value

    if block.unprotect:
        unused.append(f"{block.unprotect_origin}: sandbox.unprotect")
    zones: list[ZoneEntry] = []
    for zone in block.zones or ():
        if not zone.is_inside(root):
            unused.append(f"{zone.origin}: zone {zone.name!r}: its directory is outside the program")
            continue
        write, delete = asking_zone(zone, "write", zone.write), asking_zone(zone, "delete", zone.delete)
        zones.append(_no_wider(replace(zone, write=write, delete=delete), own.get(zone.name)))
    walls = restrict_untrusted_walls(block.walls, person.walls if person else None, unused)
    mode = block.mode
    if mode and is_stricter_mode(ApprovalMode.INTERACTIVE, mode.value) and not is_override(mode.origin):
        unused.append(f"{mode.origin}: approval.mode {mode.value}")
        mode = None
    return replace(
        block,
        zones=None if block.zones is None else tuple(zones),
        unprotect=(),
        walls=walls,
        run=restrict_untrusted_run(block.run, person.run if person else None, unused),
        mcp=restrict_untrusted_mcp(block.mcp, unused),
        mode=mode,
        default=block.default and asking(block.default, "approval.default"),
        tools={name: asking(said, f"approval.tools.{name}") for name, said in block.tools.items()},
        timeout=(person.timeout if person else None) or block.timeout,
    )


def _no_wider(zone: ZoneEntry, own: ZoneEntry | None) -> ZoneEntry:
    """An untrusted zone whose name the user also configured gets no more than the user's zone."""
    if own is None:
        return zone

    def strictest_of(one: Verdict | None, other: Verdict | None) -> Verdict | None:
        said = [verdict for verdict in (one, other) if verdict is not None]
        return strictest(said) if said else None

    return replace(
        zone,
        mode="ro" if "ro" in (zone.mode, own.mode) else "rw",
        write=strictest_of(zone.write, own.write),
        delete=strictest_of(zone.delete, own.delete),
        at_host_path=zone.at_host_path and own.at_host_path,
    )


def _effective_approval(project: _ConfigBlock | None, person: _ConfigBlock | None) -> ApprovalSettings:
    """The program over the person's defaults, key by key; `blocked` in either blocks."""
    blocks = [block for block in (project, person) if block is not None]
    tools: dict[str, Setting[Verdict]] = {}
    for block in blocks:
        for name, said in block.tools.items():
            tools[name] = _first_or_blocked(tools.get(name), said)
    default: Setting[Verdict] | None = None
    for block in blocks:
        if block.default is not None:
            default = _first_or_blocked(default, block.default)
    mode = project.mode if project else None
    typed = mode if mode and is_override(mode.origin) else None  # the command line is the person's own word
    return ApprovalSettings(
        default=default,
        tools=tools,
        timeout=next((block.timeout for block in blocks if block.timeout is not None), None),
        user_mode=typed or (person.mode if person else None),
        project_mode=mode,
    )


def _first_or_blocked(first: Setting[Verdict] | None, second: Setting[Verdict]) -> Setting[Verdict]:
    return second if first is None or second.value is Verdict.BLOCKED else first
