"""One step of a build: it ends when its time is over, and what it said can be shown to anybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.deadlines import ever_longer

from golem_forge.sandbox.walls.model import Job
from golem_forge.usertools.build.requirements import StepResult, run_step, step_failure_text


async def test_a_step_that_takes_too_long_is_ended_and_says_so(works: Any, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    job = Job(argv=("sh", "-c", "echo begun; sleep 60"))
    for seconds in ever_longer(1.25):
        said = await run_step(works.walls(tmp_path / "work"), job, seconds=seconds)
        assert not said.ok
        if "begun" in said.text:
            break
    told = f"the compiler took longer than {seconds:g} s and was ended\nbegun"
    assert step_failure_text(said, "the compiler") == told


def test_files_are_named_as_their_author_knows_them() -> None:
    text = "# forge.local/tool\n./x.go:3:5: bad\n/forge/tool/y.go:1:1: worse\n/build/.module/go.mod:2: no\n../z.go:1"
    expected = "# forge.local/tool\nx.go:3:5: bad\ny.go:1:1: worse\ngo.mod:2: no\n../z.go:1"
    assert step_failure_text(StepResult(ok=False, text=text), "go") == expected


def test_a_failure_without_words_has_some() -> None:
    assert step_failure_text(StepResult(ok=False, text="\n"), "uv") == "uv failed and said nothing"


def test_a_failure_is_short_and_steers_no_terminal() -> None:
    shown = step_failure_text(StepResult(ok=False, text="https://me:canary@a.test \x1b]0;x\x07" + "é" * 5000), "uv")
    assert "canary" not in shown
    assert "\x1b" not in shown
    assert 4000 < len(shown.encode()) <= 4096
