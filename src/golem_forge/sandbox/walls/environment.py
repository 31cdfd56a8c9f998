"""The environment of a child (empty, plus what every child needs, plus what its kind declares) and what its output may
say.

`job_environment` assembles it; `exec_environment` is what commands declare; an EnvBlock is what a toolset's `env`
block adds. Refused at load: names that decide what code runs or where a child looks for things. Threat: a secret in
an argument or a log is a secret lost, so its value is given to the Redactor at the start of the session and again
at spawn, and no error text ever contains it.

`show_certificates` copies the certificates that `SSL_CERT_FILE` and the like name into FORGE_HOME for children in
full walls. Threat: such a file often holds a private key too, so only certificates are copied. `output_redactor`
returns a Redactor that also replaces zones' host directories by their addresses, as spelled by users and as in the
mount table.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from golem_forge.config.sandbox_block import PROJECT_SECRETS, VARIABLE_NAME
from golem_forge.config.sandbox_block import variable_problem as variable_problem
from golem_forge.config.validation import ConfigProblems, MappingSchema, list_of, map_of, refuse
from golem_forge.config.yaml_file import YamlFile, YamlPath
from golem_forge.core.errors import ForgeError, ToolFailed
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.events.redaction import IS_CREDENTIAL, Redactor, classify_name
from golem_forge.sandbox.network.loopback import bypassing
from golem_forge.sandbox.network.proxy import proxy_environment
from golem_forge.sandbox.walls.bubblewrap import ripgrep_path
from golem_forge.sandbox.walls.changes import mount_around
from golem_forge.sandbox.walls.layout import BYTECODE, SHIPPED
from golem_forge.sandbox.walls.model import HostDirectory, Level
from golem_forge.sandbox.zones import Zone
from golem_forge.storage.content_store import ContentStore
from golem_forge.storage.home import ForgeHome

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.model import Job
    from golem_forge.sandbox.walls.toolchains import VisibleToolchains

_LONGEST_LINE: Final = 64 * 1024
_WRITTEN_OUT: Final = 8
"""Below this many characters a value under `set` is found in ordinary words."""
_OTHERS_MODE: Final = stat.S_IRWXG | stat.S_IRWXO


def job_environment(job: Job, toolchains: VisibleToolchains, *, home: str, tmp: str, level: Level) -> dict[str, str]:
    """Exactly what the child of this job gets at this level."""
    path = toolchains.command_path if job.zone_programs else toolchains.path
    variables = toolchains.command_variables if job.zone_programs else toolchains.variables
    base, proxy = {"LANG": "C.UTF-8", "TMPDIR": tmp}, {}
    if level is not Level.FULL:
        own = os.path.dirname(ripgrep_path())
        path = tuple(own if entry == SHIPPED else entry for entry in path)
    elif job.hosts:  # without namespaces no proxy stands there
        direct = bypassing([grant for grant in job.hosts if grant.service])
        proxy = proxy_environment() | {"NO_PROXY": direct, "no_proxy": direct}
    fixed = {"PATH": ":".join((*job.path_first, *path)), "HOME": home}
    return {**variables, **base, **job.env, **proxy, **fixed}


def exec_environment(*, tty: bool, level: Level, hosts: bool, workspace: str) -> dict[str, str]:
    """Returns the variables of `exec_command` and `shell`. `hosts`: the call may reach some; `workspace`: the default
    zone's path inside the walls, empty without one.
    """
    return {
        "USER": "forge",
        "LC_ALL": "C.UTF-8",
        "TERM": "xterm-256color" if tty else "dumb",
        **({} if tty else {"NO_COLOR": "1"}),
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GH_PAGER": "cat",
        **({"FORGE_WORKSPACE": workspace} if workspace else {}),
        "FORGE_WALLS": level.value,
        "FORGE_NETWORK": "proxy" if hosts and level is Level.FULL else "off",  # no proxy stands at other levels
        **({} if hosts or level is Level.OFF else _NO_RETRIES),
    }


_NO_RETRIES: Final = {
    "npm_config_fetch_retries": "0",
    "pnpm_config_fetch_retries": "0",
    "PIP_RETRIES": "0",
    "UV_HTTP_RETRIES": "0",
    "CARGO_NET_RETRY": "0",
}
"""Settings against retries without a network: npm and pnpm would try for more than a minute."""


def person_identity(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of the person that a command outside the walls gets: who they are and where their sockets
    are. Others are left out, because a key among them would appear in its output.
    """
    return {name: environ[name] for name in ("USER", "LOGNAME", "XDG_RUNTIME_DIR") if environ.get(name)}


