"""Worker: a `.worker` file, checked. Who it is, what it may use, where it may reach.

Plain data. `worker_file` reads one, or checks one that was made in Python; `roster` finds them. Keys and defaults are
those of the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from golem_forge.config.run_block import BudgetLimits, GenerationSettings
from golem_forge.core.decisions import Verdict
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.options import takes_options


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerZone:
    """A zone of the program that this worker has; None: as the program says. Never wider than there."""

    name: str
    mode: Literal["ro", "rw"] | None = None
    write: Verdict | None = None
    delete: Verdict | None = None
    subpath: str = ""
    """The part of the zone's directory that this worker sees as the zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSandbox:
    zones: tuple[WorkerZone, ...] = ()
    default_zone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentPolicy:
    max_attachments: int = 4
    max_total_bytes: int = 10_000_000
    allowed_suffixes: tuple[str, ...] = ()
    denied_suffixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    mode: Literal["parallel", "sequential"] = "parallel"
    on_failure: Literal["collect_all", "fail_fast"] = "collect_all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    name: str
    instructions: str = ""
    description: str = ""
    mode: Literal["single", "chat"] | None = None
    """None: chat for a root worker on a terminal without input, else single."""
    model: str = ""
    model_settings: GenerationSettings = field(default_factory=GenerationSettings)
    compatible_models: tuple[str, ...] = ()
    """Empty: any."""
    toolsets: Mapping[str, Any] = field(default_factory=dict)
    """Toolset name → its block, as written."""
    sandbox: WorkerSandbox | None = None
    """None: no file access at all."""
    input_schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None
    attachment_policy: AttachmentPolicy = field(default_factory=AttachmentPolicy)
    allow_empty_input: bool = False
    max_iterations: int = 50
    max_context_tokens: int | None = None
    """None: the model's window."""
    batch: BatchSettings = field(default_factory=BatchSettings)
    budget: BudgetLimits = field(default_factory=BudgetLimits)
    tool_format: Literal["auto", "native", "xml"] = "auto"
    path: Path | None = None
    """The file it was read from; None: built in, or made in Python."""
    shown_path: str = ""
    """That file as the program's people know it (`workers/analyzer.worker`), for messages."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """Dotted key → line in the file, for messages that come later than reading."""

    if TYPE_CHECKING:  # in Python a block may be a mapping, as in a file, and is checked where the worker is used

        def __init__(
            self,
            name: str | Mapping[str, Any] = "",
            *,
            instructions: str = "",
            description: str = "",
            mode: Literal["single", "chat"] | None = None,
            model: str | Sequence[str] = "",
            model_settings: GenerationSettings | Mapping[str, Any] = ...,
            compatible_models: Sequence[str] = (),
            toolsets: Mapping[str, Any] = {},
            sandbox: WorkerSandbox | Mapping[str, Any] | None = None,
            input_schema: Mapping[str, Any] | None = None,
            output_schema: Mapping[str, Any] | None = None,
            attachment_policy: AttachmentPolicy | Mapping[str, Any] = ...,
            allow_empty_input: bool = False,
            max_iterations: int = 50,
            max_context_tokens: int | None = None,
            batch: BatchSettings | Mapping[str, Any] = ...,
            budget: BudgetLimits | Mapping[str, Any] = ...,
            tool_format: Literal["auto", "native", "xml"] = "auto",
            path: Path | None = None,
            shown_path: str = "",
            lines: Mapping[str, int] = {},
        ) -> None: ...

    def at(self, key: str = "") -> str:
        """`workers/a.worker:7`, for messages about one key."""
        line = self.lines.get(key)
        return f"{self.shown_path}:{line}" if line else self.shown_path or self.name


Worker.__init__ = takes_options("Worker", at=1)(Worker.__init__)  # type: ignore[method-assign]
