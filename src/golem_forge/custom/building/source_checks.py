"""Checks of Python and shell sources: whether they can be read as programs, without running a line of them.

Takes source bytes and a building room; raises Unusable (`build_failed`) with `file:line:` and what is wrong there.
Threat: a source made to exhaust the parser. So it is read in a child with walls and limits, never in this process; the
source comes by standard input, and the child is shown nothing else.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from golem_forge.custom.building.steps import failure_text, step
from golem_forge.custom.diagnostic import Code, Unusable
from golem_forge.sandbox.walls.job import Job

if TYPE_CHECKING:
    from golem_forge.custom.building.interpreter import Interpreter
    from golem_forge.sandbox.walls.walls import Walls

SECONDS: Final = 10.0
_MEMORY: Final = 1 << 30
_SHELL_LINE: Final = re.compile(r"^[^\s:]+: (?:line )?(\d+): ", re.M)
_PYTHON: Final = """\
import sys
name, source = sys.argv[1], sys.stdin.buffer.read()
try:
    compile(source, name, "exec", dont_inherit=True)
except SyntaxError as error:
    place = ":".join(str(part) for part in (name, error.lineno, error.offset) if part)
    shown = "\\n    " + error.text.strip()[:200] if error.text else ""
    sys.exit(f"{place}: {type(error).__name__}: {error.msg}{shown}")
except (ValueError, OverflowError, RecursionError, MemoryError) as error:
    sys.exit(f"{name}:1: {type(error).__name__}: {error}")
"""


async def check_python_source(walls: Walls, interpreter: Interpreter, file: str, source: bytes) -> None:
    argv = (interpreter.path, "-I", "-S", "-B", "-W", "ignore", "-c", _PYTHON, file)
    await _check(walls, Job(argv=argv, stdin=source, reads_only=True, shown=interpreter.shown), file)


async def check_shell_source(walls: Walls, shell: str, file: str, source: bytes) -> None:
    await _check(walls, Job(argv=(shell, "-n"), stdin=source, reads_only=True), file)


async def _check(walls: Walls, job: Job, file: str) -> None:
    said = await step(walls, job, seconds=SECONDS, memory=_MEMORY)
    if not said.ok:
        text = failure_text(said, f"{file}: the check")
        raise Unusable(Code.BUILD_FAILED, _SHELL_LINE.sub(lambda match: f"{file}:{match[1]}: ", text))
