"""What Forge knows to be secret reaches no model and comes back from none, over real SDKs and HTTP. Invariant 9."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import calls
from tests.agent.test_delegation import FILES, ZONE, may_call, program
from tests.wire.server import WireCall, WireServer, WireTurn

from golem_forge import WorkerRuntime
from golem_forge.agent.model.interface import Request
from golem_forge.agent.model.scripted import FunctionScript, Turn
from golem_forge.agent.run_result import RunResult
from golem_forge.agent.trust import trust_store
from golem_forge.storage.home import ForgeHome

CANARY = "canary-s3cr3t-9f8e7d6c5b4a"
KEY = "canary-key-0123456789abcdef0123456789abcdef"
PROVIDERS = ["anthropic", "openai", "openai-compatible"]


class Wired:
    """One run of a trusted program on a model behind the wire server."""

    def __init__(self, place: Path, provider: str, turns: list[WireTurn]) -> None:
        self.provider = provider
        self.home = place / "home"
        self.folder = program(place / "a-real-directory-name", main=f"{FILES}{ZONE}")
        self.server = WireServer(turns)
        self.events: list[Any] = []
        self.more_models = ""

    async def run(self, *texts: str) -> list[RunResult]:
        with self.server as server:
            models = (
                f"models: {{{self.provider}: {{base_url: '{server.base_url(self.provider)}', key_env: MY_LOGIN}}"
                f"{self.more_models}}}\n"
            )
            file = self.folder / "forge.yaml"
            file.write_text(file.read_text() + models)
            trust = trust_store(ForgeHome(self.home))
            trust.give(self.folder, trust.snapshot(self.folder))
            runtime = WorkerRuntime(
                "main",
                directory=self.folder,
                model=f"{self.provider}:wire",
                approval_mode="approve_all",
                home=self.home,
                on_event=self.events.append,
            )
            async with runtime:
                return [await runtime.run(text) for text in texts]

    @property
    def requests(self) -> str:
        return json.dumps([request.body for request in self.server.requests], ensure_ascii=False)

    @property
    def kept(self) -> str:
        """Everything below FORGE_HOME that a session leaves, and every event."""
        files = [path.read_text("utf-8", "replace") for path in self.home.rglob("*") if path.is_file()]
        return "\n".join([*files, *(json.dumps(event.wire, ensure_ascii=False) for event in self.events)])


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", CANARY)
    monkeypatch.setenv("MY_LOGIN", KEY)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_neither_what_is_typed_nor_what_is_read_takes_a_secret_along(tmp_path: Path, provider: str) -> None:
    asked = ("a.txt", "nope.txt", "/etc/hostname", "/elsewhere/x")
    turns = [
        WireTurn(calls=tuple(WireCall(name="read_file", args={"path": path}) for path in asked)),
        WireTurn(say="done"),
    ]
    wired = Wired(tmp_path, provider, turns)
    (wired.folder / "work" / "a.txt").write_text(f"token={CANARY}\n")
    (result,) = await wired.run(f"deploy with {CANARY}")
    assert result.response == "done" and len(wired.server.requests) == 2
    assert wired.requests.count("[secret DEPLOY_TOKEN]") >= 3, "in what was typed, twice, and in what was read"
    assert CANARY not in wired.requests and CANARY not in wired.kept
    assert KEY not in wired.requests and KEY not in wired.kept
    assert wired.folder.name not in wired.requests and str(tmp_path) not in wired.requests


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_provider_that_echoes_a_secret_in_its_error(tmp_path: Path, provider: str) -> None:
    """Wherever the text is cut: half a key is no longer known to be one."""
    said = [f"{'why ' * words}Incorrect API key: {KEY} or {CANARY}" for words in (0, 57, 65, 71)]
    wired = Wired(tmp_path, provider, [WireTurn(status=401, error=echo) for echo in said])
    results = await wired.run(*["hello"] * len(said))
    assert all("answered 401" in result.error for result in results)
    for told in (*(result.error for result in results), wired.kept):
        assert KEY[:16] not in told and CANARY[:12] not in told


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_names_and_words_that_no_provider_takes_back_do_not_end_the_conversation(
    tmp_path: Path, provider: str
) -> None:
    junk = (
        WireCall(name="read file!", args={"path": "a"}),
        WireCall(name="x" * 300, args={}),
        WireCall(name="read_file", args='{"path": '),
        WireCall(name="read_file", args='{"path": "\\ud800"}'),
    )
    wired = Wired(tmp_path, provider, [WireTurn(say="\ud83d half", calls=junk), WireTurn(say="done")])
    (result,) = await wired.run("go")
    assert result.response == "done"
    sent = wired.server.requests[1].body
    names = [each["name"] for each in _called(sent)]
    assert len(names) == 4 and all(len(name) <= 128 and name.replace("_", "").isalnum() for name in names)


def _called(body: Any) -> list[Any]:
    """The calls in a request, in whichever format."""
    if isinstance(body, dict):
        if body.get("type") in ("tool_use", "function_call") or ("arguments" in body and "name" in body):
            return [body]
        return [call for key, value in body.items() if key != "tools" for call in _called(value)]
    return [call for each in body for call in _called(each)] if isinstance(body, list) else []


async def test_a_secret_in_a_file_that_is_handed_over_stays_here(tmp_path: Path) -> None:
    folder = program(tmp_path / "p", main=may_call("a"), a=f"{FILES}{ZONE}")
    (folder / "work" / "n.txt").write_text(f"token={CANARY}\n")
    (folder / "work" / "b.bin").write_bytes(b"\xff\x00" + CANARY.encode())
    got: list[bytes] = []

    def answer(request: Request) -> Turn | str:
        if "I am a." in request.system:
            got.extend(request.attachment(each.digest) for each in request.messages[0].attachments)  # type: ignore[union-attr]
            return "read"
        files = ["/workspace/n.txt", "/workspace/b.bin"]
        return "ok" if len(request.messages) > 1 else calls(("a", {"input": "x", "attachments": files}))

    model = FunctionScript(answer)
    async with WorkerRuntime(
        "main", directory=folder, model=model, approval_mode="approve_all", home=tmp_path / "home"
    ) as runtime:
        assert (await runtime.run("go")).response == "ok"
    assert got == [b"token=[secret DEPLOY_TOKEN]\n", b"\xff\x00" + CANARY.encode()], "other bytes arrive as they are"


async def test_an_answer_that_holds_a_secret_is_given_without_it(play: Any) -> None:
    played = await play([f"It is {CANARY}."])
    result = await played.runtime.run("what is it?")
    assert result.response == "It is [secret DEPLOY_TOKEN]."


# ---- what blocks declare is secret from the start, not from the first process on

VARIABLES = (
    "FOR_EXEC",
    "FOR_SHELL",
    "OF_A_HELPER",
    "OF_A_MODULE",
    "IN_SERVER_ENV",
    "IN_A_HEADER",
    "AS_BEARER",
    "AS_ARGUMENT",
    "HANDED_ON",
    "OF_OWN_TOOL",
    "ANOTHER_MODEL",
)
"""Named like no credential: nothing but the declaration says that their values are secret."""
SERVERS = """\
mcp:
  servers:
    local:
      command: sh
      args: ["-c", "${AS_ARGUMENT}"]
      env: {LOGIN: "${IN_SERVER_ENV}", UNSET: "${NOBODY_SET_THIS}"}
      pass_env: [HANDED_ON]
    remote: {url: "https://mcp.example.com/", headers: {X-Thing: "${IN_A_HEADER}", X-Api-Key: written-out-123456}}
    other: {url: "https://other.example.com/", auth: {bearer_env: AS_BEARER}}
