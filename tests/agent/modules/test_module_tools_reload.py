"""Hot reload: changed code is a new tool, imported only once it is trusted (W12, part of W15)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.agent.modules.conftest import until
from tests.deadlines import within

from golem_forge.core.decisions import Status


async def test_w12_a_changed_module_waits_for_trust_then_runs_in_a_new_host(place: Any, call: Any) -> None:
    place.write("tools.py", "from helper import WORD\ndef word() -> str: return WORD\ndef gone() -> str: return ''")
    place.write("helper.py", "WORD = 'first'")
    modules = place.custom("word")
    (before,) = await modules.load()
    path = place.path([before])
    assert await modules.refresh() is None
    assert (await call(path, "word")).text == "first"
    (pool,) = modules.pools

    place.is_trusted = False
    place.write("helper.py", "WORD = 'second'")
    waiting = await modules.refresh()
    assert waiting is not None and modules.waits_for_trust and waiting.removed == ("word",) and not waiting.tools
    assert "./tools.py was changed" in waiting.diagnostics[0] and "forge trust" in waiting.diagnostics[0]
    assert await modules.refresh() is None  # said once
    assert (await call(path, "word")).status is Status.EXECUTION_FAILED  # the old code is not run any more either

    place.is_trusted = True
    back = await modules.refresh()
    assert back is not None and not modules.waits_for_trust and back.added == ("word",) and back.diagnostics == ()
    (after,) = back.tools
    assert after.definition_digest != before.definition_digest
    path.catalog.add(after, replace=True)
    assert (await call(path, "word")).text == "second"
    assert modules.pools != (pool,) and not any(host.alive for host in pool.hosts)


async def test_a_change_of_a_trusted_program_replaces_the_tool_while_an_old_call_ends(place: Any, call: Any) -> None:
    slow = """
        import os, time

        def word() -> str:
            open("/data/began", "w").close()
            while not os.path.exists("/data/go"):
                time.sleep(0.01)
            return "old"
        """
    place.write("tools.py", slow)
    modules = place.custom("word")
    (before,) = await modules.load()
    old = asyncio.create_task(call(place.path([before]), "word"))
    await until((place.root / "data/began").exists)
    place.write("tools.py", "def word() -> str: return 'new!'")
    changed = await modules.refresh()
    assert changed is not None and changed.changed == ("word",) and not changed.added
    assert (await call(place.path(list(changed.tools)), "word")).text == "new!"
    place.write("data/go", "")
    assert (await old).text == "old"


async def test_w12_a_module_that_no_longer_loads_has_no_tools_until_it_does(place: Any, call: Any) -> None:
    good = "def word() -> str:\n    return 'fine'\n"
    place.write("tools.py", good)
    modules = place.custom("word")
    (before,) = await modules.load()
    place.write("tools.py", "def word() -> str:\n    return 'fine\n")
    broken = await modules.refresh()
    assert broken is not None and broken.removed == ("word",) and not modules.waits_for_trust
    (said,) = broken.diagnostics
    assert "Failed to load custom tools from ./tools.py: SyntaxError: " in said and said.endswith("(line 2)")
    assert await modules.refresh() is None
    (place.root / "tools.py").unlink()
    missing = await modules.refresh()
    assert missing is not None and "file not found" in missing.diagnostics[0] and missing.removed == ()
    place.write("tools.py", good)
    back = await modules.refresh()
    assert back is not None and back.added == ("word",)
    assert back.tools[0].definition_digest == before.definition_digest  # the same bytes are the same tool
    assert (await call(place.path(list(back.tools)), "word")).text == "fine"


async def test_an_export_that_is_gone_and_a_touched_file(place: Any) -> None:
    place.write("tools.py", "def a(): ...\ndef b(): ...")
    modules = place.custom("a", "b")
    await modules.load()
    (place.root / "tools.py").touch()
    assert await modules.refresh() is None
    place.write("tools.py", "def a(): ...")
    seen = await modules.refresh()
    assert seen is not None and seen.removed == ("a", "b")
    assert "Tool 'b' not found in ./tools.py. Available exports: a" in seen.diagnostics[0]


async def test_w15_untrusted_code_is_not_imported(place: Any) -> None:
    place.write("tools.py", "open('/data/imported', 'w').close()\ndef a(): ...")
    place.is_trusted = False
    modules = place.custom("a")
    assert await modules.load() == [] and modules.exposed() == {} and modules.pools == ()
    assert await modules.refresh() is None
    assert not (place.root / "data/imported").exists()
    place.is_trusted = True
    seen = await modules.refresh()
    assert seen is not None and seen.added == ("a",) and list(modules.exposed().values()) == [["a"]]
    assert (place.root / "data/imported").exists()


async def test_a_tool_that_was_renamed_stays_under_its_blocks_approval(play: Any, tmp_path: Path) -> None:
    """Threat: under another name the program's own, looser default would decide about it."""
    from golem_forge.agent.model.scripted import Turn, TurnCall
    from golem_forge.agent.trust import trust_store
    from golem_forge.storage.home import ForgeHome

    def call(name: str) -> Turn:
        return Turn(calls=(TurnCall(tool=name, args={}),))

    root, store = tmp_path / "p", trust_store(ForgeHome(tmp_path / "home"))
    (root / "work").mkdir(parents=True)
    code = "from golem_forge import tool\n@tool(name={!r})\ndef x() -> int: return 1\n"
    (root / "tools.py").write_text(code.format("before"))
    (root / "forge.yaml").write_text("approval: {default: preApproved}\n")
    block = "{module: ./tools.py, tools: [x], approval: {default: ask, tools: {before: preApproved}}}"
    (root / "main.worker").write_text(f"---\nname: main\ntoolsets: {{custom: {block}}}\n---\nHi\n")
    store.give(root)

    def changed(_: Any) -> Any:
        (root / "tools.py").write_text(code.format("after"))
        store.give(root)
        return call("before")

    turns = [call("before"), changed, call("after"), "done"]
    played = await play(turns, run="go", worker="main", directory=root, home=tmp_path / "home", approval="auto_deny")
    seen = [event.wire["status"] for event in played.seen("toolResult")]
    assert seen[0] == "success" and seen[-1] == "approval_denied"
    (news,) = played.seen("catalogChanged")
    assert news.wire["added"] == ["after"] and news.wire["removed"] == ["before"]
    assert "approval.tools.before: not a tool of this block" in news.wire["diagnostics"][0]


async def test_an_interrupt_while_a_changed_module_is_imported_leaves_it_for_the_next_turn(
    place: Any, call: Any
) -> None:
    place.write("tools.py", "def word() -> str: return 'first'")
    modules = place.custom("word")
    await modules.load()
    slow = """
        import os, time

        open("/data/began", "w").close()
        if not os.path.exists("/data/go"):
            time.sleep(60)

        def word() -> str: return "second"
        """
    place.write("tools.py", slow)
    looking = asyncio.create_task(modules.refresh())
    await until((place.root / "data/began").exists)
    looking.cancel()
    with within(2), pytest.raises(asyncio.CancelledError):
        await looking
    place.write("data/go", "")
    changed = await modules.refresh()
    assert changed is not None and changed.changed == ("word",)
    assert (await call(place.path(list(changed.tools)), "word")).text == "second"
