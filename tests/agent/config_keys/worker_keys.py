"""Every key of a worker file: two values, two behaviours. workers.md §1."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from tests.agent.config_keys.ground import FILES, LIST, ZONE, Case, Cases, Ground
from tests.agent.conftest import calls
from tests.deadlines import PATIENCE
from tests.wire.server import WireServer, WireTurn

from golem_forge import tool
from golem_forge.agent.model.interface import TokenUsage
from golem_forge.agent.model.scripted import Turn, TurnCall

CASES = Cases()
key = CASES.key


def write(path: str = "/workspace/made") -> Turn:
    return calls(("write_file", {"path": path, "content": "x"}))


@key("name")
async def name(ground: Ground) -> None:
    for called in ("alpha", "beta"):
        seen = await ground.run(["ok"], worker=f"name: {called}\n")
        assert seen.all("sessionStarted")[0]["worker"] == called


@key("description")
async def description(ground: Ground) -> None:
    for said in ("Reads bills.", "Reads maps."):
        ground.write("workers/child.worker", f"---\nname: child\ndescription: {said}\n---\n")
        seen = await ground.run(["ok"], worker="toolsets: {workers: {allow: [child]}}\n")
        assert seen.offered["child"] == said


@key("mode")
async def mode(ground: Ground) -> None:
    found = [
        (await ground.run(["ok"], worker=f"mode: {word}\n")).all("sessionStarted")[0]["mode"]
        for word in ("chat", "single")
    ]
    assert found == ["chat", "single"]


@key("model")
async def model(ground: Ground) -> None:
    for name in ("a", "b"):
        ground.write(f"{name}.yaml", f"turns: [{{say: I am {name}}}]\n")
        seen = await ground.run([], worker=f"model: scripted:{name}.yaml\n", named_model=True)
        assert seen.result is not None and seen.result.response == f"I am {name}"


GENERATION = {
    "effort": ("reasoning_effort", "low", "high"),
    "temperature": ("temperature", 0.1, 0.9),
    "top_p": ("top_p", 0.1, 0.9),
    "max_output": ("max_tokens", 50, 60),
    "stop": ("stop", ["one"], ["two"]),
}
"""Key → what a server of one's own is sent, and two values."""


async def generation_settings(ground: Ground, *, worker: bool) -> None:
    for at in (1, 2):
        said = "".join(f", {name}: {values[at]}" for name, values in GENERATION.items())
        said = f"model_settings: {{{said[2:]}}}\n"
        with WireServer([WireTurn(say="Hi")]) as server:
            address = f"{{openai-compatible: {{base_url: {server.base_url('x')}}}}}"
            address = f"model: openai-compatible:x\nmodels: {address}\n"
            await ground.run(
                [],
                worker=said if worker else "mode: single\n",
                program=address if worker else address + said,
                named_model=True,
            )
        body = server.requests[0].body
        assert [body[values[0]] for values in GENERATION.values()] == [values[at] for values in GENERATION.values()]


@key(*(f"model_settings.{name}" for name in GENERATION))
async def model_settings(ground: Ground) -> None:
    await generation_settings(ground, worker=True)


@key("compatible_models")
async def compatible_models(ground: Ground) -> None:
    assert (await ground.run(["ok"], worker='compatible_models: ["SCRIPTED:*"]\n')).ended == "completed"
    refused = await ground.run(["ok"], worker='compatible_models: ["openai:*"]\n')
    assert "compatible_models: openai:*" in refused.error


@key("toolsets")
async def toolsets(ground: Ground) -> None:
    files = await ground.run(["ok"], worker=FILES + ZONE)
    search = await ground.run(["ok"], worker="toolsets: {search: }\n" + ZONE)
    assert "read_file" in files.offered and "read_file" not in search.offered and "grep_files" in search.offered


TWO = "sandbox: {zones: {a: {path: a}, b: {path: b}}}\n"


def two_zones(ground: Ground) -> None:
    ground.write("a/in_a", "x")
    ground.write("b/in_b", "x")


@key("sandbox.default_zone")
async def default_zone(ground: Ground) -> None:
    two_zones(ground)
    for zone in ("a", "b"):
        block = f"sandbox: {{default_zone: {zone}, zones: [{{name: a}}, {{name: b}}]}}\n"
        await ground.run([write(f"made-in-{zone}"), "ok"], worker=FILES + block, program=TWO)
        assert (ground.root / zone / f"made-in-{zone}").exists()


