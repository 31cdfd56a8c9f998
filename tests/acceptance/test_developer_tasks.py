"""A developer's ordinary tasks in the mode `contained`: they work inside walls, and nobody is asked.

The tasks that need a registry, a remote, a key or a daemon stand in test_packages, test_push_and_fetch, test_ports and
test_narrow_exits.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from pwd import getpwuid
from typing import Any, NamedTuple

import pytest

from golem_forge import open_session
from golem_forge.core.decisions import Status
from golem_forge.sandbox.host import base_python
from golem_forge.sandbox.walls.bubblewrap import find_bwrap

pytestmark = [pytest.mark.skipif(find_bwrap() is None, reason="bwrap is not installed"), pytest.mark.walls]
PYTHON = base_python()


class Task(NamedTuple):
    needs: str
    """The program that must be installed."""
    cmd: str
    last_line: str
    files: Mapping[str, str] = {}


RUST = {
    "Cargo.toml": '[package]\nname = "app"\nversion = "0.1.0"\n[dependencies]\nanswer = {path = "vendor/answer"}\n',
    "src/main.rs": 'fn main() { println!("{}", answer::x()); }\n',
    "vendor/answer/Cargo.toml": '[package]\nname = "answer"\nversion = "0.1.0"\n',
    "vendor/answer/src/lib.rs": "pub fn x() -> u8 { 42 }\n",
}
C = {
    "hello.c": '#include <stdio.h>\nint main() { puts("42"); }\n',
    "Makefile": "hello: hello.c\n\tcc -o hello hello.c\n",
}
JAVA = {"A.java": "class A { public static void main(String[] a) { System.out.println(42); } }\n"}
RELOADS = """import http.server
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(open("page.txt", "rb").read())
    def log_message(self, *args): pass
server = http.server.HTTPServer(("127.0.0.1", 3000), Page)
open("listens", "w").close()
server.serve_forever()
"""
READ = "until [ -e listens ]; do sleep 0.02; done; curl -sf http://localhost:3000/"
WATCHES = (
    "require('fs').watch('.', () => { console.log('seen'); process.exit(0) }); require('fs').writeFileSync('a', '1')"
)
DATABASE = "c = sqlite3.connect('t.db'); c.execute('create table t as select 42'); print(*c.execute('select * from t'))"
HITS = "ccache --print-stats | awk '/_cache_hit/ {n += $2} END {print n}'"
CCACHE = f"ccache cc -c hello.c && ccache cc -c hello.c && {HITS}"
WORKTREE = (
    "git worktree add -q side && cd side && touch b && git add b && git commit -qm side && git log -1 --format=%s"
)
PUSH = "git init -q --bare ./up.git && git push -q ./up.git HEAD:main && git -C up.git log -1 --format=%s main"
TASKS = {
    "make": Task("make", "make && ./hello", "42", C),
    "ccache, twice": Task("ccache", CCACHE, "1", C),
    "cargo with a vendored crate": Task("cargo", "cargo run -q --offline", "42", RUST),
    "javac": Task("javac", "javac A.java && java A", "42", JAVA),
    "a venv": Task("python3", f"{PYTHON} -m venv --without-pip .venv && .venv/bin/python -c 'print(42)'", "42"),
    "sqlite": Task("python3", f'{PYTHON} -c "import sqlite3; {DATABASE}"', "(42,)"),
    "a file watcher": Task("node", f'node -e "{WATCHES}"', "seen"),
    "a worktree": Task("git", WORKTREE, "side"),
    "a push to a path": Task("git", PUSH, "first"),
    "a loop over files": Task("git", "for f in *.txt; do FOO=1 wc -c < $f; done | tr -d ' '", "4"),
}


@pytest.fixture
def project(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "page.txt").write_text("one\n")
    for command in (
        "init -q",
        "config user.name Ada",
        "config user.email ada@example.com",
        "add .",
        "commit -qm first",
    ):
        subprocess.run(["git", *command.split()], cwd=root, check=True)
    monkeypatch.chdir(root)
    if (toolchains := Path(getpwuid(os.getuid()).pw_dir, ".rustup")).is_dir():
        monkeypatch.setenv("RUSTUP_HOME", str(toolchains))
    return root


def refuses(request: Any) -> dict[str, Any]:
    return {"approved": False, "reason": f"asked: {request.why}"}


OFTEN = ("make", "a worktree", "a push to a path", "a loop over files")
"""The others run in `make test-long`."""


@pytest.mark.parametrize(
    "task", [pytest.param(TASKS[name], marks=() if name in OFTEN else pytest.mark.long, id=name) for name in TASKS]
)
async def test_it_works_and_nobody_is_asked(task: Task, project: Path) -> None:
    if shutil.which(task.needs) is None:
        pytest.skip(f"{task.needs} is not installed")
    for name, text in task.files.items():
        place = project / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    async with open_session(project, approval="contained", approval_callback=refuses) as session:
        outcome = await session.call("exec_command", {"cmd": task.cmd})
    assert outcome.status is Status.SUCCESS, outcome.text
    assert outcome.text.rstrip().splitlines()[-1] == task.last_line


async def test_a_dev_server_shows_the_next_edit(project: Path) -> None:
    """A server in one call, an edit by a tool, the page by `curl` in a third: no question."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    (project / "server.py").write_text(RELOADS)
    async with open_session(project, approval="contained", approval_callback=refuses) as session:
        await session.call("exec_command", {"cmd": f"{PYTHON} server.py", "yield_time_ms": 0})
        assert (await session.call("exec_command", {"cmd": READ})).text.endswith("one\n")
        change = "*** Begin Patch\n*** Update File: page.txt\n@@\n-one\n+two\n*** End Patch"
        assert (await session.call("apply_patch", {"patch": change})).status is Status.SUCCESS
        assert (await session.call("exec_command", {"cmd": READ})).text.endswith("two\n")


async def test_passwords_of_java_stay_hidden(project: Path) -> None:
    found = [path for path in Path("/etc").glob("java-*/management/*") if path.is_file()]
    if not found:
        pytest.skip("no Java keeps files in /etc/java-*/management")
    async with open_session(project, approval="approve_all") as session:
        outcome = await session.call("exec_command", {"cmd": f"ls {found[0].parent} {found[0].parent.parent}"})
    assert "security" in outcome.text and found[0].name not in outcome.text
