"""What Tab offers (U27): names the root worker could list in its zones, models that somebody named, ids."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from golem_forge import WorkerRuntime
from golem_forge.agent.model.scripted import FunctionScript
from golem_forge.agent.trust import trust_store
from golem_forge.cli.run_session import model_names, prompts, revocable_ids, server_names, session_ids, zone_names
from golem_forge.config.program import load_program
from golem_forge.core.errors import ForgeError
from golem_forge.mcp.client.manifest import ManifestCache
from golem_forge.mcp.client.model import ServerManifest
from golem_forge.mcp.client.trust_store import ServerTrustStore
from golem_forge.storage.home import ForgeHome


async def test_u27_zones_then_what_is_in_them(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "todo.txt").write_text("x")
    model = FunctionScript(lambda request: "hello")
    async with WorkerRuntime(directory=project, model=model, home=tmp_path / "home", journal=False) as runtime:
        names = zone_names(runtime)
        assert names("/") == ["user_tools/", "workspace/"]
        assert names("/workspace/") == ["src/", "todo.txt"]
        with pytest.raises(ForgeError):
            names("/etc/")


async def test_servers_that_are_known_and_their_prompts(tmp_path: Path) -> None:
    project, home = tmp_path / "project", ForgeHome(tmp_path / "home")
    project.mkdir()
    home.ensure()
    (project / "forge.yaml").write_text("mcp: {servers: {docs: {command: /bin/true}, git: {command: /bin/true}}}\n")
    spec = load_program(project, home, trusted=lambda _: True).mcp.servers["docs"]
    ServerTrustStore(home).approve_server(spec, "a person")
    prompt = {"name": "greet", "arguments": [{"name": "who"}]}
    ManifestCache(home).store(
        ServerManifest(
            server="docs", scope=spec.scope, config_digest=spec.digest, fetched_at=time.time(), prompts=(prompt,)
        )
    )
    model = FunctionScript(lambda request: "hello")
    async with WorkerRuntime(directory=project, model=model, home=home.path, journal=False) as runtime:
        assert list(server_names(runtime)()) == ["docs", "git"]
        (offered,) = prompts(runtime)()
        assert offered["name"] == "docs__greet" and [field["name"] for field in offered["fields"]] == ["who"]


async def test_u27_models_that_were_named_then_the_providers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary-key")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    project = tmp_path / "project"
    (project / "workers").mkdir(parents=True)
    (project / "forge.yaml").write_text("pricing: {'ollama:priced': {input: 1, output: 1}}\n")
    (project / "main.worker").write_text("---\nname: main\nmodel: ollama:mine\n---\nHelp.\n")
    trust_store(ForgeHome(tmp_path / "home")).give(project)
    model = FunctionScript(lambda request: "hello")
    async with WorkerRuntime(directory=project, model=model, home=tmp_path / "home") as runtime:
        offered = model_names(runtime)()
        assert session_ids(runtime)() == [runtime.session_id]
        assert list(revocable_ids(runtime)) == []
        assert list(server_names(runtime)()) == [] == prompts(runtime)()
    providers = [name for name in offered if name.endswith(":")]
    assert {"ollama:mine", "ollama:priced"} < set(offered) and "anthropic:" in providers
    assert [name for name in offered if name.startswith(("openai:g", "anthropic:c"))] == ["openai:gpt-6.1-sol"]
    assert offered[-len(providers) :] == providers
