"""The beginning of a request is the same from turn to turn, byte by byte: what a provider has cached stays of use."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from golem_forge.agent.runtime import WorkerRuntime

from .conftest import MODELS

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


def write_skill(home: Path, name: str, description: str, text: str = "Look first.") -> None:
    file = home / "skills" / name / "SKILL.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"---\nname: {name}\ndescription: {description}\n---\n{text}\n")


@pytest.mark.parametrize("provider", MODELS)
async def test_the_prefix_stays_over_many_turns(
    wire: Any, provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_long: bool
) -> None:
    count = 30 if is_long else len(CALLS)
    monkeypatch.setenv("WIRE_KEY", "canary-1")
    project, home = tmp_path / "p", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    write_skill(home, "mend", "How to mend.")
    turns = []
    for number in range(count):
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
            for number in range(count):
                (project / "changing.txt").write_text(str(number))
                write_skill(home, "mend", "How to mend.", f"Step {number}.")
                if number in (1, 5):
                    write_skill(home, f"late-{number}", "How to be late.")
                if number == 3:
                    shutil.rmtree(home / "skills" / "late-1")
                result = await runtime.turn(f"go {number}")
                assert result.response == "Done.", result
    assert len(server.requests) == 2 * count
    assert "How to mend." in json.dumps(server.requests[0].body), "the skill is offered"
    before = parts(server.requests[0].body)
    for request in server.requests[1:]:
        now = parts(request.body)
        assert now[0] == before[0], "the tools"
        assert now[1] == before[1], "the system prompt"
        assert now[2][: len(before[2])] == before[2], "what was said"
        before = now
    said = "".join(before[2])
    told = [said.index(words) for words in ("- late-1: How", "again as they were", "- late-5: How")]
    assert told == sorted(told), "what changes later is told later"
