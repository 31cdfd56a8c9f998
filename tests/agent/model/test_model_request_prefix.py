"""The beginning of a request is the same from turn to turn, byte by byte: what a provider has cached stays of use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from golem_forge.agent.runtime import WorkerRuntime

from .conftest import MODELS

TURNS = 20
CALLS = (
    ("update_plan", {"plan": [{"step": "look", "status": "in_progress"}, {"step": "mend", "status": "pending"}]}),
    ("list_dir", {}),
    ("write_file", {"path": "a.txt", "content": "one\n"}),
    ("read_file", {"path": "a.txt"}),
    ("update_plan", {"plan": [{"step": "look", "status": "completed"}, {"step": "mend", "status": "in_progress"}]}),
    ("read_file", {"path": "missing.txt"}),
    ("exec_command", {"cmd": "date +%s%N; ls"}),
)


def parts(body: dict[str, Any]) -> tuple[str, str, list[str]]:
    """(tools, system prompt, messages) as they stand in a request, without the marks that say what is to be cached."""

    def plain(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: plain(value) for key, value in part.items() if key != "cache_control"}
        return [plain(each) for each in part] if isinstance(part, list) else part

    body = plain(body)
    messages = body.get("messages") or body.get("input")
    system = body.get("system") or body.get("instructions") or ""
    return json.dumps(body["tools"]), json.dumps(system), [json.dumps(message) for message in messages]


@pytest.mark.parametrize("provider", MODELS)
async def test_the_prefix_stays_over_twenty_turns(
    wire: Any, provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIRE_KEY", "canary-1")
    project, home = tmp_path / "p", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    skill = home / "skills" / "mend" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: mend\ndescription: How to mend.\n---\nLook first.\n")
    turns = []
    for number in range(TURNS):
        name, args = CALLS[number % len(CALLS)]
        turns += [
            wire.WireTurn(say="Let me.", calls=(wire.WireCall(name=name, args=args),)),
            wire.WireTurn(say="Done."),
        ]
    with wire.WireServer(turns) as server:
        block = f"{{base_url: '{server.base_url(provider)}', key_env: WIRE_KEY}}"
        (home / "config.yaml").write_text(f"models: {{{provider}: {block}}}\n")
        async with WorkerRuntime(
            model=MODELS[provider],
            directory=project,
            home=home,
            approval_mode="approve_all",
        ) as runtime:
            for number in range(TURNS):
                (project / "changing.txt").write_text(str(number))
                skill.write_text(f"---\nname: mend\ndescription: How to mend.\n---\nStep {number}.\n")
                result = await runtime.turn(f"go {number}")
                assert result.response == "Done.", result
    assert len(server.requests) == 2 * TURNS
    assert "How to mend." in json.dumps(server.requests[0].body), "the skill is offered"
    before = parts(server.requests[0].body)
    for request in server.requests[1:]:
        now = parts(request.body)
        assert now[0] == before[0], "the tools"
        assert now[1] == before[1], "the system prompt"
        assert now[2][: len(before[2])] == before[2], "what was said"
        before = now