_HARMLESS: Final = regex(r"TZ|LANG|LANGUAGE|LC_[A-Z]+|COLUMNS|LINES")
_GIT_SETTINGS: Final = {
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "core.sshCommand": "false",
    "log.showSignature": "false",
    "gpg.program": "false",
    "gpg.openpgp.program": "false",
    "gpg.x509.program": "false",
    "gpg.ssh.program": "false",
    "status.submoduleSummary": "false",
    "submodule.recurse": "false",
    "diff.submodule": "short",
}
"""Settings by which a repository makes git start something. Diff drivers have no setting that turns them off: their
options are on the command line (`git_prover.started_git`)."""


def reading_environment(declared: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of a command that is proven to only read, and settings that keep git from more.

    Threat: the proof is about words. `RIPGREP_CONFIG_PATH`, `GREP_OPTIONS`, `POSIXLY_CORRECT`, `CDPATH`, `SHELLOPTS`,
    `GIT_EXTERNAL_DIFF` and more change what the same words do, so only variables of place and language are handed on.
    """
    git = {
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_LAZY_FETCH": "1",
    }
    harmless = {name: value for name, value in declared.items() if _HARMLESS.fullmatch(name)}
    return with_git_settings(harmless | git, _GIT_SETTINGS)


_PART_OF_A_WORK_TREE: Final = {"core.sparseCheckout": "true", "core.sparseCheckoutCone": "false"}


def with_part_of_a_work_tree(environ: dict[str, str]) -> dict[str, str]:
    """Adds the settings that git needs if the root of the work tree lies above the zone."""
    return with_git_settings({**environ, "GIT_DISCOVERY_ACROSS_FILESYSTEM": "1"}, _PART_OF_A_WORK_TREE)


def with_git_settings(environ: dict[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """An environment in which git has these settings, whatever a repository says; those it had already stay."""
    count = int(environ.get("GIT_CONFIG_COUNT", "0"))
    said = {"GIT_CONFIG_COUNT": str(count + len(settings))}
    for index, (key, value) in enumerate(settings.items(), count):
        said |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}
    return environ | said


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvBlock:
    """A checked `env` block."""

    passed: tuple[str, ...] = ()
    """Copied from Forge's own environment, where they are set."""
    fixed: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    """Name → reference to the secret, never its value."""


@dataclass(frozen=True, slots=True)
class ResolvedEnv:
    values: dict[str, str]
    warnings: tuple[str, ...] = ()


def env_block(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    """A check for a Shape (`{"env": env_block}`): gives an EnvBlock, or adds every problem with its line."""
    before = len(problems.found)
    checked = _SHAPE(value, path, problems)
    if not isinstance(checked, dict):
        return checked
    seen: dict[str, str] = {}
    for key in ("pass", "set", "secrets"):
        for index, name in enumerate(checked.get(key, ())):
            where: YamlPath = (*path, key, index if key == "pass" else name)
            if why := variable_problem(name):
                problems.add(where, f"{name!r} {why}")
            elif seen.setdefault(name, key) != key:
                problems.add(where, f"{name!r} is already under {seen[name]!r}; keep one of the two")
    if len(problems.found) > before:
        return EnvBlock()
    return EnvBlock(
        passed=tuple(checked.get("pass", ())), fixed=checked.get("set", {}), secrets=checked.get("secrets", {})
    )


def make_env_block(value: Any) -> EnvBlock:
    """Checks a plain mapping that came from no file. Raises ConfigError."""
    problems = ConfigProblems(YamlFile("toolset", {}, {}))
    block: EnvBlock = env_block(value, ("env",), problems)
    problems.raise_if_any()
    return block


def resolve_env(block: EnvBlock, environ: Mapping[str, str], redactor: Redactor | None) -> ResolvedEnv:
    """Returns the present values of the block. Raises ToolFailed, which names the reference, if a secret cannot be read
    or redacted.
    """
    values = {name: environ[name] for name in block.passed if name in environ}
    for name, value in values.items():
        if classify_name(name) == IS_CREDENTIAL and redactor is not None and value not in redactor.secrets:
            redactor.add_secret(name, value)
    values |= block.fixed
    warnings: list[str] = []
    for name, reference in block.secrets.items():
        value = _value(name, reference, environ, warnings)
        # One that is known already is not added again: this runs at every spawn.
        if redactor is not None and value not in redactor.secrets and redactor.add_secret(name, value):
            raise _unresolved(name, reference, "its value is too short or too long to be kept out of output")
        values[name] = value
    return ResolvedEnv(values, tuple(warnings))


def redact_values(block: EnvBlock, environ: Mapping[str, str], redactor: Redactor) -> None:
    """Hides what the block declares before anything is started; what cannot be had now, `resolve_env` reports."""
    named = {name: environ[name] for name in block.passed if name in environ}
    named |= {name: value for name, value in block.fixed.items() if len(value) >= _WRITTEN_OUT}
    values = {name: value for name, value in named.items() if classify_name(name) == IS_CREDENTIAL}
    for name, reference in block.secrets.items():
        with suppress(ToolFailed):
            values[name] = _value(name, reference, environ, [])
    for name, value in values.items():
        if value not in redactor.secrets:
            redactor.add_secret(name, value)


def _value(name: str, reference: str, environ: Mapping[str, str], warnings: list[str]) -> str:
    kind, _, rest = reference.partition(":")
    if kind == "project":
        if rest not in (known := PROJECT_SECRETS.get()):
            why = "a background session of a team has it, where its project has this secret and its runner the key"
            raise _unresolved(name, reference, why)
        return known[rest]
    if kind == "env":
        value = environ.get(rest, "")
        if not value:
            raise _unresolved(name, reference, f"environment variable {rest} is not set")
        return value
    try:
        line, mode = _first_line(os.path.expanduser(rest))
    except OSError as error:
        raise _unresolved(name, reference, error.strerror or "cannot be read") from None
    except ValueError as error:
        raise _unresolved(name, reference, str(error)) from None
    if mode & _OTHERS_MODE:
        warnings.append(f"{reference}: others on this machine may read it; run `chmod 600` on it")
    return line


def _first_line(path: str) -> tuple[str, int]:
    """Returns the first line without its line end, and the file's mode. Raises OSError or ValueError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(handle, "rb") as file:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise ValueError("is not a regular file")
        line = file.readline(_LONGEST_LINE + 1).rstrip(b"\r\n")
    if not line.strip() or len(line) > _LONGEST_LINE or b"\0" in line:
        raise ValueError("has no usable first line")
    try:
        return line.decode(), mode
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None


def _unresolved(name: str, reference: str, why: str) -> ToolFailed:
    return ToolFailed(
        f"Secret {name} could not be resolved from {reference}: {why}. Nothing was run.", code="SECRET_UNRESOLVED"
    )


def _plain_text(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    usable = isinstance(value, str) and "\0" not in value
    return value if usable else refuse(problems, path, value, "a text (put numbers and true/false in quotes)")


def _reference(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    """Checks a reference to a secret. The error does not repeat the text, which may be a secret written
    out by mistake.
    """
    if isinstance(value, str):
        kind, _, rest = value.partition(":")
        named = kind in ("env", "project") and VARIABLE_NAME.fullmatch(rest)
        if named or (kind == "file" and rest.startswith(("/", "~/"))):
            return value
    problems.add(
        path, "expected a reference: env:NAME, file:/path, file:~/path or project:NAME (never the secret itself)"
    )
    return ""


_SHAPE: Final = MappingSchema({"pass": list_of(_plain_text), "set": map_of(_plain_text), "secrets": map_of(_reference)})


CERTIFICATE_FILES: Final = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PIP_CERT",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "npm_config_cafile",
    "NPM_CONFIG_CAFILE",
    "YARN_CA_FILE_PATH",
    "YARN_HTTPS_CA_FILE_PATH",
    "DENO_CERT",
)
CERTIFICATE_DIRECTORY: Final = "SSL_CERT_DIR"
CERTIFICATE_VARIABLES: Final = (*CERTIFICATE_FILES, CERTIFICATE_DIRECTORY)
_CERTIFICATES_PLACE: Final = "/forge/certificates"
_SHOWN_PLACES: Final = ("/etc/ssl/certs/", "/usr/share/", "/usr/lib/")
"""Directories of system certificates that are visible inside the walls."""
_CERTIFICATE: Final = regex(rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_MOST_BYTES: Final = 8 << 20
_MOST_FILES: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    env: dict[str, str] = field(default_factory=dict)
    shown: tuple[HostDirectory, ...] = ()


def show_certificates(variables: Mapping[str, str], home: ForgeHome, problems: list[str] | None = None) -> Certificates:
    """Variables of other names are left out. Raises ForgeError for one that names no certificate that can be read, or
    leaves it out and says so in `problems`."""
    env: dict[str, str] = {}
    bundles: dict[str, bytes] = {}
    read: dict[str, bytes] = {}
    """By value: most variables name the same file."""
    for name in CERTIFICATE_VARIABLES:
        value = variables.get(name, "")
        if not value:
            continue
        if _is_shown(value):
            env[name] = value
            continue
        try:
            if value not in read:
                read[value] = _read_certificates(name, value)
            bundles[name] = read[value]
        except ForgeError as error:
            if problems is None:
                raise
            problems.append(error.message)
    # One file serves every program; hashed names do not.
    if (more := bundles.pop(CERTIFICATE_DIRECTORY, None)) is not None and "SSL_CERT_FILE" not in env:
        bundles["SSL_CERT_FILE"] = bundles.get("SSL_CERT_FILE", b"") + more
    if not bundles:
        return Certificates(env=env)
    files = {name: f"{sha256(bundle).hexdigest()[:16]}.pem" for name, bundle in bundles.items()}
    kept = ContentStore(home).put({files[name]: bundle for name, bundle in bundles.items()})
    return Certificates(
        env=env | {name: f"{_CERTIFICATES_PLACE}/{file}" for name, file in files.items()},
        shown=(HostDirectory(os.path.realpath(kept.path), _CERTIFICATES_PLACE),),
    )


def _is_shown(value: str) -> bool:
    """Whether every child finds the file there, by the same name."""
    spellings = (f"{value}/", f"{os.path.realpath(value)}/")
    return all(path.startswith(_SHOWN_PLACES) for path in spellings) and os.access(value, os.R_OK)


def _read_certificates(name: str, value: str) -> bytes:
    """Returns every certificate once, in order. Raises ForgeError if there is none."""
    found: dict[bytes, None] = {}
    try:
        for file in _certificate_files(name, os.path.expanduser(value)):
            with open(file, "rb") as opened:
                found.update(dict.fromkeys(_CERTIFICATE.findall(opened.read(_MOST_BYTES))))
    except OSError:
        found.clear()
    if not found:
        raise ForgeError(f"{name} names no certificate that can be read. Set it to a PEM file, or unset it.")
    return b"\n".join(found) + b"\n"


def _certificate_files(name: str, value: str) -> Iterator[str]:
    if name != CERTIFICATE_DIRECTORY:
        yield value
        return
    for directory in filter(None, value.split(":")):
        for entry in sorted(os.listdir(directory))[:_MOST_FILES]:
            path = os.path.join(directory, entry)
            if os.path.isfile(path) and os.access(path, os.R_OK):
                yield path


_FEWEST_COMPONENTS: Final = 2
"""Minimum components of a path to redact; shorter ones would match unrelated text."""


def output_redactor(zones: Iterable[Zone], session: Redactor | None) -> Redactor:
    made = session.copy() if session is not None else Redactor()
    for zone in zones:
        for host in dict.fromkeys((zone.host, *zone.aliases, *_other_spellings(zone.host))):
            made.add_path(host, zone.virtual(()))
        # Python names bytecode by the whole path of its source.
        made.add_path(BYTECODE + zone.host, BYTECODE + zone.virtual(()))
    return made


def _other_spellings(host: str) -> Iterator[str]:
    """Other spellings of a host directory that a child can come across."""
    if mount_table_escape(host) != host:
        yield mount_table_escape(host)
    mount = mount_around(host)
    if mount is None:
        return
    relative = f"{mount.root.rstrip('/')}/{host.removeprefix(mount.place).lstrip('/')}".rstrip("/")
    if len([part for part in relative.split("/") if part]) >= _FEWEST_COMPONENTS:
        yield relative
        if mount_table_escape(relative) != relative:
            yield mount_table_escape(relative)


def mount_table_escape(path: str) -> str:
    """Escapes a path as the mount table does."""
    return "".join(f"\\{ord(char):03o}" if char in " \t\n\\" else char for char in path)
