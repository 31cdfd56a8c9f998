"""ServerSpec: one configured MCP server as plain data, with the rules for its name, its address and its variables.

`mcp_blocks` reads it, `mcp/client` starts what it names. `${NAME}` stays as written until `expand_spec` puts the values
in, at spawn or connect and never before; they appear in no copy of a spec.

A server name that is valid stays as it is. Another one (`.mcp.json` belongs to programs with other rules) becomes its
usable characters and the hash of the original, so that two foreign names stay two, in every order and after every
restart.

A server's address is https, or http to this machine. It is checked twice: when it is read, and when `${NAME}` has been
expanded; each check gives the reason against it, or nothing. Threats: a value that moves the host (`${X}` =
`a@evil.test/`), a spelling that two readers take for two hosts, a password written into the address.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit

from golem_forge.config.validation import Setting
from golem_forge.core.decisions import Verdict
from golem_forge.core.errors import ForgeError
from golem_forge.core.json import digest
from golem_forge.core.lazy_dataclass import WithCache, dataclass, field
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars
from golem_forge.events.redaction import IS_CREDENTIAL, NO_CREDENTIAL, classify_name

CONNECT_TIMEOUT_S: Final = 30
EMPTY_MAPPING: Final[Mapping[str, Any]] = MappingProxyType({})


class ServerTrust(StrEnum):
    """Whether a server's annotations and instructions count."""

    UNTRUSTED = "untrusted"
    TRUSTED = "trusted"


class AuthKind(StrEnum):
    NONE = "none"
    OAUTH = "oauth"
    BEARER = "bearer"


