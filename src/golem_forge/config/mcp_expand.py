"""`${NAME}`, `${NAME:-default}` and `${zone:x}` in a server's config, put in at spawn or connect and never before.

Takes a spec, the environment and where zones stand inside the walls; gives what is started or sent, and the values that
must not be seen again. Refuses an unset variable (`UnsetVariable`), anything else after `${` that is none of the three,
and what no longer is an address or a header with the values in it. `$` without `{` is a plain character; a value is put
in as it is and never read for further references. Threat: errors end in a status that everybody sees, so they name
variables and never hold a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Final
from urllib.parse import unquote

from golem_forge.config.mcp_spec import AuthKind, ServerSpec, url_problem
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars
from golem_forge.events.redaction import IS_CREDENTIAL, NO_CREDENTIAL, classify_name

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
"""Of options."""
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
    """With `Authorization` where the config says `bearer_env`."""
    secrets: tuple[str, ...] = ()
    """For the Redactor: the values of the environment in it."""

    def __repr__(self) -> str:
        return f"Expanded({len(self.args)} args, env {sorted(self.env)}, headers {sorted(self.headers)})"


def expand_text(text: str, environ: Mapping[str, str], *, zone: Callable[[str], str]) -> str:
    """Raises UnsetVariable, or ForgeError for what cannot be understood; `zone` raises for one the server lacks."""
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
    """`zone`: where a zone of the server stands inside its walls; asked only for zones that the spec gives it."""

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
