"""The keys of `hooks` and of `approval.reviewer`: two values, two behaviours."""

from __future__ import annotations

import json
from typing import Any

from tests.agent.config_keys.ground import Cases, Ground, Seen
from tests.agent.conftest import calls

from golem_forge.config.program import load_program
from golem_forge.storage.home import forge_home

CASES = Cases()
key = CASES.key
WRITE = calls(("write_file", {"path": "/workspace/a.py", "content": "x"}))
READ = calls(("list_files", {"path": "/workspace"}))


async def with_hook(ground: Ground, turns: list[Any], **hook: Any) -> Seen:
    return await ground.run(turns, program=json.dumps({"hooks": [hook]}) + "\n")


def ran(seen: Seen) -> list[dict[str, Any]]:
    assert not seen.error, seen.error
    return seen.all("hookRan")


@key("hooks[].on", "hooks[].name", "hooks[].run")
async def point(ground: Ground) -> None:
    for on, name, run in (("turn_start", "one", "exit 0"), ("before_call", "two", "exit 2")):
        seen = await with_hook(ground, [WRITE, "ok"], on=on, name=name, run=run)
        (said,) = ran(seen)
        assert (said["on"], said["hook"], said["exitCode"]) == (on, name, 2 if on == "before_call" else 0)


@key("hooks[].tools", "hooks[].paths")
async def about(ground: Ground) -> None:
    for more, count in (({}, 2), ({"tools": ["write_*"]}, 1), ({"paths": ["**/*.py"]}, 1), ({"paths": ["*.md"]}, 0)):
        seen = await with_hook(ground, [WRITE, READ, "ok"], on="before_call", run="true", **more)
        assert len(ran(seen)) == count, more


@key("hooks[].tell")
async def tell(ground: Ground) -> None:
    for audience, in_model, in_line in (("model", True, False), ("person", False, True), ("both", True, True)):
        seen = await with_hook(ground, [WRITE, "ok"], on="after_call", run="echo linted", tell=audience)
        assert ("linted" in seen.texts()) is in_model and ("linted" in ran(seen)[0].get("line", "")) is in_line


@key("hooks[].timeout_s")
async def timeout_s(ground: Ground) -> None:
    seen = await with_hook(ground, [WRITE, "ok"], on="before_call", run="sleep 600", timeout_s=0.2)
    assert "took longer than 0.2 s" in seen.texts()
    assert "timeout" not in (await with_hook(ground, [WRITE, "ok"], on="before_call", run="true")).texts()


@key("hooks[].walls")
async def walls(ground: Ground) -> None:
    home = forge_home()
    home.ensure()
    for value, on_host in (("inside", False), ("host", True)):
        home.config.write_text(json.dumps({"hooks": [{"on": "turn_end", "run": "/bin/true", "walls": value}]}))
        (hook,) = load_program(ground.root, home, trusted=lambda _: True).hooks
        assert hook.on_host is on_host and hook.own


@key("hooks[].max_rounds")
async def max_rounds(ground: Ground) -> None:
    for rounds in (1, 2):
        seen = await with_hook(ground, ["x"] * (rounds + 1), on="turn_end", run="exit 2", max_rounds=rounds)
        assert len(ran(seen)) == rounds + 1


@key(
    "approval.reviewer.run",
    "approval.reviewer.model",
    "approval.reviewer.up_to",
    "approval.reviewer.budget.max_requests",
    "approval.reviewer.budget.max_cost_usd",
)
async def reviewer(ground: Ground) -> None:
    home = forge_home()
    home.ensure()

    def read(said: dict[str, Any]) -> Any:
        home.config.write_text(json.dumps({"approval": {"reviewer": said}}))
        return load_program(ground.root, home, trusted=lambda _: True).approval.reviewer

    made = read({"run": "/bin/review --quick", "up_to": "high", "budget": {"max_requests": 3}})
    assert (made.run, made.up_to, made.max_requests) == (("/bin/review", "--quick"), "high", 3)
    made = read({"model": "a:b", "budget": {"max_cost_usd": 0.5}})
    assert (made.model, made.up_to, made.max_requests, made.max_cost_usd) == ("a:b", "medium", 200, 0.5)
    assert read({}) is None
