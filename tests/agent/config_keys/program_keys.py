"""Every key of forge.yaml: two values, two behaviours. workers.md §2; the keys about walls are in `wall_keys`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.agent.config_keys.ground import COMMANDS, ZONE, Cases, Ground
from tests.agent.config_keys.worker_keys import GENERATION, budget_cases, generation_settings, two_zones, write
from tests.agent.conftest import calls
from tests.deadlines import LONG, ever_longer
from tests.wire.server import WireCall, WireServer, WireTurn

from golem_forge import ToolResult, tool
from golem_forge.agent.model.interface import Request, TokenUsage
from golem_forge.agent.model.scripted import Turn
from golem_forge.config.program import load_program
from golem_forge.config.store_block import NOTIFY_ON
from golem_forge.storage.home import forge_home

CASES = Cases()
key = CASES.key


@key("entry")
async def entry(ground: Ground) -> None:
    ground.write("other.worker", "---\nname: other\n---\n")
    for file in ("main", "other"):
        seen = await ground.run(["ok"], program=f"entry: {file}.worker\n")
        assert seen.all("sessionStarted")[0]["worker"] == file


@key("model")
async def model(ground: Ground) -> None:
    for name in ("a", "b"):
        ground.write(f"{name}.yaml", f"turns: [{{say: I am {name}}}]\n")
        seen = await ground.run([], program=f"model: scripted:{name}.yaml\n", named_model=True)
        assert seen.result is not None and seen.result.response == f"I am {name}"


async def asked_over_the_wire(ground: Ground, server: WireServer, more: str = "") -> str:
    """The key that the server was shown."""
    block = f"{{base_url: {server.base_url('openai-compatible')}{more}}}"
    program = f"model: openai-compatible:x\nmodels: {{openai-compatible: {block}}}\n"
    seen = await ground.run([], program=program, named_model=True)
    assert seen.result is not None and seen.result.response == "Hi", seen
    return server.requests[-1].headers.get("authorization", "")


@key("models.*.base_url")
async def base_url(ground: Ground) -> None:
    with WireServer([WireTurn(say="Hi")]) as one, WireServer([WireTurn(say="Hi")]) as other:
        await asked_over_the_wire(ground, one)
        await asked_over_the_wire(ground, other)
        assert [len(one.requests), len(other.requests)] == [1, 1]


@key("models.*.media")
async def media(ground: Ground) -> None:
    @tool(needs_approval=False)
    async def picture() -> ToolResult:
        """A picture."""
        return ToolResult.from_mcp(
            {"content": [{"type": "image", "data": "R0lGODlhAwAFAA==", "mimeType": "image/gif"}]}
        )

    for said, sent in (("[image]", True), ("[]", False)):
        with WireServer([WireTurn(calls=(WireCall(name="picture", args={}),)), WireTurn(say="Hi")]) as server:
            block = f"{{base_url: {server.base_url('openai-compatible')}, media: {said}}}"
            program = f"model: openai-compatible:x\nmodels: {{openai-compatible: {block}}}\n"
            seen = await ground.run([], program=program, named_model=True, tools=[picture])
            assert seen.result is not None and seen.result.response == "Hi"
            assert ("image_url" in str(server.requests[-1].body)) is sent


@key("models.*.text_calls")
async def text_calls(ground: Ground) -> None:
    written = '{"name": "read_output", "arguments": {"handle": "out_000000000000"}}'
    for said, answer in (("true", "Hi"), ("false", written)):
        with WireServer([WireTurn(say=written), WireTurn(say="Hi")]) as server:
            block = f"{{base_url: {server.base_url('openai-compatible')}, text_calls: {said}}}"
            program = f"model: openai-compatible:x\nmodels: {{openai-compatible: {block}}}\n"
            seen = await ground.run([], program=program, named_model=True)
            assert seen.result is not None and seen.result.response == answer


@key(*(f"model_settings.{name}" for name in GENERATION))
async def model_settings(ground: Ground) -> None:
    await generation_settings(ground, worker=False)


@key("models.*.key_env")
async def key_env(ground: Ground) -> None:
    with pytest.MonkeyPatch.context() as patch, WireServer([WireTurn(say="Hi")] * 2) as server:
        for name in ("CANARY_ONE", "CANARY_TWO"):
            patch.setenv(name, f"canary-key-of-{name}")
            assert f"canary-key-of-{name}" in await asked_over_the_wire(ground, server, f", key_env: {name}")


@key("models.*.request_timeout")
async def request_timeout(ground: Ground) -> None:
    for patience in ever_longer(1.5):
        with WireServer([WireTurn(hold=LONG), *[WireTurn(say="Hi")] * 3]) as server:
            await asked_over_the_wire(ground, server, f", request_timeout: {patience}")
        if len(server.requests) == 2:
            break
    assert len(server.requests) == 2


@key("instructions.project_files")
async def project_files(ground: Ground) -> None:
    ground.write("AGENTS.md", "Use tabs.")
    for value, read in (("true", True), ("false", False)):
        seen = await ground.run(["ok"], program=f"instructions: {{project_files: {value}}}\n")
        assert ("Use tabs." in seen.script.requests[-1].system) is read


@key("toolsets.code")
async def toolsets_code(ground: Ground) -> None:
    for value, offered in (("on", True), ("off", False)):
        seen = await ground.run(["ok"], program=f"toolsets: {{code: {value}}}\n", worker=COMMANDS + ZONE)
        assert ("run_code" in seen.offered) is offered


@key("undo.keep", "undo.max_disk", "undo.max_file", "undo.max_total")
async def undo(ground: Ground) -> None:
    """What each does is in tests/sandbox/undo; it is the person's own word, and no program's."""
    home = forge_home()
    home.config.parent.mkdir(parents=True, exist_ok=True)
    for said, expected in (("keep: 2d", 172_800.0), ("max_disk: 1GiB", 1 << 30), ("max_file: 1MiB", 1 << 20)):
        name = said.partition(":")[0]
        home.config.write_text(f"undo: {{{said}}}\n")
        assert getattr(load_program(ground.root, home, trusted=lambda _: True).undo, name) == expected
    home.config.write_text("undo: {max_total: 3MiB}\n")
    ground.write("forge.yaml", "undo: {max_total: 1KiB}\n")
    found = load_program(ground.root, home, trusted=lambda _: True)
    assert found.undo.max_total == 3 << 20
    assert "undo is ignored" in found.notice


@key("otel.endpoint", "otel.content")
async def otel(ground: Ground) -> None:
    """In the person's own file: a project's does not count (tests/acceptance/test_telemetry.py)."""
    home = forge_home()
    home.path.mkdir(parents=True, exist_ok=True)
    for said, switched_on, content in (("endpoint: http://127.0.0.1:9", True, False), ("content: true", False, True)):
        home.config.write_text(f"otel: {{{said}}}\n")
        found = load_program(ground.root, home, trusted=lambda _: True).otel
        assert (bool(found.asked_by), found.content) == (switched_on, content)


@key(
    *("store.url", "store.runner.slots", "store.runner.labels", "store.limits.per_person"),
    *("store.limits.per_program", "store.hold", "store.retention", "store.audit.retention"),
)
async def store(ground: Ground) -> None:
    """What a runner makes of them: tests/team."""
    home = forge_home()
    home.path.mkdir(parents=True, exist_ok=True)
    said = "url: sqlite, runner: {slots: 2, labels: [gpu]}, limits: {per_person: 3, per_program: 5}"
    said += ", hold: 20s, retention: 1d, audit: {retention: 2d}"
    ground.write("forge.yaml", f"store: {{{said}}}\n")
    found = load_program(ground.root, home, trusted=lambda _: True).store
    assert (found.address(), found.slots, found.labels) == ("sqlite", 2, ("gpu",))
    assert (found.per_person, found.per_program, found.hold, found.retention) == (3, 5, 20.0, 86400.0)
    assert found.audit_retention == 2 * 86400.0
    stranger = load_program(ground.root, home, trusted=lambda _: False)
    assert stranger.store.slots != 2
    assert any("store.runner" in line for line in stranger.unused)


@key(
    *("oidc.client_id", "oidc.client_secret", "oidc.groups", "oidc.name", "oidc.scopes", "oidc.recheck"),
    *("oidc.roles.viewer", "oidc.roles.operator", "oidc.roles.admin"),
)
async def sign_in(ground: Ground) -> None:
    """What the page makes of them: tests/team/test_openid.py."""
    said = "client_id: forge, client_secret: env:SECRET, groups: teams, name: email, scopes: [openid], recheck: 30s"
    roles = "{viewer: ['*'], operator: [dev, qa], admin: [ops]}"
    ground.write("forge.yaml", f"oidc: {{{said}, roles: {roles}}}\n")
    found = load_program(ground.root, forge_home(), trusted=lambda _: True).store.sign_in
    assert (found.client_id, found.groups, found.name, found.scopes) == ("forge", "teams", "email", ("openid",))
    assert (found.recheck, found.secret({"SECRET": " s "})) == (30.0, "s")
    assert found.roles == {"viewer": ("*",), "operator": ("dev", "qa"), "admin": ("ops",)}
    stranger = load_program(ground.root, forge_home(), trusted=lambda _: False)
    assert stranger.store.sign_in.client_id == "" and "forge.yaml:1: oidc" in stranger.unused


@key("workspace.git", "workspace.ref")
async def workspace(ground: Ground) -> None:
    """What a session makes of it: tests/team/test_session_workspace.py."""
    home = forge_home()
    ground.write("forge.yaml", "workspace: {git: ../repository, ref: main}\n")
    found = load_program(ground.root, home, trusted=lambda _: True).workspace
    assert (found.git, found.ref, found.folder, found.is_withheld) == ("../repository", "main", ground.root, False)
    stranger = load_program(ground.root, home, trusted=lambda _: False)
    assert stranger.workspace.git == "" and stranger.workspace.is_withheld
    assert "forge.yaml:1: workspace" in stranger.unused
    typed = load_program(ground.root, home, trusted=lambda _: False, overrides=("workspace.ref=other",))
    assert typed.workspace.is_withheld, "half of it is still the stranger's"


@key("store.page", "notify[].webhook", "notify[].secret", "notify[].on", "notify[].allow_private", "notify[].projects")
async def webhooks(ground: Ground) -> None:
    """What a runner does with them: tests/team/test_webhooks.py."""
    home = forge_home()
    home.path.mkdir(parents=True, exist_ok=True)
    home.config.write_text("notify: [{webhook: https://a.example/x, secret: env:A, projects: [shop]}]\n")
    said = "{webhook: env:B_URL, secret: env:B, on: [failed], allow_private: true}"
    ground.write("forge.yaml", f"store: {{page: https://team.example}}\nnotify: [{said}]\n")
    found = load_program(ground.root, home, trusted=lambda _: True).store
    assert found.page == "https://team.example"
    first, second = found.notify
    assert (first.url({}), first.on, first.allow_private) == ("https://a.example/x", NOTIFY_ON, False)
    assert (first.projects, second.projects) == (("shop",), ())
    environ = {"B_URL": "https://b.example", "B": "canary"}
    assert (second.url(environ), second.key(environ)) == ("https://b.example", b"canary")
    assert (second.on, second.allow_private) == (("failed",), True)
    stranger = load_program(ground.root, home, trusted=lambda _: False)
    assert [each.webhook for each in stranger.store.notify] == ["https://a.example/x"]
    assert "forge.yaml:2: notify" in stranger.unused


@key("store.token", "approval.four_eyes")
async def team(ground: Ground) -> None:
    """What they do: tests/team/test_people.py."""
    home = forge_home()
    home.path.mkdir(parents=True, exist_ok=True)
    home.config.write_text("store: {token: env:MY_TOKEN}\napproval: {four_eyes: high}\n")
    ground.write("forge.yaml", "approval: {four_eyes: medium}\n")
    found = load_program(ground.root, home, trusted=lambda _: True)
    assert found.store.person_token({"MY_TOKEN": "canary-token-1"}) == "canary-token-1"
    assert found.approval.four_eyes is not None
    assert found.approval.four_eyes.value == "medium"


@key("worker_paths")
async def worker_paths(ground: Ground) -> None:
    ground.write("agents/child.worker", "---\nname: child\n---\n")
    calling = "toolsets: {workers: {allow: [child]}}\n"
    assert "child" in (await ground.run(["ok"], worker=calling, program="worker_paths: [agents]\n")).offered
    assert "'child' not found" in (await ground.run(["ok"], worker=calling, program="worker_paths: [crew]\n")).error


def crew(ground: Ground) -> str:
    """Workers a and b below main; a may call b. Gives main's front matter."""
    ground.write("workers/a.worker", "---\nname: a\ntoolsets: {workers: {allow: [b]}}\n---\nI am a.\n")
    ground.write("workers/b.worker", "---\nname: b\n---\nI am b.\n")
    return "toolsets: {workers: {allow: [a, b]}}\n"


