"""What a child at level landlock or off can leave behind, or see of others, and what becomes of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.deadlines import PATIENCE
from tests.tables import table

from golem_forge.sandbox.process import monitor
from golem_forge.sandbox.walls import landlock
from golem_forge.sandbox.walls.model import Level

from .test_landlock import FORGE, PYTHON, alive, attempt, begin, run, until

pytestmark = pytest.mark.skipif(landlock.landlock_abi() < 3, reason="this kernel has no Landlock, or an old one")
DEEP = "import os; [(os.mkdir('d'), os.chdir('d')) for _ in range(1020)]"


async def test_a_private_directory_with_a_very_deep_tree_in_it_is_removed() -> None:
    script = f'pwd; cd "$TMPDIR" && exec {PYTHON} -I -S -c "{DEEP}"'
    status, text = await run("sh", "-c", script, readable=(sys.base_prefix,))
    assert status == 0, text
    assert await until(lambda: not os.path.exists(os.path.dirname(text.strip())), PATIENCE)


async def test_a_very_deep_tree_is_removed_by_the_launcher_when_forge_is_killed() -> None:
    python = "/usr/bin/python3"
    if not os.access(python, os.X_OK):
        pytest.skip("needs a Python of the system's")
    script = f'(cd "$TMPDIR" && exec {python} -I -S -c "{DEEP}"); pwd; while :; do sleep 1; done'
    process = subprocess.Popen([sys.executable, "-c", FORGE, script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    private = os.path.dirname(process.stdout.readline().strip())
    assert os.path.isdir(private)
    process.kill()
    process.wait()
    assert await until(lambda: not os.path.exists(private), PATIENCE)


async def test_nobody_is_watched(tmp_path: Path) -> None:
    found = await attempt(
        """
        def watch(path):
            if libc.inotify_add_watch(libc.inotify_init1(0), path, 0xFFF) < 0:
                raise OSError(ctypes.get_errno(), "")
        t("zone", lambda: watch(os.fsencode(sys.argv[1])))
        t("outside", lambda: watch(b"/root"))
        """,
        str(tmp_path),
        readable=(str(tmp_path),),
    )
    assert set(found.values()) == {"EPERM"}


KILLERS = (
    "setsid sh -c 'exec sleep {mark}' & sleep 0.02; kill -9 $PPID; sleep 5",
    "(setsid sh -c 'setsid sleep {mark} & sleep 0.01') & sleep 0.03; kill -9 $PPID; sleep 5",
    "setsid sh -c 'trap \"\" TERM HUP; sleep {mark}; :' & kill -9 $PPID",
)


@table("which", range(len(KILLERS)))
async def test_with_walls_off_who_kills_its_launcher_leaves_nobody(which: int) -> None:
    mark = f"6{os.getpid()}{which}"
    child = await begin("sh", "-c", KILLERS[which].format(mark=mark), level=Level.OFF)
    ending = await child.wait(PATIENCE)
    assert ending is not None
    assert ending.signal == signal.SIGKILL
    time.sleep(0.1)  # whoever were left would have begun by now
    assert not alive(f"sleep {mark}")


async def test_with_walls_off_a_launcher_that_was_stopped_goes_on() -> None:
    child = await begin("sh", "-c", "kill -STOP $PPID; echo stopped; sleep 60", level=Level.OFF)

    def runs() -> bool:
        found = monitor.process_stat(child.pid)
        return found is not None and found.state != "T"

    try:
        assert await child.output.more(0, PATIENCE)
        assert await until(runs, PATIENCE)
    finally:
        await child.end()


async def test_each_tree_has_a_marker_of_its_own_only_with_walls_off() -> None:
    script = 'printf %s "$FORGE_TREE"'
    texts = [(await run("sh", "-c", script, level=level))[1] for level in (Level.OFF, Level.OFF, Level.LANDLOCK)]
    assert len(texts[0]) == len(texts[1]) == 32
    assert texts[0] != texts[1]
    assert texts[2] == ""
