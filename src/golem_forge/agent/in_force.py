"""What is in force in a session (rules, approvals, configuration, each with its origin), and taking an approval back.

The data behind `/rules`, `/config`, `forge rules` and the pages for rules and settings. Rules come from files and from
answers; approvals of single calls and grants live in the session alone. `revoke_in_session` takes back what was
remembered and records it, so that a resumed session stays without it too; it raises NotRevoked for what a person wrote
by hand and names the place. `effective_config` reads the files again to name the line of each value, so it may take a
moment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from golem_forge.agent.session_state import record_revoked
from golem_forge.agent.trust import trust_store
from golem_forge.config.program import PROGRAM_FILE, find_root
from golem_forge.config.sandbox_block import ResourceLimits
from golem_forge.config.yaml_file import YamlFile, read_yaml
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.json import sha256_hex
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.policy.rules.book import RuleBook, RuleLine, RuleUsage
from golem_forge.policy.rules.files import remembered_mode, revoke
from golem_forge.policy.rules.model import RuleOrigin

if TYPE_CHECKING:
    from golem_forge.agent.slash.invocation import SlashHost
    from golem_forge.storage.home import ForgeHome

ID_SHOWN: Final = 12
THIS_SESSION: Final = "this session"
_REVOCABLE: Final = (RuleOrigin.SESSION, RuleOrigin.REMEMBERED)
_NEVER: Final = RuleUsage()
_SHORTEST_PREFIX: Final = 4


class NotRevoked(ForgeError):
    """Raised if nothing was revoked; its `code` is one of the three below."""


UNKNOWN_ID: Final = "UNKNOWN_ID"
AMBIGUOUS_ID: Final = "AMBIGUOUS_ID"
WRITTEN_BY_HAND: Final = "WRITTEN_BY_HAND"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalInForce:
    """An approval that a person gave for the rest of this session, beside rules."""

    id: str
    what: str
    worker: str = ""
    """The worker it holds for; empty for one exact call, whose fingerprint includes its worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleInForce:
    id: str
    verdict: str
    what: str
    scope: str
    reason: str
    origin: str
    kept_in: str
    """Where it is stored: `~/.forge/rules.yaml:3`, or `this session`."""
    hits: int
    last_used: str
    """Empty if it was never used."""
    inactive: str
    """Why it has no effect; empty if it has one."""
    revocable: bool


def approvals_in_force(host: SlashHost) -> tuple[ApprovalInForce, ...]:
    """Returns the approvals of the session: exact calls first, then grants."""
    exact = (
        ApprovalInForce(id=fingerprint[:ID_SHOWN], what=what)
        for fingerprint, what in host.controller.memory.grants().items()
    )
    grants = (
        ApprovalInForce(id=_grant_id(worker, what), what=what, worker=worker)
        for worker, granted in host.path.judge.grants().items()
        for what in sorted(granted)
    )
    return (*exact, *grants)


def rules_in_force(rules: RuleBook, used: Mapping[str, RuleUsage]) -> tuple[RuleInForce, ...]:
    """`used`: what the journals say of each id (`rule_usage`)."""
    return tuple(_rule(line, used.get(line.rule.id, _NEVER)) for line in rules.list())


def _rule(line: RuleLine, usage: RuleUsage) -> RuleInForce:
    rule = line.rule
    kept_in = f"{rule.file}:{rule.line}" if rule.line else rule.file
    return RuleInForce(
        id=rule.id,
        verdict=rule.verdict.value,
        what=rule.describe(),
        scope=rule.scope.describe(),
        reason=rule.reason,
        origin=rule.origin.value,
        kept_in=THIS_SESSION if rule.origin is RuleOrigin.SESSION else kept_in or rule.origin.value,
        hits=usage.hits,
        last_used=usage.last,
        inactive=line.inactive,
        revocable=rule.origin in _REVOCABLE,
    )


