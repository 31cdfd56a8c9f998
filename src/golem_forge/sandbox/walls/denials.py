"""Denials as facts: which refusals of a call's walls its output, its end and its proxy give evidence of.

Takes the wall plan (`WallPlan.refusal` is the only question asked of it), the output as the caller reads it, and how
the child ended. Gives `{kind, target, access, why, widen}` for each. A text alone proves nothing: an error line
(`error_lines`) counts only if it names a path at which this very plan refuses what the line speaks of. Threat: the
output is a stranger's; what it says can only ever repeat what the walls refuse anyway.
"""

from __future__ import annotations

import posixpath
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from golem_forge.core.effects import Verb
from golem_forge.core.root_links import process_link
from golem_forge.core.visible import visible
from golem_forge.sandbox.walls.error_lines import WINDOW, ErrorLine, Refused, error_lines
from golem_forge.sandbox.walls.plan import Refusal, Why
from golem_forge.sandbox.walls.widening import widen_host, widen_path

MOST: Final = 20
_LONGEST_SHOWN: Final = 512
_IN_ONE_LINE: Final = 5
_WHY: Final = {
    Why.PROTECTED: "protected",
    Why.SECRET: "secret",
    Why.SEALED: "a socket of the host, or a directory that could not be searched",
    Why.OWN_CODE: "Forge's own code",
    Why.RULE: "a path rule",
    Why.ZONE: "read-only zone",
    Why.OUTSIDE: "outside every zone",
}
_KINDS: Final = {Why.PROTECTED: "protected", Why.OWN_CODE: "protected", Why.SECRET: "secret"}


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
    for one in (*_system_call(text, exit_code, signal_number), *_hosts(refused_hosts), *_paths(plan, text, exit_code)):
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
    told = exit_code == 128 + signal.SIGSYS and "Bad system call" in text[-WINDOW:]
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


def _paths(plan: Plan, text: str, exit_code: int | None) -> Iterator[dict[str, Any]]:
    asked: dict[tuple[str, Refused, Verb | None, bool], Refusal | None] = {}
    for line in error_lines(text, exit_code):
        for names in line.names:
            refused: list[Refusal] = []
            paths = {name: path for name in names.words if (path := _absolute(name, plan.cwd))}
            for name, path in paths.items():
                certain = names.certain or name.startswith("/")
                key = (path, line.error, line.access, certain)
                if key not in asked:
                    asked[key] = _refusal(plan, path, line, certain=certain)
                if (refusal := asked[key]) is not None:
                    refused.append(refusal)
            if refused:  # `cannot copy '/usr/x' to '.git/x'`: what a zone holds is meant sooner than what lies outside
                yield _path_denial(min(refused, key=lambda each: each.why is Why.OUTSIDE))
                break
            if names.certain and paths:
                break  # the error is about this path, which is not refused: no other word of the line is meant


def _refusal(plan: Plan, path: str, line: ErrorLine, *, certain: bool) -> Refusal | None:
    """What the walls refuse at this path that fits the error. An access is named on evidence only: the words of the
    line, an error that refuses changes only, or the plan, where it refuses nothing else."""
    if line.error is Refused.CHANGES:
        return _sure(plan.refusal(path, line.access or Verb.WRITE), certain)
    reading = plan.refusal(path, Verb.READ)
    if plan.mounted and reading is None:
        return None  # a read-only mount answers otherwise: here the file's own mode refused
    if line.access is not None:
        return _sure(plan.refusal(path, line.access), certain)
    if reading is not None:
        return _sure(reading, certain)
    changing = plan.refusal(path, Verb.WRITE)
    # What lies outside and can be read, such as a program, is refused to whoever writes; nothing says that this did.
    return None if changing is None or changing.why is Why.OUTSIDE else _sure(changing, certain)


def _sure(refusal: Refusal | None, certain: bool) -> Refusal | None:
    """In a read-only zone every word is the name of a path that is refused, so that there only a sure one counts."""
    if refusal is None or certain:
        return refusal
    return None if refusal.why is Why.ZONE else refusal


def _path_denial(refusal: Refusal) -> dict[str, Any]:
    return {
        "kind": _KINDS.get(refusal.why, "path"),
        "target": _shown(refusal.target),
        "access": refusal.access.value,
        "why": _WHY[refusal.why],
        "widen": widen_path(refusal),
    }


def _absolute(name: str, cwd: str) -> str | None:
    name = name.strip().rstrip(",;:")
    if not name or name.startswith(("~", "-")) or "\0" in name or "://" in name or len(name) > 4096:
        return None
    if link := process_link(name):
        name = f"/{link.rest}" if link.name == "root" else link.rest or "."
    path = posixpath.normpath(posixpath.join(cwd or "/", name))
    return path[1:] if path.startswith("//") else path


def _shown(target: str) -> str:
    text = visible(target).replace("\n", "\\x0a").replace("\t", "\\x09")
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"
