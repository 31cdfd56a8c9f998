"""Every test has a home of its own: nothing reads or writes the real ~/.forge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("FORGE_HOME", str(home / ".forge"))
    return home


class Asked(list[Any]):
    """An approval callback that keeps every request and answers from a list (the last answer repeats)."""

    def __init__(self, *answers: Any) -> None:
        super().__init__()
        self._answers = list(answers) or [{"approved": True}]

    def __call__(self, request: Any) -> Any:
        self.append(request)
        answer = self._answers[min(len(self), len(self._answers)) - 1]
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.fixture
def asked() -> type[Asked]:
    return Asked


@pytest.fixture
def make_path(own_home: Path) -> Callable[..., Any]:
    """Builds an Orchestrator over the given tools: `make_path(add, ask=Asked(…))`, or `mode=…` without a callback."""
    from golem_forge.config.home import forge_home
    from golem_forge.orchestrator import Orchestrator
    from golem_forge.policy.controller import ApprovalController
    from golem_forge.policy.rules import RuleBook

    def make(
        *tools: Any, ask: Any = None, mode: str = "", timeout: float | None = None, **options: Any
    ) -> Orchestrator:
        mode = mode or ("interactive" if ask is not None else "auto_deny")
        controller = ApprovalController(mode, ask, timeout=timeout)
        options.setdefault("rules", RuleBook(forge_home()))
        return Orchestrator(tools, approval=controller, **options)

    return make


@pytest.fixture
def wire() -> Any:
    """The server that speaks providers' wire formats: `with wire.WireServer([wire.WireTurn(say="Hi")]) as server`."""
    from .wire import server

    return server