def open_rules(home: ForgeHome, directory: Path) -> RuleBook:
    """The rules as a session started in `directory` would have them."""
    root = find_root(directory) or directory.resolve()
    trust = trust_store(home)
    return RuleBook(home, project_root=root, project_trusted=lambda: trust.trusted(root))


def revoke_in_session(host: SlashHost, id_: str) -> str:
    """Calls by the beginning of their fingerprint, rules and grants by their whole id. Gives what was taken back, in
    words. Raises NotRevoked."""
    memory = host.controller.memory
    exact = [each for each in memory.grants() if len(id_) >= _SHORTEST_PREFIX and each.startswith(id_)]
    if len(exact) > 1:
        raise NotRevoked(f"'{id_}' is the beginning of {len(exact)} approvals; give more of it", code=AMBIGUOUS_ID)
    if exact:
        memory.revoke(exact[0])
        record_revoked(host.journal, "exact", exact[0])
        return f"Revoked {id_}: that call asks again."
    if host.rules.remove([id_]):
        record_revoked(host.journal, "rule", id_)
        return f"Revoked {id_}: it held for this session."
    for worker, granted in host.path.judge.grants().items():
        for what in sorted(granted):
            if _grant_id(worker, what) == id_:
                host.path.judge.revoke_grant(worker, what)
                record_revoked(host.journal, "grant", what, worker)
                return f"Revoked {id_}: {what} (worker {worker})."
    return revoke_remembered(host.home, host.rules, id_)


def revoke_remembered(home: ForgeHome, rules: RuleBook, id_: str) -> str:
    """An "always" answer, for every session. Raises NotRevoked."""
    if os.path.lexists(home.remembered) and revoke(home, [id_]):
        rules.expire()
        return f"Revoked {id_}: removed from {home.shown(home.remembered)}."
    written = next((line.rule for line in rules.list() if line.rule.id == id_), None)
    if written is not None and written.origin is RuleOrigin.BUILTIN:
        raise NotRevoked(
            f"{id_} is builtin; to drop it write `builtin_off: [{id_}]` in {home.shown(home.rules)}",
            code=WRITTEN_BY_HAND,
        )
    if written is not None:
        raise NotRevoked(
            f"{written.file}:{written.line}: {id_} was written by hand; remove it there", code=WRITTEN_BY_HAND
        )
    raise NotRevoked(f"Nothing with the id '{id_}' is remembered; /rules lists what is", code=UNKNOWN_ID)


def _grant_id(worker: str, what: str) -> str:
    return sha256_hex(f"{worker} {what}")[:ID_SHOWN]


_DEFAULT: Final = "default"


class ConfigRow(NamedTuple):
    key: str
    value: str
    origin: str


def effective_config(host: SlashHost) -> list[ConfigRow]:
    rows = [*_run_rows(host), *_approval_rows(host), *_sandbox_rows(host)]
    settings = host.program.ui  # only what somebody wrote: everywhere else there is no page
    for name, origin in settings.origins.items():
        rows.append((f"ui.{name}", str(getattr(settings, name.replace(".", "_"))).lower(), origin))
    instructions = host.program.instructions
    read = str(instructions.project_files).lower()
    rows.append(("instructions.project_files", read, instructions.origin or _DEFAULT))
    return [ConfigRow(*row) for row in rows]


def is_untrusted(host: SlashHost) -> bool:
    """A program that nobody trusts: what it may not say does not count."""
    return host.program.file is not None and not host.program.trusted


def _run_rows(host: SlashHost) -> Iterator[tuple[str, str, str]]:
    settings = host.program.run
    for each in fields(settings):
        if each.name not in ("origins", "typed_settings"):
            for key, part in _parts(each.name, getattr(settings, each.name)):
                yield key, format_value(part), _nearest_origin(key, settings.origins)
    if host.model_name and host.model_name != settings.model:
        yield "model in use", host.model_name, "--model, the environment, the worker file or /model"