@dataclass(frozen=True, slots=True)
class ServerAuth:
    kind: AuthKind = AuthKind.NONE
    variable: str = ""
    """`bearer_env`: the name of the variable that holds the token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec(WithCache):
    name: str
    """Valid: `^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$`, no `__`."""
    scope: str
    """The owner of the name: the program's root, or empty for the person's own config. Two programs may both have a
    `docs`; an approval of one does not hold for the other.
    """
    origin: str
    """Where it is written: `forge.yaml:7` or `.mcp.json`."""
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    pass_env: tuple[str, ...] = ()
    cwd: str = ""
    """A zone address, `/workspace/sub`; empty: the first zone, else its own home."""
    zones: Mapping[str, Literal["ro", "rw"]] = field(default_factory=lambda: EMPTY_MAPPING)
    network: bool | tuple[str, ...] = True
    """The host's network, none, or these `host[:port]`."""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    auth: ServerAuth = ServerAuth()
    enabled: bool = True
    required: bool = False
    trust: ServerTrust = ServerTrust.UNTRUSTED
    """The trust in force; an untrusted program cannot give it."""
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    always_load: tuple[str, ...] = ()
    approval_default: Setting[Verdict] | None = None
    approval_tools: Mapping[str, Setting[Verdict]] = field(default_factory=dict)
    """Verdicts by raw tool name."""
    sampling: Verdict = Verdict.ASK
    connect_timeout: float = CONNECT_TIMEOUT_S
    idle_timeout: float = 120
    total_timeout: float = 600
    close_after: float = 300
    protocol: Literal["auto", "legacy"] = "auto"
    problem: str = ""
    """Why it cannot be used as it is written (`SSE is not supported; use streamable HTTP`): it is shown as failed."""

    @property
    def is_http(self) -> bool:
        return bool(self.url)

    @cached_property
    def described(self) -> dict[str, Any]:
        """Returns what a person approves, with the keys of the file; the digest is over this."""
        if self.is_http:
            auth = {"bearer_env": self.auth.variable} if self.auth.kind is AuthKind.BEARER else self.auth.kind.value
            return {"url": self.url, "headers": dict(self.headers), "auth": auth}
        return {
            "command": self.command,
            "args": list(self.args),
            "env": dict(self.env),
            "pass_env": list(self.pass_env),
            "cwd": self.cwd,
            "zones": dict(self.zones),
            "network": self.network if isinstance(self.network, bool) else list(self.network),
        }

    @cached_property
    def digest(self) -> str:
        return digest(self.described)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferralSettings:
    """forge.yaml's `tools`: when definitions are too many to be sent with every request."""

    above: int = 40
    """Tools are deferred if there are more than this many."""
    tokens: int = 8000
    """Tools are also deferred if their definitions have more tokens than this (bytes ÷ 4)."""
    always_load: tuple[str, ...] = ()
    """Globs of names that are never deferred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpSettings:
    servers: Mapping[str, ServerSpec] = field(default_factory=dict)
    """Servers by name, in name order."""
    deferral: DeferralSettings = DeferralSettings()
    warnings: tuple[str, ...] = ()
    """Keys of `.mcp.json` that Forge does not know, with the file."""


_NAME: Final = regex(r"(?!.*__)[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_INVALID_CHAR: Final = regex(r"[^A-Za-z0-9_-]|_(?=_)")
_MAX_HEAD_CHARS: Final = 23  # with `_` and 8 hex digits: 32
NAME_RULE: Final = "a letter or digit, then letters, digits, - and _, at most 32, no `__`"


def is_server_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def server_name(raw: str) -> str:
    if is_server_name(raw):
        return raw
    words = re.sub(r"_{2,}", "_", _INVALID_CHAR.sub("_", raw)).lstrip("_-")[:_MAX_HEAD_CHARS].rstrip("_")
    suffix = hashlib.sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{words or 'server'}_{suffix}"


MAX_URL_CHARS: Final = 8192
_UNUSUAL_CHAR: Final = regex(r"[^\x21-\x7e]|[\\<>\"^`{|}]")
_FIXED_HOST: Final = regex(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#$]+[/?#]")
"""The part of an address that determines the host."""
_LABEL: Final = regex(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMERIC_LABEL: Final = regex(r"0x[0-9a-f]*|[0-9]+")
_PORT: Final = regex(r"[1-9][0-9]{0,4}")
_MAX_PORT: Final = 65535
_NO_IPV6: Final = "is not a usable address; write IPv6 as [2001:db8::1]:443"


def url_problem(url: str) -> str:
    """Why this address, as it will be used, is none; the text does not repeat it, for it may hold credentials."""
    if len(url) > MAX_URL_CHARS or _UNUSUAL_CHAR.search(url):
        return "expected an address like https://host/mcp, in plain characters"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "expected an address like https://host/mcp"
    if parts.username is not None or parts.password is not None:
        return "an address must not contain credentials: use `headers` or `auth`"
    if parts.scheme not in ("https", "http") or not host or port == 0:
        return "expected an address like https://host/mcp"
    if _host_problem(host):
        return "expected an address like https://host/mcp: its host is not a usable one"
    if parts.scheme == "http" and not is_loopback(host):
        return "http is only for this machine (localhost, 127.0.0.1, [::1]); use https"
    return ""


def unexpanded_url_problem(url: str) -> str:
    """Checks an address that still contains `${NAME}`, as far as the text alone decides."""
    if "${" not in url:
        return url_problem(url)
    literal = url[: url.index("${")]
    if decided := _FIXED_HOST.match(literal):
        return url_problem(decided[0])
    fits = any(f"{scheme}://".startswith(literal) or literal.startswith(f"{scheme}://") for scheme in ("http", "https"))
    return "" if fits else "expected an address like https://host/mcp"


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def normalise_target(written: str) -> str:
    """A `host` or `host:port` in one spelling: lower case, IPv6 in brackets. Raises ValueError with the reason."""
    if "*" in written:
        raise ValueError("name one host; patterns belong in rules")
    if "://" in written or "/" in written:
        raise ValueError("write the host alone, without scheme and path")
    host, port = split_port(written)
    bare = host[1:-1] if host.startswith("[") else host
    if (":" in bare) is not host.startswith("["):
        raise ValueError(_NO_IPV6)
    bare = bare.lower().removesuffix(".")
    if why := _host_problem(bare):
        raise ValueError(why)
    return (f"[{bare}]" if ":" in bare else bare) + port


def split_port(written: str) -> tuple[str, str]:
    """The host, in brackets if it is written so, and `:port` or nothing. Raises ValueError with the reason."""
    host, colon, port = written, "", ""
    if written.startswith("["):
        host, bracket, rest = written.partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(_NO_IPV6)
        host, colon, port = host + bracket, rest[:1], rest[1:]
    elif written.count(":") == 1:
        host, colon, port = written.partition(":")
    if colon and not port:
        raise ValueError("has no port after its `:`")
    if port and not (_PORT.fullmatch(port) and int(port) <= _MAX_PORT):
        raise ValueError(f"a port is a number from 1 to {_MAX_PORT}")
    return host, colon + port


def _host_problem(host: str) -> str:
    name = host.lower().removesuffix(".")
    if ":" in name or _NUMERIC_LABEL.fullmatch(name.rpartition(".")[2]):  # an address, or a trick like `0x7f.1`
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return "is not a usable address; write an IPv4 or IPv6 address in its usual form"
        return ""
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        return "is not a host name (write other scripts as xn--…)"
    return ""


_REFERENCE: Final = regex(r"\$\{(?:zone:(?P<zone>[^}]*)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?)\}")
_MAX_CHARS: Final = 1 << 20
"""Characters that one text may become: a short one can name a long variable many times."""
_MIN_SECRET_CHARS: Final = 4
"""Below this many characters a value is found in ordinary words."""
_MIN_COPIED_SECRET_CHARS: Final = 8
"""The same for `pass_env`, which also copies `USER` and `TERM`."""
_OPTION: Final = regex(r"-*(?P<name>[\w.-]+)\s*[=:]\s*(?P<value>.+)", re.DOTALL)
"""`--api-key=…`, `TOKEN=…`, `Authorization: …`"""
_IN_QUERY: Final = regex(r"[?&](?P<name>[^=&#]+)=(?P<value>(?:\$\{[^}]*\}|[^&#])*)")
_SHORT_NAMES: Final = frozenset({"tok", "pass"})
"""Short option names for secrets."""
_NAMES_IN_QUERY: Final = frozenset({"key", "auth", *_SHORT_NAMES})
_LINE_ENDS: Final = regex(r"[\r\n\0]")


class UnsetVariable(ForgeError):
    def __init__(self, name: str) -> None:
        super().__init__(f"environment variable {name} is not set", code="VARIABLE_UNSET")
        self.name = name


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandedServer:
    """A server's config with every value in it; it is kept nowhere."""

    args: tuple[str, ...] = ()
    env: Mapping[str, str]
    """`pass_env` (the names that are set) and `env` over it."""
    url: str = ""
    headers: Mapping[str, str]
    """Headers, with `Authorization` if the config has `bearer_env`."""
    secrets: tuple[str, ...] = ()
    """Values of the environment, for the Redactor."""

    def __repr__(self) -> str:
        return f"Expanded({len(self.args)} args, env {sorted(self.env)}, headers {sorted(self.headers)})"


