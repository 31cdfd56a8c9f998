"""What a person could change so that a refusal does not come again: lines to paste, each with the file they go into.

Proposals only. Nothing here changes policy, and a model that reads one cannot accept it.
"""

from __future__ import annotations

import posixpath

from golem_forge.core.effects import Mark, Verb
from golem_forge.core.visible import visible
from golem_forge.sandbox.protected import GIT_FILE, PROTECTED_NAMES, marks
from golem_forge.sandbox.walls.plan import Refusal, Why

_SYSTEM = ("/usr/", "/etc/", "/lib", "/bin/", "/sbin/", "/nix/", "/proc/", "/sys/", "/dev/", "/run/", "/var/")
"""Nobody is advised to open these."""
_RULES = "rules.yaml in FORGE_HOME, under `rules:`"


def widen_host(host: str, port: int, *, private: bool) -> str:
    """`private`: the name leads to an address in a private range."""
    extra = ", private: true" if private else ""
    return f"{_RULES}: - {{host: {_yaml(host)}, ports: [{port}]{extra}, verdict: preApproved}}"


def widen_path(refusal: Refusal) -> str:
    if refusal.why is Why.PROTECTED:
        return f"forge.yaml: sandbox: {{unprotect: [{', '.join(map(_yaml, _protected_names(refusal)))}]}}"
    if refusal.why is Why.SECRET:
        path = _yaml(refusal.restricted or refusal.target)
        return f"{_RULES}: - {{path: {path}, access: [read], verdict: preApproved, accept: [secret_path]}}"
    if refusal.why is Why.RULE:
        path = visible(refusal.restricted or refusal.target)
        return f"rules.yaml: change or remove the path rule on {path} (`forge rules list` shows where it is written)"
    if refusal.why is Why.ZONE:
        return f"forge.yaml: sandbox: {{zones: {{{refusal.zone}: {{mode: rw}}}}}} (unless its `approval` blocks)"
    directory = posixpath.dirname(refusal.target) or "/"
    if directory.count("/") < 2 or directory.startswith(_SYSTEM):
        return "forge.yaml: name a directory of your own as a zone (sandbox.zones); the system's stay as they are"
    if refusal.access is Verb.READ:
        return f"config.yaml in FORGE_HOME: sandbox: {{read: [{_yaml(directory)}]}}"
    return f"forge.yaml: sandbox: {{zones: {{NAME: {{path: {_yaml(directory)}, mode: rw}}}}}}"


def _protected_names(refusal: Refusal) -> list[str]:
    """The names of the list in sandbox.md §5 that hold this path; all of them must go before it is writable."""
    parts = [part for part in refusal.target.split("/") if part][1:]
    is_git = bool(parts) and parts[-1].casefold() == GIT_FILE

    def holds(name: str) -> bool:
        others = [other for other in PROTECTED_NAMES if other != name]
        return Mark.PROTECTED_PATH in marks(parts, git_is_file=is_git, unprotect=others)

    return [name for name in PROTECTED_NAMES if holds(name)] or [refusal.restricted.rpartition("/")[2] or GIT_FILE]


def _yaml(text: str) -> str:
    """Quoted where YAML would read something else."""
    plain = text.replace("/", "").replace(".", "").replace("-", "").replace("_", "")
    if plain.isascii() and plain.isalnum() and not text.startswith("-"):
        return text
    escaped = visible(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
