"""SessionState: what all workers of one session share. One bus, one journal, one memory of approvals, one gate.

`open_session_state` opens a SessionPlan and its journal; workers get their scopes in it one by one (`worker_scope`).
Opened `dry` it records nothing and makes nothing on disk. Raises ConfigError for a configuration with any problem.

`learn_declared` teaches the Redactor the secrets that the program and its workers declare: `env` blocks of every
worker, MCP servers, the keys of models. Nothing is started and nothing is refused: a missing value is reported by the
code that needs it. Secrets of user tools are learned when their folders are read (`usertools.workshop`).
Threat: a secret that the user pastes into the first message is in the request, the event and the journal before the
first process receives it.

A session records what it needs to be resumed: where it ran and with what, and which approvals a person gave for it.
`record_run` and `kept_recorder` write it to the journal; `run_facts` and `kept_approvals` read it back. An approval is
restored only if what it was given for is unchanged: a changed tool asks again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.model.selection import PROVIDERS, ChosenModel, ModelKeys, choose_model, key_variable
from golem_forge.agent.session_hooks import prepare_hooks
from golem_forge.agent.session_plan import SessionPlan, SessionRequest, plan_embedded
from golem_forge.config.mcp_spec import AuthKind, ServerSpec, declared_secrets, expand_text
from golem_forge.config.program import Program, otel_secrets
from golem_forge.config.sandbox_block import credential_parts
from golem_forge.config.trust import TrustStore
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.ids import new_id
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.signals import InterruptSignal
from golem_forge.events.bus import EventBus
from golem_forge.events.journal import Journal, SessionJournals
from golem_forge.events.journal_files import anchor_path
from golem_forge.events.journal_records import join_records
from golem_forge.events.redaction import Redactor, classify_name
from golem_forge.events.runtime_ui import RuntimeUI, create_runtime_ui
from golem_forge.orchestrator.call_state import OnKept, SessionServices
from golem_forge.policy.approval_queue import ApprovalCallback, ui_asker
from golem_forge.policy.controller import ApprovalController
from golem_forge.policy.risk import ANY_WALLED
from golem_forge.policy.rules.book import RuleBook
from golem_forge.policy.rules.load import make_rule
from golem_forge.policy.rules.model import RuleOrigin, rule_id
from golem_forge.sandbox.host import person_environ
from golem_forge.sandbox.walls.environment import EnvBlock, make_env_block, redact_values
from golem_forge.storage.home import ForgeHome

if TYPE_CHECKING:
    from golem_forge.agent.budget import SpendingGate
    from golem_forge.agent.files.worker import Worker
    from golem_forge.policy.reviewer import Reviewer

RUN_RECORD: Final = "run"
KEPT_RECORD: Final = "approvalKept"
REVOKED_RECORD: Final = "approvalRevoked"
_TYPES_INTO_PROCESSES: Final = "write_stdin"
_GRANTS_THAT_LAST: Final = frozenset({ANY_WALLED})
"""Threat: `input to session 3` means another process after a resume, so such a grant ends with its process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """How a run was started; a resumed session adds its own, and the last one counts."""

    name: str
    """The root worker's name."""
    worker_id: str
    """The id of the root worker's run, by which its history is found."""
    directory: str
    """The host path where it was started."""
    root: str
    """The program's directory."""
    worker: str = ""
    """Its file, as a host path; its name where it has none (the built-in worker)."""
    model: str = ""
    mode: str = ""
    approval_mode: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    """Worker files by the names people know (relative to the root) → `file_digest`."""


def record_run(journal: Journal, facts: RunFacts) -> None:
    """Records how the run was started. It is not redacted, because a zone's name would replace the directory; it is
    never an event or exported.
    """
    journal.append_as_is(RUN_RECORD, asdict(facts))
    journal.flush()


def run_facts(records: Iterable[Mapping[str, Any]]) -> RunFacts | None:
    found: RunFacts | None = None
    for record in join_records(records):
        if record.get("type") == RUN_RECORD:
            found = read_facts(record) or found
    return found