def expand_text(text: str, environ: Mapping[str, str], *, zone: Callable[[str], str]) -> str:
    """The text with `${NAME}`, `${NAME:-default}` and `${zone:x}` replaced. `$` without `{` is a plain character; a
    value is put in as it is and never read for further references. Raises UnsetVariable, or ForgeError for anything
    else after `${`; `zone` raises for one the server lacks. Threat: errors end in a status that everybody sees, so they
    name variables and never hold a value."""
    made: list[str] = []
    length = place = 0
    while (start := text.find("${", place)) >= 0:
        match = _REFERENCE.match(text, start)
        if match is None:
            raise _unknown_reference(text[start:])
        made += (text[place:start], _referenced_value(match, environ, zone))
        length += len(made[-1]) + start - place
        if length > _MAX_CHARS:
            raise ForgeError(f"a value with `${{…}}` in it becomes longer than {_MAX_CHARS} characters", code="VALUE")
        place = match.end()
    made.append(text[place:])
    return "".join(made)


def _referenced_value(match: re.Match[str], environ: Mapping[str, str], zone: Callable[[str], str]) -> str:
    if match["zone"] is not None:
        return zone(match["zone"])
    if match["default"] is not None and not environ.get(match["name"]):
        return match["default"]
    return _variable(match["name"], environ)


def _variable(name: str, environ: Mapping[str, str]) -> str:
    if name not in environ:
        raise UnsetVariable(name)
    return environ[name]