def playing(**first: Any) -> Any:
    """A worker's first turn by its name; whatever it is told then, it says `ok`."""

    def turn(request: Request) -> Turn | str:
        name = request.system.split("I am ", 1)[1][:1]
        return first.get(name, "ok") if len(request.messages) == 1 else "ok"

    return [turn] * 20


@key("delegation.max_depth")
async def max_depth(ground: Ground) -> None:
    for depth, deepest in ((2, {"a", "b"}), (1, {"a"})):
        turns = playing(m=calls(("a", {"input": "x"})), a=calls(("b", {"input": "x"})))
        seen = await ground.run(turns, worker=crew(ground), program=f"delegation: {{max_depth: {depth}}}\n")
        ran = {
            update["name"] for update in seen.all("workerUpdate") if update["depth"] and update["status"] == "complete"
        }
        assert ran == deepest


@key("delegation.max_parallel")
async def max_parallel(ground: Ground) -> None:
    for most, begin in ((2, ["running", "running"]), (1, ["running", "complete"])):
        both = calls(("b", {"input": "x"}), ("b", {"input": "y"}))
        turns = playing(m=both, b=Turn(say="ok", until=asyncio.Barrier(most).wait))
        seen = await ground.run(turns, worker=crew(ground), program=f"delegation: {{max_parallel: {most}}}\n")
        assert [update["status"] for update in seen.all("workerUpdate") if update["depth"]][:2] == begin


