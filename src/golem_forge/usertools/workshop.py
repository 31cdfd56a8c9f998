"""Workshop: what all workers of one session share about user tools: registry, store, builder.

Nothing here runs a tool. Trust that mode `approve_all` gave lives here alone and ends with the session.

`PendingSuggestions` holds the suggestions the session was told of and decides which of them a new tool comes from. A
model may make a tool after a suggestion that has nothing to do with it, so something must match: the proposed name,
the proposed parameters, or at least a word of what the calls do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from golem_forge.config.sandbox_block import WallSettings
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.events.redaction import Redactor
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.storage.content_store import ContentStore
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.context import HostRule, no_host_rule
from golem_forge.usertools.build import Builder, PreparedTool
from golem_forge.usertools.create import NewTool, content_words
from golem_forge.usertools.folder import ToolEntry, scratch_walls
from golem_forge.usertools.registry import Registry
from golem_forge.usertools.run import BackgroundRunner, register_secrets
from golem_forge.usertools.store import ToolStore
from golem_forge.usertools.store.history import prune_versions
from golem_forge.usertools.suggestions import Suggestion

_STOP_WORDS: Final = frozenset({"file", "files", "tool", "path", "name", "command", "content", "text", "the", "and"})


class PendingSuggestions:
    def __init__(self) -> None:
        self._open: list[Suggestion] = []

    def add(self, suggestion: Suggestion) -> None:
        self._open = [each for each in self._open if each.key != suggestion.key] + [suggestion]

    def claim_for(self, order: NewTool) -> tuple[str, float]:
        """Key and median time of the sequence that this new tool comes from; ("", 0.0): of none. Each is taken once,
        the newest that fits best."""
        declared = {str(each.get("name", "")).lower() for each in order.parameters if isinstance(each, dict)}
        text = f"{order.name} {order.description} {order.usage} {' '.join(declared)}"
        words = content_words(text, _STOP_WORDS)

        def score(suggestion: Suggestion) -> tuple[bool, bool, int]:
            needed = {each.name.lower() for each in suggestion.parameters}
            shared = words & content_words(" ".join(suggestion.tools), _STOP_WORDS)
            return order.name == suggestion.name, bool(needed) and needed <= declared, len(shared)

        best = max(reversed(self._open), key=score, default=None)
        if best is None or not any(score(best)):
            return "", 0.0
        self._open.remove(best)
        return best.key, best.sequence_ms


StepProgress = Callable[[str, int | None], None]
"""Takes what is done now that may take a while, and for how many seconds: 0 as it begins, None once it is over."""
_MOST_PREPARED: Final = 64
_log = logging.getLogger(__name__)


def _log_report(kind: str, text: str) -> None:
    if kind == "warning":
        _log.warning("%s", text)


@dataclass(slots=True, kw_only=True)
class Workshop:
    home: ForgeHome
    registry: Registry
    store: ToolStore
    builder: Builder
    native: Mapping[str, str]
    """Name → description of every built-in tool."""
    session_id: str = ""
    redactor: Redactor | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    """The environment that a tool's declared variables are copied from."""
    settings: WallSettings | None = None
    background_runner: BackgroundRunner | None = None
    """Runs a `background` tool on after its call."""
    session_trust: set[tuple[str, str]] = field(default_factory=set)
    """(name, digest) that only mode `approve_all` let through: for this session, never on disk."""
    created_names: set[str] = field(default_factory=set)
    """Names that this session created: nobody need be told that they are there."""
    prepared: dict[str, PreparedTool] = field(default_factory=dict)
    """Ready tools by digest, so that a call need not look for them again."""
    suggestions: PendingSuggestions = field(default_factory=PendingSuggestions)
    """Suggestions that this session received."""
    report: Callable[[str, str], None] = _log_report
    """Takes `info` or `warning`, and what the person who waits should know: a build that takes its time, a snapshot
    that somebody changed."""
    on_step: StepProgress | None = None
    """Is told of each step of a build instead of `report`."""
    journal: Callable[[], Path | None] = lambda: None
    """The session's journal as far as it is, on disk; None: it keeps none."""
    changes: int = 0
    """Counts what this session changed in the store, so that whoever shows tools reads it again."""

    def keep_prepared(self, digest: str, prepared: PreparedTool) -> None:
        """Caches a ready tool; the oldest one makes room."""
        if len(self.prepared) >= _MOST_PREPARED:
            del self.prepared[next(iter(self.prepared))]
        self.prepared[digest] = prepared

    def version(self) -> object:
        """Another value whenever the store may have changed, also by another process."""
        return self.changes, self.store.stamp()

    def trusts(self, entry: ToolEntry) -> bool:
        given = self.store.find_trust(entry.name, entry.digest)
        return self.is_trusted(entry, trusted=given is not None, shadow=given is not None and given.shadow)

    def is_trusted(self, entry: ToolEntry, *, trusted: bool, shadow: bool) -> bool:
        """Whether exactly this content may run here, by what the store says of it."""
        if (entry.name, entry.digest) in self.session_trust:
            return True
        return trusted and (shadow or not self.shadows(entry.name))

    def other_version_trusted(self, entry: ToolEntry) -> bool:
        """Other bytes of this tool were the last that somebody, or mode `approve_all` in this session, agreed to."""
        before = self.store.last_trusted(entry.name)
        here = {digest for name, digest in self.session_trust if name == entry.name}
        return (before not in ("", entry.digest)) or bool(here - {entry.digest})

    def shadows(self, name: str) -> bool:
        return name in self.native

    def trust(self, entry: ToolEntry, *, who: str) -> None:
        """A person agreed to exactly this content. Raises ForgeError where that cannot be kept."""
        self.store.trust(entry.name, entry.digest, who=who, shadow=self.shadows(entry.name))
        self.changes += 1

    def trust_for_session(self, entry: ToolEntry) -> None:
        self.session_trust.add((entry.name, entry.digest))
        self.changes += 1

    def display_folder(self, name: str) -> str:
        """Returns the folder as its owner knows it; a model gets the address instead."""
        return self.home.shown(self.home.path / "tools" / name)

    async def aclose(self) -> None:
        """The session has ended. Whoever still asks opens the store again."""
        self.store.close()


def open_workshop(
    home: ForgeHome,
    *,
    native: Mapping[str, str],
    redactor: Redactor | None = None,
    environ: Mapping[str, str],
    settings: WallSettings | None = None,
    zones: Sequence[str] = (),
    host_rule: HostRule = no_host_rule,
) -> Workshop:
    """`zones`: host directories that agents write to; no compiler is taken from there. `host_rule`: for builds that
    fetch dependencies."""
    store, contents = ToolStore(home), ContentStore(home)

    def build_walls(directory: Path) -> Walls:
        return scratch_walls(directory, zone="build", home=home, settings=settings, redactor=redactor)

    def record(entry: ToolEntry) -> None:
        register_secrets(entry.manifest, environ, redactor)
        if store.record_version(entry.name, entry.digest):
            prune_versions(store, entry.name, contents.remove)

    def repaired(name: str) -> None:
        why = f"the stored copy of tool '{name}' was changed outside of Forge, so it was not used"
        again = "it was made again from the tool's folder, which still has the bytes of its digest"
        workshop.report("warning", f"{why}; {again}. Find out which other program writes to $FORGE_HOME/store.")

    workshop = Workshop(
        home=home,
        registry=Registry(home, seen=record, repaired=repaired),
        store=store,
        builder=Builder(home, walls=build_walls, environ=environ, kept_out=zones, host_rule=host_rule),
        native=native,
        redactor=redactor,
        environ=environ,
        settings=settings,
    )
    return workshop