"""


def own_tool(home: Path, env: str) -> None:
    own = home / "tools" / "own"
    own.mkdir(parents=True)
    (own / "tool.yaml").write_text(f"name: own\ndescription: d\nversion: 1.0.0\nentrypoint: own.sh\nenv: [{env}]\n")
    (own / "own.sh").write_text("echo\n")


def _declaring(wired: Wired, place: Path) -> dict[str, str]:
    """Every kind of declaration, some of a worker that is never called. Gives what declares it → its value."""
    key = place / "key.txt"
    key.write_text("value-of-a-file-0123456789\nsecond line\n")
    secrets = f"{{E: 'env:FOR_EXEC', F: 'file:{key}', M: 'env:NOBODY_SET_THIS'}}"
    env = f"{{secrets: {secrets}, set: {{MY_TOKEN: written-out-654321}}}}"
    module = "custom: {module: tools.py, tools: [nothing], env: {secrets: {C: 'env:OF_A_MODULE'}}}"
    commands = "exec: {env: {secrets: {H: 'env:OF_A_HELPER'}}}, shell: {env: {secrets: {S: 'env:FOR_SHELL'}}}"
    program(
        wired.folder,
        forge=SERVERS,
        main=f"toolsets: {{exec: {{env: {env}}}, workers: {{allow: [helper]}}}}\n{ZONE}",
        helper=f"description: Helps.\ntoolsets: {{{commands}, {module}, user_tools: {{}}}}\n{ZONE}",
    )
    (wired.folder / "workers" / "tools.py").write_text("def nothing() -> str:\n    'Nothing.'\n    return ''\n")
    wired.more_models = ", google: {key_env: ANOTHER_MODEL}"
    own_tool(wired.home, "OF_OWN_TOOL, NOBODY_SET_THIS")
    written = {"file": "value-of-a-file-0123456789", "header": "written-out-123456", "set": "written-out-654321"}
    return {name: f"value-of-{name.lower()}-0123456789" for name in VARIABLES} | written


async def test_declared_secrets_are_known_before_the_first_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first message holds every one of them, and no process was started: they are in no request, no event and no
    journal. Also those of a worker that only could be called."""
    wired = Wired(tmp_path, "anthropic", [WireTurn(say="done")])
    declared = _declaring(wired, tmp_path)
    for name in VARIABLES:
        monkeypatch.setenv(name, declared[name])
    (result,) = await wired.run("\n".join(f"<{name}: {value}>" for name, value in declared.items()))
    assert result.response == "done" and len(wired.server.requests) == 1
    written = [path.read_text("utf-8", "replace") for path in (wired.home / "sessions").rglob("*") if path.is_file()]
    for told in (wired.requests, *(json.dumps(event.wire) for event in wired.events), *written):
        leaked = [name for name, value in declared.items() if value in told]
        assert not leaked
    for told in (wired.requests, "".join(written)):
        assert all(f"<{name}: [secret " in told for name in declared)