def read_facts(record: Mapping[str, Any]) -> RunFacts | None:
    """Reads a `run` record; None if it lacks a needed field."""
    names = {each.name for each in fields(RunFacts)}
    try:
        return RunFacts(**{name: value for name, value in record.items() if name in names})
    except TypeError:
        return None


def file_digest(path: Path) -> str:
    """Empty for a file that is not there or cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def changed_files(facts: RunFacts) -> tuple[str, ...]:
    """The files, by the names people know, that are not what they were."""
    root = Path(facts.root)
    return tuple(name for name, digest in facts.files.items() if file_digest(root / name) != digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptApproval:
    """An approval for the rest of the session."""

    kind: str
    """`exact`, `rule` or `grant`."""
    worker: str
    tool: str
    definition: str
    """The digest of the tool's definition when it was given."""
    key: str
    """The key to revoke it: the fingerprint, the rule's id, or the grant."""
    what: str = ""
    rule: Mapping[str, Any] = field(default_factory=dict)


def kept_recorder(journal: Journal | None) -> Callable[[str, dict[str, Any]], None]:
    """`on_kept` for the approve stage. It waits in memory: the start of the call it was given for takes it to disk."""

    def record(kind: str, data: dict[str, Any]) -> None:
        if journal is not None:
            journal.append(KEPT_RECORD, {"kind": kind, "key": _key(kind, data), **data})

    return record


def record_revoked(journal: Journal | None, kind: str, key: str, worker: str = "") -> None:
    """A person took it back; a grant is one worker's."""
    if journal is not None:
        journal.append(REVOKED_RECORD, {"kind": kind, "key": key, "worker": worker})
        journal.flush()