CASES.update(budget_cases("program"))


async def cost(ground: Ground, prices: str) -> float:
    turn = Turn(say="ok", usage=TokenUsage(input=1_000_000, output=1_000_000, cached=500_000))
    seen = await ground.run([turn], program=f"pricing: {{'scripted:function': {{{prices}}}}}\n")
    return float(seen.all("usageUpdated")[0]["cost"])


@key("pricing.*.input")
async def price_of_input(ground: Ground) -> None:
    assert [await cost(ground, "input: 1, output: 0"), await cost(ground, "input: 3, output: 0")] == [1, 3]


@key("pricing.*.output")
async def price_of_output(ground: Ground) -> None:
    assert [await cost(ground, "input: 0, output: 2"), await cost(ground, "input: 0, output: 5")] == [2, 5]


@key("pricing.*.cached")
async def price_of_cached(ground: Ground) -> None:
    dear, cheap = "input: 2, output: 0, cached: 2", "input: 2, output: 0, cached: 0"
    assert [await cost(ground, dear), await cost(ground, cheap)] == [2, 1]


# ---- zones


@key("sandbox.root")
async def sandbox_root(ground: Ground) -> None:
    two_zones(ground)
    for part in ("a", "b"):
        program = f"sandbox: {{root: {part}, zones: {{workspace: {{path: .}}}}}}\n"
        await ground.run([write(f"/workspace/made-{part}"), "ok"], program=program)
        assert (ground.root / part / f"made-{part}").exists()


