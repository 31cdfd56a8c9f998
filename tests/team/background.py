"""A home, a program and runners as processes, for the tests of sessions that outlive their process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.deadlines import PATIENCE
from tests.machine import free_port
from tests.ready import Process, ReadyForge, run_in_process
from websockets.sync.client import connect
from websockets.typing import Origin

from golem_forge.cli.team.background import host_label, machine_label
from golem_forge.team.leases import LEASE_S
from golem_forge.team.people import Role, add_person
from golem_forge.team.rows import ENDED, NewSession, StoredSession
from golem_forge.team.runner import Runner, RunnerOptions
from golem_forge.team.store import Store

FORGE_YAML = """\
model: scripted:script.yaml
sandbox: {zones: {work: {path: ./work, mode: rw, approval: {write: ask, delete: ask}}}}
"""
WORKER = """\
---
name: main
description: Does what the script says.
sandbox: {zones: [{name: work, mode: rw}]}
toolsets:
  filesystem: {}
  custom: {module: ./tools.py, tools: [effect, talk], approval: {default: preApproved}}
---
Do it.
"""
TOOLS = '''\
import os
import time


def effect(name: str, wait: float = 0.0, gate: str = "") -> str:
    """One line for each time it is run. Goes on when the gate, a file, is there."""
    with open("/work/effects.txt", "a") as file:
        file.write(f"{name}\\n")
    time.sleep(wait)
    while gate and not os.path.exists(f"/work/{gate}"):
        time.sleep(0.01)
    return name


def talk(lines: int) -> str:
    """A long text."""
    return "".join(f"line {number}\\n" for number in range(lines))
'''


def write_call(path: str, content: str) -> dict[str, Any]:
    return {"tool": "write_file", "args": {"path": path, "content": content}}


class Program:
    """A program in a folder, and a home with a store. `ready`: starts its commands; None: they start by themselves,
    with all of their imports. `capture`, the fixture `capfd`: those that end soon run in this process."""

    def __init__(
        self,
        folder: Path,
        home: Path,
        url: str = "sqlite",
        ready: ReadyForge | None = None,
        *,
        capture: Any = None,
        tools: bool = True,
    ) -> None:
        self.folder = folder
        self.home = home
        self.url = url
        self.ready = ready
        self.capture = capture
        self.runners: list[subprocess.Popen[bytes] | Process] = []
        self._here: list[RunnerHere] = []
        (folder / "work").mkdir(parents=True)
        home.mkdir(exist_ok=True)
        (folder / "forge.yaml").write_text(FORGE_YAML)
        (folder / "main.worker").write_text(re.sub(".*custom:.*\n", "", WORKER))
        (home / "config.yaml").write_text("store: {url: env:STORE_URL, runner: {slots: 4}}\n")
        self.environ = {**os.environ, "FORGE_HOME": str(home), "STORE_URL": url}
        self.play({"say": "done"})
        if tools:
            self.add_tools()

    def add_tools(self) -> None:
        """`effect` and `talk`, in a process of each session: such a program has to be trusted."""
        (self.folder / "main.worker").write_text(WORKER)
        (self.folder / "tools.py").write_text(TOOLS)
        self.forge("trust", "--yes")

    def play(self, *turns: dict[str, Any], script: str = "script.yaml") -> None:
        (self.folder / script).write_text(json.dumps({"turns": turns}))

    def forge(self, *words: str, code: int | None = 0, cwd: Path | None = None, **environ: str) -> str:
        """`code`: how it ends; None: in any way."""
        cwd, env = cwd or self.folder, {**self.environ, **environ}
        if self.capture is not None:
            done = run_in_process(self.capture, *words, cwd=cwd, env=env)
        elif self.ready is not None:
            done = self.ready(*words, cwd=cwd, env=env)
        else:
            command = [sys.executable, "-m", "golem_forge", *words]
            done = subprocess.run(
                command, cwd=cwd, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False
            )
        assert code in (None, done.returncode), (words, done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def store(self) -> Store:
        return Store.open(self.url, self.home, create=True)

    def queue(self, text: str = "go", **facts: Any) -> str:
        new = NewSession(facts={"directory": str(self.folder), **facts}, input=text, person="ada", door="test")
        return self.store().queue(new)

    def start_runner(self, *words: str) -> subprocess.Popen[bytes] | Process:
        return self._start(["forge", "runner", *words], ["-m", "golem_forge", "runner", *words])

    def start_quick_runner(
        self, lease_s: float = LEASE_S, *, sweep_s: float = 0.0, **environ: str
    ) -> subprocess.Popen[bytes] | Process:
        """One whose lease lasts only so long, and that looks every `sweep_s` for what no ring told of; without: after
        a third of the lease, as the product does."""
        words = [str(Path(__file__).with_name("quick_runner.py")), str(lease_s), str(sweep_s or lease_s / 3)]
        return self._start(["python", *words], words, **environ)

    def _start(self, ready: list[str], alone: list[str], **environ: str) -> subprocess.Popen[bytes] | Process:
        log, env = self.home / f"runner-{len(self.runners)}.log", {**self.environ, **environ}
        runner: subprocess.Popen[bytes] | Process
        if self.ready is not None:
            runner = self.ready.start_with_log(ready, log, cwd=Path("/"), env=env)
        else:
            with log.open("ab") as file:
                runner = subprocess.Popen([sys.executable, *alone], cwd="/", env=env, stderr=file, stdout=file)
        self.runners.append(runner)
        return runner

    def run_here(self) -> RunnerHere:
        self._here.append(RunnerHere(self))
        return self._here[-1]

    def start_moved_runner(self) -> subprocess.Popen[bytes] | Process:
        """One on a store whose clock the test moves."""
        words = [str(Path(__file__).with_name("moved_clock.py"))]
        return self._start(["python", *words], words)

    def open_gate(self, name: str) -> None:
        (self.folder / "work" / name).touch()

    def end_leases(self) -> None:
        """As if the time of all leases were over: a test need not wait, and no slow machine ends one too soon."""
        with self.store().database.transaction() as connection:
            connection.execute("UPDATE sessions SET lease_until = 1 WHERE lease_until > 1")

    def effects(self) -> list[str]:
        path = self.folder / "work" / "effects.txt"
        return path.read_text().split() if path.exists() else []

    def logs(self) -> str:
        return "".join(path.read_text() for path in sorted(self.home.glob("runner-*.log")))

    def wait_for(self, session: str, *states: str, within: float = PATIENCE) -> StoredSession:
        store = self.store()
        return until(
            lambda: (row := store.find(session)).state in states and row,
            within,
            lambda: (store.find(session), self.logs()),
        )

    def close(self) -> None:
        for here in self._here:
            here.stop()
        for runner in self.runners:
            if runner.poll() is None:
                runner.send_signal(signal.SIGCONT)
                runner.kill()
            runner.wait()


@contextlib.asynccontextmanager
async def running(program: Program) -> AsyncIterator[Store]:
    """Its store, while a runner of this loop takes sessions."""
    store = program.store()
    runner = Runner(store, program.home, RunnerOptions(slots=4))
    task = asyncio.create_task(runner.run())
    try:
        yield store
    finally:
        runner.drain()
        await task
        store.close()


async def until_in(store: Store, session: str, *states: str) -> StoredSession:
    deadline = time.monotonic() + PATIENCE
    while (row := await asyncio.to_thread(store.find, session)).state not in states:
        assert time.monotonic() < deadline and row.state not in ENDED, row
        await asyncio.sleep(0.02)
    return row


async def ended(store: Store, session: str) -> StoredSession:
    return await until_in(store, session, *ENDED)


async def until_ended(store: Store, session: str) -> str:
    return (await ended(store, session)).state


class RunnerHere:
    """A runner in a thread of this process, for a test that is not about processes. No `forge` runs in this process at
    the same time: it changes the environment."""

    def __init__(self, program: Program) -> None:
        self._store = program.store()
        self._runner = Runner(self._store, program.home, RunnerOptions(slots=4, labels=(host_label(), machine_label())))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runs = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(),), daemon=True)
        self._thread.start()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._runs.set()
        await self._runner.run()

    def stop(self) -> None:
        """As TERM does."""
        if self._thread.is_alive():
            assert self._runs.wait(PATIENCE) and self._loop is not None
            with contextlib.suppress(RuntimeError):  # it ends by itself
                self._loop.call_soon_threadsafe(self._runner.drain)
            self._thread.join(PATIENCE)
        self._store.close()


def until(look: Callable[[], Any], within: float = PATIENCE, or_else: Callable[[], Any] = lambda: "") -> Any:
    """What `look` gives once it is true."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError(or_else() or "it never came")


