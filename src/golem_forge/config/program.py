"""The program: forge.yaml over the user's own config.yaml, and what of it counts while the program is untrusted.

Takes a directory. Gives a `Program` whose every value is the effective one, with its origin. Raises ConfigError for a
file with any problem, all of them listed. `overrides` (`--set`) are put into forge.yaml first, and count as the user's
own.

An untrusted program can only make things stricter: its `preApproved` counts as `ask`; `models`, `pricing`, `unprotect`,
`read`, wider limits, a server's `trust: trusted` and zones outside its root are not used, and `notice` says so once.

Small blocks are read here:

    ui: {web: {port: 8100, notify: true}}      where a page is served, and whether it may notify
    instructions: {project_files: false}       the model is told nothing from files of the project
    toolsets: {code: off}                      no worker has `run_code`; off in either file is off
    otel: {endpoint: …, content: true}         OpenTelemetry; only the person's own file and `--set` count
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from golem_forge.config.hooks_block import (
    HOOK_KEYS,
    Hook,
    check_hooks,
    effective_hooks,
    restrict_untrusted_hooks,
)
from golem_forge.config.mcp_blocks import (
    MCP_KEYS,
    McpFile,
    mcp_file,
    normalise_keys,
    read_mcp_json,
    restrict_untrusted_mcp,
    without_pre_approval,
)
from golem_forge.config.mcp_merge import ProgramZones, check_own_servers, effective_mcp
from golem_forge.config.mcp_spec import McpSettings
from golem_forge.config.run_block import (
    APPROVAL_KEYS,
    REVIEWER_CHECK,
    RUN_KEYS,
    ApprovalMode,
    ReviewerSettings,
    RunSettings,
    base_url,
    check_reviewer,
    choose_mode,
    effective_reviewer,
    effective_run,
    is_stricter_mode,
    restrict_untrusted_run,
    reviewer_notice,
    verdict_settings,
)
from golem_forge.config.sandbox_block import (
    UNDO_KEYS,
    WALL_KEYS,
    ZONES_CHECK,
    WallSettings,
    ZoneEntry,
    credentials_notice,
    effective_walls,
    refuse_exits,
    restrict_untrusted_walls,
    walls_notice,
    zone_entries,
)
from golem_forge.config.store_block import (
    STORE_KEYS,
    StoreSettings,
    WorkspaceSettings,
    effective_store,
    effective_workspace,
    restrict_untrusted_block,
    restrict_untrusted_notify,
    restrict_untrusted_store,
)
from golem_forge.config.validation import (
    Check,
    ConfigLayer,
    ConfigProblems,
    MappingSchema,
    Setting,
    check,
    flag,
    list_of,
    one_of,
    positive,
    text,
    whole_between,
)
from golem_forge.config.yaml_file import is_override, parse_yaml, read_bytes, with_overrides
from golem_forge.core.changes import UndoSettings
from golem_forge.core.decisions import Verdict, strictest
from golem_forge.core.errors import EXTRAS, ConfigError, install_command
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.storage.home import ForgeHome

_LOWEST_PORT: Final = 1024
_HIGHEST_PORT: Final = 65535


_port: Final = whole_between(_LOWEST_PORT, _HIGHEST_PORT, f"a port from {_LOWEST_PORT} to {_HIGHEST_PORT}")
UI_KEYS: Final[dict[str, Check]] = {"ui": MappingSchema({"web": MappingSchema({"port": _port, "notify": flag})})}


@dataclass(frozen=True, slots=True, kw_only=True)
class UiSettings:
    web_port: int = 0
    """0 means any free port."""
    web_notify: bool = False
    """Whether a page that is not looked at tells that an answer is awaited."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """`web.port` and `web.notify` → where it was written."""


def effective_ui(project: ConfigLayer, person: ConfigLayer) -> UiSettings:
    web: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in (person, project):
        for name, value in layer.block("ui", "web").items():
            web[f"web_{name}"], origins[f"web.{name}"] = value, layer.at("ui", "web", name)
    return UiSettings(**web, origins=origins)


_INSTRUCTIONS: Final = ("instructions", "project_files")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionSettings:
    project_files: bool = True
    """Whether AGENTS.md and the skills of the project go to the model."""
    origin: str = ""
    """Where it was written; empty if nowhere."""


def effective_instructions(project: ConfigLayer, person: ConfigLayer) -> InstructionSettings:
    said = project.setting(*_INSTRUCTIONS) or person.setting(*_INSTRUCTIONS)
    return InstructionSettings(project_files=said.value, origin=said.origin) if said else InstructionSettings()


def _restrict_untrusted_instructions(project: ConfigLayer, person: ConfigLayer, unused: list[str]) -> dict[str, Any]:
    """The block of a stranger without the switch where it would undo what the person said."""
    own, said = person.setting(*_INSTRUCTIONS), project.setting(*_INSTRUCTIONS)
    if own is None or own.value or said is None or not said.value or is_override(said.origin):
        return project.block("instructions")
    unused.append(f"{said.origin}: instructions.project_files: you turned it off")
    return {}


SWITCHED_TOOLSETS: Final = ("code",)
"""Toolsets that a program's file or the person's own can switch off for every worker."""


def _toolsets_off(project: ConfigLayer, person: ConfigLayer) -> frozenset[str]:
    blocks = (project.block("toolsets"), person.block("toolsets"))
    return frozenset(name for name in SWITCHED_TOOLSETS if any(block.get(name) == "off" for block in blocks))


_OTEL_ADDRESSES: Final = tuple(f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT" for signal in ("", "TRACES_", "METRICS_"))
_OTEL_EXPORTERS: Final = ("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER")
_OTEL_HEADERS: Final = tuple(f"OTEL_EXPORTER_OTLP_{signal}HEADERS" for signal in ("", "TRACES_", "METRICS_"))
_OFF: Final = ("", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class OtelSettings:
    """OpenTelemetry: the standard variables, then what the person's own file says."""

    endpoint: str = ""
    content: bool = False
    """Whether arguments, results and messages are sent too, without secrets."""
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def asked_by(self) -> str:
        """The variable or the line that switches it on; empty: it is off."""
        environ = {name: value.strip() for name, value in os.environ.items() if name.startswith("OTEL_")}
        exporters = [environ.get(name, "").lower() for name in _OTEL_EXPORTERS]
        if environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or exporters == ["none", "none"]:
            return ""
        asking = (name for name in (*_OTEL_ADDRESSES, *_OTEL_EXPORTERS) if environ.get(name, "").lower() not in _OFF)
        return next(asking, self.origins.get("endpoint", ""))

    @property
    def address(self) -> str:
        """Returns the address for spans."""
        named = (os.environ.get(name, "") for name in reversed(_OTEL_ADDRESSES[:2]))
        return next(filter(None, named), self.endpoint or "http://localhost:4318")

    @property
    def problem(self) -> str:
        """Why nothing is sent although it is switched on, and what to do."""
        if not (asked := self.asked_by):
            return ""
        if not all(map(_is_installed, sorted(EXTRAS["otel"]))):
            return f"{asked} asks for OpenTelemetry, which is not installed: {install_command('otel')}"
        for name in _OTEL_EXPORTERS:
            if (value := os.environ.get(name, "").strip().lower()) not in ("", "otlp", "none"):
                return f"{name}: Forge sends by otlp alone, not by {value[:40]!r}: set it to otlp or none"
        protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "").strip().lower()
        if protocol not in ("", "http/protobuf"):
            text = (
                f"Forge speaks http/protobuf, not {protocol[:40]!r}: set it to http/protobuf, with the address for it"
            )
            return f"OTEL_EXPORTER_OTLP_PROTOCOL: {text}"
        return ""

    @property
    def usable(self) -> bool:
        """Whether it is switched on and its libraries are installed."""
        return bool(self.asked_by) and not self.problem


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def effective_otel(project: ConfigLayer, person: ConfigLayer) -> OtelSettings:
    said = {name: person.setting("otel", name) for name in person.block("otel")}
    said |= {name: each for name in project.block("otel") if is_override((each := _at(project, "otel", name)).origin)}
    known = {name: each for name, each in said.items() if each is not None}
    values = {name: each.value for name, each in known.items()}
    return OtelSettings(**values, origins={name: each.origin for name, each in known.items()})


