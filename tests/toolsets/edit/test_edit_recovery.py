"""After a crash: a process is killed in the middle of a patch, and the next session puts the files back."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.toolsets.edit import FileRecord, PatchManifest, recover_patches

PATCH = """\
*** Begin Patch
*** Update File: a.txt
@@
-a
+A
*** Update File: b.txt
*** Move to: new/dir/c.txt
@@
-b
+B
*** Delete File: d.txt
*** End Patch
"""
BEFORE = {"a.txt": "a\n", "b.txt": "b\n", "d.txt": "d\n"}
AFTER = {"a.txt": "A\n", "new/dir/c.txt": "B\n"}

CHILD = """\
import asyncio, os, signal, sys
from pathlib import Path
from golem_forge.sandbox.sandbox import open_sandbox
from golem_forge.sandbox.zones import ZoneSpec
from golem_forge.tools.context import ToolContext
from golem_forge.toolsets.edit import create_apply_patch_tool

workspace, home, patch, calls = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
call = getattr(os, sys.argv[5])

def counted(*args, **kwargs):
    global calls
    if calls == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    calls -= 1
    return call(*args, **kwargs)

setattr(os, sys.argv[5], counted)
sandbox = open_sandbox([ZoneSpec(name="workspace", path=workspace)], forge_home=home, home=home.parent / "home")
ctx = ToolContext(sandbox=sandbox, home=home, call_id="call_1")
asyncio.run(create_apply_patch_tool().execute({"input": patch}, ctx))
os.kill(os.getpid(), signal.SIGKILL)
"""


def tree(folder: Path) -> dict[str, str]:
    return {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def home(sandbox: Sandbox, tmp_path: Path) -> Path:
    return tmp_path / "forge_home"


@pytest.fixture
def crash(ready_forge: Any, workspace: Path, home: Path) -> Callable[..., None]:
    """Kills a process that applies PATCH right before one rename, or other system call, more than these."""

    def made(*, renames: int, call: str = "rename") -> None:
        for name, content in BEFORE.items():
            (workspace / name).write_text(content)
        (workspace / "a.txt").chmod(0o750)
        child = home.parent / "child.py"
        child.write_text(CHILD)
        words = map(str, (child, workspace, home, PATCH, renames, call))
        done = ready_forge.program(*words, cwd=home.parent, env=os.environ)
        assert done.returncode == -signal.SIGKILL, done.stderr

    return made


@pytest.mark.parametrize("renames", [0, 1, 2, 3])
def test_every_file_is_put_back_wherever_it_stopped(
    sandbox: Sandbox, workspace: Path, home: Path, crash: Callable[..., None], renames: int
) -> None:
    crash(renames=renames)
    (manifest,) = (home / "patches").iterdir()
    assert (manifest.name, manifest.stat().st_mode & 0o777) == ("call_1.json", 0o600)
    strays = [name for name in os.listdir(workspace) if name not in (*BEFORE, "new")]
    assert all(name.startswith(".forge-") and name.endswith(".tmp") for name in strays)
    (text,) = recover_patches(home, sandbox)
    assert text.startswith("A patch was cut short by a crash and has been taken back.")
    assert ("/workspace/a.txt" in text) is (renames > 0)
    assert "Not restored" not in text and str(workspace) not in text
    assert tree(workspace) == BEFORE
    assert not (workspace / "new").exists()
    assert (workspace / "a.txt").stat().st_mode & 0o777 == 0o750
    assert os.listdir(home / "patches") == []
    assert recover_patches(home, sandbox) == []


@pytest.mark.parametrize(
    ("call", "times"), [("mkdir", 2), ("write", 1), ("write", 2), ("fchmod", 0), ("fchmod", 1), ("link", 0)]
)
def test_a_crash_while_staging_leaves_no_litter(
    sandbox: Sandbox, workspace: Path, home: Path, crash: Callable[..., None], call: str, times: int
) -> None:
    crash(renames=times, call=call)
    assert sorted(os.listdir(workspace)) != sorted(BEFORE)
    (text,) = recover_patches(home, sandbox)
    assert text == "A patch was cut short by a crash and has been taken back."
    assert sorted(os.listdir(workspace)) == sorted(BEFORE)
    assert tree(workspace) == BEFORE
    assert os.listdir(home / "patches") == []


def test_what_was_changed_before_it_was_kept_is_told_without_a_copy(
    sandbox: Sandbox, workspace: Path, home: Path, crash: Callable[..., None]
) -> None:
    crash(renames=0)
    (workspace / "d.txt").write_text("mine\n")
    (workspace / "a.txt").write_text("mine\n")  # through its second name too: there is no old content any more
    (text,) = recover_patches(home, sandbox)
    assert text.splitlines()[1:] == [
        "Not restored: /workspace/a.txt was changed since.",
        "Not restored: /workspace/d.txt was changed since.",
    ]
    assert tree(workspace) == BEFORE | {"a.txt": "mine\n", "d.txt": "mine\n"}


def test_a_finished_patch_leaves_nothing(
    sandbox: Sandbox, workspace: Path, home: Path, crash: Callable[..., None]
) -> None:
    crash(renames=99)
    assert tree(workspace) == AFTER
    assert os.listdir(home / "patches") == []
    assert recover_patches(home, sandbox) == []
    assert tree(workspace) == AFTER


def test_what_was_changed_since_is_left_and_told(
    sandbox: Sandbox, workspace: Path, home: Path, crash: Callable[..., None]
) -> None:
    crash(renames=2)
    (workspace / "a.txt").write_text("mine\n")
    (text,) = recover_patches(home, sandbox)
    assert "Not restored: /workspace/a.txt was changed since; its old content is in '.forge-" in text
    kept = text.split("its old content is in '")[1].split("'")[0]
    assert (workspace / kept).read_text() == "a\n"
    (workspace / kept).unlink()
    assert tree(workspace) == BEFORE | {"a.txt": "mine\n"}
    assert os.listdir(home / "patches") == []


def test_without_the_zone_it_waits(sandbox: Sandbox, workspace: Path, home: Path, crash: Callable[..., None]) -> None:
    crash(renames=3)
    (text,) = recover_patches(home, Sandbox())
    assert "Not restored: /workspace/a.txt is in no zone that can be written here." in text
    assert len(os.listdir(home / "patches")) == 1
    recover_patches(home, sandbox)
    assert tree(workspace) == BEFORE


def record(path: str = "/workspace/a.txt", **changes: object) -> FileRecord:
    known = {"path": path, "real": "", "existed": True, "before": "", "after": "", "kept": "", "temp": "", "made": 0}
    return FileRecord(**(known | changes))  # type: ignore[arg-type]


def test_a_patch_that_still_runs_is_left_alone(sandbox: Sandbox, home: Path) -> None:
    manifest = PatchManifest.write(home, "call/../x", [record()])
    assert recover_patches(home, sandbox) == []
    assert len(os.listdir(home / "patches")) == 1
    manifest.remove()
    assert os.listdir(home / "patches") == []


def test_after_the_last_step_only_kept_copies_go(sandbox: Sandbox, workspace: Path, home: Path) -> None:
    kept = ".forge-0123456789abcdef.tmp"
    (workspace / "a.txt").write_text("A\n")
    (workspace / kept).write_text("a\n")
    manifest = PatchManifest.write(home, "c", [record(real=str(workspace / "a.txt"), kept=kept)])
    manifest.done()
    manifest.close()
    assert recover_patches(home, sandbox) == []
    assert tree(workspace) == {"a.txt": "A\n"}
    assert os.listdir(home / "patches") == []


def test_a_name_that_is_not_forges_own_is_not_touched(sandbox: Sandbox, workspace: Path, home: Path) -> None:
    (workspace / "a.txt").write_text("A\n")
    (workspace / "mine.txt").write_text("a\n")
    digests = {"before": hashlib.sha256(b"a\n").hexdigest(), "after": hashlib.sha256(b"A\n").hexdigest()}
    PatchManifest.write(
        home, "c", [record(real=str(workspace / "a.txt"), kept="mine.txt", temp="mine.txt", **digests)]
    ).close()
    assert "Not restored: /workspace/a.txt" in recover_patches(home, sandbox)[0]
    assert tree(workspace) == {"a.txt": "A\n", "mine.txt": "a\n"}


@pytest.mark.parametrize("content", ["", "{", "[]", json.dumps({"version": 1, "files": [{"x": 1}]})])
def test_half_a_manifest_is_cleared_away(sandbox: Sandbox, home: Path, content: str) -> None:
    (home / "patches").mkdir()
    (home / "patches" / "x.json").write_text(content)
    assert recover_patches(home, sandbox) == []
    assert os.listdir(home / "patches") == []