class TeamPage:
    """`forge web --team` at one address, and browsers that are logged in there."""

    def __init__(self, folder: Path, url: str, ready: ReadyForge, *words: str, port: int = 0) -> None:
        self.program = Program(folder / "shop", folder / "home", url, ready, tools=False)
        self.ready = ready
        self.port = port or free_port()
        self.file = self.program.home / "state" / "web" / f"{self.port}-logins.json"
        self.words = words
        self.server: Any = None
        self.start()

    def start(self) -> None:
        command = ["forge", "web", "--team", "--port", str(self.port), *self.words]
        self.server = self.ready.start(command, cwd=self.program.folder, env=self.program.environ)
        line = self.server.stdout.readline()
        assert f"http://127.0.0.1:{self.port}/" in line, (line, self.server.stderr.readline())

    def stop(self, *, kill: bool = False) -> None:
        if kill:
            self.server.kill()
        else:
            self.server.terminate()
        self.server.wait(PATIENCE)

    def restart(self, *, kill: bool = False) -> None:
        self.stop(kill=kill)
        self.start()

    def add(self, name: str, role: Role = Role.VIEWER) -> str:
        return add_person(self.program.store(), name, role)

    def ask(self, path: str, cookie: str = "", body: Any = None, token: str = "") -> tuple[int, dict[str, str], Any]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        headers = {"Origin": f"http://127.0.0.1:{self.port}", "Cookie": cookie, "Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        said = answer.read()
        connection.close()
        return answer.status, dict(answer.headers), json.loads(said) if said else None

    def log_in(self, token: str) -> str:
        """The cookie, as a browser sends it."""
        status, headers, said = self.ask("/api/login", body={"code": token})
        assert status == 204, said
        assert headers["set-cookie"].endswith("Max-Age=43200; Path=/; HttpOnly; SameSite=Strict")
        return headers["set-cookie"].partition(";")[0]

    def person(self, cookie: str) -> str:
        """Who is logged in; empty: nobody."""
        status, _, said = self.ask("/api/me", cookie)
        assert status in (200, 401), said
        return str(said["person"]) if status == 200 else ""

    def stream(self, session: str, cookie: str) -> Any:
        address = f"ws://127.0.0.1:{self.port}/api/sessions/{session}/stream"
        return connect(address, origin=Origin(f"http://127.0.0.1:{self.port}"), additional_headers={"Cookie": cookie})

    def rewrite(self, change: Any) -> None:
        """As somebody who can write the file."""
        kept = json.loads(self.file.read_text())
        for row in kept["logins"]:
            change(row)
        self.file.write_text(json.dumps(kept))

    def close(self) -> None:
        if self.server.poll() is None:
            self.stop()
        self.program.close()
