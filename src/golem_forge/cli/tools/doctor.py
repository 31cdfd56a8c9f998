"""`forge tools doctor`: why folders are not active tools, one line each; `--watch` repeats it while they change.

Tools that were never built are built or checked on the way, as far as that needs nothing from outside; none of their
code runs.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from golem_forge.cli.args import read_args
from golem_forge.cli.format import print_error, print_json, progress_message
from golem_forge.cli.tools.workshop import open_workshop, print_unread_packages
from golem_forge.core.errors import ForgeError
from golem_forge.core.text import escape_control_chars
from golem_forge.usertools.diagnostics import Diagnostic
from golem_forge.usertools.registry import watch_registry
from golem_forge.usertools.trust import BuildFailed, inactive_tools, make_ready
from golem_forge.usertools.workshop import Workshop

if TYPE_CHECKING:
    Say = Callable[[Workshop, tuple[Diagnostic, ...]], None]

HELP: Final = """usage: forge tools doctor [--json] [--watch]

Looks at every folder in ~/.forge/tools. If a folder is not an active tool, it says why and what to do. It builds or
checks tools that were never built. It runs none of their code and downloads nothing.

  --json    [{tool, code, message, line?}, …] under `diagnostics`
  --watch   check again after every change, until you press Ctrl-C

Exit: 0 done, 2 usage or configuration."""


def run_doctor(words: list[str]) -> int:
    asked = read_args("tools doctor", HELP, words, "--json", "--watch")
    workshop = open_workshop()
    say = _print_found_json if asked.json else _print_found
    asyncio.run(_watch(workshop, say) if asked.watch else _examine(workshop, say))
    return 0


async def _watch(workshop: Workshop, say: Say) -> None:
    await _examine(workshop, say)
    async for _ in watch_registry(workshop.registry):
        await _examine(workshop, say)


async def _examine(workshop: Workshop, say: Say) -> None:
    await _build_unbuilt(workshop)
    for entry in workshop.registry.entries.values():
        if entry.manifest.entrypoint.endswith(".py") and not workshop.store.is_retired(entry.name):
            with suppress(ForgeError):  # a snapshot that is lost is diagnosed by whoever needs it
                print_unread_packages(workshop, entry)
    say(workshop, inactive_tools(workshop))
    sys.stdout.flush()  # whoever reads it through a pipe waits for it as well


async def _build_unbuilt(workshop: Workshop) -> None:
    """Records what can be found out without running any of their code."""
    unbuilt = [
        entry
        for entry in workshop.registry.entries.values()
        if not workshop.store.build_status(entry.name, entry.digest).built and not workshop.store.is_retired(entry.name)
    ]
    for number, entry in enumerate(unbuilt, 1):
        try:
            with progress_message(f"building or checking '{entry.name}' ({number} of {len(unbuilt)}) …"):
                await make_ready(workshop, entry)
        except BuildFailed:
            continue  # it is recorded, with the reason
        except ForgeError as error:
            print_error("tools doctor", f"Forge could not build or check the tools: {error.message}")
            return


def _print_found_json(workshop: Workshop, found: tuple[Diagnostic, ...]) -> None:
    faulty = {each.tool for each in found}
    active = [name for name in workshop.registry.entries if name not in faulty]
    print_json({"active": active, "diagnostics": [each.to_json() for each in found]})


def _print_found(workshop: Workshop, found: tuple[Diagnostic, ...]) -> None:
    faulty = {each.tool for each in found}
    active = sum(name not in faulty for name in workshop.registry.entries)
    for each in found:
        first, *more = each.text.splitlines()
        print(escape_control_chars(f"{each.tool or workshop.display_folder('')}: {first}"))
        for line in more:
            print(escape_control_chars(f"    {line}"))
    tools, folders = "tool is" if active == 1 else "tools are", "folder is" if len(found) == 1 else "folders are"
    print(escape_control_chars(f"{active} {tools} active, {len(found)} {folders} not; {workshop.display_folder('')}"))
