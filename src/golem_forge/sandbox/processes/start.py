"""start: takes a Launch and gives a Child whose command is about to run, or refuses because it never got that far.

The outer program (bwrap, the launcher) builds the walls; only the inner stage's byte on READY proves that they stand.
Without it the launch's own refusal is raised, whatever the exit code, and nothing is left: no process, no descriptor.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Any, Final

from golem_forge.sandbox.errors import SandboxError, walls_unavailable
from golem_forge.sandbox.processes.child import Child
from golem_forge.sandbox.processes.holder import kill_unfinished
from golem_forge.sandbox.processes.launch import CONTROL, GO, INFO, READY, Launch
from golem_forge.sandbox.processes.reading import TextFilter
from golem_forge.sandbox.processes.spawn import spawn
from golem_forge.sandbox.processes.wires import ERRORS, KEYBOARD, OUTPUT, Wires
from golem_forge.sandbox.walls.job import Streams

READY_WITHIN_S: Final = 30.0
_LAST_WORDS_S: Final = 0.3
_LONGEST_SHOWN: Final = 4096


async def start(
    launch: Launch,
    streams: Streams,
    *,
    stdin: bytes | int | None = None,
    stdout: int | None = None,
    filter: Callable[[], TextFilter],
) -> Child:
    """Returns when the command is about to run. Raises the launch's refusal, or what `before_go` raised."""
    wires = Wires()
    try:
        child = _spawned(launch, wires, lambda: wires.lay(launch, streams, stdin, stdout), filter)
    except BaseException as error:
        wires.close()
        _afterwards(launch)
        if isinstance(error, OSError):
            raise _refusal(launch, f"it could not be started ({os.strerror(error.errno or 0)})") from None
        raise
    try:
        await _until_ready(launch, child, wires)
        child.begin()
    except BaseException:
        child.kill()
        await child.gone()
        raise
    finally:
        wires.close()
    return child


def _spawned(launch: Launch, wires: Wires, lay: Callable[[], None], text_filter: Callable[[], TextFilter]) -> Child:
    try:
        lay()
        filters = [text_filter() for number in (OUTPUT, ERRORS) if number in wires.ours]
        pid = spawn(launch.argv, launch.env, {**launch.descriptors, **wires.theirs})
    finally:
        wires.close_theirs()
        for descriptor in launch.descriptors.values():
            with contextlib.suppress(OSError):
                os.close(descriptor)
        launch.descriptors.clear()
    try:
        child = Child(
            launch,
            pid,
            output=wires.ours.get(OUTPUT),
            errors=wires.ours.get(ERRORS),
            keyboard=wires.ours.get(KEYBOARD),
            info=wires.ours.get(INFO),
            control=wires.ours.get(CONTROL),
            filters=filters,
        )
    except OSError:
        # No descriptor was left to watch it with. It is not at its inner stage yet, and does not get there.
        wires.close()  # looking for what it started takes one
        kill_unfinished(pid)
        os.waitpid(pid, 0)
        raise
    wires.keep_only(READY, GO)
    return child


async def _until_ready(launch: Launch, child: Child, wires: Wires) -> None:
    ready = await _is_ready(wires.ours[READY], child)
    if ready and not child.holder.learn_root():
        # Over already, which is being noticed just now; otherwise this outer program holds no tree together.
        ready = await child.wait(1) is not None
    if not ready:
        await child.wait(_LAST_WORDS_S)
        child.kill()
        await child.gone()
        text = child.complaint(_LONGEST_SHOWN).strip()
        raise _refusal(launch, text or "it ended before the command could begin")
    if launch.before_go is not None:
        await launch.before_go(child.pid)
        with contextlib.suppress(BrokenPipeError):
            os.write(wires.ours[GO], b"\n")


async def _is_ready(descriptor: int, child: Child) -> bool:
    """The inner stage's byte; its pipe's end, the child's end or a long time without a word mean no."""
    loop = asyncio.get_running_loop()
    something: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _settle, something)
    try:
        first: list[asyncio.Future[Any]] = [something, child.ended]
        await asyncio.wait(first, timeout=READY_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(descriptor)
    with contextlib.suppress(BlockingIOError):
        return os.read(descriptor, 1) != b""
    return False


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _afterwards(launch: Launch) -> None:
    if launch.afterwards is not None:
        afterwards, launch.afterwards = launch.afterwards, None
        afterwards()


def _refusal(launch: Launch, said: str) -> SandboxError:
    if launch.refused is not None:
        return launch.refused(said)
    return walls_unavailable(said, "Run 'forge doctor' to see which walls this machine gives.")
