"""Kept outputs and changes over HTTP: in pages, of this session alone, without what must not be shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.ui.change_data import change_set, created, edited, record

from golem_forge.core.changes import ChangeSelection
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.undo.restore import UndoPreview, UndoStep
from golem_forge.ui.web.api import events as api

pytest_plugins = ("tests.ui.web.asking",)


async def test_an_output_is_read_in_pages_and_looking_is_no_call(sessions: Any) -> None:
    asked = await sessions()
    text = "".join(f"line {number}\n" for number in range(1, 1001))
    handle = asked.runtime.path.outputs.keep(text, asked.runtime.path.worker)
    before = len(asked.events)
    page = await asked.get(f"outputs/{handle}")
    assert page["text"].startswith("L1: line 1\nL2: line 2\n")
    assert page["text"].endswith("L200: line 200\n[lines 1-200 of 1000; continue with offset=201]")
    assert (page["total"], page["next"]) == (1000, 201)
    page = await asked.get(f"outputs/{handle}?start=999&end=1000")
    assert page["text"] == "L999: line 999\nL1000: line 1000\n[lines 999-1000 of 1000]" and page["next"] is None
    page = await asked.get(f"outputs/{handle}?start=999&end=999")
    assert page["next"] == 1000
    assert len(asked.events) == before

    for query in ("start=0", "start=5&end=4", "start=1&end=2001", "start=1001", "start=x", "more=1"):
        assert (await asked.get(f"outputs/{handle}?{query}", status=422))["problem"]


async def test_an_output_of_a_worker_below_and_of_one_line_is_read_too(sessions: Any) -> None:
    asked = await sessions()
    store, worker = asked.runtime.path.outputs, asked.runtime.path.worker
    assert (await asked.get(f"outputs/{store.keep('', worker)}"))["text"] == "(empty output)"
    one = await asked.get(f"outputs/{store.keep('[lines of mine', f'{worker}/child')}")
    assert (one["text"], one["total"], one["next"]) == ("L1: [lines of mine", 1, None)
    long = await asked.get(f"outputs/{store.keep('x' * 100_000, worker)}")
    assert long["next"] == 2 and long["text"].startswith("L1+0: xxx")


async def test_nothing_else_is_read(sessions: Any, forge_home: Any) -> None:
    asked = await sessions()
    kept = asked.runtime.path.outputs.keep("mine", asked.runtime.path.worker)
    other = forge_home.path / "output" / "another"
    other.mkdir(parents=True)
    (other / "out_0123456789ab").write_text("canary-of-another")
    for handle in (
        "out_0123456789ab",
        "index.jsonl",
        "..%2Fanother%2Fout_0123456789ab",
        kept.upper(),
        f"{kept}%00",
        "%2e",
    ):
        answer = await asked.served.ask("GET", f"/api/sessions/{asked.session}/outputs/{handle}")
        assert answer.status_code == 404 and "canary" not in answer.text, handle
    answer = await asked.served.ask("GET", f"/api/sessions/another/outputs/{kept}")
    assert answer.status_code == 404


async def test_known_secrets_are_taken_out(sessions: Any) -> None:
    asked = await sessions()
    asked.runtime.tree.redactor.add_secret("KEY", "canary-4711-secret")
    handle = asked.runtime.path.outputs.keep("key canary-4711-secret end", asked.runtime.path.worker)
    page = await asked.get(f"outputs/{handle}")
    assert "canary" not in page["text"] and page["text"].endswith("end")


async def test_a_session_that_is_over_still_has_its_outputs(sessions: Any, recorded: Any) -> None:
    shown = await recorded()
    folder = shown.served.house.home.path / "output" / shown.session
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "out_0123456789ab").write_text("one\ntwo\n")
    assert (await shown.get("outputs/out_0123456789ab"))["text"] == "L1: one\nL2: two"


async def test_a_picture_is_given_and_nothing_that_is_none(sessions: Any) -> None:
    asked = await sessions()
    store, worker = asked.runtime.path.outputs, asked.runtime.path.worker
    picture = "R0lGODlhAwAFAA=="
    handle = store.keep(picture, worker)
    assert (await asked.get(f"pictures/{handle}"))["data"] == picture
    for other in (store.keep("plain words", worker), store.keep("", worker), "index.jsonl", "out_000000000000"):
        answer = await asked.served.ask("GET", f"/api/sessions/{asked.session}/pictures/{other}")
        assert answer.status_code == 404, other


DIFF = "--- a/workspace/a.txt\n+++ b/workspace/a.txt\n@@ -1 +1,2 @@\n-one\n+two\n+three\n"


async def test_changes_their_diffs_and_what_undo_would_do(sessions: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (
        UndoStep(path="/workspace/a.txt", action="restore", selected=True, why="", diff=DIFF),
        UndoStep(path="/workspace/docs/b.md", action="delete", selected=False, why="edited since", diff=""),
    )
    selections: list[ChangeSelection] = []

    def preview(home: Path, sandbox: Sandbox, session: str, selected: ChangeSelection, *, redo: bool) -> UndoPreview:
        selections.append(selected)
        return UndoPreview(steps=steps, lost=(), calls=("c1",))

    monkeypatch.setattr(api, "preview", preview)
    monkeypatch.setattr(api, "change_diff", lambda home, change: DIFF)
    asked = await sessions()
    changes = (edited("/workspace/a.txt", 2, 1), created("/workspace/docs/b.md", 3))
    record(asked.runtime.home.path, change_set(asked.session, "c1", 1, *changes, tool="save"))
    shown = await asked.get("changes")
    (call,) = shown["calls"]
    assert not shown["more"]
    assert (call["turn"], call["tool"], call["added"], call["removed"], call["undone"]) == (1, "save", 5, 1, "")
    assert [(each["path"], each["verb"]) for each in call["files"]] == [
        ("/workspace/a.txt", "changed"),
        ("/workspace/docs/b.md", "created"),
    ]
    assert (await asked.get("changes?path=docs"))["calls"][0]["files"][0]["path"] == "/workspace/docs/b.md"
    await asked.get("changes?turn=7", status=422)
    diff = f"changes/diff?call={call['call']}&path=/workspace"
    assert (await asked.get(f"{diff}/a.txt"))["diff"] == DIFF
    await asked.get(f"{diff}/no", status=404)
    asked.runtime.tree.redactor.add_secret("KEY", "canary-4711-secret")
    monkeypatch.setattr(api, "change_diff", lambda home, change: "+canary-4711-secret\n")
    monkeypatch.setattr(api, "_MAX_DIFF", 12)  # in the middle of the secret
    assert (await asked.get(f"{diff}/a.txt"))["diff"] == "+[secret KEY"
    undo = await asked.get("undo?turn=1")
    assert [(each["path"], each["selected"], each["why"]) for each in undo["steps"]] == [
        ("/workspace/a.txt", True, ""),
        ("/workspace/docs/b.md", False, "edited since"),
    ]
    assert selections[-1] == ChangeSelection(turn=1)