class KeptApprovals:
    """Takes records one by one; holds what was kept and not taken back, each once."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], dict[str, KeptApproval]] = {}
        """(kind, key) → its approvals, by all that tells one from another."""

    def take(self, record: Mapping[str, Any]) -> None:
        if record.get("type") == KEPT_RECORD:
            rule = record.get("rule")
            kept = KeptApproval(
                kind=str(record.get("kind")),
                worker=str(record.get("worker")),
                tool=str(record.get("tool")),
                definition=str(record.get("definition")),
                key=str(record.get("key")),
                what=str(record.get("what", "")),
                rule=rule if isinstance(rule, dict) else {},
            )
            self._kept.setdefault((kept.kind, kept.key), {}).setdefault(repr(kept), kept)
        elif record.get("type") == REVOKED_RECORD:
            place = (record.get("kind"), record.get("key"))
            left = {text: kept for text, kept in self._kept.pop(place, {}).items() if not _is_revoked(kept, record)}
            if left:
                self._kept[place] = left

    def approvals(self) -> tuple[KeptApproval, ...]:
        return tuple(kept for same in self._kept.values() for kept in same.values())


def kept_approvals(records: Iterable[Mapping[str, Any]]) -> tuple[KeptApproval, ...]:
    found = KeptApprovals()
    for record in join_records(records):
        found.take(record)
    return found.approvals()


def _is_revoked(kept: KeptApproval, by: Mapping[str, Any]) -> bool:
    same = (kept.kind, kept.key) == (by.get("kind"), by.get("key"))
    return same and (kept.kind != "grant" or kept.worker == by.get("worker"))


DefinitionOf = Callable[[str, str], str | None]
"""(worker path, tool name) → the digest of its definition as it is now; None: no such tool is known."""


def restore_approvals(
    kept: Iterable[KeptApproval],
    definition_of: DefinitionOf,
    *,
    controller: ApprovalController,
    rules: RuleBook | None,
    grants: dict[str, set[str]],
) -> tuple[KeptApproval, ...]:
    """Puts back those that still hold, and gives them. What is left out is asked again."""
    back = []
    for each in kept:
        if each.tool == _TYPES_INTO_PROCESSES or definition_of(each.worker, each.tool) not in (each.definition, None):
            continue
        if each.kind == "exact":  # its key holds the definition too, so an unknown tool's can wait for it
            controller.keep(each.key, each.what)
        elif definition_of(each.worker, each.tool) is None:
            continue
        elif each.kind == "grant" and each.key in _GRANTS_THAT_LAST:
            grants.setdefault(each.worker, set()).add(each.key)
        elif each.kind != "rule" or rules is None or not _restore_rule(each, rules):
            continue
        back.append(each)
    return tuple(back)


def _restore_rule(kept: KeptApproval, rules: RuleBook) -> bool:
    """Threat: a rule whose words were redacted would speak of something else; its id tells."""
    try:
        rule = make_rule(dict(kept.rule), RuleOrigin.SESSION)
    except ConfigError:
        return False
    if _key("rule", {"rule": kept.rule}) != kept.key:
        return False
    rules.add_session_rule(rule)
    return True


def _key(kind: str, data: Mapping[str, Any]) -> str:
    if kind == "rule":
        return rule_id(dict(data["rule"]))
    return str(data["fingerprint" if kind == "exact" else "grant"])


_MIN_SECRET_LENGTH = 8
"""Shorter values would be found in ordinary words."""
_NOT_SECRET = frozenset({"PWD", "OLDPWD"})  # named like passwords, and on every machine


@dataclass(slots=True, kw_only=True)
class SessionState(SessionServices):
    home: ForgeHome
    program: Program
    trust: TrustStore
    bus: EventBus
    ui: RuntimeUI
    rules: RuleBook
    controller: ApprovalController
    signal: InterruptSignal
    confined: bool = False
    """Scripted models lie inside the program, also where it is trusted."""
    grants: dict[str, set[str]] = field(default_factory=dict)
    """Worker path → what a person allowed it for the session beyond single calls."""
    on_kept: OnKept
    """Called with what a person kept for the rest of the session."""
    call_ids: set[str] = field(default_factory=set)
    """Ids of calls that a model or a UI chose, since two of them may choose the same one."""
    notices: list[str] = field(default_factory=list)
    """Warnings for the person at the start."""
    overrides: Sequence[str] = ()
    """The words of `--set` that it was started with."""
    dry: bool = False
    """Whether nothing is recorded, written, repaired or started before a call needs it (`agent.explain`)."""
    stand_in: bool = False
    """Opened dry in a home without tools: whether an empty directory stands in for `/user_tools`."""
    depth: int = 0
    """The depth of its first worker."""
    spending: SpendingGate | None = None
    """Set for a session that shares a budget with others."""
    end_telemetry: Callable[[], None] | None = None
    """Ends the session's spans; None: nobody asked for OpenTelemetry."""
    _closed: bool = False
    _made: Path | None = None

    def use_program(self, program: Program) -> None:
        """The program as it is now: somebody trusted it, or its files changed."""
        # Threat: a model has changed a file that a hook names. The hooks of a session stay those that were trusted.
        if program.hooks != self.program.hooks:
            self.hooks = prepare_hooks(program, self.trust, self.home, dry=self.dry)
        self.program = program
        self.strange_zones = program.strange_zones

    def interrupt(self, reason: str = "interrupted") -> None:
        self.signal.interrupt(reason)

    def tools_folder(self) -> Path | None:
        """Returns the folder of user tools and creates it if it is missing; None in a dry session without one."""
        if not self.dry:
            return self.home.ensure("tools")
        if (folder := self.home.path / "tools").is_dir():
            return folder
        if not self.stand_in:
            return None

        self._made = self._made or Path(mkdtemp(prefix="forge-look-"))
        instead = self._made.joinpath(*folder.parts[1:])  # policy knows some names of the home's path
        instead.mkdir(mode=0o700, parents=True, exist_ok=True)
        return instead

    async def aclose(self) -> None:
        """Ends whatever still runs for this session, then closes it."""
        await self.parts.close()
        self.close()

    def discard(self) -> None:
        """The session could not start: a journal in which nothing stands yet is taken away again."""
        book = self.journal
        empty = book is not None and book.lines <= 1 and not book.commits_later
        self.bus.stop_recording()
        self.close()
        if book is not None and empty:
            for path in (book.path, anchor_path(book.path)):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self.end_telemetry is not None:
                self.end_telemetry()
            if self.journal is not None:
                self.journal.close()
            if self._made is not None:
                rmtree(self._made, ignore_errors=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions(SessionRequest):
    """What a session is planned from, and how it is opened."""

    approval_callback: ApprovalCallback | None = None
    """Who is asked; None: UIs, where `answers` says that somebody is there."""
    journal: bool | SessionJournals = True
    """False records nothing. SessionJournals sets another place than FORGE_HOME."""
    signal: InterruptSignal | None = None
    depth: int = 0
    dry: bool = False
    stand_in: bool = False


@dataclass(frozen=True, slots=True)
class SessionBus:
    """The bus of a session to be, and the redactor that stands before it: UIs attach before anything is read."""

    bus: EventBus
    redactor: Redactor


def new_session_bus(home: ForgeHome, bus: EventBus | None = None) -> SessionBus:
    """`bus`: one that UIs hold already; the session's secrets stand before it from `serve` on."""
    redactor = known_secrets(home)
    return SessionBus(EventBus(new_id(), redact=redactor.value) if bus is None else bus, redactor)


def open_session_state(
    at: SessionPlan | Path | str = ".",
    options: SessionOptions | None = None,
    *,
    session_bus: SessionBus | None = None,
    reopened: Journal | None = None,
) -> SessionState:
    """`at`: a plan, or a directory, which means the built-in worker there. `reopened`: the journal of an earlier
    session that goes on; its lock is held."""
    options = options or SessionOptions()
    plan = at if isinstance(at, SessionPlan) else plan_embedded(at, options)
    home, program, trust = plan.home, plan.program, plan.trust
    mode, timeout = plan.mode.value, program.approval.timeout
    rules = RuleBook(
        home,
        project_root=program.root,
        project_trusted=partial(trust.trusted, program.root),
        project_trusted_with=partial(trust.trusted_with, program.root),
        shared=None if isinstance(options.journal, bool) else options.journal.shared_rules,
    )
    hooks = prepare_hooks(program, trust, home, dry=options.dry)
    session_bus = session_bus or new_session_bus(home)
    bus, redactor = session_bus.bus, session_bus.redactor
    if not options.dry:
        home.ensure("sessions")
        home.ensure("output")
    book = reopened
    if book is None and options.journal and not options.dry:
        if isinstance(options.journal, bool):
            book = Journal.create(home.path, bus.session_id, redact=redactor.value)
        else:
            book = options.journal.create(bus.session_id, redactor.value)
    if book is not None:
        bus.session_id = book.session_id
        bus.record_with(book.record_event, book.flush, seq=book.seq)
    ui = create_runtime_ui(bus)
    seconds = timeout.value if timeout else None
    ask = ui_asker(ui, seconds) if options.answers and options.approval_callback is None else None
    return SessionState(
        id=bus.session_id,
        home=home,
        program=program,
        trust=trust,
        bus=bus,
        ui=ui,
        journal=book,
        redactor=redactor,
        rules=rules,
        project=str(program.root),
        undo=program.undo,
        strange_zones=program.strange_zones,
        directory_names={} if isinstance(options.journal, bool) else options.journal.directory_names,
        confined=not isinstance(options.journal, bool) and options.journal.confined,
        controller=ApprovalController(mode, options.approval_callback, ask=ask, timeout=seconds),
        signal=InterruptSignal() if options.signal is None else options.signal,
        on_kept=kept_recorder(book),
        hooks=hooks,
        reviewer=None if options.dry else _reviewer(program, home),
        notices=[program.notice] if program.notice else [],
        overrides=plan.overrides,
        dry=options.dry,
        stand_in=options.stand_in,
        depth=options.depth,
        end_telemetry=None if options.dry else _start_telemetry(program, bus),
    )


def choose_root_model(program: Program, worker: Worker, stored: ModelKeys, flag: str = "") -> ChosenModel:
    """Chooses among the flag, this process's environment, the worker, the program and the keys that there are."""
    return choose_model(
        flag=flag,
        environ=os.environ,
        worker=worker,
        program_model=program.run.model,
        builtin=worker.path is None,
        settings=program.run.models,
        program_origin=program.run.origins.get("model", "forge.yaml"),
        stored=stored,
    )


def _reviewer(program: Program, home: ForgeHome) -> Reviewer | None:
    if program.approval.reviewer is None:
        return None
    from golem_forge.agent.review import make_reviewer  # loads what asks models

    return make_reviewer(program, home)


def _start_telemetry(program: Program, bus: EventBus) -> Callable[[], None] | None:
    if not program.otel.usable:
        return None
    from golem_forge.events.telemetry import watch_session

    return watch_session(bus, program.otel)


def known_secrets(home: ForgeHome) -> Redactor:
    """Knows the home's path, the stored keys of models, and the values of variables that are named like credentials."""
    redactor = Redactor()
    redactor.add_path(str(home.path), "<forge home>")
    for name, value in os.environ.items():
        if len(value) >= _MIN_SECRET_LENGTH and name not in _NOT_SECRET and classify_name(name):
            redactor.add_secret(name, value)
    for value in otel_secrets(os.environ):
        if len(value) >= _MIN_SECRET_LENGTH:
            redactor.add_secret("OTEL_HEADER", value)
    ModelKeys(home).learn_files(redactor)
    return redactor


def learn_declared(session_state: SessionState, toolsets: Iterable[Mapping[str, Any] | None]) -> None:
    """`toolsets`: of every worker that may run in this session; sub-workers can be named before they start."""
    redactor = session_state.redactor
    for blocks in toolsets:
        for block in _env_blocks(blocks):
            redact_values(block, os.environ, redactor)
    learn_servers(session_state.program.mcp.servers.values(), redactor)
    for credential in session_state.program.walls.credentials:
        for part in credential_parts(credential.value(person_environ())):
            learn_secret(redactor, credential.variable, part)
    for hook in session_state.program.store.notify:
        for name, value in hook.secrets():
            learn_secret(redactor, name, value)
    models = session_state.program.run.models
    for provider in {*PROVIDERS, *models}:
        variable = key_variable(provider, models)
        learn_secret(redactor, variable, os.environ.get(variable, ""))


def learn_servers(servers: Iterable[ServerSpec], redactor: Redactor) -> None:
    """Adds the secrets in the servers' config to the redactor, also from incomplete config."""
    for spec in servers:
        for value in declared_secrets(spec, person_environ()):
            learn_secret(redactor, spec.name, value)


def learn_logins(servers: Iterable[ServerSpec], home: ForgeHome, redactor: Redactor) -> None:
    """The stored tokens of servers with `auth: oauth`. Blocks: a keyring may be asked."""
    for spec in servers:
        if spec.auth.kind is not AuthKind.OAUTH:
            continue
        from golem_forge.mcp.client.oauth import CredentialStore, resource_of, secrets_of

        try:
            url = expand_text(spec.url, person_environ(), zone=str)
        except ForgeError:
            continue
        try:
            record = CredentialStore(home).load(resource_of(url)) or {}
        except ForgeError:
            continue  # the connection says so
        for value in secrets_of(record):
            learn_secret(redactor, "OAUTH_TOKEN", value)


def has_logins(servers: Iterable[ServerSpec]) -> bool:
    return any(spec.auth.kind is AuthKind.OAUTH for spec in servers)


def learn_secret(redactor: Redactor, name: str, value: str) -> None:
    if value and value not in redactor.secrets:
        redactor.add_secret(name, value)  # one that is too short cannot be kept out of anything


def _env_blocks(value: Any) -> Iterator[EnvBlock]:
    """Every `env` of a worker's blocks, whichever toolset it stands in."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(item, EnvBlock):
                yield item
            elif key == "env" and isinstance(item, Mapping):
                try:
                    yield make_env_block(dict(item))
                except ConfigError:
                    continue
            else:
                yield from _env_blocks(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _env_blocks(item)
