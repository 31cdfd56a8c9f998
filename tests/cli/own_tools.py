"""A person with tool folders of their own, for tests of `forge tools`: the verbs in this process, in an empty home.

`Person.tool(name, source, **manifest)` writes a folder as by hand; `Person("activate", "x")` is
`forge tools activate x` without a terminal.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.ready import run_in_process

from golem_forge.storage.home import ForgeHome
from golem_forge.usertools.store import ToolStore

from .conftest import Ended

GREET = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--who", default="nobody")
print(f"Hello {parser.parse_args().who}")
"""
WHO = [{"name": "who", "type": "string", "description": "whom to greet"}]
GREETS = {"name": "greets", "arguments": {"who": "Ada"}, "expect": {"stdout": "Hello Ada\n"}}


@dataclass
class Person:
    forge_home: Path
    capture: Any

    def __call__(self, *words: str) -> Ended:
        return self.forge("tools", *words)

    def forge(self, *words: str) -> Ended:
        done = run_in_process(self.capture, *words, cwd=Path.cwd(), env=dict(os.environ))
        return Ended(done.returncode, done.stdout, done.stderr)

    @property
    def home(self) -> ForgeHome:
        return ForgeHome(self.forge_home)

    @property
    def book(self) -> ToolStore:
        return ToolStore(self.home)

    @property
    def folders(self) -> Path:
        return self.home.ensure("tools")

    def tool(self, name: str, source: str = GREET, /, *, file: str = "", **manifest: Any) -> Path:
        folder = self.folders / name
        folder.mkdir(mode=0o700, exist_ok=True)
        file = file or f"{name}.py"
        keys = {"name": name, "description": f"Does {name}", "version": "1.0", "entrypoint": file} | manifest
        (folder / "tool.yaml").write_text("".join(f"{key}: {json.dumps(keys[key])}\n" for key in keys))
        (folder / file).write_text(source)
        return folder

    def greet(self, **manifest: Any) -> Path:
        return self.tool("greet", **({"parameters": WHO, "tests": [GREETS]} | manifest))

    def codes(self) -> dict[str, str]:
        """Folder → why it is skipped."""
        return {each["tool"]: each["code"] for each in self("list", "--json").json["skipped"]}

    def active(self) -> set[str]:
        return {each["name"] for each in self("list", "--source", "custom", "--json").json["tools"]}
