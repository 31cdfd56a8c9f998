"""The UI of docs/guides/own-ui.md, as it stands there, beside a real session: it prints what the page says."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE

pytest_plugins = ("tests.ui.web.stage",)
PAGE = Path(__file__).parents[2] / "docs" / "guides/own-ui.md"
BLOCK = re.compile(r"```python\n(.*?)```\n```text\n(.*?)```", re.DOTALL)


@pytest.mark.asyncio(loop_scope="session")
async def test_the_ui_of_the_page_talks_to_a_session(staged: Any, said_calls: Any, tmp_path: Path) -> None:
    code, printed = BLOCK.search(PAGE.read_text()).groups()  # type: ignore[union-attr]
    (tmp_path / "ui.py").write_text(code)
    write = ("write_file", {"path": "/workspace/hello.txt", "content": "hello\n"})
    stage = await staged([said_calls(write), "It is there."], approval="interactive")
    ran = await asyncio.create_subprocess_exec(
        sys.executable,
        str(tmp_path / "ui.py"),
        stage.link(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    ending = asyncio.ensure_future(_end_when_over(stage))
    try:
        out, err = await asyncio.wait_for(ran.communicate(), PATIENCE)
    finally:
        ending.cancel()
        if ran.returncode is None:
            ran.kill()
            await ran.wait()
    assert (ran.returncode, err.decode()) == (0, "")
    assert out.decode() == printed
    assert (stage.directory / "hello.txt").read_text() == "hello\n"
    assert [event.wire["by"] for event in stage.seen("approvalResolved")] == ["browser"]


async def _end_when_over(stage: Any) -> None:
    """As the command does behind its conversation."""
    await asyncio.wait({stage._talking})
    stage.runtime.end()