@key("sandbox.zones[].name")
async def zone_name(ground: Ground) -> None:
    two_zones(ground)
    for zone in ("a", "b"):
        seen = await ground.run([LIST, "ok"], worker=f"{FILES}sandbox: {{zones: [{{name: {zone}}}]}}\n", program=TWO)
        assert [f"{name}/" in seen.texts() for name in ("a", "b")] == [zone == "a", zone == "b"]


async def zone_says(ground: Ground, zone: str, call: Turn, **more: Any) -> str:
    seen = await ground.run([call, "ok"], worker=f"{FILES}sandbox: {{zones: [{{name: workspace, {zone}}}]}}\n", **more)
    return seen.statuses()[0]


@key("sandbox.zones[].mode")
async def zone_mode(ground: Ground) -> None:
    assert await zone_says(ground, "mode: ro", write()) == "sandbox_denied"
    assert await zone_says(ground, "mode: rw", write()) == "success"


FREE = "sandbox: {zones: {workspace: {path: ., approval: {write: preApproved, delete: preApproved}}}}\n"


@key("sandbox.zones[].approval.write")
async def zone_write(ground: Ground) -> None:
    async def says(verdict: str) -> str:
        block = f"approval: {{write: {verdict}}}"
        return await zone_says(ground, block, write(), approval="auto_deny", program=FREE)

    assert [await says("ask"), await says("preApproved")] == ["approval_denied", "success"]


@key("sandbox.zones[].approval.delete")
async def zone_delete(ground: Ground) -> None:
    async def says(verdict: str) -> str:
        ground.write("old")
        block, call = f"approval: {{delete: {verdict}}}", calls(("delete_file", {"path": "old"}))
        return await zone_says(ground, block, call, approval="auto_deny", program=FREE)

    assert [await says("ask"), await says("preApproved")] == ["approval_denied", "success"]


@key("sandbox.zones[].subpath")
async def zone_subpath(ground: Ground) -> None:
    two_zones(ground)
    for part in ("a", "b"):
        await zone_says(ground, f"subpath: {part}", write(f"/workspace/made-{part}"))
        assert (ground.root / part / f"made-{part}").exists()


@key("input_schema")
async def input_schema(ground: Ground) -> None:
    assert (await ground.run(["ok"], worker="input_schema: {type: string}\n", text='"x"')).ended == "completed"
    assert (await ground.run(["ok"], worker="input_schema: {type: integer}\n", text='"x"')).ended == "invalid_config"


@key("output_schema")
async def output_schema(ground: Ground) -> None:
    answers = ["[1]", "[1]"]
    assert (await ground.run(answers, worker="output_schema: {type: array}\n")).ended == "completed"
    assert (await ground.run(answers, worker="output_schema: {type: object}\n")).ended == "failed"


async def attached(ground: Ground, policy: str, *names: str) -> bool:
    for name in names:
        ground.write(name, "0123456789")
    seen = await ground.run(["ok"], worker=f"attachment_policy: {{{policy}}}\n", attach=names)
    return seen.ended == "completed"


@key("attachment_policy.max_attachments")
async def max_attachments(ground: Ground) -> None:
    assert await attached(ground, "max_attachments: 2", "a", "b")
    assert not await attached(ground, "max_attachments: 1", "a", "b")


@key("attachment_policy.max_total_bytes")
async def max_total_bytes(ground: Ground) -> None:
    assert await attached(ground, "max_total_bytes: 20", "a", "b")
    assert not await attached(ground, "max_total_bytes: 19", "a", "b")


@key("attachment_policy.allowed_suffixes")
async def allowed_suffixes(ground: Ground) -> None:
    assert await attached(ground, "allowed_suffixes: [.txt]", "a.TXT")
    assert not await attached(ground, "allowed_suffixes: [.pdf]", "a.TXT")


@key("attachment_policy.denied_suffixes")
async def denied_suffixes(ground: Ground) -> None:
    assert await attached(ground, "denied_suffixes: [.pdf]", "a.TXT")
    assert not await attached(ground, "denied_suffixes: [.txt]", "a.TXT")


@key("allow_empty_input")
async def allow_empty_input(ground: Ground) -> None:
    assert (await ground.run(["ok"], worker="allow_empty_input: true\n", text="")).ended == "completed"
    assert (await ground.run(["ok"], worker="allow_empty_input: false\n", text="")).ended == "invalid_config"


