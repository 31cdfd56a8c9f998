"""Forge's own code inside a zone: a virtual environment in the project, a checkout that Forge runs from."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv as venv_module
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import golem_forge
from golem_forge.core.effects import Mark
from golem_forge.sandbox.protected import own_code, own_code_in
from golem_forge.sandbox.walls.bubblewrap import find_bwrap

PACKAGES = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
SOURCE = Path(golem_forge.__file__).parent
NOT_NEEDED = ("agent", "cli", "mcp", "orchestrator", "toolsets", "ui", "usertools")
"""Packages that the walls do without."""

PROBE = """
import asyncio, json, sys
from pathlib import Path
from golem_forge.core.effects import Verb
from golem_forge.sandbox.protected import own_code
from golem_forge.sandbox.sandbox import open_sandbox
from golem_forge.sandbox.walls.model import Job
from golem_forge.sandbox.walls.model import Level, ProbeReport as WallsReport
from golem_forge.sandbox.walls.leftovers import obeyed_leftovers as told
from golem_forge.sandbox.walls.walls import Walls, WallsHost
from golem_forge.sandbox.zones import ZoneSpec

zone, root, script, *paths = sys.argv[1:]
root = Path(root)


async def main():
    box = open_sandbox([ZoneSpec(name="workspace", path=Path(zone))], forge_home=root / "forge", home=root / "home")
    host = WallsHost(home=root / "home", report=WallsReport(level=Level.FULL), environ={})
    walls = Walls(box, forge_home=root / "forge", host=host)
    notices = walls.notices
    verbs = {path: Verb.DELETE if (Path(zone) / path).is_symlink() else Verb.WRITE for path in paths}
    marks = [box.target(path, verb).effect().marks for path, verb in verbs.items()]
    walled = await walls.start(Job(argv=("bash", "-c", script)))
    await walled.child.wait(90)
    await walled.child.end()
    after = walled.aftermath()
    changed = [tuple(path.split("/")) for path in paths]
    print(json.dumps({
        "notices": notices, "survey": walls.check_zones(), "text": walled.child.output.read().decode(),
        "denials": after.denials, "marks": marks,
        "told": [one.to_wire() for one in told(box.zones["workspace"], changed)],
    }))

