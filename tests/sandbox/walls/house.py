"""A person's home, FORGE_HOME and a workspace, real walls on them, and the person's own git."""

from __future__ import annotations

import asyncio
import atexit
import functools
import multiprocessing
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from golem_forge.config.sandbox_block import WallSettings
from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Verb
from golem_forge.events.redaction import Redactor
from golem_forge.sandbox.process.monitor import ExitStatus
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
from golem_forge.sandbox.walls import inspection
from golem_forge.sandbox.walls.model import Job, Level, PathRule, ProbeReport
from golem_forge.sandbox.walls.walls import Aftermath, Walls, WallsHost
from golem_forge.sandbox.zones import ZoneSpec


@dataclass
class Ran:
    ending: ExitStatus
    text: str
    after: Aftermath

    @property
    def code(self) -> int | None:
        return self.ending.exit_code


class AnotherForge:
    """A fork of the test's process whose walls stand on the workspace."""

    def __init__(self, house: House, script: str) -> None:
        forks = multiprocessing.get_context("fork")
        self._wire, theirs = forks.Pipe()
        self._process = forks.Process(target=self._stand, args=(house, script, theirs), daemon=True)
        self._process.start()
        theirs.close()
        assert self._wire.recv() == "stands"

    def _stand(self, house: House, script: str, wire: Connection) -> None:
        self._wire.close()
        os.environ.clear()
        os.environ["PATH"] = house.path
        inspection._CARRY_EVERY_S, inspection._LOOKS_PER_ROUND = float("inf"), 10**9
        asyncio.run(self._run(house, script, wire))

    async def _run(self, house: House, script: str, wire: Connection) -> None:
        child = (await house.walls().start(Job(argv=("bash", "-c", script)))).child
        while b"done" not in child.output.read():
            assert child.ending is None, child.output.read()
            await asyncio.sleep(0.01)
        wire.send("stands")
        with suppress(EOFError):
            wire.recv()
        await child.wait(90)
        wire.send(child.output.read().decode())

    def finish(self) -> str:
        """What the script said, once it has ended."""
        self._wire.send("finish")
        said: str = self._wire.recv()
        return said

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


@dataclass
class House:
    root: Path
    path: str = "/usr/local/bin:/usr/bin:/bin"
    sandboxes: list[Sandbox] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("workspace", "home", "forge"):
            (self.root / name).mkdir(exist_ok=True)

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    def sandbox(self, *specs: ZoneSpec) -> Sandbox:
        chosen = specs or (ZoneSpec(name="workspace", path=self.workspace),)
        made = open_sandbox(chosen, forge_home=self.root / "forge", home=self.root / "home")
        self.sandboxes.append(made)
        return made

    def walls(
        self,
        *specs: ZoneSpec,
        sandbox: Sandbox | None = None,
        settings: WallSettings | None = None,
        redactor: Redactor | None = None,
        rules: Callable[[], tuple[PathRule, ...]] = tuple,
        **host: Any,
    ) -> Walls:
        """`host`: of WallsHost."""
        known = {"environ": {"PATH": self.path}, "report": ProbeReport(level=Level.FULL), "home": self.root / "home"}
        return Walls(
            sandbox or self.sandbox(*specs),
            settings,
            forge_home=self.root / "forge",
            redactor=redactor,
            rules=rules,
            host=WallsHost(**known | host),
        )

    def run(self, script: str, walls: Walls | None = None, **job: Any) -> Ran:
        return asyncio.run(ran(walls or self.walls(), script, **job))

    @contextmanager
    def another_forge(self, script: str) -> Iterator[AnotherForge]:
        """Once the script has said `done` it does nothing until it is asked to finish. While the script runs, it
        carries over nothing and judges nothing of what the script makes."""
        forge = AnotherForge(self, script)
        try:
            yield forge
        finally:
            forge.kill()


async def ran(walls: Walls, script: str, **job: Any) -> Ran:
    env = walls.with_git_settings(job.pop("env", {}))
    walled = await walls.start(Job(argv=("bash", "-c", script), env=env, **job))
    try:
        ending = await walled.child.wait()
    finally:
        await walled.child.end()
    assert ending is not None
    return Ran(ending, walled.child.output.read().decode(), walled.aftermath())