def _effective_undo(project: ConfigLayer, person: ConfigLayer) -> UndoSettings:
    """The person's own; no program decides how much of a person's work can be taken back."""
    typed = {name for name in project.block("undo") if is_override(_at(project, "undo", name).origin)}
    return UndoSettings(**person.block("undo"), **{name: project.block("undo")[name] for name in typed})


def _own_only_notice(project: ConfigLayer, block: str) -> str:
    """Returns a notice about a block in a program's file that counts only in the person's own."""
    own = [each.origin for name in project.block(block) if not is_override((each := _at(project, block, name)).origin)]
    return f"{own[0]}: {block} is ignored: only your own config.yaml or the command line can say it." if own else ""


def _at(layer: ConfigLayer, *path: str) -> Setting[Any]:
    said = layer.setting(*path)
    assert said is not None, "asked for a key that is there"
    return said


def otel_secrets(environ: Mapping[str, str]) -> Iterator[str]:
    """Yields the secrets for a collector: of headers (`authorization=Bearer …,x-key=…`), and the password of an
    address.
    """
    for name in _OTEL_ADDRESSES:
        before_host, _, host = environ.get(name, "").rpartition("@")
        yield before_host.rpartition(":")[2] if host else ""
    for name in _OTEL_HEADERS:
        for header in environ.get(name, "").split(","):
            value = unquote(header.partition("=")[2]).strip()
            yield value.partition(" ")[2] or value


