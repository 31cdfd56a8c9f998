"""Writes the FORGE_HOME and the project that `test_homes.py` opens: what a person's disk looks like.

    python -m tests.compat.make_home NAME        # from the root of the repository; NAME: a new folder in homes/

Run it with the version whose files later versions must still read, once, and commit the result: `homes/NAME` is never
written again. A later format gets a folder of its own beside it.

Everything is written at one fixed place, `PLACE`, and opened there again. Trust records, journals and fingerprints
hold the absolute path of a project inside digests and hash chains, so no other path can be put in afterwards. Left out
of the fixture: caches, and what is about processes of one machine (`running/`, `placeholders/`).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
from tests.deadlines import PATIENCE

PLACES = Path("/tmp/golem-forge-compat")
"""Under it, one folder for each that needs a fixed path; see `at_place`."""
HOMES = Path(__file__).parent / "homes"
FORGE = str(Path(sys.executable).parent / "forge")
_LEFT_OUT = (".cache", "cache", "__pycache__", "running", "placeholders")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

PROJECT = {
    "forge.yaml": """\
model: scripted:words.yaml
sandbox:
  zones:
    workspace: {path: ., mode: rw, approval: {write: ask, delete: ask}}
approval:
  tools: {note: preApproved}
mcp:
  servers:
    shelf:
      zones: {workspace: ro}
      network: false
      trust: trusted
""",
    ".mcp.json": '{"mcpServers": {"shelf": {"command": "python3", "args": ["shelf.py"]}}}\n',
    ".forge/rules.yaml": """\
version: 1
rules:
  - {path: "/workspace/docs/**", access: [write], verdict: preApproved}
  - {path: "/workspace/sealed/**", access: [write, delete], verdict: blocked, reason: sealed by the project}
""",
    "main.worker": """\
---
name: main
toolsets:
  filesystem:
  exec:
  memory:
  user_tools: {tools: ["*"]}
  mcp: {servers: [shelf]}
  custom: {module: ./tools.py, tools: [note]}
  workers: {allow: [helper], approval: {default: preApproved}}
sandbox: {zones: [{name: workspace, mode: rw}]}
---
You keep the shop.
""",
    "workers/helper.worker": """\
---
name: helper
toolsets: {filesystem: }
sandbox: {zones: [{name: workspace, mode: ro}]}
---
You look things up.
""",
    "tools.py": '''\
"""The shop's own tool."""


def note(text: str) -> str:
    """Write down a line."""
    with open("/workspace/notes.txt", "a") as file:
        file.write(f"{text}\\n")
    return f"noted: {text}"
