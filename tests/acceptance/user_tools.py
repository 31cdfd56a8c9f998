"""A person's own tools, for acceptance tests: a FORGE_HOME and a workspace, folders in them, sessions on them.

`Bench.tool(name, source, **manifest)` writes a folder as a person would; `Bench.session()` is an ordinary session
whose questions go to a `Cards`, which says yes until it is told otherwise and keeps every card.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.deadlines import PATIENCE

from golem_forge import open_session


class Cards(list[Any]):
    """Whoever answers: keeps each card, in order."""

    def __init__(self, *, yes: bool = True) -> None:
        super().__init__()
        self.yes = yes

    def __call__(self, card: Any) -> dict[str, Any]:
        self.append(card)
        return {"approved": self.yes}

    @property
    def last(self) -> Any:
        return self[-1]

    def of_trust(self) -> list[Any]:
        """Those that ask about a tool's content, not only about a call."""
        return [card for card in self if card.type == "definition"]


def card_text(card: Any) -> str:
    """All that a person reads."""
    parts = (card.description, card.why, card.payload, card.diff, card.changed, *card.effects, *card.warnings)
    return "\n".join(part for part in parts if part)


def yaml_of(manifest: dict[str, Any]) -> str:
    """Each value as JSON, which is YAML too: what is written is what is read."""
    return "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in manifest.items())


def parameter(name: str, kind: str = "string", **keys: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "description": f"the {name}", **keys}


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a finished command said."""

    code: int
    out: str
    err: str


@dataclass
class Bench:
    root: Path
    ready: Any = None
    """See the fixture `ready_forge`; only who runs commands needs it."""
    cards: Cards = field(default_factory=Cards)

    def __post_init__(self) -> None:
        self.home = self.root / "forge-home"
        self.tools = self.home / "tools"
        self.workspace = self.root / "workspace"
        self.home.mkdir(mode=0o700, parents=True)
        self.workspace.mkdir()

    def tool(
        self,
        name: str,
        source: str | bytes = "echo made\n",
        /,
        *,
        entrypoint: str = "",
        files: dict[str, str | bytes] | None = None,
        executable: bool = False,
        without: str = "",
        **manifest: Any,
    ) -> Path:
        """A folder made by hand: a shell tool unless the entrypoint says otherwise. `without`: a key to leave out."""
        folder = self.tools / name
        folder.mkdir(parents=True, exist_ok=True)
        entrypoint = entrypoint or f"{name}.sh"
        said = {"name": name, "description": f"does {name}", "version": "1.0.0", "entrypoint": entrypoint} | manifest
        said.pop(without, None)
        for file, content in {"tool.yaml": yaml_of(said), entrypoint: source, **(files or {})}.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)
        if executable:
            (folder / entrypoint).chmod(0o700)
        return folder

    def python(self, name: str, source: str, /, **manifest: Any) -> Path:
        return self.tool(name, source, entrypoint=f"{name}.py", **manifest)

    def rules(self, *rules: str) -> None:
        """The person's own, as YAML."""
        (self.home / "rules.yaml").write_text("rules:\n" + "".join(f"  - {rule}\n" for rule in rules))

    def remove(self, name: str) -> None:
        shutil.rmtree(self.tools / name)

    def session(self, **options: Any) -> Any:
        """`async with bench.session() as session`; options as of `open_session`."""
        return open_session(self.workspace, **{"home": self.home, "approval_callback": self.cards} | options)

    def forge(self, *words: str, **environ: str) -> Said:
        """The command, in the workspace, with nobody to ask."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.root), "FORGE_HOME": str(self.home), **environ}
        ran = self.ready(*words, cwd=self.workspace, env=env, timeout=PATIENCE)
        return Said(code=ran.returncode, out=ran.stdout, err=ran.stderr)

    def forge_here(self, *words: str, **environ: str) -> Said:
        """The same command inside the test's process, for the cases that need none of their own. Nothing else goes on
        meanwhile; beside a running loop it has a thread, since some verbs have a loop of their own. (`forge call` and
        `forge tools run` listen to signals, so they are only for tests without a loop.)"""
        from golem_forge.cli.main import main

        def command() -> int:
            try:
                return main(list(words))
            except SystemExit as ended:
                return int(ended.code or 0)

        out, err = StringIO(), StringIO()
        place = {"HOME": str(self.root), "FORGE_HOME": str(self.home), **environ}
        with (
            patch.dict(os.environ, place),
            patch.object(sys, "stdin", StringIO()),
            chdir(self.workspace),
            redirect_stdout(out),
            redirect_stderr(err),
            ThreadPoolExecutor(1) as thread,
        ):
            code = thread.submit(command).result() if asyncio._get_running_loop() else command()
        return Said(code=code, out=out.getvalue(), err=err.getvalue())

    def state(self) -> dict[str, tuple[int, bytes]]:
        """Every file of every tool folder, to see that nothing was written."""
        return {
            str(path.relative_to(self.tools)): (path.stat().st_mode, path.read_bytes())
            for path in sorted(self.tools.rglob("*"))
            if path.is_file()
        }


async def run(session: Any, name: str, arguments: dict[str, Any] | None = None, **more: Any) -> Any:
    """Through `run_custom_tool`."""
    return await session.call("run_custom_tool", {"tool_name": name, "arguments": arguments or {}, **more})


def offered(session: Any) -> list[str]:
    """The user tools that a model sees now."""
    session.refresh()
    return [tool.name for tool in session.catalog.list(source="custom")]


def diagnosis(session: Any) -> dict[str, str]:
    """Folder → `code: message`, of those that are no tool or not active."""
    session.refresh()
    return {each.name: each.reason for each in session.catalog.quarantined() if str(each.source) == "custom"}
