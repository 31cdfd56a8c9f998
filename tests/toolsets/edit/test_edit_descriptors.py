"""The largest patch fits into the usual limit of open files, and holds none of them afterwards."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import descriptors

from golem_forge.sandbox.errors import SandboxError
from golem_forge.tools.context import ToolContext
from golem_forge.toolsets.edit import create_apply_patch_tool

MOST = 200
USUAL_LIMIT = 1024


@pytest.fixture
def usual_limit() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (USUAL_LIMIT, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def apply(operations: list[str], ctx: ToolContext) -> str:
    body = "".join(operations)
    patch = f"*** Begin Patch\n{body}*** End Patch\n"
    return (await create_apply_patch_tool().execute({"input": patch}, ctx)).text


MOVE_FAR = "*** Update File: d{0}/f\n*** Move to: d{0}/new{0}/a/b/f\n@@\n-x\n+y\n"
ADD_DEEP = "*** Add File: a{0}/b/c/d/e/f\n+x\n"
OTHERS = (
    "*** Delete File: f{0}\n",
    "*** Update File: f{0}\n*** Move to: g{0}\n",
    "*** Update File: d{0}/f\n@@\n-x\n+y\n",
)


@pytest.mark.usefixtures("usual_limit")
@pytest.mark.parametrize(
    "operations",
    [(MOVE_FAR,), *(pytest.param(each, marks=pytest.mark.long) for each in ((ADD_DEEP,), OTHERS))],
    ids=["move", "add", "others"],
)
async def test_the_largest_patch(ctx: ToolContext, workspace: Path, operations: tuple[str, ...]) -> None:
    for number in range(MOST):
        (workspace / f"f{number}").write_text("x\n")
        (workspace / f"d{number}").mkdir()
        (workspace / f"d{number}/f").write_text("x\n")
    await apply(["*** Add File: warm\n+x\n"], ctx)
    before = descriptors.held()
    text = await apply([operations[number % len(operations)].format(number) for number in range(MOST)], ctx)
    assert text.startswith(f"Patched {MOST} files:")
    assert descriptors.held() <= before


@pytest.mark.usefixtures("usual_limit")
async def test_what_fails_lets_go_of_everything(ctx: ToolContext, workspace: Path) -> None:
    await apply(["*** Add File: warm\n+x\n"], ctx)
    before = descriptors.held()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 20, hard))
    try:
        with pytest.raises(SandboxError) as failed:
            await apply([f"*** Add File: a{number}/b/c/d/e/f\n+x\n" for number in range(MOST)], ctx)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert failed.value.message.endswith(": too many open files.")
    assert descriptors.no_more_than(before)
    assert os.listdir(workspace) == ["warm"]