def zone(block: str) -> str:
    return f"sandbox: {{zones: {{workspace: {{{block}}}}}}}\n"


@key("sandbox.zones.*.path")
async def zone_path(ground: Ground) -> None:
    two_zones(ground)
    for part in ("a", "b"):
        await ground.run([write(f"/workspace/made-{part}"), "ok"], program=zone(f"path: {part}"))
        assert (ground.root / part / f"made-{part}").exists()


@key("sandbox.zones.*.mode")
async def zone_mode(ground: Ground) -> None:
    for word, status in (("rw", "success"), ("ro", "sandbox_denied")):
        assert (await ground.run([write(), "ok"], program=zone(f"path: ., mode: {word}"))).statuses() == [status]


async def under_auto_deny(ground: Ground, call: Turn, program: str, **more: Any) -> str:
    return (await ground.run([call, "ok"], program=program, approval="auto_deny", **more)).statuses()[0]


@key("sandbox.zones.*.approval.write")
async def zone_write(ground: Ground) -> None:
    for verdict, status in (("ask", "approval_denied"), ("preApproved", "success")):
        program = zone(f"path: ., approval: {{write: {verdict}}}")
        assert await under_auto_deny(ground, write(), program) == status


@key("sandbox.zones.*.approval.delete")
async def zone_delete(ground: Ground) -> None:
    for verdict, status in (("ask", "approval_denied"), ("preApproved", "success")):
        ground.write("old")
        program = zone(f"path: ., approval: {{delete: {verdict}}}")
        assert await under_auto_deny(ground, calls(("delete_file", {"path": "old"})), program) == status


