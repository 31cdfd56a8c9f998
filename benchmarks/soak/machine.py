"""The machines of the soak: a program, a database, a home for each runner, and what happens to them.

`Machine` makes them. `Faults` kills, stops, drains and starts runners, fills disks, moves clocks and restarts the
database.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.team.postgres import PostgresServer

from benchmarks.soak.sessions import FORGE_YAML, MARK, SHOP, TOOLS, WORKER, WORKERS, Played, write_script
from golem_forge.core.ids import new_id
from golem_forge.team.database import StoreUnavailable, TeamError, open_database
from golem_forge.team.rows import NewSession
from golem_forge.team.schema import upgrade
from golem_forge.team.store import Store

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PEOPLE: Final = ("ada", "bob", "cyd")
STOPPED_S: Final = 40.0
MOVED_CLOCK: Final = """\
import runpy, sys, time
real, monotonic = time.time, time.monotonic
at, by = monotonic() + float(sys.argv[1]), float(sys.argv[2])
time.time = lambda: real() + (by if monotonic() > at else 0.0)
time.time_ns = lambda: int(time.time() * 1e9)
sys.argv[:] = ["forge", "runner"]
runpy.run_module("golem_forge", run_name="__main__", alter_sys=True)
"""
SMALL_DISK: Final = 'mount -t tmpfs -o size=24m none "$1" && cp -a "$2/." "$1" && shift 2 && exec "$@"'


class Runner:
    """A runner's place: its home stays, its process may be another one later."""

    def __init__(self, soak: Machine, name: str) -> None:
        self.soak = soak
        self.name = name
        self.home = soak.folder / "homes" / name
        shutil.copytree(soak.template, self.home)
        self.process: subprocess.Popen[bytes] | None = None
        self.is_stopped = False
        self.is_small = False

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, how: str = "") -> None:
        """`how`: `clock` (it jumps by an hour after five seconds), or `disk` (a home of 24 MB of its own)."""
        words = [sys.executable, "-m", "golem_forge", "runner"]
        home = self.home
        self.is_small = False
        if how == "clock":
            by = self.soak.chance.choice((-3600, 3600))
            words = [sys.executable, "-c", MOVED_CLOCK, "5", str(by)]
        elif how == "disk" and self.soak.has_small_disks:
            home = self.home.with_name(f"{self.name}-small")
            home.mkdir(exist_ok=True)
            self.is_small = True
            words = ["unshare", "-rm", "sh", "-c", SMALL_DISK, "sh", str(home), str(self.soak.template), *words]
        environ = self.soak.environ | {"FORGE_HOME": str(home)}
        with (self.soak.folder / f"{self.name}.log").open("ab") as log:
            log.write(f"---- {time.strftime('%H:%M:%S')} {how}\n".encode())
            log.flush()
            self.process = subprocess.Popen(words, cwd="/", env=environ, stdout=log, stderr=log)
        self.is_stopped = False

    def end(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            if number is signal.SIGKILL:
                self.process.wait()

    def fill_disk(self) -> bool:
        """Until nothing more fits; False: it has no disk of its own."""
        if not self.is_small or self.process is None or self.process.poll() is not None:
            return False
        with contextlib.suppress(OSError), self._filler().open("wb", buffering=0) as file:
            while file.write(b"x" * 65536):
                pass
        return True

    def empty_disk(self) -> None:
        if self.is_small:
            with contextlib.suppress(OSError):
                self._filler().unlink(missing_ok=True)

    def _filler(self) -> Path:
        return Path(f"/proc/{self.pid}/root{self.home}-small/filler")


class Machine:
    def __init__(self, folder: Path, seed: int, store_kind: str) -> None:
        self.folder = folder
        self.chance = random.Random(seed)
        self.program = folder / "shop"
        self.template = folder / "template"
        self.counts: Counter[str] = Counter()
        self.played: dict[str, Played] = {}
        self.memory: list[float] = []
        self.has_small_disks = _may_mount()
        self.server = PostgresServer() if store_kind == "postgresql" else None
        self.url = self._make_database()
        (folder / "tmp").mkdir()
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FORGE_")},
            "STORE_URL": self.url,
            "TMPDIR": str(folder / "tmp"),
            "FORGE_HOME": str(self.template),
        }
        self._make_program()
        self.store = Store.open(self.url, self.template)
        self.steady = Runner(self, "steady")
        self.mortal = [Runner(self, f"mortal-{number}") for number in (1, 2)]
        self.answerers: list[subprocess.Popen[str]] = []

    def _make_database(self) -> str:
        if self.server is None:
            url = f"sqlite://{self.folder}/store/sessions.db"
        else:
            self.server.execute("CREATE DATABASE soak")
            url = self.server.url("soak")
        database = open_database(url, self.folder)
        upgrade(database)
        database.close()
        return url

    def _make_program(self) -> None:
        for name in ("work", "server"):
            (self.program / name).mkdir(parents=True)
        files = {"forge.yaml": FORGE_YAML, "tools.py": TOOLS, "server/mark.py": MARK, "server/shop.py": SHOP}
        files |= {f"{name}.worker": WORKER % (name, toolsets) for name, toolsets in WORKERS.items()}
        files |= {"script.yaml": json.dumps({"turns": [{"say": "done"}]})}
        for name, text in files.items():
            (self.program / name).write_text(text)
        (self.program / "work" / "effects.txt").touch(0o600)
        self.template.mkdir()
        (self.template / "config.yaml").write_text(
            "store: {url: env:STORE_URL, runner: {slots: 4}, limits: {per_person: 8}}\n"
        )
        for words in (("mcp", "approve", "shop", "--yes"), ("trust", "--yes"), ("mcp", "test", "shop")):
            subprocess.run(
                [sys.executable, "-m", "golem_forge", *words],
                cwd=self.program,
                env=self.environ,
                check=True,
                capture_output=True,
                timeout=120,
            )

    # ---- while it runs

    def queue(self) -> str:
        number = len(self.played)
        played = write_script(self.chance, number)
        script = f"s{number}.yaml"
        (self.program / script).write_text(json.dumps({"turns": played.turns}))
        facts = {"directory": str(self.program), "worker": played.worker, "model": f"scripted:{script}"}
        session = new_id()
        self.played[session] = played
        new = NewSession(
            facts=facts, input=f"session {number}", worker=played.worker, person=self.chance.choice(PEOPLE), door="soak"
        )
        try:
            self.store.queue(new, session)
        except StoreUnavailable:
            self.counts["queued without an answer of the database"] += 1
        return session

    def open_sessions(self) -> int | None:
        """None: the database is away."""
        try:
            counted = self.store.counts()
        except StoreUnavailable:
            return None
        return sum(int(counted.get(state, 0)) for state in ("queued", "running", "waiting"))

    def start_answerers(self) -> None:
        for person in PEOPLE:
            self.answerers.append(
                subprocess.Popen(
                    [sys.executable, "-m", "benchmarks.soak", "--answer", person],
                    cwd=ROOT,
                    env=self.environ,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )

    def end_answerers(self) -> Counter[str]:
        told: Counter[str] = Counter()
        for each in self.answerers:
            said, _ = each.communicate(timeout=60)
            told.update(json.loads(said))
        return told

    def sample(self) -> None:
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{self.steady.pid}/status").read_text()
            self.memory.append(int(status.partition("VmRSS:")[2].split()[0]) / 1024)

    def close(self) -> None:
        for runner in (self.steady, *self.mortal):
            runner.end(signal.SIGCONT)
            runner.end(signal.SIGKILL)
        for each in self.answerers:
            each.kill()
            each.wait()
        self.store.close()
        if self.server is not None:
            self.server.remove()


class Faults:
    """What happens to the machine, and when. Each kind comes back after a while; what it began it also ends."""

    def __init__(self, soak: Machine) -> None:
        self._soak = soak
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._ending = False
        kinds: list[tuple[Callable[[], None], float, float]] = [
            (self._kill, 4.0, 14.0),
            (self._drain, 40.0, 70.0),
            (self._stop, 20.0, 80.0),
            (self._fill, 15.0, 30.0),
            (self._stop_session, 5.0, 15.0),
        ]
        if soak.server is not None:
            kinds += [(self._restart_database, 30.0, 70.0), (self._silence_database, 45.0, 110.0)]
        for kind, least, most in kinds:
            self._repeat(kind, least, most)

    def step(self) -> None:
        now = time.monotonic()
        for due in [each for each in self._due if each[0] <= now]:
            self._due.remove(due)
            due[1]()

    def end(self) -> None:
        """No new ones; those that last end now."""
        self._ending = True
        for _, act in sorted(self._due, key=lambda each: each[0]):
            act()
        self._due.clear()

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self._due.append((time.monotonic() + seconds, act))

    def _repeat(self, kind: Callable[[], None], least: float, most: float) -> None:
        def act() -> None:
            if not self._ending:
                kind()
                self._repeat(kind, least, most)

        self._later(self._soak.chance.uniform(least, most), act)

    def _one(self) -> Runner | None:
        able = [each for each in self._soak.mortal if each.process is not None and not each.is_stopped]
        return self._soak.chance.choice(able) if able else None

    def _start(self, runner: Runner) -> None:
        if runner.process is not None and runner.process.poll() is None:
            return
        how = self._soak.chance.choice(("", "", "clock", "disk", "disk"))
        if how:
            self._soak.counts[f"runners started with a moved {how}" if how == "clock" else "small disks"] += 1
        runner.start(how)

    def _kill(self) -> None:
        if (runner := self._one()) is not None:
            runner.end(signal.SIGKILL)
            self._soak.counts["kills"] += 1
            self._later(self._soak.chance.uniform(0.0, 3.0), lambda: self._start(runner))

    def _drain(self) -> None:
        if (runner := self._one()) is None or runner.process is None or runner.process.poll() is not None:
            return
        process = runner.process
        runner.end(signal.SIGTERM)
        self._soak.counts["drains"] += 1

        def again() -> None:
            if process.poll() is None:
                self._later(1.0, again)
            elif runner.process is process:
                self._start(runner)

        self._later(1.0, again)

    def _stop(self) -> None:
        if (runner := self._one()) is None:
            return
        runner.end(signal.SIGSTOP)
        runner.is_stopped = True
        self._soak.counts["stops of 40 s"] += 1

        def go_on() -> None:
            runner.end(signal.SIGCONT)
            runner.is_stopped = False

        self._later(STOPPED_S, go_on)

    def _fill(self) -> None:
        for runner in self._soak.mortal:
            if not runner.is_stopped and runner.fill_disk():
                self._soak.counts["disks filled"] += 1
                self._later(10.0, runner.empty_disk)
                return

    def _stop_session(self) -> None:
        with contextlib.suppress(TeamError):
            found = self._soak.store.sessions(states=("running", "waiting"), limit=50)
            if found:
                self._soak.store.stop(self._soak.chance.choice(found).id, "ada", "soak")
                self._soak.counts["sessions stopped by a person"] += 1

    def _restart_database(self) -> None:
        server = self._soak.server
        assert server is not None
        server.stop()
        self._soak.counts["restarts of the database"] += 1
        time.sleep(self._soak.chance.uniform(0.5, 6.0))
        server.start()

    def _silence_database(self) -> None:
        server = self._soak.server
        assert server is not None
        server.signal_all(signal.SIGSTOP)
        self._soak.counts["silences of the database"] += 1
        time.sleep(8.0)
        server.signal_all(signal.SIGCONT)


def _may_mount() -> bool:
    words = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs none /mnt"]
    try:
        return subprocess.run(words, check=False, capture_output=True).returncode == 0
    except OSError:
        return False
