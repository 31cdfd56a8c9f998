"""`sandbox.credentials`: secrets for HTTP APIs that commands use and never see. Only the text is checked here.

Each entry names a host, a header, the variable of Forge's own environment or the secret of the session's project that
holds the value, and the methods and paths it may be used for. Only the person's own config.yaml has any:
`credentials_notice` says so of a program's. Threat: what stands under `value` may be a secret that somebody wrote out
by mistake, so no problem repeats it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Final

from golem_forge.config.layer import ConfigLayer
from golem_forge.config.mcp_spec import normalise_target
from golem_forge.config.schema import INVALID, Check, ConfigProblems, MappingSchema, list_of, one_of, refuse
from golem_forge.config.yaml_file import YamlPath
from golem_forge.core.globs import path_matches_glob
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex

TLS_PORT: Final = 443
PLACEHOLDER: Final = "forge-credential-"
"""What children find in the variable, followed by its name, and write where the value is to stand."""
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""Not TRACE, which answers with the header itself, and not CONNECT."""
PROJECT_SECRETS: Final[ContextVar[Mapping[str, str]]] = ContextVar("PROJECT_SECRETS", default=MappingProxyType({}))
"""What references `project:NAME` mean in the session whose tasks these are. A runner has sessions of several projects
in one process: none sees another's."""
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
    """In its one spelling; port 443."""
    header: str
    variable: str
    methods: tuple[str, ...]
    paths: tuple[str, ...]
    """Globs over the decoded path."""
    of_project: bool = False
    """Whether `variable` is a secret of the session's project, not a variable of Forge's own environment."""

    def value(self, environ: Mapping[str, str]) -> str:
        """Empty: there is none."""
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
    """What a person must hear about a program that names credentials, trusted or not."""
    if not project.block("sandbox").get("credentials"):
        return ""
    where = project.at("sandbox", "credentials")
    return f"{where}: sandbox.credentials is ignored: only your own config.yaml can hand out credentials."


def credential_parts(value: str) -> tuple[str, ...]:
    """What must not be shown of a value: the whole, and the parts that a server may answer with alone: the token
    behind `Bearer `, name and password inside `Basic …`."""
    decoded = decoded_basic(value)
    parts = (value, *value.split(" ")[1:], decoded, decoded.partition(":")[2])
    return tuple(dict.fromkeys(part for part in parts if part == value or len(part) >= 8))


def decoded_basic(value: str) -> str:
    """What stands in `Basic …`; empty for anything else."""
    basic = _BASIC.fullmatch(value.strip())
    try:
        return base64.b64decode(basic[1], validate=True).decode("utf-8") if basic else ""
    except (binascii.Error, ValueError):
        return ""