PROGRAM_FILE: Final = "forge.yaml"
FOUR_EYES: Final = ("medium", "high", "critical")
"""Risks from which the person who started a background session cannot answer its questions; the first is
the strictest.
"""
PROJECT_RULES: Final = ".forge/rules.yaml"

_SCHEMA: Final = MappingSchema(
    {
        **RUN_KEYS,
        **MCP_KEYS,
        **UI_KEYS,
        **STORE_KEYS,
        **HOOK_KEYS,
        "instructions": MappingSchema({"project_files": flag}),
        "toolsets": MappingSchema({name: one_of("on", "off") for name in SWITCHED_TOOLSETS}),
        "otel": MappingSchema({"endpoint": base_url, "content": flag}),
        "undo": MappingSchema(UNDO_KEYS),
        "sandbox": MappingSchema({"root": text, "zones": ZONES_CHECK, "unprotect": list_of(text), **WALL_KEYS}),
        "approval": MappingSchema(
            {
                "mode": one_of(*(mode.value for mode in ApprovalMode)),
                **APPROVAL_KEYS,
                "timeout": positive,
                "four_eyes": one_of(*FOUR_EYES),
                "reviewer": REVIEWER_CHECK,
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
    four_eyes: Setting[str] | None = None
    """From this risk on another person than the one who started the session has to answer."""
    reviewer: ReviewerSettings | None = None
    """Answers questions of low risk before a person is asked; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    root: Path
    file: Path | None
    """None for a directory without a forge.yaml around it."""
    trusted: bool
    zones: tuple[ZoneEntry, ...]
    unprotect: tuple[str, ...]
    approval: ApprovalSettings
    walls: WallSettings = field(default_factory=WallSettings)
    run: RunSettings = field(default_factory=RunSettings)
    mcp: McpSettings = field(default_factory=McpSettings)
    ui: UiSettings = field(default_factory=UiSettings)
    instructions: InstructionSettings = field(default_factory=InstructionSettings)
    otel: OtelSettings = field(default_factory=OtelSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    workspace: WorkspaceSettings = field(default_factory=WorkspaceSettings)
    undo: UndoSettings = field(default_factory=UndoSettings)
    hooks: tuple[Hook, ...] = ()
    toolsets_off: frozenset[str] = frozenset()
    """Native toolsets that no worker has, whatever its file says."""
    withheld_zones: frozenset[str] = frozenset()
    """Zones that the program's file names and that it is not trusted to name: a worker goes without them."""
    unused: tuple[str, ...] = ()
    """Settings of the program's files that do not count because it is not trusted."""
    remarks: tuple[str, ...] = ()
    """Further notices for the person, trusted or not."""

    @property
    def notice(self) -> str:
        """The notice for the person at the start; empty if there is none."""
        return self.notice_with()

    def notice_with(self, unused: Sequence[str] = ()) -> str:
        """Returns the notice with unused settings of further files (worker files)."""
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
    project = person = ConfigLayer(mcp=McpFile())
    if os.path.lexists(home.config):
        person = _read_layer(home.config, home.shown(home.config), problems, own=True)
        check_own_servers(person.mcp, problems)
    if found or overrides:
        project = _read_layer(root / PROGRAM_FILE, PROGRAM_FILE, problems, overrides)
    foreign = read_mcp_json(root)
    written = _zones(project, person, root)
    modes = {zone.name: zone.mode for zone in written}
    ground = ProgramZones(root=root, zones=written, written=modes)
    effective_mcp(project.mcp, foreign, person.mcp, ground, problems)
    if problems:
        raise ConfigError(*problems)
    trust = trusted(root)
    if trust and found and trusted_with is not None:
        trust = trusted_with(root, {PROGRAM_FILE: project.data})
    unused: list[str] = []
    named = {zone.name for zone in project.zones or ()}
    clones = project.at("workspace") if project.block("workspace") else ""
    if found and not trust:
        project = _restrict_untrusted(project, person, root, unused)
    if not trust and (root / PROJECT_RULES).is_file():
        unused.append(f"{PROJECT_RULES}: ignored")
    zones = _zones(project, person, root)
    otel = effective_otel(project, person)
    own_only = (_own_only_notice(project, block) for block in ("otel", "undo"))
    remarks = (walls_notice(project), credentials_notice(project), *own_only, reviewer_notice(project), otel.problem)
    unprotect = (layer.block("sandbox").get("unprotect") for layer in (project, person))
    return Program(
        root=root,
        file=root / PROGRAM_FILE if found else None,
        trusted=trust,
        zones=zones,
        unprotect=tuple(next(filter(None, unprotect), ())),
        approval=_effective_approval(project, person),
        walls=effective_walls(project, person),
        run=effective_run(project, person),
        mcp=effective_mcp(project.mcp, foreign, person.mcp, replace(ground, zones=zones), []),
        ui=effective_ui(project, person),
        instructions=effective_instructions(project, person),
        otel=otel,
        store=effective_store(project, person),
        undo=_effective_undo(project, person),
        hooks=effective_hooks(project, person),
        toolsets_off=_toolsets_off(project, person),
        workspace=effective_workspace(project, person, "" if project.block("workspace") else clones),
        withheld_zones=frozenset(named - {zone.name for zone in project.zones or ()}),
        unused=tuple(unused),
        remarks=tuple(filter(None, remarks)),
    )


def _zones(project: ConfigLayer, person: ConfigLayer, root: Path) -> tuple[ZoneEntry, ...]:
    workspace = (ZoneEntry(name="workspace", path=root),)
    return next((layer.zones for layer in (project, person) if layer.zones is not None), workspace)


def _read_layer(
    path: Path, name: str, found: list[str], overrides: Sequence[str] = (), *, own: bool = False
) -> ConfigLayer:
    """Its problems are added to `found`. With overrides the file need not exist. `own`: it is the person's."""
    try:
        data = b"" if overrides and not os.path.lexists(path) else read_bytes(path, name)
        file = with_overrides(normalise_keys(parse_yaml(data, name)), overrides)
    except ConfigError as error:
        found.extend(error.problems)
        return ConfigLayer(mcp=McpFile())
    problems = ConfigProblems(file)
    values = check(_SCHEMA, file, problems)
    if name == PROGRAM_FILE:
        refuse_exits(file.value.get("sandbox"), problems)
    sandbox: dict[str, Any] = values.get("sandbox", {})
    zones = None
    if "zones" in sandbox:
        zones = zone_entries(file, sandbox["zones"], path.parent / os.path.expanduser(sandbox.get("root", ".")))
    elif "root" in sandbox:
        problems.add(("sandbox", "root"), "has no effect without `zones`")
    check_hooks(values, problems, own=own)
    check_reviewer(values, problems)
    mcp = mcp_file(values, problems)
    found.extend(problems.found)
    return ConfigLayer(file=file, data=data, values=values, folder=path.parent, zones=zones, mcp=mcp)


def _restrict_untrusted(project: ConfigLayer, person: ConfigLayer, root: Path, unused: list[str]) -> ConfigLayer:
    """The layer with everything taken out that would loosen something; each is named in `unused`."""
    own = {zone.name: zone for zone in person.zones or ()}

    def asking(said: Setting[Verdict], what: str) -> Verdict:
        return without_pre_approval(said, what, unused).value

    if project.block("sandbox").get("unprotect"):
        unused.append(f"{project.at('sandbox', 'unprotect')}: sandbox.unprotect")
    zones: list[ZoneEntry] = []
    for zone in project.zones or ():
        if not zone.is_inside(root):
            unused.append(f"{zone.origin}: zone {zone.name!r}: its directory is outside the program")
            continue
        asked = {
            verb: asking(Setting(verdict, zone.origin), f"sandbox.zones.{zone.name}.approval.{verb}")
            for verb, verdict in (("write", zone.write), ("delete", zone.delete))
            if verdict is not None
        }
        zones.append(_no_wider(replace(zone, **asked), own.get(zone.name)))
    sandbox = restrict_untrusted_walls(project, person, unused)
    sandbox.pop("unprotect", None)
    approval = project.block("approval")
    mode = _mode(project)
    if mode and is_stricter_mode(ApprovalMode.INTERACTIVE, mode.value) and not is_override(mode.origin):
        unused.append(f"{mode.origin}: approval.mode {mode.value}")
        del approval["mode"]
    run = restrict_untrusted_run(project, person, unused)
    instructions = _restrict_untrusted_instructions(project, person, unused)
    store = restrict_untrusted_store(project, unused)
    notify = restrict_untrusted_notify(project, unused)
    workspace = restrict_untrusted_block(project, "workspace", unused)
    oidc = restrict_untrusted_block(project, "oidc", unused)
    hooks = restrict_untrusted_hooks(project, unused)
    mcp = restrict_untrusted_mcp(project.mcp, unused)
    said = verdict_settings(project.file, approval, ("approval",))
    if "default" in said:
        approval["default"] = asking(said["default"], "approval.default")
    approval["tools"] = {name: asking(each, f"approval.tools.{name}") for name, each in said["tools"].items()}
    if "timeout" in person.block("approval"):
        approval.pop("timeout", None)
    return replace(
        project.with_blocks(
            {
                **run,
                "sandbox": sandbox,
                "approval": approval,
                "instructions": instructions,
                "store": store,
                "notify": notify,
                "workspace": workspace,
                "oidc": oidc,
                "hooks": hooks,
            }
        ),
        zones=None if project.zones is None else tuple(zones),
        mcp=mcp,
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


def _effective_approval(project: ConfigLayer, person: ConfigLayer) -> ApprovalSettings:
    """The program over the person's defaults, key by key; `blocked` in either blocks."""
    tools: dict[str, Setting[Verdict]] = {}
    default: Setting[Verdict] | None = None
    for layer in (project, person):
        said = verdict_settings(layer.file, layer.block("approval"), ("approval",))
        for name, each in said["tools"].items():
            tools[name] = _first_or_blocked(tools.get(name), each)
        if "default" in said:
            default = _first_or_blocked(default, said["default"])
    mode = _mode(project)
    typed = mode if mode and is_override(mode.origin) else None  # the command line is the person's own word
    return ApprovalSettings(
        default=default,
        tools=tools,
        timeout=project.setting("approval", "timeout") or person.setting("approval", "timeout"),
        user_mode=typed or _mode(person),
        project_mode=mode,
        four_eyes=_strictest_four_eyes(project, person),
        reviewer=effective_reviewer(project, person),
    )


def _strictest_four_eyes(project: ConfigLayer, person: ConfigLayer) -> Setting[str] | None:
    """Neither file loosens what the other one asks for."""
    said = [each for layer in (project, person) if (each := layer.setting("approval", "four_eyes")) is not None]
    return min(said, key=lambda each: FOUR_EYES.index(each.value), default=None)


def _mode(layer: ConfigLayer) -> Setting[ApprovalMode] | None:
    said = layer.setting("approval", "mode")
    return said and Setting(ApprovalMode(said.value), said.origin)


def _first_or_blocked(first: Setting[Verdict] | None, second: Setting[Verdict]) -> Setting[Verdict]:
    return second if first is None or second.value is Verdict.BLOCKED else first
