"""Denials as facts: which refusals of a call's walls its output, its end and its proxy give evidence of.

Takes the wall plan (`WallPlan.refusal` is the only question asked of it), the output as the caller reads it, and how
the child ended. Gives `{kind, target, access, why, widen}` for each. A text alone proves nothing: an error line counts
only if it names a path which this very plan refuses. Threat: the output is a stranger's, so it is bounded, read with
patterns that cannot backtrack, and what it says can only ever repeat what the walls refuse anyway.
"""

from __future__ import annotations

import posixpath
import re
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Protocol

from golem_forge.core.effects import Verb
from golem_forge.core.visible import visible
from golem_forge.sandbox.walls.plan import Refusal, Why
from golem_forge.sandbox.walls.widening import widen_host, widen_path

MOST: Final = 20
_WINDOW: Final = 256 * 1024
"""So much of the beginning and of the end of an output is looked at."""
_LINE: Final = 1024
"""So much on either side of an error text."""
_MOST_LINES: Final = 1000
_MOST_WORDS: Final = 60
_LONGEST_SHOWN: Final = 512
_IN_ONE_LINE: Final = 5
_READ_ONLY: Final = re.compile(r"read-only file system|EROFS|device or resource busy|EBUSY", re.IGNORECASE)
"""Refuses changes only. Busy is what guards the walls mounted: neither moved nor removed."""
_ERROR: Final = re.compile(
    r"permission denied|read-only file system|operation not permitted|device or resource busy|EACCES|EPERM|EROFS|EBUSY",
    re.IGNORECASE,
)
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]{0,16}[mK]")
_QUOTED: Final = re.compile(
    r"'([^'\n]{1,1024})'|\"([^\"\n]{1,1024})\"|`([^`'\n]{1,1024})[`']|[‘“]([^‘’“”\n]{1,1024})[’”]"
)
_BETWEEN_WORDS: Final = re.compile(r"[\s()\[\]{}<>=,;:'\"`‘’“”|]+")
_DELETES: Final = re.compile(r"remov|unlink|rmdir|delet|\brm\b", re.IGNORECASE)
_READS: Final = re.compile(
    r"(?:/[\w/.-]*/)?(?:cat|head|tail|tac|less|more|grep|egrep|fgrep|rg|ls|find|wc|diff|cmp|sort|uniq|stat|file|od|awk"
    r"|nl|cut|md5sum|sha\d+sum|du): "
)
"""What only reads was refused reading; a missing right to write the same path is no evidence of walls."""
_WRITES: Final = re.compile(
    r"creat|writ|touch|mkdir|lock|renam|mov|chmod|chown|\bln\b|link|append|truncat|copy|temporary", re.IGNORECASE
)
_WHY: Final = {
    Why.PROTECTED: "protected",
    Why.SECRET: "secret",
    Why.RULE: "a path rule",
    Why.ZONE: "read-only zone",
    Why.OUTSIDE: "outside every zone",
}
_KINDS: Final = {Why.PROTECTED: "protected", Why.SECRET: "secret"}


class Plan(Protocol):
    """What is asked of a wall plan; `walls.plan.WallPlan` is one."""

    @property
    def cwd(self) -> str:
        """The working directory as the child sees it."""
        ...

    @property
    def mounted(self) -> bool:
        """Whether a read-only zone refuses with the error of a read-only file system, and with no other."""
        ...

    def refusal(self, path: str, access: Verb) -> Refusal | None:
        """Why an absolute, folded path (host or virtual spelling) cannot be read or changed; None: it can."""
        ...


def find(
    plan: Plan,
    text: str,
    *,
    exit_code: int | None = None,
    signal_number: int | None = None,
    refused_hosts: Iterable[Mapping[str, Any]] = (),
) -> tuple[dict[str, Any], ...]:
    """The denials there is evidence of, in order of appearance, each once, at most 20.

    `refused_hosts`: `{host, port, why}` as the proxy recorded them.
    """
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for one in (*_system_call(text, exit_code, signal_number), *_hosts(refused_hosts), *_paths(plan, text)):
        found.setdefault((one["kind"], one["target"], one["access"]), one)
        if len(found) == MOST:
            break
    return tuple(found.values())


def blocked_line(denials: Sequence[Mapping[str, Any]]) -> str:
    """`Blocked by the sandbox: write /workspace/.git/hooks/pre-commit (protected).`; empty if nothing was."""
    if not denials:
        return ""
    shown = "; ".join(f"{one['access']} {one['target']} ({one['why']})" for one in denials[:_IN_ONE_LINE])
    more = f"; and {len(denials) - _IN_ONE_LINE} more" if len(denials) > _IN_ONE_LINE else ""
    return f"Blocked by the sandbox: {shown}{more}."


def _system_call(text: str, exit_code: int | None, number: int | None) -> Iterator[dict[str, Any]]:
    """A shell reports the death of its command by exit code and text; the code alone could be anyone's."""
    dead = number == signal.SIGSYS
    told = exit_code == 128 + signal.SIGSYS and "Bad system call" in text[-_WINDOW:]
    if dead or told:
        yield {
            "kind": "syscall",
            "target": "a system call",
            "access": "make",
            "why": "refused to every child",
            "widen": "Nothing lifts this one; run the program yourself, outside Forge.",
        }


