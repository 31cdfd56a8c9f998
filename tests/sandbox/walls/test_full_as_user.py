"""The same walls for a plain user: a forked process gives up root and runs the main roads."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from golem_forge.sandbox.process import child as _start  # noqa: F401 - loaded while it can be read
from golem_forge.sandbox.walls import landlock, probe, walls  # noqa: F401
from golem_forge.sandbox.walls.bubblewrap import find_bwrap, ripgrep_path

USER = 12345

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")


def _as_user(scene: Callable[[], Any]) -> Any:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(USER)
            os.setuid(USER)
            answer = json.dumps({"said": scene()})
        except BaseException as error:
            answer = json.dumps({"failed": repr(error)})
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        answer = json.loads(file.read() or "{}")
    os.waitpid(child, 0)
    assert "said" in answer, answer
    return answer["said"]


@pytest.fixture
def place() -> Any:
    """Below /tmp itself: what pytest makes is closed to others."""
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        yield Path(made)


def test_a_plain_user_has_full_walls(place: Path, run_in: Callable[..., Any]) -> None:
    if find_bwrap() is None:
        pytest.skip("full walls need bubblewrap")
    ripgrep_path()
    from golem_forge.sandbox.sandbox import open_sandbox
    from golem_forge.sandbox.walls.model import Level, ProbeReport
    from golem_forge.sandbox.zones import ZoneSpec

    for name in ("one", "two", "home", "forge"):
        (place / name).mkdir()
    subprocess.run(["git", "init", "-q", str(place / "one")], check=True)
    (place / "one/.env").write_text("canary")
    (place / "home/.gitconfig").write_text("[user]\nname = Ada\nemail = a@b.test\n")
    subprocess.run(["chown", "-R", f"{USER}:{USER}", str(place)], check=True)

    def scene() -> list[Any]:
        found: list[Any] = []
        for name in ("one", "two"):
            box = open_sandbox(
                [ZoneSpec(name="workspace", path=place / name)], forge_home=place / "forge", home=place / "home"
            )
            inside = walls.Walls(
                box,
                forge_home=place / "forge",
                home=place / "home",
                environ={"PATH": "/usr/bin:/bin"},
                report=ProbeReport(level=Level.FULL),
            )
            ran = asyncio.run(
                run_in(
                    inside,
                    "id -u; whoami; pwd; grep CapEff /proc/self/status; touch a; cat .env; touch .git/hooks/x;"
                    " touch .git/new; mv .git g; touch /usr/x; git add a; git commit -qm one; git log --format=%an",
                )
            )
            found.append([ran.code, ran.text, sorted(os.listdir(place / name)), list(ran.after.protected_created)])
        return found

    (_, first, after_first, _), (_, second, after_second, created) = _as_user(scene)

    head = f"{USER}\nforge\n/workspace\nCapEff:\t0000000000000000\n"
    assert first.startswith(head) and second.startswith(head)
    assert "canary" not in first and first.endswith("Ada\n")
    assert not (place / "one/.git/hooks/x").exists() and not (place / "one/.git/new").exists()
    assert after_first == [".env", ".git", "a"]
    assert after_second == ["a"] and created == []
    assert "Read-only file system" in second


def test_a_directory_that_only_others_can_write_needs_no_placeholder(place: Path, run_in: Callable[..., Any]) -> None:
    if find_bwrap() is None:
        pytest.skip("full walls need bubblewrap")
    ripgrep_path()
    from golem_forge.sandbox.sandbox import open_sandbox
    from golem_forge.sandbox.walls.model import Level, ProbeReport
    from golem_forge.sandbox.zones import ZoneSpec

    for name in ("theirs", "home", "forge"):
        (place / name).mkdir()
    (place / "theirs/a").write_text("content")

    def scene() -> list[Any]:
        box = open_sandbox(
            [ZoneSpec(name="workspace", path=place / "theirs")], forge_home=place / "forge", home=place / "home"
        )
        inside = walls.Walls(
            box,
            forge_home=place / "forge",
            home=place / "home",
            environ={"PATH": "/usr/bin:/bin"},
            report=ProbeReport(level=Level.FULL),
        )
        ran = asyncio.run(run_in(inside, "cat a; mkdir .git; chmod 777 ."))
        return [ran.code, ran.text]

    code, text = _as_user(scene)

    assert code != 0 and text.startswith("content") and os.listdir(place / "theirs") == ["a"]


def test_what_cannot_be_listed_is_masked_whole(place: Path, run_in: Callable[..., Any]) -> None:
    if find_bwrap() is None:
        pytest.skip("full walls need bubblewrap")
    ripgrep_path()
    from golem_forge.sandbox.sandbox import open_sandbox
    from golem_forge.sandbox.walls.model import Level, ProbeReport
    from golem_forge.sandbox.zones import ZoneSpec

    for name in ("one/sub", "one/flat/deep", "home", "forge"):
        (place / name).mkdir(parents=True)
    for name in ("one", "one/nested"):
        subprocess.run(["git", "init", "-q", str(place / name)], check=True)
    (place / "one/sub/.env").write_text("canary")
    subprocess.run(["chown", "-R", f"{USER}:{USER}", str(place)], check=True)

    def scene() -> list[Any]:
        box = open_sandbox(
            [ZoneSpec(name="workspace", path=place / "one")], forge_home=place / "forge", home=place / "home"
        )
        inside = walls.Walls(
            box,
            forge_home=place / "forge",
            home=place / "home",
            environ={"PATH": "/usr/bin:/bin"},
            report=ProbeReport(level=Level.FULL),
        )
        scripts = (
            "chmod 311 sub nested && chmod 000 .git && touch flat/.env && chmod 644 flat",
            "chmod 755 sub nested .git; cat sub/.env; touch nested/.git/hooks/x .git/hooks/x; mv sub s; mv nested n;"
            " ls flat",
            "chmod 311 .",
        )
        said = [asyncio.run(run_in(inside, script)).text for script in scripts]
        read = f"cat {place}/one/sub/.env {place}/one/.git/config; ls {place}/one"
        said.append(asyncio.run(run_in(inside, read, cwd="/", reads_only=True)).text)
        return said

    _, second, _, _ = said = _as_user(scene)

    assert "canary" not in "".join(said) and "[core]" not in "".join(said)
    assert "Read-only file system" in second and "busy" in second
    assert not (place / "one/.git/hooks/x").exists() and not (place / "one/nested/.git/hooks/x").exists()
    assert sorted(os.listdir(place / "one")) == [".git", "flat", "nested", "sub"]
