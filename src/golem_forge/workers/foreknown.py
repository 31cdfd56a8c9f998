"""What will keep a program from starting, as far as it can be known without running any of its code.

`start_problems` takes the workers that were read and gives one text for each module of the first that is missing or is
no Python, and for each zone that cannot be opened. Said before anybody is asked for trust, which would not help.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from golem_forge.config.home import ForgeHome
from golem_forge.config.program import Program
from golem_forge.core.errors import ConfigError
from golem_forge.workers.blocks import CustomBlock
from golem_forge.workers.module_files import module_files
from golem_forge.workers.roster import Roster
from golem_forge.workers.toolset_blocks import worker_blocks
from golem_forge.workers.worker import Worker
from golem_forge.workers.worker_zones import sandbox_for


def start_problems(program: Program, roster: Roster, home: ForgeHome) -> list[str]:
    """Of the worker that starts; what is wrong with another one ends only the calls that need it."""
    found = [*_module_problems(program, roster.root)]
    try:
        sandbox_for(program, roster.root, home, []).close()
    except ConfigError as error:
        found += error.problems
    return found


def check_before_trust(program: Program, roster: Roster, home: ForgeHome) -> None:
    """Raises ConfigError with all of them."""
    if problems := start_problems(program, roster, home):
        raise ConfigError(*problems)


def _module_problems(program: Program, worker: Worker) -> Iterator[str]:
    folder = worker.path.parent if worker.path is not None else program.root
    for block in worker_blocks(worker).custom:
        try:
            files = module_files(program.root, folder / block.module)
        except ConfigError as error:
            yield _failed(block, "; ".join(error.problems))
            continue
        if why := _no_python(next(iter(files.values()))):  # what it imports it may do without
            yield _failed(block, why)


def _no_python(data: bytes) -> str:
    try:
        ast.parse(data)
    except SyntaxError as error:
        return f"{type(error).__name__}: {error.msg}" + (f" (line {error.lineno})" if error.lineno else "")
    except (ValueError, RecursionError, MemoryError) as error:
        return f"{type(error).__name__}: it cannot be read as Python"
    return ""


def _failed(block: CustomBlock, why: str) -> str:
    text = f"Failed to load custom tools from {block.module}: {why}"
    return f"{block.origin}: {text}" if block.origin else text