def _hosts(refused: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in refused:
        host, port, why = str(one["host"]), int(one["port"]), str(one["why"])
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        yield {
            "kind": "host",
            "target": _shown(target),
            "access": "connect",
            "why": why,
            "widen": widen_host(host, port, private="private" in why),
        }


def _paths(plan: Plan, text: str) -> Iterator[dict[str, Any]]:
    asked: dict[tuple[str, tuple[Verb, ...]], Refusal | None] = {}
    for line, start, end in _error_lines(text):
        verbs = _verbs(line, line[start:end])
        # In a read-only zone every word is the name of a path that is refused; whoever lacks a right is told otherwise.
        but = Why.ZONE if plan.mounted and not _READ_ONLY.fullmatch(line[start:end]) else None
        for names in _names(line, start, end):
            refused: list[Refusal] = []
            for path in filter(None, (_absolute(name, plan.cwd) for name in names)):
                if (path, verbs) not in asked:
                    asked[path, verbs] = next((no for verb in verbs if (no := plan.refusal(path, verb))), None)
                if (refusal := asked[path, verbs]) is not None and refusal.why is not but:
                    refused.append(refusal)
            if refused:  # `cannot copy '/usr/x' to '.git/x'`: what a zone holds is meant sooner than what lies outside
                yield _path_denial(min(refused, key=lambda each: each.why is Why.OUTSIDE))
                break


def _path_denial(refusal: Refusal) -> dict[str, Any]:
    return {
        "kind": _KINDS.get(refusal.why, "path"),
        "target": _shown(refusal.target),
        "access": refusal.access.value,
        "why": _WHY[refusal.why],
        "widen": widen_path(refusal),
    }


def _error_lines(text: str) -> Iterator[tuple[str, int, int]]:
    """Lines with an error text, and where in the line its first one stands."""
    pieces = (text,) if len(text) <= 2 * _WINDOW else (text[:_WINDOW], text[-_WINDOW:])
    return islice((line for piece in pieces for line in _error_lines_of(piece)), _MOST_LINES)


def _error_lines_of(piece: str) -> Iterator[tuple[str, int, int]]:
    seen = -1
    for match in _ERROR.finditer(piece):
        start, end = match.span()
        if 0 <= seen <= start and piece.find("\n", seen, start) < 0:
            seen = end
            continue
        seen = end
        begin = max(start - _LINE, piece.rfind("\n", max(0, start - _LINE), start) + 1, 0)
        stop = piece.find("\n", end, end + _LINE)
        before = _COLOUR.sub("", piece[begin:start])
        after = piece[end : stop if stop >= 0 else end + _LINE]
        yield before + match.group() + after, len(before), len(before) + len(match.group())


def _verbs(line: str, error: str) -> tuple[Verb, ...]:
    """What may have been tried, likeliest first. A read-only file system refuses no reading."""
    if _DELETES.search(line):
        return (Verb.DELETE,)
    if _READ_ONLY.fullmatch(error):
        return (Verb.WRITE,)
    if _READS.match(line):
        return (Verb.READ,)
    return (Verb.WRITE,) if _WRITES.search(line) else (Verb.READ, Verb.WRITE)


def _names(line: str, start: int, end: int) -> Iterator[list[str]]:
    """What the line may mean by a path, surest first: quoted; just before the error; just after it; path-like."""
    yield [quoted[quoted.lastindex or 0] for quoted in islice(_QUOTED.finditer(line), _MOST_WORDS)]
    yield list(_just_before(line[:start]))
    after = line[end:].strip().removeprefix(":").strip()
    if line[end:].startswith((": ", " @ ")) and after:  # `zsh:1: permission denied: x`, `… @ rb_sysopen - x`
        yield [after.split()[-1]]
    words = _BETWEEN_WORDS.split(line)[:_MOST_WORDS]
    yield [word for word in words if "/" in word or (word.startswith(".") and len(word) > 1)]


def _just_before(text: str) -> Iterator[str]:
    """The last word, the last two, …: a name may have spaces in it."""
    segments = text.rstrip().removesuffix(":").removesuffix("(").rstrip().removesuffix(":").split(": ")
    words = segments[-1].split()
    if len(segments) == 1 and len(words) == 1 and "/" not in words[0] and not words[0].startswith("."):
        return  # `ssh: Permission denied`: the program speaks of no file
    for count in range(1, min(len(words), 4) + 1):
        yield " ".join(words[-count:]).strip("'\"`‘’“”")
        if words[-count].startswith("/"):  # `cannot create /etc/x`: nothing before it is part of the name
            return


def _absolute(name: str, cwd: str) -> str | None:
    name = name.strip().rstrip(",;:")
    if not name or name.startswith(("~", "-")) or "\0" in name or "://" in name or len(name) > 4096:
        return None
    if _ERROR.fullmatch(name):
        return None
    path = posixpath.normpath(posixpath.join(cwd or "/", name))
    return path[1:] if path.startswith("//") else path


def _shown(target: str) -> str:
    text = visible(target).replace("\n", "\\x0a").replace("\t", "\\x09")
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"
