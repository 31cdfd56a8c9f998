"""The blocks `sandbox` and `undo` of forge.yaml and config.yaml: zones, walls, limits, credentials, variables.

Only the text is checked here. Whether the directories of zones exist, overlap or reach where no zone may is the check
of `sandbox.zones.check_zones`; a zone's `origin` says which line its problems belong to.

`WallSettings` and `ResourceLimits` are plain data, and what `undo` sets is `core.changes.UndoSettings`.
`effective_walls` puts a program's block over the user's. Threat: a stranger's program could ask for more than its user
would give, so of an untrusted program only what is stricter counts, and no program at all may switch walls off. No
program and no worker may open the walls for a device, a socket or a command outside: a file that tries is an error
(`refuse_exits`), not a notice.

`sandbox.credentials` are secrets for HTTP APIs that commands use and never see. Each entry names a host, a header, the
variable of Forge's own environment or the secret of the session's project that holds the value, and the methods and
paths it may be used for. Only the person's own config.yaml has any. Threat: what stands under `value` may be a secret
that somebody wrote out by mistake, so no problem repeats it.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from golem_forge.config.mcp_spec import normalise_target
from golem_forge.config.validation import (
    INVALID,
    VERDICT_CHECK,
    Check,
    ConfigLayer,
    ConfigProblems,
    MappingSchema,
    duration,
    flag,
    is_whole,
    list_of,
    map_of,
    one_of,
    positive,
    refuse,
    text,
    value_that,
    whole_between,
)
from golem_forge.config.yaml_file import YamlFile, YamlPath, is_override
from golem_forge.core.decisions import Verdict
from golem_forge.core.globs import path_matches_glob
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex

TLS_PORT: Final = 443
PLACEHOLDER: Final = "forge-credential-"
"""The value of the variable for children, followed by its name; they write it where the credential is to
be inserted.
"""
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""Without TRACE, which answers with the header itself, and without CONNECT."""
PROJECT_SECRETS: Final[ContextVar[Mapping[str, str]]] = ContextVar("PROJECT_SECRETS", default=MappingProxyType({}))
"""Values of `project:NAME` references in the session that this task belongs to. A runner has sessions of several
projects in one process: none sees another's.
"""
_VARIABLE: Final = regex(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_HEADER: Final = regex(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_NO_CREDENTIAL: Final = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect", "keep-alive"}
    | {"accept-encoding", "range", "if-range", "content-type", "content-encoding", "forwarded", "via"}
)
"""Headers by which a message is understood, or that the proxy writes itself."""
_BASIC: Final = regex(r"[Bb]asic ([A-Za-z0-9+/=]{1,4096})")
_PATH: Final = regex(r"(?:/[^/\s%?#\\;]{1,200}){1,50}/?|/")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCredential:
    host: str
    """The host in normal form; port 443."""
    header: str
    variable: str
    methods: tuple[str, ...]
    paths: tuple[str, ...]
    """Globs over the decoded path."""
    of_project: bool = False
    """Whether `variable` is a secret of the session's project, not a variable of Forge's own environment."""

    def value(self, environ: Mapping[str, str]) -> str:
        """Returns the value; empty if there is none."""
        known = PROJECT_SECRETS.get() if self.of_project else environ
        return known.get(self.variable, "").strip()

    def allows(self, method: str, path: str) -> bool:
        return method in self.methods and any(path_matches_glob(glob, path) for glob in self.paths)

    def describe(self) -> str:
        return f"{', '.join(self.methods)} {', '.join(self.paths)}"


def _host(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    if not isinstance(value, str):
        return refuse(problems, path, value, "a host, like api.example.com")
    try:
        found = normalise_target(value)
    except ValueError as error:
        problems.add(path, str(error))
        return INVALID
    if found.rpartition("]")[2].count(":"):
        problems.add(path, "write the host without a port: a credential is sent by HTTPS, to port 443")
    return found.strip("[]")


def _header(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    if isinstance(value, str) and _HEADER.fullmatch(value) and value.lower() not in _NO_CREDENTIAL:
        return value
    problems.add(path, "expected the name of a header that holds a credential, like Authorization")
    return INVALID


def _reference(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    kind, _, name = value.partition(":") if isinstance(value, str) else ("", "", "")
    if kind in ("env", "project") and _VARIABLE.fullmatch(name):
        return value
    problems.add(path, "expected a reference like env:NAME or project:NAME (never the secret itself)")
    return INVALID


def _path(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    if isinstance(value, str) and _PATH.fullmatch(value) and not {".", ".."} & set(value.split("/")):
        return value
    return refuse(problems, path, value, "a path as the server knows it, like /repos/me/** (no %, //, .. or query)")


def _at_least_one(item: Check, what: str) -> Check:
    def check_list(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
        return list_of(item)(value, path, problems) if value else refuse(problems, path, value, f"a list of {what}")

    return check_list


CREDENTIALS_CHECK: Final = list_of(
    MappingSchema(
        {
            "host": _host,
            "header": _header,
            "value": _reference,
            "methods": _at_least_one(one_of(*METHODS), "methods"),
            "paths": _at_least_one(_path, "paths"),
        },
        required=("host", "header", "value", "methods", "paths"),
    )
)


def effective_credentials(person: ConfigLayer) -> tuple[HostCredential, ...]:
    return tuple(
        HostCredential(
            host=each["host"],
            header=each["header"],
            variable=each["value"].partition(":")[2],
            of_project=each["value"].startswith("project:"),
            methods=tuple(each["methods"]),
            paths=tuple(each["paths"]),
        )
        for each in person.block("sandbox").get("credentials", ())
    )


def credentials_notice(project: ConfigLayer) -> str:
    """Returns a notice about a program that names credentials, trusted or not."""
    if not project.block("sandbox").get("credentials"):
        return ""
    where = project.at("sandbox", "credentials")
    return f"{where}: sandbox.credentials is ignored: only your own config.yaml can hand out credentials."


def credential_parts(value: str) -> tuple[str, ...]:
    """Returns the texts to redact: the whole value, and parts that a server may repeat alone: the token after `Bearer
    `, name and password inside `Basic …`.
    """
    decoded = decoded_basic(value)
    parts = (value, *value.split(" ")[1:], decoded, decoded.partition(":")[2])
    return tuple(dict.fromkeys(part for part in parts if part == value or len(part) >= 8))


def decoded_basic(value: str) -> str:
    """Returns the decoded text of `Basic …`; empty for anything else."""
    basic = _BASIC.fullmatch(value.strip())
    try:
        return base64.b64decode(basic[1], validate=True).decode("utf-8") if basic else ""
    except (binascii.Error, ValueError):
        return ""


ZONE_APPROVAL: Final = MappingSchema({"write": VERDICT_CHECK, "delete": VERDICT_CHECK})
ZONES_CHECK: Final = map_of(
    MappingSchema(
        {
            "path": text,
            "mode": one_of("ro", "rw"),
            "approval": ZONE_APPROVAL,
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
    """None if it is not set, which means `ask`."""
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
            write=zone_verdict(block, "write"),
            delete=zone_verdict(block, "delete"),
            at_host_path=block.get("at_host_path", True),
            origin=file.at(("sandbox", "zones", name)),
        )
        for name, block in zones.items()
        if "path" in block
    )


def zone_verdict(block: Mapping[str, Any], verb: str) -> Verdict | None:
    """Returns the verdict of a checked zone for `write` or `delete`."""
    word = block.get("approval", {}).get(verb)
    return None if word is None else Verdict(word)


GIB = 1 << 30
MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimits:
    """Limits of one child process tree, whatever level of walls stands around it."""

    timeout_s: float | None = None
    """None if the caller watches the time itself."""
    memory: int = 2 * GIB
    """Private memory of the whole tree, in bytes."""
    processes: int = 256
    """Maximum processes of the whole tree."""
    cpu_s: int = 600
    """CPU seconds of each process."""
    file_size: int = GIB
    """Maximum bytes of each file."""
    open_files: int = 1024
    output: int = 64 * MIB
    """Standard output and standard error together, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WallSettings:
    read: tuple[str, ...] = ()
    """Further host directories that children may read (`sandbox.read`)."""
    toolchains: bool = True
    """False for `sandbox.toolchains: off`."""
    off: bool = False
    """True for `sandbox.walls: off` in the person's own config or command line."""
    devices: tuple[str, ...] = ()
    """Devices that commands may use: a group (`nvidia`, `dri`, `kvm`) or a node below /dev. The person's own word."""
    sockets: tuple[str, ...] = ()
    """Unix sockets of the host that commands may reach, absolute. The person's own word."""
    outside: bool = False
    """True for `sandbox.outside: ask`: a command may ask to run outside the walls once. Only the person can set it."""
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    credentials: tuple[HostCredential, ...] = ()
    """Credentials of the person's own config only."""


_SIZE_UNITS: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE: Final = regex(r"([0-9]{1,12}(?:\.[0-9]{1,3})?) ?(KiB|MiB|GiB|TiB)")
_MAX_LIMIT: Final = 1 << 62
"""A limit that the kernel accepts, with a margin."""


def size(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    """Checks a size in bytes: a number, or a text like `512MiB`."""
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    amount = int(float(match[1]) * _SIZE_UNITS[match[2]]) if match else value
    if is_whole(amount) and 0 < amount <= _MAX_LIMIT:
        return amount
    return refuse(problems, path, value, "a number of bytes above 0, or a size like 512MiB or 2GiB")


whole_number: Final = whole_between(1, _MAX_LIMIT, "a whole number above 0")
_LIMIT_CHECKS: Final[dict[str, Check]] = {
    "timeout_s": positive,
    "memory": size,
    "processes": whole_number,
    "cpu_s": whole_number,
    "file_size": size,
    "open_files": whole_number,
    "output": size,
}
DEVICE_GROUPS: Final = ("nvidia", "dri", "kvm")
_device: Final = value_that(
    lambda value: value in DEVICE_GROUPS or (_is_plain_path(value) and value.startswith("/dev/")),
    f"one of {', '.join(DEVICE_GROUPS)}, or the path of a device below /dev",
)
_socket: Final = value_that(
    lambda value: _is_plain_path(value) and value.startswith(("/", "~/")),
    "the path of a Unix socket, from / or from ~/",
)


def _is_plain_path(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable() and ".." not in value.split("/") and not value.endswith("/")


WALL_KEYS: Final[dict[str, Check]] = {
    "read": list_of(text),
    "toolchains": one_of("on", "off"),
    "walls": one_of("on", "off"),
    "devices": list_of(_device),
    "sockets": list_of(_socket),
    "outside": one_of("ask", "off"),
    "limits": MappingSchema(_LIMIT_CHECKS),
    "credentials": CREDENTIALS_CHECK,
}


def restrict_untrusted_walls(project: ConfigLayer, person: ConfigLayer, unused: list[str]) -> dict[str, Any]:
    """The `sandbox` block of a stranger as far as it counts: what is stricter than the person's own; the rest goes to
    `unused`."""
    block, own = project.block("sandbox"), person.block("sandbox")
    if block.pop("read", ()):
        unused.append(f"{project.at('sandbox', 'read', 0)}: sandbox.read")
    if block.get("toolchains") == "on" and own.get("toolchains") == "off":
        unused.append(f"{project.at('sandbox', 'toolchains')}: sandbox.toolchains: on")
        del block["toolchains"]
    limits = ResourceLimits(**own.get("limits", {}))
    kept: dict[str, float] = {}
    for name, value in block.get("limits", {}).items():
        most = getattr(limits, name)
        if most is not None and value > most:
            unused.append(f"{project.at('sandbox', 'limits', name)}: sandbox.limits.{name}")
        else:
            kept[name] = value
    return {**block, "limits": kept}


def effective_walls(project: ConfigLayer, person: ConfigLayer) -> WallSettings:
    """The program over the person's defaults, key by key; what may be read adds up; `walls` is the person's alone."""
    read = (
        os.path.abspath(layer.folder / os.path.expanduser(directory))
        for layer in (person, project)
        for directory in layer.block("sandbox").get("read", ())
    )
    toolchains = {**person.block("sandbox"), **project.block("sandbox")}.get("toolchains")
    outside = {**person.block("sandbox"), **project.block("sandbox")}.get("outside")
    return WallSettings(
        read=tuple(dict.fromkeys(read)),
        toolchains=toolchains != "off",
        off=person.block("sandbox").get("walls") == "off",
        devices=_from_both("devices", project, person),
        sockets=tuple(os.path.expanduser(path) for path in _from_both("sockets", project, person)),
        outside=outside == "ask",
        limits=ResourceLimits(**{**person.block("sandbox", "limits"), **project.block("sandbox", "limits")}),
        credentials=effective_credentials(person),
    )


def _from_both(key: str, project: ConfigLayer, person: ConfigLayer) -> tuple[str, ...]:
    """Returns the values of the person's layer and of the command line, which are stored in the program's layer."""
    said = (item for layer in (person, project) for item in layer.block("sandbox").get(key, ()))
    return tuple(dict.fromkeys(said))


EXIT_FLAGS: Final = {
    "devices": "start Forge with --device",
    "sockets": "start Forge with --socket",
    "outside": "start Forge with --set sandbox.outside=ask",
}
"""Key → how the person says it on the command line."""


def refuse_exits(block: Any, problems: ConfigProblems) -> None:
    """Adds a problem for each key of a program's or a worker's `sandbox` block that opens the walls."""
    for key, flag_ in EXIT_FLAGS.items() if isinstance(block, Mapping) else ():
        path: YamlPath = ("sandbox", key)
        if key in block and not is_override(problems.file.at(path)):
            problems.add(
                path,
                "opens the walls, so only you can say it, for every program: write it into config.yaml in FORGE_HOME "
                f"(~/.forge), or {flag_}",
            )


def walls_notice(project: ConfigLayer) -> str:
    """Returns a notice about a program that sets `sandbox.walls`, trusted or not."""
    if "walls" not in project.block("sandbox"):
        return ""
    where = project.at("sandbox", "walls")
    return f"{where}: sandbox.walls is ignored: only your own config.yaml or the command line can switch walls off."


VARIABLE_NAME: Final = regex(r"[A-Za-z_][A-Za-z0-9_]{0,255}")


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
    """Why a variable of this name is not handed to a child; empty if it is. Threat: a variable that decides which code
    runs there (`LD_PRELOAD`, `BASH_ENV`) is a command in disguise, and one that Forge sets itself (`PATH`, `HOME`,
    `FORGE_*`) must hold Forge's value."""
    if not VARIABLE_NAME.fullmatch(name):
        return "is not the name of a variable (letters, digits and _)"
    if name in _REFUSED_NAMES or name.startswith(_REFUSED_PREFIXES):
        return "cannot be given to a child: Forge sets it, or it decides what code runs there"
    return ""


UNDO_KEYS: Final[dict[str, Check]] = {"keep": duration, "max_disk": size, "max_file": size, "max_total": size}
