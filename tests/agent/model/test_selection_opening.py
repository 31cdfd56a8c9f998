"""Opening a model: what is missing is said before anything is asked."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from golem_forge.agent.model.interface import ModelError
from golem_forge.agent.model.selection import open_model
from golem_forge.config.run_block import ProviderSettings
from golem_forge.core.errors import ConfigError

NOWHERE = Path("/nowhere")


def test_a_missing_key_is_said_first() -> None:
    with pytest.raises(ModelError, match="set the environment variable ANTHROPIC_API_KEY"):
        open_model("anthropic:x", settings={}, environ={}, script_root=NOWHERE)


def test_openai_compatible_needs_an_address() -> None:
    with pytest.raises(ConfigError, match=r"models: \{openai-compatible: \{base_url: …\}\}"):
        open_model("openai-compatible:x", settings={}, environ={}, script_root=NOWHERE)


def test_a_script_is_looked_up_in_its_root(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("turns:\n  - say: hi\n")
    assert open_model("scripted:s.yaml", settings={}, environ={}, script_root=tmp_path).name == "scripted:s.yaml"


@pytest.mark.parametrize(
    ("provider", "missing", "anew"),
    [
        ("anthropic", "pydantic_ai", ("golem_forge.agent.model.providers",)),
        ("anthropic", "anthropic", ("pydantic_ai.models.anthropic", "pydantic_ai.providers.anthropic")),
        ("google", "google.genai", ("pydantic_ai.models.google", "pydantic_ai.providers.google")),
    ],
)
def test_a_library_that_is_not_installed_says_what_to_install(
    provider: str, missing: str, anew: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each import of it fails as on a machine without the extra; what would have imported it is imported `anew`."""
    for name in (missing, *(each for each in sys.modules if each.startswith(f"{missing}."))):
        monkeypatch.setitem(sys.modules, name, None)
    for name in anew:
        monkeypatch.delitem(sys.modules, name, raising=False)
    keys = {"ANTHROPIC_API_KEY": "canary", "GOOGLE_API_KEY": "canary"}
    with pytest.raises(ModelError, match=r"pip install 'golem-forge\[models\]'") as caught:
        open_model(f"{provider}:x", settings={}, environ=keys, script_root=NOWHERE)
    assert caught.value.code == "MODEL_LIBRARY_MISSING"


def test_variables_meant_for_openai_reach_nobody_else(wire: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK reads them from the process's environment; another server must not see them."""
    import asyncio

    from golem_forge.agent.model.interface import Request, UserMessage

    monkeypatch.setitem(os.environ, "OPENAI_API_KEY", "canary-openai")
    monkeypatch.setitem(os.environ, "OPENAI_ORG_ID", "canary-org")
    monkeypatch.setitem(os.environ, "OPENAI_PROJECT_ID", "canary-project")
    monkeypatch.setitem(os.environ, "OPENAI_CUSTOM_HEADERS", "x-gateway: canary-header")
    monkeypatch.setitem(os.environ, "OPENAI_BASE_URL", "http://127.0.0.1:9/nowhere")

    async def ask() -> None:
        settings = {"openai-compatible": ProviderSettings(base_url=server.base_url("openai-compatible"))}
        model = open_model("openai-compatible:x", settings=settings, environ={}, script_root=NOWHERE)
        async for _ in model.stream(Request(system="", messages=(UserMessage(text="hi"),))):
            pass
        await model.aclose()

    with wire.WireServer([wire.WireTurn(say="x")]) as server:  # type: ignore[attr-defined]
        asyncio.run(ask())
    assert "canary" not in repr(server.requests[0].headers)