def _parts(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """`budget` → `budget.max_tokens`, …; limits that nobody set are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        value = {name: each for name, each in asdict(value).items() if each is not None}
    if not isinstance(value, Mapping):
        yield key, value
        return
    for name, each in value.items():
        yield from _parts(f"{key}.{name}", each)


def _nearest_origin(key: str, origins: Mapping[str, str]) -> str:
    """Returns the origin of the key, or of the block it stands in."""
    while key not in origins and "." in key:
        key = key.rpartition(".")[0]
    return origins.get(key, _DEFAULT)


def _approval_rows(host: SlashHost) -> Iterator[tuple[str, str, str]]:
    approval = host.program.approval
    mode = host.program.mode()
    in_force = host.controller.mode
    if mode.value is not in_force and (kept := remembered_mode(host.home, host.program.root)) is not None:
        mode = kept
    origin = mode.origin if mode.value is in_force else "--approval, or nobody can be asked"
    yield "approval.mode", in_force.value, origin
    said = approval.default
    yield "approval.default", said.value.value if said else "ask", said.origin if said else _DEFAULT
    for name, verdict in approval.tools.items():
        yield f"approval.tools.{name}", verdict.value.value, verdict.origin
    timeout = approval.timeout
    yield "approval.timeout", f"{timeout.value:g} s" if timeout else "none", timeout.origin if timeout else _DEFAULT


def _sandbox_rows(host: SlashHost) -> Iterator[tuple[str, str, str]]:
    program = host.program
    for zone in program.zones:
        key = f"sandbox.zones.{zone.name}"
        said = f"{zone.mode}, write {(zone.write or 'ask')!s}, delete {(zone.delete or 'ask')!s}"
        yield key, f"{_shown_path(host, str(zone.path))} ({said})", zone.origin
    files = list(_files(host))
    walls = program.walls
    if program.unprotect:
        yield "sandbox.unprotect", ", ".join(program.unprotect), _where_written(files, "sandbox", "unprotect")
    for directory in walls.read:
        yield "sandbox.read", directory, _where_written(files, "sandbox", "read")
    yield "sandbox.toolchains", "on" if walls.toolchains else "off", _where_written(files, "sandbox", "toolchains")
    off = _where_written(files[-1:], "sandbox", "walls")
    yield "sandbox.walls", "off" if walls.off else "on", off if walls.off else _DEFAULT
    for key, names in (("devices", walls.devices), ("sockets", walls.sockets)):
        for name in names:
            yield f"sandbox.{key}", name, _written_or_typed(files, key)
    if walls.outside:
        yield "sandbox.outside", "ask", _written_or_typed(files, "outside")
    usual = ResourceLimits()
    for each in fields(usual):
        value = getattr(walls.limits, each.name)
        if value is not None:
            changed = value != getattr(usual, each.name)
            origin = _where_written(files, "sandbox", "limits", each.name) if changed else _DEFAULT
            yield f"sandbox.limits.{each.name}", format_value(value), origin


def _files(host: SlashHost) -> Iterator[YamlFile]:
    """The files as they are now, the program's first; one that broke meanwhile is left out."""
    home = host.home
    with suppress(ConfigError, OSError):
        if host.program.file is not None:
            yield read_yaml(host.program.file, PROGRAM_FILE)
    with suppress(ConfigError, OSError):
        if os.path.lexists(home.config):
            yield read_yaml(home.config, home.shown(home.config))


def _where_written(files: list[YamlFile], *key: str) -> str:
    """The first file that has the key; of an untrusted program the value may come from the file behind it."""
    for file in files:
        value: Any = file.value
        for part in key:
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            return file.at(key)
    return _DEFAULT


def _written_or_typed(files: list[YamlFile], key: str) -> str:
    """Returns the origin of a key that only the person's own file or the command line can set."""
    where = _where_written(files[-1:], "sandbox", key)
    return "the command line" if where == _DEFAULT else where


def _shown_path(host: SlashHost, path: str) -> str:
    root = str(host.program.root)
    if path == root:
        return "."
    return os.path.relpath(path, root) if path.startswith(root + "/") else path


def format_value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "-"
    return f"{value:g}" if isinstance(value, float) else str(value) if value not in ("", None) else "-"
