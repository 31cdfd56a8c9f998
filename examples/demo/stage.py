"""Where the demo plays: a copy of examples/repair and a FORGE_HOME of its own, both in a temporary directory.

`Stage.run` runs a command there and lets it speak for itself; `Stage.running` leaves it running for a while.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPAIR = Path(__file__).parents[1] / "repair"
FORGE = str(Path(sys.executable).with_name("forge"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    program: Path
    home: Path
    environ: dict[str, str]

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
            process.wait(10)

    def last_line(self, *command: str) -> tuple[int, str]:
        """For a command that says more than a demo has room for."""
        ran = subprocess.run(command, cwd=self.program, env=self.environ, capture_output=True, text=True, check=False)
        lines = (ran.stdout + ran.stderr).strip().splitlines()
        return ran.returncode, lines[-1] if lines else ""


@contextmanager
def set_up() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="forge-demo-") as folder:
        program, home = Path(folder, "repair"), Path(folder, "forge-home")
        shutil.copytree(REPAIR, program, ignore=shutil.ignore_patterns("__pycache__"))
        environ = {name: value for name, value in os.environ.items() if not name.startswith("FORGE_")}
        stage = Stage(program=program, home=home, environ=environ | {"FORGE_HOME": str(home)})
        _commit(stage)
        yield stage


def _commit(stage: Stage) -> None:
    """Makes the shop a repository with one commit, so that its own history can tell at the end what was changed."""
    git = ["git", "-C", "shop", "-c", "user.name=demo", "-c", "user.email=demo@example.test", "-c", "commit.gpgsign=no"]
    if shutil.which("git"):
        for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "The shop as it was"]):
            subprocess.run([*git, *words], cwd=stage.program, env=stage.environ, check=True)