def path_rule(pattern: str, verdict: Verdict, *verbs: Verb, literal: str = "", accepts: bool = False) -> PathRule:
    from golem_forge.policy.rules.model import path_glob

    glob = path_glob(pattern)
    return PathRule(
        matches=lambda name: glob.fullmatch(name) is not None,
        literal=literal,
        verdict=verdict,
        access=frozenset(verbs),
        accepts_secret=accepts,
    )


def init(where: Path, *words: str) -> None:
    subprocess.run(["git", "init", "-q", *words, str(where)], check=True)


GIT_ENVIRON = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ALLOW_PROTOCOL": "file",
    "GIT_EDITOR": "true",
    **{f"GIT_{who}_NAME": "Ada" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "ada@example.test" for who in ("AUTHOR", "COMMITTER")},
}


def git(where: Path, *words: str, check: bool = True) -> str:
    """What the person's own git says, on the host; their home is beside or above the directory."""
    home = next(above for above in (where, *where.parents) if (above / "home").is_dir()) / "home"
    environ = {**GIT_ENVIRON, "HOME": str(home)}
    said = subprocess.run(["git", *words], cwd=where, env=environ, capture_output=True, text=True)
    assert not check or said.returncode == 0, said.stderr
    return (said.stdout + said.stderr).rstrip("\n")


@functools.cache
def _template() -> tuple[Path, Path]:
    """The repository that each person has a copy of, and the mark of the program in it."""
    root = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    (root / "home").mkdir()
    where = root / "repository"
    init(where, "-b", "main")
    shutil.rmtree(where / ".git/hooks")  # samples
    (where / ".git/hooks").mkdir()
    (where / "Makefile").write_text("all:\n\ttrue\n")
    evil = where / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {root / 'mark'}\n")
    evil.chmod(0o755)
    git(where, "add", ".")
    git(where, "commit", "-q", "-m", "first")
    git(where, "commit", "-q", "--allow-empty", "-m", "second")
    return where, root / "mark"


class Person:
    """Works in a repository of two commits, beside a program that leaves a mark if git runs it."""

    ASKED = (
        *(["status"], ["log", "-1", "--oneline"], ["diff"], ["branch"], ["stash", "list"]),
        ["commit", "--allow-empty", "-q", "-m", "by the person"],
    )

    def __init__(self, house: House) -> None:
        self.where = house.workspace
        self.home = house.root / "home"
        repository, self.mark = _template()
        self.mark.unlink(missing_ok=True)
        self.outside = house.root / "outside.txt"
        self.outside.write_text("mine\n")
        (self.home / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.test\n")
        shutil.copytree(repository, self.where, symlinks=True, dirs_exist_ok=True)
        self.git("status")  # the index knows these files by their times

    def git(self, *words: str, where: Path | None = None) -> subprocess.CompletedProcess[str]:
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self.home), "GIT_CONFIG_NOSYSTEM": "1", "GIT_EDITOR": "true"}
        place = where or self.where
        return subprocess.run(["git", *words], cwd=place, env=env, capture_output=True, text=True, timeout=120)

    def says(self, *words: str) -> str:
        return self.git(*words).stdout.strip()

    def works_as_usual(self, *folders: str) -> None:
        for folder in ("", *folders):
            for words in self.ASKED:
                if (self.where / folder).is_dir():
                    self.git(*words, where=self.where / folder)
        assert not self.mark.exists(), "the person's git ran what a command left"
        assert self.outside.read_text() == "mine\n"

    def stops_in_a_rebase(self) -> None:
        """Of their own: both sides changed the same line."""
        for branch, text in (("theirs", "theirs"), ("main", "mine")):
            self.git("checkout", "-q", *(["-b"] if branch == "theirs" else []), branch)
            (self.where / "c.txt").write_text(text)
            self.git("add", "c.txt")
            self.git("commit", "-q", "-m", text)
        assert self.git("rebase", "theirs").returncode != 0
