"""The terminal: `create_event_cli_adapter` gives the adapter for these two streams.

On a terminal it draws with prompt_toolkit, loaded here and not before. Where either side is none, or `raw_mode` (also
`enable_raw_mode`) is off, it is the plain one: lines without escapes, and no questions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from golem_forge.core.options import require, takes_options
from golem_forge.events.bus import EventBus
from golem_forge.ui.terminal.input_line import CompletionSources

if TYPE_CHECKING:
    from golem_forge.ui.headless import PlainAdapter
    from golem_forge.ui.terminal.adapter import TerminalAdapter


@takes_options("create_event_cli_adapter", at=1)
def create_event_cli_adapter(
    bus: EventBus,
    output: TextIO | Mapping[str, Any] | None = None,
    input: TextIO | None = None,
    raw_mode: bool = True,
    trace_level: str = "normal",
    *,
    enable_raw_mode: bool = True,
    home: Path | None = None,
    zone_listing: Callable[[str], Iterable[str]] | None = None,
    session_ids: Callable[[], Iterable[str]] | None = None,
    model_names: Callable[[], Iterable[str]] | None = None,
    rule_ids: Callable[[], Iterable[str]] | None = None,
    server_names: Callable[[], Iterable[str]] | None = None,
    prompts: Callable[[], Iterable[Mapping[str, Any]]] | None = None,
) -> TerminalAdapter | PlainAdapter:
    """`output` may be a mapping of all options; `enable_raw_mode` is `raw_mode` too. `home` keeps the history.
    `zone_listing` takes a zone directory (`/`, `/work/src/`, or `src/` in the default zone) and gives the names in it,
    directories with a `/` at their end; with `session_ids`, `model_names`, `rule_ids` (what `/rules revoke` takes),
    `server_names` (what `/mcp reconnect` takes) and `prompts` (commands as `{name, fields, description}`) it feeds
    completion. The adapter of a terminal has `offer_files` for what `@` offers."""
    assert not isinstance(output, Mapping)  # `takes_options` has read it
    require(isinstance(bus, EventBus), "create_event_cli_adapter: bus", "made by create_ui_event_bus()", bus)
    for name, stream, does in (("output", output, "write"), ("input", input, "read")):
        require(stream is None or hasattr(stream, does), f"create_event_cli_adapter: {name}", "a stream", stream)
    output = output or sys.stdout
    input = input or sys.stdin
    if not (raw_mode and enable_raw_mode and is_terminal(output) and is_terminal(input)):
        from golem_forge.ui.headless import PlainAdapter

        return PlainAdapter(bus, output=output, trace=trace_level)
    from golem_forge.ui.terminal.adapter import TerminalAdapter

    sources = CompletionSources(
        zone_listing=zone_listing,
        session_ids=session_ids,
        model_names=model_names,
        rule_ids=rule_ids,
        server_names=server_names,
        prompts=prompts,
    )
    return TerminalAdapter(bus, sources, output=output, input=input, trace_level=trace_level, home=home)


def is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # not a stream of the system, or closed
        return False