@key("max_iterations")
async def max_iterations(ground: Ground) -> None:
    turns = [LIST, LIST, "ok"]
    assert (await ground.run(turns, worker=f"{FILES}{ZONE}max_iterations: 3\n")).ended == "completed"
    assert (await ground.run(turns, worker=f"{FILES}{ZONE}max_iterations: 2\n")).ended == "limit"


@key("max_context_tokens")
async def max_context_tokens(ground: Ground) -> None:
    large = await ground.run(["ok"], worker="max_context_tokens: 50000\n")
    assert (large.ended, large.all("contextUsage")[0]["tokenLimit"]) == ("completed", 50000)
    assert (await ground.run(["ok"], worker="max_context_tokens: 10\n")).ended == "limit"


@key("batch.mode")
async def batch_mode(ground: Ground) -> None:
    async def at_once(word: str) -> int:
        now, most, together = 0, 0, asyncio.Barrier(2)

        @tool(needs_approval=False, read_only=True)
        async def look() -> str:
            """Looks."""
            nonlocal now, most
            now += 1
            most = max(most, now)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(together.wait(), PATIENCE if word == "parallel" else 0.05)
            now -= 1
            return "seen"

        await ground.run([calls(("look", {}), ("look", {})), "ok"], worker=f"batch: {{mode: {word}}}\n", tools=[look])
        return most

    assert [await at_once("parallel"), await at_once("sequential")] == [2, 1]


@key("batch.on_failure")
async def batch_on_failure(ground: Ground) -> None:
    both = calls(("read_file", {"path": "nowhere"}), ("list_files", {}))
    for word, second in (("collect_all", "success"), ("fail_fast", "skipped")):
        batch = f"batch: {{mode: sequential, on_failure: {word}}}\n"
        assert (await ground.run([both, "ok"], worker=FILES + ZONE + batch)).statuses()[1] == second


PRICED = "pricing: {'scripted:function': {input: 1000000, output: 1000000}}\n"
"""A dollar a token."""


async def within_budget(ground: Ground, limit: str, *, of: str) -> bool:
    """Whether a run of two requests, two calls, 300 tokens and, if that counts, 0.2 seconds fits; `of`: whose limit."""
    name = limit.partition(":")[0]

    @tool(needs_approval=False)
    async def slow() -> str:
        """Waits."""
        await asyncio.sleep(0.2 if name == "max_seconds" else 0)
        return "waited"

    used = TokenUsage(input=100, output=50)
    turns = [Turn(calls=(TurnCall(tool="slow", args={}),) * 2, usage=used), Turn(say="ok", usage=used)]
    block = f"budget: {{{limit}}}\n"
    seen = await ground.run(
        turns,
        worker="description: x\n" + (block if of == "worker" else ""),
        program=PRICED + (block if of == "program" else ""),
        tools=[slow],
        facts={"max_output_tokens": 60},
    )
    assert seen.ended in ("completed", "limit"), seen.error
    assert seen.result is not None and (seen.ended == "completed" or name in seen.result.error)
    return seen.ended == "completed"


BUDGETS = {
    "max_cost_usd": ("5000", "310"),
    "max_tokens": ("5000", "310"),
    "max_requests": ("2", "1"),
    "max_tool_calls": ("2", "1"),
    "max_seconds": ("600", "0.1"),
}
"""Key → a value that is enough, one that is not."""


def budget_cases(of: str) -> dict[str, Case]:
    def case(name: str) -> Case:
        async def run(ground: Ground) -> None:
            enough, short = BUDGETS[name]
            assert await within_budget(ground, f"{name}: {enough}", of=of)
            assert not await within_budget(ground, f"{name}: {short}", of=of)

        return run

    return {f"budget.{name}": case(name) for name in BUDGETS}


CASES.update(budget_cases("worker"))


@key("tool_format")
async def tool_format(ground: Ground) -> None:
    native = await ground.run(["ok"], worker=f"{FILES}{ZONE}tool_format: native\n")
    xml = await ground.run(["ok"], worker=f"{FILES}{ZONE}tool_format: xml\n")
    assert "read_file" in native.offered and xml.offered == {}
    assert "<tool_name>" in xml.script.requests[0].system and "<tool_name>" not in native.script.requests[0].system