@key("sandbox.unprotect")
async def unprotect(ground: Ground) -> None:
    free = "zones: {workspace: {path: ., approval: {write: preApproved}}}"
    for names, status in (("[.vscode]", "approval_denied"), ("[.envrc]", "success")):
        program = f"sandbox: {{unprotect: {names}, {free}}}\n"
        assert await under_auto_deny(ground, write("/workspace/.envrc"), program) == status


# ---- approval


@key("approval.mode")
async def approval_mode(ground: Ground) -> None:
    for word, status in (("approve_all", "success"), ("auto_deny", "approval_denied")):
        seen = await ground.run([write(), "ok"], program=f"approval: {{mode: {word}}}\n", approval=None)
        assert seen.statuses() == [status]


@tool
async def touch() -> str:
    """Touches."""
    return "touched"


@key("approval.default")
async def approval_default(ground: Ground) -> None:
    for verdict, status in (("preApproved", "success"), ("ask", "approval_denied"), ("blocked", "policy_denied")):
        program = f"approval: {{default: {verdict}}}\n"
        assert await under_auto_deny(ground, calls(("touch", {})), program, tools=[touch]) == status


@key("approval.tools.*")
async def approval_tools(ground: Ground) -> None:
    for verdict, status in (("preApproved", "success"), ("ask", "approval_denied"), ("blocked", "policy_denied")):
        program = f"approval: {{tools: {{touch: {verdict}}}}}\n"
        assert await under_auto_deny(ground, calls(("touch", {})), program, tools=[touch]) == status


@key("approval.timeout")
async def approval_timeout(ground: Ground) -> None:
    for seconds, takes, status in (("0.1", 60, "approval_denied"), ("90", 0.2, "success")):

        async def slow_person(request: Any, takes: float = takes) -> dict[str, Any]:
            await asyncio.sleep(takes)
            return {"approved": True}

        program = f"approval: {{timeout: {seconds}}}\n"
        seen = await ground.run([write(), "ok"], program=program, approval=None, approval_callback=slow_person)
        assert seen.statuses() == [status]
        assert status == "success" or f"No answer within {seconds} s." in seen.texts()
