"""What the verbs about a person's own tools share: the workshop without a session, errors with exit codes, the trust
card.

`open_workshop` never prompts; verbs that need a yes call `ask_trust`: a person reads what a tool is, then agrees to
exactly these bytes or not. `--yes` is the answer given beforehand, for the named tools only, and is recorded as such.
Where nobody can be asked and nothing was answered, nothing runs. `run_with_consent` runs a verb for several tools; one
wrong name, and nothing is done.

Threat: cards and errors quote a stranger's files. Nothing in them can steer the terminal, and keys typed before the
card was drawn do not answer it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from golem_forge.agent.tool_inventory import open_listing_workshop
from golem_forge.agent.user_tools import open_program_workshop
from golem_forge.cli.command import (
    BY_FLAG,
    BY_PERSON,
    DENIED,
    FAILED,
    NOT_FOUND,
    USAGE,
    clear_progress,
    describe_os_error,
    fail,
    print_error,
    read_args,
    step_drawer,
)
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.core.text import escape_control_chars, nearest_remark
from golem_forge.storage.home import forge_home
from golem_forge.ui.line_terminal import ask_yes, can_ask
from golem_forge.usertools import trust
from golem_forge.usertools.build.requirements import unread_packages
from golem_forge.usertools.diagnostics import TOOL_NAME, Unusable
from golem_forge.usertools.folder import ToolEntry
from golem_forge.usertools.trust import ReadyTool, make_trust_card
from golem_forge.usertools.workshop import Workshop


def open_workshop(directory: Path | str = ".") -> Workshop:
    """The person's tools; walls as the program around this directory (or the person's config) sets them."""
    workshop = open_program_workshop(forge_home(), directory, print_report)
    workshop.on_step = step_drawer()
    return workshop


def print_report(kind: str, text: str) -> None:
    """Prints progress on standard error immediately, for a person who waits."""
    clear_progress()
    print_error("tools", f"warning: {text}" if kind == "warning" else text)
    sys.stderr.flush()


def print_unread_packages(workshop: Workshop, entry: ToolEntry) -> None:
    """The card says it too, but a build shows none."""
    if unread := unread_packages(workshop.registry.files(entry), entry.manifest.entrypoint):
        print_report("warning", f"{entry.name}: {unread}")


async def for_each(verb: str, entries: Iterable[ToolEntry], do: Callable[[ToolEntry], Awaitable[int]]) -> int:
    """One after another; a failure does not stop the rest. Returns the worst exit code."""
    worst = 0
    for entry in entries:
        try:
            code = await do(entry)
        except ForgeError as error:
            print_error(f"tools {verb}", error.message)
            code = 1
        worst = max(worst, code)
    return worst


def find_entry(workshop: Workshop, verb: str, name: str) -> ToolEntry | None:
    """Finds a tool; None after it printed why there is none."""
    found = workshop.registry.lookup(name)
    if isinstance(found, ToolEntry):
        return found
    if found is not None:
        print_error(f"tools {verb}", f"'{name}' is not a usable tool: {found.text}")
        return None
    if TOOL_NAME.fullmatch(name) and (workshop.home.path / "tools" / name).is_dir():
        print_error(f"tools {verb}", f"{workshop.display_folder(name)} has no tool.yaml, so it is not a tool.")
        return None
    hint = nearest_remark(name, workshop.registry.entries)
    print_error(f"tools {verb}", f"no user tool '{name}'{hint}. `forge tools list --source custom` shows them.")
    return None


def find_entries(workshop: Workshop, verb: str, names: Sequence[str]) -> tuple[ToolEntry, ...] | None:
    """Each once. None: at least one is missing, and standard error says so."""
    found = [find_entry(workshop, verb, name) for name in dict.fromkeys(names)]
    there = tuple(entry for entry in found if entry is not None)
    return there if len(there) == len(found) else None


_BY_STATUS: Final = {
    Status.TOOL_NOT_FOUND: NOT_FOUND,
    Status.INPUT_INVALID: USAGE,
    Status.APPROVAL_DENIED: DENIED,
}


def load_workshop() -> Workshop:
    """The person's tools as they are now; what the program around here says does not matter to these verbs."""
    workshop = open_listing_workshop(forge_home())
    workshop.report = print_report
    workshop.registry.refresh()
    return workshop


def print_refusal(verb: str, error: ForgeError | OSError) -> int:
    if isinstance(error, OSError):
        return fail(f"tools {verb}", describe_os_error(error), FAILED)
    diagnosis = f"{error.diagnostic_code}: " if isinstance(error, Unusable) else ""
    print_error(f"tools {verb}", f"{diagnosis}{error.message}")
    return _BY_STATUS.get(error.status, FAILED)


def print_usage_error(verb: str, text: str) -> int:
    return fail(f"tools {verb}", f"{text.rstrip('.')}. `forge tools {verb} --help` says more.", USAGE)


def status_line(workshop: Workshop, name: str) -> str:
    """Whether the tool as it is now is offered, and what to do if it is not."""
    return escape_control_chars(trust.status_line(workshop, name))


def ask_trust(workshop: Workshop, verb: str, ready: ReadyTool, yes: bool) -> bool:
    """Whether this content may run, and be built from its hosts. A yes is kept. Raises ForgeError if it cannot be."""
    entry = ready.entry
    if workshop.trusts(entry):
        return not ready.hosts or ask_fetch(workshop, verb, ready, yes)
    print(escape_control_chars(make_trust_card(workshop, ready).full_text), file=sys.stderr)
    if not yes:
        if not can_ask():
            _print_nobody_to_ask(verb, entry.name)
            return False
        if not _ask_yes(f"Trust '{entry.name}' with exactly these files? [y/N] "):
            workshop.store.add_denial(entry.name, entry.digest)
            print_error(f"tools {verb}", f"'{entry.name}' is not trusted; none of it ran.")
            return False
    workshop.trust(entry, who=BY_FLAG if yes else BY_PERSON)
    return True


def ask_fetch(workshop: Workshop, verb: str, ready: ReadyTool, yes: bool) -> bool:
    """Its dependencies come from outside; its runs do not reach these hosts."""
    name = ready.entry.name
    print(escape_control_chars(f"'{name}' is built with packages from: {', '.join(ready.hosts)}"), file=sys.stderr)
    if yes:
        return True
    if not can_ask():
        _print_nobody_to_ask(verb, name)
        return False
    if _ask_yes("Fetch them? [y/N] "):
        return True
    print_error(f"tools {verb}", f"'{name}' was not built.")
    return False


def _print_nobody_to_ask(verb: str, name: str) -> None:
    again = f"`forge tools {verb} {name} --yes`"
    print_error(f"tools {verb}", f"Forge cannot ask you here. Read the text above, then run {again}.")


def _ask_yes(question: str) -> bool:
    """Threat: a running loop only notes Ctrl-C for its next step, so the question would stand, and a later `y` would
    count. Here it ends the command."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return ask_yes(escape_control_chars(question))
    finally:
        signal.signal(signal.SIGINT, before)


def run_with_consent(
    verb: str, usage: str, words: list[str], act: Callable[[Workshop, ToolEntry, bool], Awaitable[int]]
) -> int:
    """Runs `act` for each tool and returns the worst exit code."""
    asked = read_args(f"tools {verb}", usage, words, "names:NAME+", "--yes")
    workshop = open_workshop()
    entries = find_entries(workshop, verb, asked.names)
    if entries is None:
        return NOT_FOUND
    return asyncio.run(for_each(verb, entries, lambda entry: act(workshop, entry, asked.yes)))
