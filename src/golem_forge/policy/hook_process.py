"""The process of one hook, or of a reviewer: a command in the worker's walls, JSON on its standard input, bounded and
ended with its whole tree.

Takes a ReadyHook or the path of a reviewer's program; gives a HookRun. Raises nothing but cancellation: walls that
cannot be built, a file that is not what was trusted, too much time and too much output are a HookRun with a `problem`.

No hook starts in a zone. A program's hook runs from the snapshot of what was trusted: its command starts there, and
what it names is found there and nowhere else. A hook of the person's own names files by absolute paths; it gets copies
of them as they are now, and starts in an empty directory.
Zones are read-only, except for `after_call`. There is no network and no environment of the person's. On the host
(`walls: host`) a program of the person's own runs in FORGE_HOME, with what a desktop needs and no credential.

Threat: code that a model can change decides about the model's calls. So nothing that lies in a zone is started by name,
and neither a program, a Python module nor a Makefile is looked for there.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from golem_forge.config.hooks_block import PATHS, Hook, HookPoint, command_words
from golem_forge.config.sandbox_block import WallSettings
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.text import display_name
from golem_forge.events.redaction import Redactor
from golem_forge.policy.hooks import MOST_PATHS, HookOrder, HookRun, ReadyHook
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.host import SYSTEM, is_below, person_environ, safe_path
from golem_forge.sandbox.process.monitor import OUTPUT_LIMIT, REASONS, TIMEOUT, ExitStatus
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.model import HostDirectory, Job, Level, Streams
from golem_forge.sandbox.walls.walls import WalledChild, Walls
from golem_forge.sandbox.zones import USER_TOOLS, Zone
from golem_forge.storage.content_store import ContentStore
from golem_forge.storage.home import ForgeHome

MOST_OUTPUT: Final = 256 << 10
"""Bytes of standard output and standard error together."""
SNAPSHOT: Final = "/opt/forge/hook"
"""Path inside full walls where the files of a program's hook are mounted."""
_SHELL: Final = "/bin/sh"
_MOST_TEXT: Final = 100_000
"""Characters of a command with its paths; the kernel takes 128 KiB."""
_MOST_FILE: Final = 32 << 20
_IN: Final = 'cd "$0" && unset OLDPWD && exec /bin/sh -c "$1"'
_IN_EMPTY: Final = 'mkdir "$TMPDIR/hook" && cd "$TMPDIR/hook" && unset OLDPWD && exec /bin/sh -c "$0"'
"""Starts the hook in an empty directory of its own, since programs write caches into their working directory."""
_ON_HOST: Final = 'cd "$0" && HOME="$1" && PATH="$2" && export HOME PATH && shift 2 && exec "$@"'
_DESKTOP: Final = (
    *("LANG", "LC_ALL", "USER", "LOGNAME", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY"),
    *("XDG_RUNTIME_DIR", "XDG_CURRENT_DESKTOP", "DBUS_SESSION_BUS_ADDRESS"),
)
"""Environment variables of the person that a hook on the host receives."""


class _NotUsable(Exception):
    """Why it cannot be started, in words that follow the hook's name."""


class HookProcesses:
    """Starts hook processes for one worker."""

    def __init__(self, walls: Walls | None, home: ForgeHome | None, redactor: Redactor) -> None:
        self._walls = walls
        self._home = home
        self._redactor = redactor
        self._on_host: Walls | None = None

    async def run(self, order: HookOrder, started: list[WalledChild] | None = None) -> HookRun:
        """`started`: gets the child, for whoever wants to know when it ran and what it left."""
        hook = order.ready.hook
        try:
            if hook.on_host:
                return await self._finish(await self._start_on_host(hook, order.input), hook.timeout_s, started)
            job, left_out = await self._job(order)
            run = await self._finish(await self._needed_walls().start(job), hook.timeout_s, started)
            return replace(run, left_out=left_out)
        except _NotUsable as error:
            return HookRun(problem=str(error))
        except SandboxError as error:
            return HookRun(problem=f"could not be started: {error.message}")
        except (ForgeError, OSError) as error:
            said = error.message if isinstance(error, ForgeError) else error.strerror
            return HookRun(problem=f"could not be started: {said}")

    async def run_program(self, argv: Sequence[str], stdin: bytes, seconds: float) -> HookRun:
        """A program of the person's own, by its absolute path, with every zone read-only."""
        hook = Hook(on=HookPoint.BEFORE_CALL, run=shlex.join(argv), name="program", timeout_s=seconds)
        return await self.run(HookOrder(ready=ReadyHook(hook=hook), input=stdin))

    async def shown_paths(self, paths: Iterable[str]) -> list[str]:
        """The program's virtual paths as a hook in these walls finds them."""
        if self._walls is None:
            return list(paths)
        level = await self._walls.level()
        return [self._shown(path, level) for path in paths]

    async def directory(self) -> str:
        """The default zone as a hook finds it; empty: there is none."""
        walls = self._walls
        zone = walls.sandbox.default_zone if walls is not None else None
        return walls.mount_point(zone, await walls.level()) if walls is not None and zone else ""

    def _shown(self, path: str, level: Level) -> str:
        _, name, *parts = path.split("/")
        assert self._walls is not None
        zone, place = self._walls.sandbox.zones.get(name), self._walls.mount_point(name, level)
        above = zone.subpath if zone is not None else ()  # the worker's zone may begin deeper
        if not place or tuple(parts[: len(above)]) != above:
            return path
        return "/".join((place, *parts[len(above) :]))

    def _needed_walls(self) -> Walls:
        if self._walls is None or self._home is None:
            raise _NotUsable("could not be started: this session has no walls to run it in")
        return self._walls

    async def _with_paths(self, text: str, paths: Sequence[str]) -> tuple[str, int]:
        """The command with its paths put in, each as one single-quoted word; and how many had no room."""
        if PATHS not in text:
            return text, 0
        words: list[str] = []
        length = len(text)
        for path in await self.shown_paths(paths[:MOST_PATHS]):
            word = _single_quoted(path)
            length += (len(word) + 1) * text.count(PATHS)
            if length > _MOST_TEXT:
                break
            words.append(word)
        return text.replace(PATHS, " ".join(words)), len(paths) - len(words)

    async def _job(self, order: HookOrder) -> tuple[Job, int]:
        """Builds the job of a hook. Returns it with the number of paths that did not fit into the command."""
        walls, ready = self._needed_walls(), order.ready
        level = await walls.level()
        directory = await self.directory()
        env = {
            "FORGE_HOOK": ready.hook.name,
            "FORGE_DIRECTORY": directory,
            "CLAUDE_PROJECT_DIR": directory,  # as hooks for other agents know it
            "NO_COLOR": "1",
            "LC_ALL": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONSAFEPATH": "1",  # after a `cd`, else `-c` and `-m` would look into the working directory first
        }
        shown: tuple[HostDirectory, ...] = ()
        text = ready.hook.run
        before: tuple[str, ...] = (_IN_EMPTY,)
        if not ready.hook.own:
            self._refuse_named(text, walls.sandbox)
        if ready.snapshot is not None:
            ContentStore(self._needed_home()).check(ready.snapshot)
            real = _real(ready.snapshot.path)
            place = SNAPSHOT if level is Level.FULL else real
            shown = (HostDirectory(real, place),)
            before = (_IN, place)
            env["PYTHONPATH"] = ":".join(os.path.join(place, folder).rstrip("/") for folder in ready.folders)
        elif ready.hook.own:
            shown, text = self._own_files(text, walls, level)
        text, left_out = await self._with_paths(text, order.paths)
        may_write = order.may_write and level is not Level.LANDLOCK
        job = Job(
            argv=(_SHELL, "-c", *before, text),
            env=env,
            streams=Streams.APART,
            limits=replace(walls.limits, output=MOST_OUTPUT, timeout_s=None),
            stdin=order.input,
            shown=shown,
            not_kept=order.not_kept,
            reads_only=not may_write,
        )
        return job, left_out

    def _needed_home(self) -> ForgeHome:
        assert self._home is not None
        return self._home

    def _own_files(self, text: str, walls: Walls, level: Level) -> tuple[tuple[HostDirectory, ...], str]:
        """The files that a command of the person's own names, as they are now, each in a directory of its own; and the
        command with these places for theirs, which the walls do not show."""
        shown: list[HostDirectory] = []
        visible = (*SYSTEM, *walls.toolchains().directories)
        store = ContentStore(self._needed_home())
        for word in dict.fromkeys(command_words(text) or ()):
            if not os.path.isabs(word) or not os.path.isfile(word):
                continue
            real = os.path.realpath(word)
            if any(is_below(real, each) for each in visible):
                continue
            self._refuse_zones(real, walls.sandbox, word)
            written = re.compile(rf"(?<![\w./~-]){re.escape(word)}(?![\w./~-])")  # not as a part of a longer word
            if not written.search(text):
                raise _NotUsable(f"was not started: write {display_name(word)} without backslashes in its command")
            mode, data = _read(real, word)
            name = os.path.basename(word)
            snapshot = store.put({name: data}, executable=(name,) if mode & 0o111 else ())
            folder = _real(snapshot.path)
            place = f"{SNAPSHOT}/{len(shown)}" if level is Level.FULL else folder
            shown.append(HostDirectory(folder, place))
            text = f"{place}/{name}".join(written.split(text))
        return tuple(shown), text

    def _refuse_named(self, text: str, sandbox: Sandbox) -> None:
        """A program's command names its files from the program's directory, so that they are in the snapshot."""
        for word in command_words(text) or ():
            first, _, rest = word.removeprefix("/").partition("/")
            zone = sandbox.zones.get(first) if word.startswith("/") else None
            path = os.path.join(zone.host, rest) if zone is not None else word
            if os.path.isabs(path) and os.path.isfile(path):
                self._refuse_zones(_real(path), sandbox, word, "name it from the program's directory on")

    @staticmethod
    def _refuse_zones(real: str, sandbox: Sandbox, named: str, instead: str = "keep it elsewhere") -> None:
        inside: Zone | None = next(
            (zone for zone in sandbox.zones.values() if zone.name != USER_TOOLS and is_below(real, zone.host)), None
        )
        if inside is not None:
            why = f"lies in the zone /{inside.name}, where a model could change it; {instead}"
            raise _NotUsable(f"was not started: {display_name(os.path.basename(named))} {why}")

    async def _start_on_host(self, hook: Hook, stdin: bytes) -> WalledChild:
        walls = self._needed_walls()
        argv = shlex.split(hook.run)
        self._refuse_zones(_real(argv[0]), walls.sandbox, argv[0])
        if not os.access(argv[0], os.X_OK):
            raise _NotUsable(f"was not started: {display_name(argv[0])} is no program")
        home = self._needed_home()
        if self._on_host is None:
            nothing = Sandbox(has_block=False)
            self._on_host = Walls(nothing, WallSettings(off=True), forge_home=home.path, redactor=self._redactor)
        environ = person_environ()
        path = safe_path(environ.get("PATH", ""), (zone.host for zone in walls.sandbox.zones.values()))
        job = Job(
            argv=(_SHELL, "-c", _ON_HOST, str(home.path), environ.get("HOME", "/"), path, *argv),
            env={name: environ[name] for name in _DESKTOP if name in environ},
            streams=Streams.APART,
            limits=replace(self._on_host.limits, output=MOST_OUTPUT, timeout_s=None),
            stdin=stdin,
        )
        return await self._on_host.start(job)

    async def _finish(self, walled: WalledChild, seconds: float, started: list[WalledChild] | None) -> HookRun:
        child = walled.child
        if started is not None:
            started.append(walled)
        try:
            ending = await child.wait(seconds) or await child.end(TIMEOUT)
        finally:
            await child.end()
        if started is None:
            walled.report_unread()
        assert child.errors is not None
        return HookRun(
            exit_code=ending.exit_code,
            out=_text(child.output.read(0, MOST_OUTPUT)),
            err=_text(child.errors.read(0, MOST_OUTPUT)),
            problem=_problem(ending, seconds),
            seconds=ending.seconds,
        )


def _real(path: str | Path) -> str:
    return os.path.realpath(path)


def _single_quoted(word: str) -> str:
    return "'" + word.replace("'", "'\"'\"'") + "'"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _read(path: str, named: str) -> tuple[int, bytes]:
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        data = file.read(_MOST_FILE + 1) if stat.S_ISREG(mode) else b""
    if not stat.S_ISREG(mode) or len(data) > _MOST_FILE:
        raise _NotUsable(f"was not started: {display_name(Path(named).name)} is no file of at most 32 MiB")
    return mode, data


def _problem(ending: ExitStatus, seconds: float) -> str:
    if ending.code == TIMEOUT:
        return f"took longer than {seconds:g} s and was ended"
    if ending.code == OUTPUT_LIMIT:
        return f"printed more than {MOST_OUTPUT >> 10} KiB and was ended"
    if ending.code:
        return f"was ended: {REASONS.get(ending.code, ending.code)}"
    if ending.exit_code is None:
        return f"was ended by signal {ending.signal}" if ending.signal else "ended, and nobody knows how"
    return ""
