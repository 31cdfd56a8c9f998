"""What a person could change so that a refusal does not come again: lines to paste, each with the file they go into.

Proposals only. Nothing here changes policy, and a model that reads one cannot accept it.
"""

from __future__ import annotations

import posixpath
import re

from golem_forge.core.effects import Mark, Verb
from golem_forge.core.visible import visible
from golem_forge.sandbox.own_code import INSTALL_OUTSIDE
from golem_forge.sandbox.protected import GIT_FILE, PROTECTED_NAMES, marks
from golem_forge.sandbox.walls.plan import Refusal, Why
from golem_forge.sandbox.zones import is_zone_name

_SYSTEM = ("/usr/", "/etc/", "/lib", "/bin/", "/sbin/", "/nix/", "/proc/", "/sys/", "/dev/", "/run/", "/var/")
"""Nobody is advised to open these."""
_GLOB = re.compile(r"[*?\[]")
_OTHERWISE = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})
_RULES = "rules.yaml in FORGE_HOME, under `rules:`"


def widen_host(host: str, port: int, *, private: bool) -> str:
    """`private`: the name leads to an address in a private range, so the call had named it already."""
    extra = ", private: true" if private else ""
    rule = f"{_RULES}: - {{host: {_yaml(host)}, ports: [{port}]{extra}, verdict: preApproved}}"
    return rule if private else f"{rule} (and the call names it in `network`)"


def widen_path(refusal: Refusal) -> str:
    if refusal.why is Why.PROTECTED:
        return _unprotect(refusal)
    if refusal.why is Why.OWN_CODE:
        return INSTALL_OUTSIDE
    if refusal.why is Why.SECRET:
        path = _yaml(_GLOB.sub(r"[\g<0>]", refusal.ruled or refusal.target))
        rule = f"{_RULES}: - {{path: {path}, access: [read], verdict: preApproved, accept: [secret_path]}}"
        # What is protected too stays read-only when it can be read.
        return f"{rule}; {_unprotect(refusal)}" if refusal.access is not Verb.READ and _protecting(refusal) else rule
    if refusal.why is Why.SEALED:
        return "Nothing lifts this one; move it out of the zone, or make a directory readable for its owner."
    if refusal.why is Why.RULE:
        path = visible(refusal.ruled or refusal.target)
        return f"rules.yaml: change or remove the path rule on {path} (`forge rules list` shows where it is written)"
    if refusal.why is Why.ZONE and refusal.meant_writable:
        return (
            f"/{refusal.zone} is rw and closed to this call: the call may only read, its `approval` or a rule says "
            "blocked, or the walls are read-only (`forge doctor` says how to get full ones)"
        )
    if refusal.why is Why.ZONE:
        zone = f"forge.yaml: sandbox: {{zones: {{{refusal.zone}: {{mode: rw}}}}}}"
        return f"{zone} (also where a worker's file names it; unless its `approval` blocks)"
    directory = posixpath.dirname(refusal.target) or "/"
    if directory.count("/") < 2 or directory.startswith(_SYSTEM):
        return "forge.yaml: name a directory of your own as a zone (sandbox.zones); the system's stay as they are"
    if refusal.zone:
        return f"forge.yaml: name another directory as a zone (sandbox.zones): this one holds the zone /{refusal.zone}"
    if refusal.access is Verb.READ:
        return f"config.yaml in FORGE_HOME: sandbox: {{read: [{_yaml(directory)}]}}"
    zone = f"{_yaml(_zone_name(directory))}: {{path: {_yaml(directory)}, mode: rw}}"
    return f"forge.yaml: sandbox: {{zones: {{{zone}}}}} (beside the others; without any: workspace: {{path: .}})"


def _unprotect(refusal: Refusal) -> str:
    names = _protecting(refusal)
    if not names:
        shown = visible(refusal.restricted or refusal.target)
        return (
            f"forge.yaml: sandbox.unprotect frees a protected name; {shown} is closed because one leads or lies there"
        )
    return f"forge.yaml: sandbox: {{unprotect: [{', '.join(map(_yaml, names))}]}}"


def _protecting(refusal: Refusal) -> list[str]:
    """The names of the list in sandbox.md §5 that hold this path, the narrowest ones: all of them must go before it is
    writable. What else of a `.git` is closed goes with the whole of it."""
    parts = [part for part in refusal.target.split("/") if part][1:]
    is_git = bool(parts) and parts[-1].casefold() == GIT_FILE

    def holds(name: str) -> bool:
        others = [other for other in PROTECTED_NAMES if other not in (name, GIT_FILE)]
        return Mark.PROTECTED_PATH in marks(parts, git_is_file=is_git, unprotect=others)

    found = [name for name in PROTECTED_NAMES if name != GIT_FILE and holds(name)]
    in_git = GIT_FILE in (part.casefold() for part in parts)
    return found or ([GIT_FILE] if in_git and refusal.why is Why.PROTECTED else [])


def _zone_name(directory: str) -> str:
    """One that can be typed in as it is."""
    plain = re.sub(r"[^a-z0-9_-]+", "-", posixpath.basename(directory).casefold()).strip("-_")[:32]
    return plain if is_zone_name(plain) else f"zone-{plain}"[:32].rstrip("-_")


def _yaml(text: str) -> str:
    """Quoted where YAML would read something else."""
    plain = text.replace("/", "").replace(".", "").replace("-", "").replace("_", "")
    word = plain.isascii() and plain.isalnum() and not plain.isdigit() and text.casefold() not in _OTHERWISE
    if word and not text.startswith("-"):
        return text
    escaped = visible(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
