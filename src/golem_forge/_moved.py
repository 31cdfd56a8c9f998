"""Module paths of earlier versions that the docs or the examples named. Importing one gives its names from where they
are now. The finder stands last in `sys.meta_path`: it is asked only when nothing else knows a module.
"""

from __future__ import annotations

from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

MOVED: Final = {
    "golem_forge.cli.ask": "golem_forge.ui.approval_prompt",
    "golem_forge.config.home": "golem_forge.storage.home",
    "golem_forge.config.mcp.spec": "golem_forge.config.mcp_spec",
    "golem_forge.core.finished": "golem_forge.core.calls",
    "golem_forge.events.journal_reader": "golem_forge.events.journal_records",
    "golem_forge.events.wire": "golem_forge.events.model",
    "golem_forge.mcp.client.definitions.definition": "golem_forge.mcp.client.model",
    "golem_forge.mcp.client.definitions.manifest_cache": "golem_forge.mcp.client.manifest",
    "golem_forge.mcp.client.state": "golem_forge.mcp.client.model",
    "golem_forge.mcp.client.trust.trust_book": "golem_forge.mcp.client.trust_store",
    "golem_forge.ui.exit_codes": "golem_forge.ui.session_ui",
    "golem_forge.ui.line_asking": "golem_forge.ui.approval_prompt",
    "golem_forge.ui.plain": "golem_forge.ui.session_ui",
    "golem_forge.ui.rendering.card": "golem_forge.ui.render.card",
    "golem_forge.ui.rendering.lines": "golem_forge.ui.render.lines",
    "golem_forge.workers.models.layer": "golem_forge.agent.model.interface",
    "golem_forge.workers.models.scripted": "golem_forge.agent.model.scripted",
    "golem_forge.workers.run_result": "golem_forge.agent.run_result",
    "golem_forge.workers.slash.handler": "golem_forge.agent.slash.handler",
    "golem_forge.workers.trusting": "golem_forge.agent.trust",
    "golem_forge.workers.worker": "golem_forge.agent.files.worker",
}
RENAMED: Final = {
    ("golem_forge.config.mcp.spec", "Auth"): "ServerAuth",
    ("golem_forge.config.mcp.spec", "Login"): "AuthKind",
    ("golem_forge.core.finished", "Finished"): "ToolCompletion",
    ("golem_forge.mcp.client.state", "State"): "ServerState",
    ("golem_forge.mcp.client.trust.trust_book", "TrustBook"): "ServerTrustStore",
    ("golem_forge.ui.rendering.card", "card"): "approval_card",
    ("golem_forge.workers.models.layer", "Usage"): "TokenUsage",
}
"""(Old path, old name) → the name it has now."""
_PACKAGES: Final = {path.rpartition(".")[0] for path in MOVED} | {"golem_forge.workers"}


def find_spec(name: str) -> ModuleSpec | None:
    return ModuleSpec(name, MovedLoader(), is_package=name in _PACKAGES) if name in MOVED or name in _PACKAGES else None


class MovedLoader(Loader):
    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        if old not in MOVED:
            return

        def get(name: str) -> Any:
            return getattr(import_module(MOVED[old]), RENAMED.get((old, name), name))

        module.__dict__["__getattr__"] = get