def expand_spec(spec: ServerSpec, environ: Mapping[str, str], zone: Callable[[str], str]) -> ExpandedServer:
    """Returns what is started or sent, with variables replaced, and the values to redact. `zone`: returns the path of a
    zone inside the server's walls; called only for its zones. Raises UnsetVariable, or ForgeError if a value makes an
    address or header invalid.
    """

    def given(name: str) -> str:
        if name not in spec.zones:
            there = ", ".join(sorted(spec.zones)) or "none"
            raise ForgeError(
                f"${{zone:{escape_control_chars(name[:80])}}}: this server was not given that zone (its zones: "
                f"{there}); "
                f"add it to `zones` of mcp.servers.{spec.name}",
                code="ZONE_NOT_GIVEN",
            )
        return zone(name)

    def expanded(text: str) -> str:
        return expand_text(text, environ, zone=given)

    args = tuple(expanded(word) for word in spec.args)
    copied = {name: environ[name] for name in spec.pass_env if name in environ}
    env = copied | {name: expanded(value) for name, value in spec.env.items()}
    url = expanded(spec.url)
    headers = {name: expanded(value) for name, value in spec.headers.items()}
    if spec.auth.kind is AuthKind.BEARER:
        headers["Authorization"] = f"Bearer {_variable(spec.auth.variable, environ)}"
    if url and (why := url_problem(url)):
        raise ForgeError(f"url: {why}", code="URL")
    for name, value in headers.items():
        if _LINE_ENDS.search(value) or not value.isascii():
            raise ForgeError(f"headers.{name}: its value is not one line of plain characters", code="HEADER")
    return ExpandedServer(args=args, env=env, url=url, headers=headers, secrets=declared_secrets(spec, environ))


def declared_secrets(spec: ServerSpec, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values of the environment in it as far as they are set, and credentials that are written out."""
    texts = (*spec.args, *spec.env.values(), spec.url, *spec.headers.values())
    named = [match["name"] for text in texts for match in _REFERENCE.finditer(text) if match["name"]]
    if spec.auth.kind is AuthKind.BEARER:
        named.append(spec.auth.variable)
    found = [environ[name] for name in named if len(environ.get(name, "").strip()) >= _MIN_SECRET_CHARS]
    found += [environ[name] for name in spec.pass_env if _is_copied_secret(name, environ.get(name, ""))]
    return tuple(dict.fromkeys((*found, *_written_credentials(spec, environ))))


def _is_copied_secret(name: str, value: str) -> bool:
    enough = _MIN_COPIED_SECRET_CHARS if classify_name(name) == NO_CREDENTIAL else _MIN_SECRET_CHARS
    return len(value.strip()) >= enough


def _written_credentials(spec: ServerSpec, environ: Mapping[str, str]) -> list[str]:
    """Credentials that stand in the file, as they are sent: also the default of a variable that is not set."""
    found: list[str] = []
    for text in _credential_values(spec):
        references = list(_REFERENCE.finditer(text))
        found += [match["default"] for match in references if match["default"] and not environ.get(match["name"])]
        if any(match["zone"] is not None for match in references):
            continue  # a path
        try:
            sent = expand_text(text, environ, zone=str).strip()
        except ForgeError:
            continue
        found += (sent, sent.rpartition(" ")[2])  # `Bearer …`
    return [value for value in dict.fromkeys(found) if len(value.strip()) >= _MIN_COPIED_SECRET_CHARS]


def _credential_values(spec: ServerSpec) -> Iterator[str]:
    """The values that are named like a credential: variables, headers, options and parts of the address."""
    for name, value in (*spec.env.items(), *spec.headers.items()):
        if classify_name(name) != NO_CREDENTIAL:
            yield value
    for word, following in pairwise((*spec.args, "")):
        if (match := _OPTION.fullmatch(word)) is not None:
            if _is_option(match["name"]):
                yield match["value"]
        elif word.startswith("-") and not following.startswith("-") and _is_option(word.lstrip("-")):
            yield following
    for match in _IN_QUERY.finditer(spec.url):
        if classify_name(match["name"]) != NO_CREDENTIAL or match["name"].lower() in _NAMES_IN_QUERY:
            yield match["value"]
            yield unquote(match["value"])


def _is_option(name: str) -> bool:
    return classify_name(name) == IS_CREDENTIAL or name.lower() in _SHORT_NAMES


def _unknown_reference(rest: str) -> ForgeError:
    end = rest.find("}")
    if end < 0:
        return ForgeError("a `${` has no closing `}`", code="REFERENCE")
    shown = escape_control_chars(rest[: min(end + 1, 60)])
    return ForgeError(
        f"`{shown}` is not understood; there are ${{NAME}}, ${{NAME:-default}} and ${{zone:name}}", code="REFERENCE"
    )