''',
    "shelf.py": """\
import json
import sys

ITEM = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
COUNT = {"name": "count", "description": "How many of an item there are.", "inputSchema": ITEM}
WRITE = {"name": "restock", "description": "Order an item.", "inputSchema": ITEM}
TOOLS = [{**COUNT, "annotations": {"readOnlyHint": True}}, {**WRITE, "annotations": {"destructiveHint": True}}]

for line in sys.stdin:
    asked = json.loads(line)
    params, said = asked.get("params", {}), None
    if asked["method"] == "initialize":
        said = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "shelf", "version": "1.0"}}
        said["capabilities"] = {"tools": {}}
    elif asked["method"] == "tools/list":
        said = {"tools": TOOLS}
    elif asked["method"] == "tools/call":
        number = {"mug": 7, "plate": 12}.get(params["arguments"]["item"], 0)
        said = {"content": [{"type": "text", "text": str(number)}]}
    if "id" in asked:
        end = {"result": said} if said else {"error": {"code": -32601, "message": "no such method"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **end}), flush=True)
""",
    "shop.txt": "7 mugs\n12 plates\n",
}
SCRIPTS = {
    "words.yaml": """\
workers:
  main:
    - say: I will look.
      calls: [{tool: helper, args: {input: What is there?}}, {tool: read_file, args: {path: shop.txt}}]
    - calls: [{tool: note, args: {text: 7 mugs}}, {tool: write_file, args: {path: docs/mugs.md, content: "Mugs: 7"}}]
    - {say: There are 7 mugs.}
  helper:
    - {calls: [{tool: read_file, args: {path: shop.txt}}]}
    - {say: Mugs and plates.}
""",
    "asking.yaml": """\
turns:
  - {calls: [{tool: write_file, args: {path: price.txt, content: "3\\n"}}]}
  - {calls: [{tool: write_file, args: {path: other.txt, content: "x"}}]}
  - {calls: [{tool: write_file, args: {path: lists/a.txt, content: "a\\n"}}]}
  - {calls: [{tool: exec_command, args: {cmd: pytest --version}}]}
  - {say: The price is written.}
""",
    "slow.yaml": """\
turns:
  - {say: It takes a while., calls: [{tool: exec_command, args: {cmd: "touch begun; sleep 600"}}]}
""",
    "talk.yaml": "turns: [{expect: plates, say: There are 12 plates.}]\n",
    "next.yaml": "turns: [{expect: go on, say: I went on.}]\n",
}
RULES = """\
version: 1
rules:
  - command: [cargo, [check, clippy]]
    verdict: preApproved
    reason: the project's own checks
    match: ["cargo check --all"]
    not_match: [cargo run]
  - {command: [git, push], verdict: blocked, reason: releases are made by people}
  - {path: "/workspace/drafts/**", access: [write], verdict: preApproved}
  - {mcp: {server: shelf, tool: [restock]}, verdict: ask}
  - {tool: headings, verdict: preApproved}
"""
CONFIG = """\
approval: {timeout: 600}
ui: {web: {port: 8765}}
"""
HEADINGS = """\
name: headings
description: List the headings of a Markdown file
version: {version}
entrypoint: headings.py
parameters:
  - {{name: file, type: string, description: which file, required: true, path: read}}
  - {{name: depth, type: integer, description: the deepest level to list, default: 6, min: 1, max: 6}}
tests:
  - name: first level only
    files: {{a.md: "# One\\ntext\\n## Two\\n"}}
    arguments: {{file: a.md, depth: 1}}
    expect: {{stdout: "# One\\n"}}
"""
HEADINGS_SOURCE = """\
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--file")
parser.add_argument("--depth", type=int)
given = parser.parse_args()
with open(given.file, encoding="utf-8") as text:
    for line in text:
        marks = line.split(" ")[0]
        if marks and set(marks) == {"#"} and len(marks) <= given.depth:
            print(line, end="")
"""
STRANGER = """\
name: stranger
description: Nobody agreed to this one
version: 1.0.0
entrypoint: stranger.py
parameters: []
"""
GREET = """\
name: greet
description: Greet somebody
version: 1.0.0
entrypoint: greet.sh
parameters: [{name: who, type: string, description: whom, required: true}]
tests: [{arguments: {who: Ada}, expect: {stdout: "Hello Ada\\n"}}]
"""


@contextlib.contextmanager
def at_place(name: str) -> Iterator[Path]:
    """A new, empty folder of a fixed path, for one process at a time, gone afterwards.

    Threat: the path is known to everybody. A folder there that is not ours alone is refused.
    """
    PLACES.mkdir(mode=0o700, exist_ok=True)
    status = PLACES.lstat()
    if not PLACES.is_dir() or PLACES.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(f"{PLACES} is not a folder of yours alone; remove it")
    with open(PLACES / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        place = PLACES / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(mode=0o700)
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)


def environment(place: Path) -> dict[str, str]:
    """For a `forge` at that place."""
    return {"HOME": str(place), "FORGE_HOME": str(place / ".forge"), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


class Answering:
    """A UI that shows nothing and answers every card: by `answer`, from its data."""

    def __init__(self, bus: Any, answer: Callable[[Any], dict[str, Any]]) -> None:
        self.bus = bus
        self._answer = answer
        self._ends: list[Callable[[], object]] = []

    def initialize(self) -> None:
        from golem_forge import create_runtime_ui

        self._ends = [create_runtime_ui(self.bus).attach("answering"), self.bus.on("approvalRequired", self._ask)]

    def shutdown(self) -> None:
        for end in self._ends:
            end()

    def _ask(self, event: Any) -> None:
        answer = {"requestId": event.data.request_id, **self._answer(event.data)}
        self.bus.emit("approvalResponse", answer, source="answering")


class Writer:
    def __init__(self, place: Path) -> None:
        self.place, self.home, self.project = place, place / ".forge", place / "shop"

    def forge(self, *words: str, code: int = 0) -> str:
        ran = subprocess.run(
            [FORGE, *words],
            cwd=self.project,
            env=environment(self.place),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert ran.returncode == code, (words, ran.returncode, ran.stdout, ran.stderr)
        return ran.stdout

    def everything(self) -> None:
        self.home.mkdir(mode=0o700)
        write(self.project, PROJECT | SCRIPTS)
        write(self.home, {"rules.yaml": RULES, "config.yaml": CONFIG})
        self.forge("trust", "--yes")
        self.tools()
        self.forge("mcp", "approve", "shelf", "--yes")
        self.forge("mcp", "test", "shelf")
        self.forge("mcp", "token", "create", "editor")
        self.forge("call", "shelf__count", "--item", "mug")
        for scope in ("user", "project"):
            kept = ["--memory_id", "mugs", "--content", f"Mugs are blue ({scope}).", "--scope", scope]
            self.forge("call", "save_memory", *kept, "--approval", "approve_all")
        self.forge("call", "write_file", "--path", "no.txt", "--content", "x", code=3)
        self.forge("run", "-a", "auto_deny", "How many mugs?")
        asyncio.run(self.asked())
        self.typed()
        self.killed()
        self.forge("log")
        self.forge("sessions", "list")
        for database in (self.home / "index.db", self.home / "state/custom.db"):
            with contextlib.closing(sqlite3.connect(database)) as opened:
                opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def tools(self) -> None:
        tools = self.home / "tools"
        for version, depth in (("1.0.0", "<= given.depth"), ("1.1.0", "< given.depth + 1")):
            source = HEADINGS_SOURCE.replace("<= given.depth", depth)
            write(tools / "headings", {"tool.yaml": HEADINGS.format(version=version), "headings.py": source})
            self.forge("tools", "activate", "headings", "--yes")
        write(self.project, {"guide.md": "# One\n## Two\n"})
        for depth in ("1", "2"):
            self.forge("call", "headings", "--file", "guide.md", "--depth", depth, "--approval", "approve_all")
        self.forge("call", "headings", "--file", "missing.md", "--approval", "approve_all", code=1)
        write(tools / "stranger", {"tool.yaml": STRANGER, "stranger.py": 'print("ran")\n'})
        write(self.place / "collection/greet", {"tool.yaml": GREET, "greet.sh": 'echo "Hello ${1#--who=}"\n'})
        self.forge("tools", "import", str(self.place / "collection/greet"))
        self.forge("tools", "activate", "greet", "--yes")

    async def asked(self) -> None:
        """A worker asks four times; the person agrees for the session, denies, and says "always" twice."""
        from golem_forge import WorkerRuntime, create_ui_event_bus

        def answer(card: Any) -> dict[str, Any]:
            if card.args.get("path") == "other.txt":
                return {"approved": False, "reason": "not that file"}
            scope = "session" if card.args.get("path") == "price.txt" else "always"
            return {"approved": True, "choice": next(each["id"] for each in card.choices if each["scope"] == scope)}

        options: dict[str, Any] = {"model": "scripted:asking.yaml", "home": self.home}
        ui = Answering(create_ui_event_bus(), answer)
        async with WorkerRuntime(directory=self.project, ui_adapter=ui, **options) as runtime:
            result = await runtime.run("Write the price")
        assert result.response == "The price is written.", result

    def typed(self) -> None:
        """A conversation on a terminal: what was typed is in `history`."""
        command = pexpect.spawn(
            FORGE,
            ["run", "-m", "scripted:talk.yaml"],
            cwd=str(self.project),
            env=environment(self.place) | {"TERM": "xterm"},
            timeout=PATIENCE,
        )
        command.expect("main")
        command.send("How many plates?\r")
        command.expect("12 plates")
        command.send("/exit\r")
        command.expect(pexpect.EOF)

    def killed(self) -> None:
        """SIGKILL while a command runs: no process writes an end."""
        process = subprocess.Popen(
            [FORGE, "run", "-m", "scripted:slow.yaml", "-a", "approve_all", "Wait"],
            cwd=self.project,
            env=environment(self.place),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not (self.project / "begun").exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()


def main(name: str) -> None:
    target = HOMES / name
    assert not target.exists(), f"{target} is there already"
    with at_place("home") as place:
        os.environ.update(environment(place))
        Writer(place).everything()
        shutil.copytree(place, target, ignore=shutil.ignore_patterns(*_LEFT_OUT))


if __name__ == "__main__":
    main(*sys.argv[1:])
