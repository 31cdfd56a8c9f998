"""The card a person reads before a server is started for the first time, and what changed since they last agreed.

`server_card` takes a spec, `server_diff` what was agreed to before and the spec as it is now; `agreed` gives what is
kept of an approval. Values of variables and headers are neither shown nor kept in clear, a secret may stand there: of
two it is only told that they differ, and which variables of the environment they are made with.
Threats: a stranger's config that steers the terminal, imitates the card's lines, takes a variable along in a value that
is not shown, or is so long that the lines about its reach are cut off.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from golem_forge.config.mcp.spec import ServerSpec
from golem_forge.core.canonical import digest
from golem_forge.core.visible import visible

MAX_CARD_BYTES: Final = 64 * 1024
_WITH_VALUES: Final = ("env", "headers")
_REFERENCE: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
"""A value that is nothing but the name of a variable gives nothing away."""
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-[^}]*)?\}")
_ZONE: Final = re.compile(r"\A\$\{zone:([^}/]+)\}/")
_PROGRAM: Final = re.compile(r"[^-\s].*\.(?:py|pyz|js|mjs|cjs|ts|mts|cts|sh|rb|pl|php|lua|jar)")
_LAST_CHARACTERS: Final = 16 * 1024
"""Of a card that is too long: there stands what it may reach."""
_MOST_COMPARISONS: Final = 250_000
_NONE: Final = "none"
_MADE_WITH: Final = "; made with these of the environment Forge was started in: "
_WHOLE_NETWORK: Final = (
    "the whole network of this machine; its services on loopback and its abstract sockets cannot be hidden from it"
)


class _Row(NamedTuple):
    label: str
    words: str
    mark: str = ""
    """Tells apart two values that are not shown."""

    @property
    def line(self) -> str:
        return _one_line(f"{self.label}: {self.words}")


def server_card(spec: ServerSpec) -> str:
    """One line for each thing it would get, also for what it would not."""
    described = agreed(spec.described)
    program = () if spec.is_http else (_Row("runs", shlex.join((spec.command, *spec.args))),)
    rows = (_Row("MCP server", spec.name), _Row("from", spec.origin), *program, *_reach(described))
    return _bounded(row.line for row in rows)


def server_diff(before: Mapping[str, Any] | None, spec: ServerSpec) -> str:
    """The lines of the card that went and came; empty if nothing was agreed to before, or nothing changed."""
    if before is None:
        return ""
    changes = list(_changes(_rows(agreed(before)), _rows(agreed(spec.described))))
    return _bounded(("--- approved", "+++ now", *changes)) if changes else ""


def agreed(described: Mapping[str, Any]) -> dict[str, Any]:
    """A description whose values of variables and headers are digests; one that was made so before stays as it is."""
    return {key: _hashed(value) if key in _WITH_VALUES else value for key, value in described.items()}


def _hashed(values: Any) -> dict[str, Any]:
    return {
        str(name): _unread(value) if isinstance(value, str) and not _REFERENCE.fullmatch(value) else value
        for name, value in _map(values).items()
    }


def _unread(value: str) -> dict[str, Any]:
    """What is kept of a value that nobody is shown: enough to know it again, and whose secrets go along in it."""
    variables = list(dict.fromkeys(_VARIABLE.findall(value)))
    return {"sha256": digest(value), **({"variables": variables} if variables else {})}


def _rows(described: Mapping[str, Any]) -> list[_Row]:
    """Every argument by itself: one more of them is one more line of a diff."""
    program = [_Row("command", str(described["command"]))] if "command" in described else []
    return [*program, *(_Row("argument", str(one)) for one in _list(described.get("args"))), *_reach(described)]


def _reach(described: Mapping[str, Any]) -> Iterator[_Row]:
    """Where it is or what it may touch. What was read back from a file may have any shape, and is shown as it is."""
    if "url" in described:
        yield _Row("url", str(described["url"]))
        yield from _values("header", described.get("headers"))
        auth = described.get("auth")
        variable = _map(auth).get("bearer_env")
        yield _Row("auth", str(auth) if variable is None else f"bearer token from ${variable}")
        return
    for place in _programs_in_zones(described):
        yield _Row("careful", f"it runs {place}: whoever may write there decides what runs with all of this")
    copied = _list(described.get("pass_env"))
    if _map(described.get("env")) or not copied:
        yield from _values("variable", described.get("env"))
    for name in copied:
        yield _Row("variable", f"{name}, copied from the environment Forge was started in")
    yield _Row("starts in", str(described.get("cwd") or "its first zone, or its own home"))
    zones = _map(described.get("zones"))
    for name, mode in sorted(zones.items()):
        yield _Row("zone", f"/{name} ({'rw: written' if mode == 'rw' else 'read-only'})")
    if not zones:
        yield _Row("zones", _NONE)
    yield from _network(described.get("network"))


def _programs_in_zones(described: Mapping[str, Any]) -> Iterator[str]:
    """Its words that name a program in a zone, by their addresses. Threat: workers write in zones, a server has other
    walls than they have, and nothing about it changes when they write another program there."""
    zones = _map(described.get("zones"))
    command = str(described.get("command") or "")
    if command.startswith((*(f"/{zone}/" for zone in zones), *(("./", "../") if zones else ()))):
        yield command
    for word in map(str, _list(described.get("args"))):
        place = _ZONE.sub(r"/\1/", word, count=1)
        if zones and _PROGRAM.fullmatch(word) and (place != word or not word.startswith("/")):
            yield place


def _values(label: str, values: Any) -> Iterator[_Row]:
    named = _map(values)
    for name, value in sorted(named.items()):
        if isinstance(value, str):
            yield _Row(label, f"{name} = {value}")
        else:
            kept = _map(value)
            made = ", ".join(f"${one}" for one in _list(kept.get("variables")))
            hidden = f"a value, not shown{_MADE_WITH}{made}" if made else "a value, not shown"
            yield _Row(label, f"{name} = ({hidden})", str(kept.get("sha256")))
    if not named:
        yield _Row(f"{label}s", _NONE)


def _network(network: Any) -> Iterator[_Row]:
    hosts = _list(network)
    yield from (_Row("network", str(host)) for host in hosts)
    if not hosts:
        yield _Row("network", _WHOLE_NETWORK if network is True else _NONE)


def _changes(old: list[_Row], new: list[_Row]) -> Iterator[str]:
    from difflib import SequenceMatcher

    if old == new:
        return
    opcodes: Sequence[tuple[str, int, int, int, int]]
    if len(old) * len(new) > _MOST_COMPARISONS:
        opcodes = [("replace", 0, len(old), 0, len(new))]
    else:
        opcodes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    known, hidden_before = set(old), {(row.label, row.words) for row in old if row.mark}
    for tag, old_from, old_to, new_from, new_to in opcodes:
        if tag == "equal":
            continue
        yield from (f"-{row.line}" for row in old[old_from:old_to])
        for row in new[new_from:new_to]:
            another = row.mark and (row.label, row.words) in hidden_before and row not in known
            yield f"+{row.line.replace('(a value,', '(another value,') if another else row.line}"


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _one_line(text: str) -> str:
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def _bounded(lines: Iterable[str]) -> str:
    text = "\n".join(lines)
    if len(text) <= MAX_CARD_BYTES:
        return text
    first, last = text[: MAX_CARD_BYTES - _LAST_CHARACTERS], text[-_LAST_CHARACTERS:]
    return f"{first}\n… {len(text) - MAX_CARD_BYTES} more characters are not shown\n… {last}"
