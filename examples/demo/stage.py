"""Where the demo plays: copies of its programs and a FORGE_HOME of their own, all in a temporary directory.

`AnswerStage.run` runs a command there and lets it speak for itself; `AnswerStage.running` leaves it running for a
while.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from examples.demo.interrupting import PATIENCE_S
from examples.demo.repository import is_git_there, keep_as_it_is

PROGRAMS = Path(__file__).parent
FORGE = str(Path(sys.executable).with_name("forge"))
UNATTENDED = str(Path(__file__).with_name("unattended.py"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    program: Path
    home: Path
    environ: dict[str, str]

    def beside(self, name: str) -> Self:
        """A copy of another program of the demo, with the same FORGE_HOME."""
        return replace(self, program=_copied(name, self.program.parent))

    def run(self, *command: str) -> int:
        with self.running(command) as process:
            return process.wait()

    @contextmanager
    def running(self, command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
        """However the demo ends, the command ends with it."""
        sys.stdout.flush()  # what the demo said comes first, also into a pipe
        process = subprocess.Popen(command, cwd=self.program, env=self.environ, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait(PATIENCE_S)

    def last_line(self, *command: str) -> tuple[int, str]:
        """For a command that says more than a demo has room for."""
        ran = subprocess.run(command, cwd=self.program, env=self.environ, capture_output=True, text=True, check=False)
        lines = (ran.stdout + ran.stderr).strip().splitlines()
        return ran.returncode, lines[-1] if lines else ""


@contextmanager
def set_up() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="forge-demo-") as folder:
        program, home = _copied("repair", Path(folder)), Path(folder, "forge-home")
        environ = {name: value for name, value in os.environ.items() if not name.startswith("FORGE_")}
        if is_git_there():
            keep_as_it_is(program / "shop")
        yield Stage(program=program, home=home, environ=environ | {"FORGE_HOME": str(home)})


def _copied(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(PROGRAMS / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")))
