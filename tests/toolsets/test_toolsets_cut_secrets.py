"""Whatever cuts a text takes the secrets out first: half a secret is found by nobody, and two halves are the whole."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from golem_forge.events.redaction import Redactor, redact_start
from golem_forge.tools.context import ToolContext

CANARY = "canary-51c0ffee-canary"


@pytest.fixture
def ctx(ctx: ToolContext) -> ToolContext:
    ctx.redactor = Redactor()
    ctx.redactor.add_secret("TOKEN", CANARY)
    return ctx


def halves(text: str) -> Iterable[str]:
    """What is there of the canary, if it is four characters or more."""
    return [CANARY[at : at + 4] for at in range(len(CANARY) - 3) if CANARY[at : at + 4] in text]


@pytest.mark.parametrize("before", [2000 - len(CANARY) + 1, 1990, 1979, 1996])
async def test_read_file_shortens_a_line_without_its_secrets(
    call: Any, ctx: ToolContext, workspace: Path, before: int
) -> None:
    (workspace / "a.txt").write_text("x" * before + CANARY + "y" * 2000 + "\nsecond\n")
    result = await call("read_file", path="a.txt")
    assert not halves(result.text)
    over = before + len("[secret TOKEN]") + 2000 - 2000
    assert f"…[+{over} chars]\nL2: second" in result.text
    assert result.value["truncated"] is True


async def test_read_file_a_line_that_is_short_without_its_secret_is_whole(call: Any, workspace: Path) -> None:
    (workspace / "a.txt").write_text("x" * 1980 + CANARY + "\nsecond\n")
    result = await call("read_file", path="a.txt")
    assert result.text == f"L1: {'x' * 1980}[secret TOKEN]\nL2: second"
    assert result.value["truncated"] is False


@pytest.mark.parametrize("before", [500 - len(CANARY) + 1, 490, 496])
async def test_grep_files_without_walls_cuts_a_line_without_its_secrets(
    call: Any, workspace: Path, before: int
) -> None:
    (workspace / "a.txt").write_text("needle" + "x" * (before - 6) + CANARY + "\n")
    result = await call("grep_files", pattern="needle", mode="lines")
    assert result.value["engine"] == "python"
    assert not halves(result.text) and not halves(str(result.value))
    assert "x" * (before - 6) in result.text


async def test_a_line_that_is_cut_says_nothing_of_a_secret(call: Any, workspace: Path) -> None:
    for guess in (CANARY[:9], CANARY[:8] + "#", CANARY[:-1], "#" * 9):
        line = "needle" + "x" * 485 + guess
        (workspace / "a.txt").write_text(line + "#" * 500 + "\n")
        result = await call("grep_files", pattern="needle", mode="lines")
        assert result.value["matches"][0]["text"] == (line + "#" * 9)[:500]


def test_only_a_whole_secret_is_dropped() -> None:
    redactor = Redactor()
    assert redact_start("canary-51", 8, redactor) == "canary-5"
    redactor.add_secret("TOKEN", CANARY)
    text = f"a canary, {CANARY} and canary-51"
    assert redact_start(text, len(text), redactor) == "a canary, [secret TOKEN] and canary-51"
    assert redact_start(text, 10 + len(CANARY), redactor) == "a canary, [secret TOKEN]"
    assert redact_start(text, 9 + len(CANARY), redactor) == "a canary, "