async def test_a_server_or_tool_that_comes_later_is_learned_when_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server and a tool of one's own that are added while the session runs: a later message may hold their values."""
    for name in ("IN_SERVER_ENV", "OF_OWN_TOOL"):
        monkeypatch.setenv(name, f"value-of-{name.lower()}-0123456789")
    values = [f"value-of-{name}-0123456789" for name in ("in_server_env", "of_own_tool")]
    home, events = tmp_path / "home", []
    folder = program(tmp_path / "p", main=f"toolsets: {{mcp: {{servers: ['*']}}, user_tools: {{}}}}\n{ZONE}")
    trust = trust_store(ForgeHome(home))
    trust.give(folder, trust.snapshot(folder))
    requests: list[Request] = []

    def turn(request: Request) -> Turn | str:
        requests.append(request)
        return "done"

    runtime = WorkerRuntime(
        "main",
        directory=folder,
        model=FunctionScript(turn),
        approval_mode="approve_all",
        home=home,
        on_event=events.append,
    )
    async with runtime:
        await runtime.run("first")
        (home / "config.yaml").write_text(
            "mcp: {servers: {late: {command: 'no-such-program', env: {LOGIN: '${IN_SERVER_ENV}'}}}}\n"
        )
        own_tool(home, "OF_OWN_TOOL")
        await runtime.run("second")
        await runtime.run(" and ".join(values))
    kept = "\n".join(path.read_text("utf-8", "replace") for path in (home / "sessions").rglob("*") if path.is_file())
    told = "\n".join([kept, *(json.dumps(event.wire) for event in events), *map(repr, requests)])
    assert not [value for value in values if value in told]
    assert "[secret late] and [secret OF_OWN_TOOL]" in told
