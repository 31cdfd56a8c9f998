"""Hosts at the other levels of walls, and what walls mean for a host that lives longer than one call."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from golem_forge.config.sandbox_block import ResourceLimits
from golem_forge.core.decisions import Status
from golem_forge.sandbox.walls.landlock import landlock_abi
from golem_forge.sandbox.walls.model import Level

LOOK = """
    import os

    def look(path: str) -> str:
        with open(path) as file:
            return file.read()

    def where(*, ctx) -> str:
        return f"{os.getcwd()} {ctx.sandbox.describe_zones()} {__file__.rpartition('/')[2]}"
"""


@pytest.mark.parametrize("level", [Level.LANDLOCK, Level.OFF])
async def test_without_mounts_a_host_reads_the_snapshot_where_it_lies(place: Any, call: Any, level: Level) -> None:
    if level is Level.LANDLOCK and not landlock_abi():
        pytest.skip("this kernel has no Landlock")
    data = place.root / "data"
    (data / "in.txt").write_text("inside")
    outside = place.write("outside.txt", "outside")
    place.write("tools.py", LOOK)
    modules = place.custom("look", "where", level=level)
    path = place.path(await modules.load())
    mode = "ro" if level is Level.LANDLOCK else "rw"  # those walls are read-only, whatever the zone is
    assert (await call(path, "where")).text == f"/data /data ({mode}) tools.py"
    assert (await call(path, "look", path=str(data / "in.txt"))).text == "inside"
    seen = await call(path, "look", path=str(outside))
    if level is Level.LANDLOCK:
        assert seen.status is Status.EXECUTION_FAILED and seen.error.startswith("PermissionError")
    else:
        assert seen.text == "outside"


async def test_a_host_that_used_up_half_of_its_limits_is_not_used_again(place: Any, call: Any) -> None:
    # A name of its own: numbers of processes and namespaces are given again to the next host.
    place.write(
        "tools.py", "import os\nME = os.urandom(8).hex()\ndef say(n: int) -> str:\n    print('x' * n)\n    return ME"
    )
    modules = place.custom("say")
    walls = modules._walls
    walls._settings = replace(walls._settings, limits=ResourceLimits(output=8192))
    path = place.path(await modules.load())
    first = (await call(path, "say", n=1000)).text
    assert (await call(path, "say", n=5000)).text == first
    assert (await call(path, "say", n=10)).text != first
    await call(path, "say", n=20000)  # ended by the limit, before or after its answer
    assert (await call(path, "say", n=10)).ok


async def test_output_that_comes_after_the_answer_counts_all_the_same(place: Any, call: Any) -> None:
    """Answer and output come on two ways. Here the loop never gets round to the output by itself."""
    place.write("tools.py", "def say(n: int) -> str:\n    print('x' * n)\n    return str(n)")
    modules = place.custom("say")
    modules._walls._settings = replace(modules._walls._settings, limits=ResourceLimits(output=8192))
    path = place.path(await modules.load())
    (pool,) = modules._pools
    (host,) = pool.hosts
    for reader in host._walled.child._readers:
        asyncio.get_running_loop().remove_reader(reader._descriptor)
    assert (await call(path, "say", n=5000)).ok and pool.hosts == (host,) and host._walled.child.output.size == 0
    assert (await call(path, "say", n=10)).ok
    assert host not in pool.hosts and not host.alive


async def test_a_directory_that_became_a_link_is_not_shown(place: Any, tmp_path: Path) -> None:
    """Threat: an environment in a zone, whose library directory a child replaces by a link to somebody's keys."""
    from golem_forge.sandbox.errors import SandboxError
    from golem_forge.sandbox.walls.model import HostDirectory, Job

    (tmp_path / "keys").mkdir()
    (tmp_path / "lib").symlink_to(tmp_path / "keys")
    with pytest.raises(SandboxError, match="a directory that Forge itself needs inside is"):
        await place.walls().start(Job(argv=("true",), shown=(HostDirectory(str(tmp_path / "lib"), "/opt/forge/x"),)))
