"""Which model answers, seen from outside: who said it last, what a sub-worker has, what a bare `forge` takes (W20)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.wire.server import WireServer, WireTurn

MAIN = """\
---
name: main
MODEL
toolsets: {workers: {allow: [helper], approval: {default: preApproved}}}
---
Ask the helper.
"""
HELPER = "---\nname: helper\nmodel: scripted:own.yaml\n---\nHelp.\n"


def script(name: str) -> str:
    return f"turns:\n  - calls: [{{tool: helper, args: {{input: who}}}}]\n    expect: go\n  - say: answered by {name}\n"


def test_w20_the_flag_beats_the_variable_beats_the_worker_beats_the_program(
    desk: Callable[..., Any], finish: Any
) -> None:
    """What each beats: tests/agent/model/test_selection_names.py."""
    said = ("flag", "worker")
    scripts = {f"{name}.yaml": script(name) for name in ("flag", "variable", "worker", "program")}
    running = {}
    for name in said:
        program = desk(
            {
                "forge.yaml": "model: scripted:program.yaml\n",
                "main.worker": MAIN.replace("MODEL", "model: scripted:worker.yaml"),
                "workers/helper.worker": HELPER,
                "own.yaml": "turns: [{say: answered by the helper's own}]\n",
                **scripts,
            },
            name=name,
            **({"FORGE_MODEL": "scripted:variable.yaml"} if name == "flag" else {}),
        )
        flag = ("-m", "scripted:flag.yaml") if name == "flag" else ()
        running[name] = (program, program.start("run", *flag, "-i", "go", "-a", "approve_all"))
    for name, (program, process) in running.items():
        ran = finish(process)
        assert (ran.code, ran.out) == (0, f"answered by {name}\n"), ran.err
        models = {
            record["data"]["name"]: record["data"]["model"]
            for record in program.records()
            if record.get("event") == "workerUpdate"
        }
        assert models == {"main": f"scripted:{name}.yaml", "helper": "scripted:own.yaml"}
        [helped] = [call for call in program.calls() if call.tool == "helper"]
        assert helped.status == "success"


def test_w20_a_bare_forge_takes_the_provider_whose_key_is_there(
    desk: Callable[..., Any], terminal: Callable[..., Any], own_home: Path
) -> None:
    """Nothing is asked of the provider: the person leaves before saying anything."""
    program = desk({}, OPENAI_API_KEY="canary-key-77e1c05d")
    with terminal(program) as here, terminal(program, cwd=own_home) as at_home:
        here.wait_for("default on openai:")
        here.wait_for("zones /workspace rw")
        at_home.wait_for("default on openai:")
        at_home.wait_for("zones /user_tools rw")
        at_home.wait_for("No zone here")
        at_home.wait_for("Start forge in a project directory")
        for screen in (here, at_home):
            screen.enter("/exit")
            assert screen.wait_end() == 0
            assert "canary-key" not in screen.text


def test_effort_is_said_by_the_program_the_worker_or_the_command_line(desk: Callable[..., Any]) -> None:
    with WireServer([WireTurn(say="Hi.")] * 4) as server:
        address = f"models: {{openai-compatible: {{base_url: '{server.base_url('x')}'}}}}\n"
        program = "model: openai-compatible:x\nmodel_settings: {effort: low}\n"
        place = desk({"forge.yaml": program, "main.worker": "---\nname: main\n---\n"})
        place.home.mkdir()
        (place.home / "config.yaml").write_text(address)
        assert place.forge("run", "hi").code == 0
        worker = "---\nname: main\nmodel_settings: {effort: medium}\n---\n"
        place.write(**{"main.worker": worker})
        assert place.forge("run", "hi").code == 0
        ran = place.forge("run", "--set", "model_settings.effort=high", "hi")
        assert ran.code == 0, ran.err
        assert [each.body["reasoning_effort"] for each in server.requests] == ["low", "medium", "high"]
        refused = place.forge("run", "--set", "model_settings.effort=hihg", "hi")
        assert refused.code == 2 and "one of low, medium, high" in refused.err
        refused = place.forge("run", "-m", "openai:gpt-4o", "hi", OPENAI_API_KEY="canary-key-1")
    assert refused.code == 2 and "openai:gpt-4o does not take `effort`" in refused.err