asyncio.run(main())
"""


@dataclass
class Project:
    """A directory with a virtual environment whose Forge is the checkout in `src`."""

    root: Path
    venv: Path

    @property
    def python(self) -> Path:
        return self.venv / "bin/python"

    @property
    def path(self) -> Path:
        return self.root / "project"

    def probe(self, script: str, *paths: str, zone: Path | None = None, python: Path | None = None) -> dict[str, Any]:
        for name in ("forge", "home"):
            (self.root / name).mkdir(exist_ok=True)
        ended = subprocess.run(
            [python or self.python, "-c", PROBE, zone or self.path, self.root, script, *paths],
            capture_output=True,
            cwd="/",
            env={"PATH": "/usr/bin:/bin"},
            text=True,
        )
        assert ended.returncode == 0, ended.stderr
        found: dict[str, Any] = json.loads(ended.stdout)
        return found


def _project(root: Path, venv: str = "project/.venv", source: str = "project/src") -> Project:
    if find_bwrap() is None:
        pytest.skip("full walls need bubblewrap")
    (root / "project").mkdir(exist_ok=True)
    made = Project(root, root / venv)
    venv_module.create(made.venv, symlinks=True)
    shutil.copytree(SOURCE, root / source / "golem_forge", ignore=shutil.ignore_patterns(*NOT_NEEDED))
    lines = [str(root / source), *(path for path in sys.path if path.endswith("-packages"))]
    (made.venv / PACKAGES / "forge.pth").write_text("\n".join(lines))
    return made


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return _project(tmp_path_factory.mktemp("own"))


def test_nothing_of_it_can_be_changed_and_the_rest_can(project: Project) -> None:
    targets = [
        "src/golem_forge/_version.py",
        "src/sitecustomize.py",
        "src/mcp.py",
        "src/golem_forge/new.py",
        f".venv/{PACKAGES}/x.pth",
        ".venv/bin/forge",
        ".venv/pyvenv.cfg",
    ]
    found = project.probe(
        f"for f in {' '.join(targets)}; do rm -f $f; echo x >> $f && echo wrote $f; done; mv src s; mv .venv v;"
        " rm -rf .venv src; mkdir .venv/x; ln -sf /x .venv/bin/python; rm .venv/bin/python; touch ok && echo fine",
        *targets,
        "ok",
    )

    assert "wrote" not in found["text"] and found["text"].endswith("fine\n")
    assert not (project.path / "src/mcp.py").exists() and (project.path / ".venv/bin/python").is_symlink()
    assert (project.path / "src/golem_forge/_version.py").read_text() == (SOURCE / "_version.py").read_text()
    assert found["marks"] == [[Mark.PROTECTED_PATH]] * len(targets) + [[]]
    [denial] = [
        one for one in found["denials"] if one["target"] == "/workspace/src/mcp.py" and one["access"] == "write"
    ]
    assert denial["kind"] == "protected" and "`pipx install /path/to/the/clone`" in denial["widen"]
    [notice] = found["notices"]
    assert "/workspace/.venv, /workspace/src" in notice and "uv tool install /path/to/the/clone" in notice
    assert notice in found["survey"] and str(project.root) not in notice


def test_a_package_installed_in_the_environment(tmp_path: Path) -> None:
    project = _project(tmp_path, source=f"project/deep/er/.venv/{PACKAGES}", venv="project/deep/er/.venv")
    (project.path / "deep/mine").mkdir()

    found = project.probe(
        f"touch deep/er/.venv/{PACKAGES}/x.pth deep/er/.venv/x; mv deep d; mv deep/er deep/e;"
        " touch deep/er/ok deep/mine/ok && echo fine"
    )

    assert found["text"].endswith("fine\n") and not (project.venv / "x").exists()
    assert os.listdir(project.path) == ["deep"] and sorted(os.listdir(project.path / "deep")) == ["er", "mine"]
    assert len(found["notices"]) == 1


def test_a_link_on_the_way_is_held_where_it_can_be_and_told_where_it_cannot(tmp_path: Path) -> None:
    project = _project(tmp_path, venv="project/envs/real", source="outside")
    (project.path / ".venv").symlink_to("envs/real")
    (project.path / "tools").mkdir()
    (project.path / "tools/env").symlink_to("../.venv")

    found = project.probe(
        "touch envs/real/x; mv envs e; rm tools/env; ln -sfn /x tools/env; rm .venv && mkdir .venv && echo exchanged",
        ".venv",
        "tools/env",
        python=project.path / "tools/env/bin/python",
    )

    assert found["text"].endswith("exchanged\n") and (project.path / "tools/env").is_symlink()
    assert not (project.path / "envs/real/x").exists()
    assert found["marks"] == [[Mark.PROTECTED_PATH]] * 2
    [left] = found["told"]
    assert (left["kind"], left["severity"], left["paths"]) == ("own_code", "critical", ["/workspace/.venv"])
    assert "link /workspace/.venv" in found["notices"][0]


def test_an_environment_that_is_the_zone_leaves_the_rest_writable(tmp_path: Path) -> None:
    project = _project(tmp_path, venv="project")
    script = f"touch bin/x pyvenv.cfg {PACKAGES}/x src/x; echo >> pyvenv.cfg; mv lib l; touch ok app.py && echo fine"

    found = project.probe(script, "bin/forge", "pyvenv.cfg", "app.py")

    assert found["text"].endswith("fine\n") and (project.path / "app.py").exists()
    assert not any((project.path / path).exists() for path in ("bin/x", f"{PACKAGES}/x", "src/x", "l"))
    assert found["marks"] == [[Mark.PROTECTED_PATH], [Mark.PROTECTED_PATH], []]


def test_a_zone_inside_is_read_only_whole(project: Project) -> None:
    found = project.probe("touch x || echo held", zone=project.path / "src/golem_forge/core")
    assert "held" in found["text"] and "/workspace" in found["notices"][0]


def test_a_program_that_embeds_forge_keeps_its_own_directories(tmp_path: Path) -> None:
    """Its directory is first on `sys.path`, and Forge is somewhere else."""
    project = _project(tmp_path, venv="elsewhere/.venv", source="elsewhere/src")
    for name in ("mcp", "app"):
        (project.path / name).mkdir()
        (project.path / name / "__init__.py").touch()
    (project.path / "main.py").write_text(PROBE)
    for name in ("forge", "home"):
        (project.root / name).mkdir()

    ended = subprocess.run(
        [project.python, "main.py", project.path, project.root, "touch mcp/x app/x main.py x && echo fine", "main.py"],
        capture_output=True,
        cwd=project.path,
        text=True,
    )

    found = json.loads(ended.stdout)
    assert (found["text"], found["notices"], found["marks"]) == ("fine\n", [], [[]]), ended.stderr


def test_what_is_its_own_code() -> None:
    own = own_code()
    assert str(SOURCE) in own and os.path.realpath(sys.prefix) in own and os.path.realpath(sys.base_prefix) in own
    assert all(os.path.realpath(path) == path for path in own)
    assert own_code_in("/nowhere") == (False, (), ())
