"""Who shows a session: the terminal, a page, both, or nobody. Gives the adapter for what was asked."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from golem_forge.cli.run.words import Asked
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.events.finding import find_session
from golem_forge.ui.session_ui import SessionUI
from golem_forge.ui.together import Together
from golem_forge.workers.runtime import WorkerRuntime

if TYPE_CHECKING:
    from golem_forge.ui.web.adapter import WebAdapter


def adapter_for(asked: Asked, runtime: WorkerRuntime) -> SessionUI:
    """Raises ConfigError where a page cannot be served as asked."""
    if asked.headless:
        from golem_forge.ui.headless import HeadlessAdapter

        return HeadlessAdapter(runtime.bus, json=asked.json, trace=asked.trace or "summary")
    page = _Page(asked, runtime)
    if asked.ui == {"web"}:
        from golem_forge.cli.web.another_link import on_enter

        runtime.open_page = page.another_link
        adapter = page.adapter()
        another = " Enter prints another link." if on_enter(adapter.show_link) else ""
        print(f"Ctrl-C stops what runs; twice within 2 seconds it ends the session.{another}", file=sys.stderr)
        return adapter
    uis = Together(_terminal(asked, runtime), *([page.adapter()] if asked.on_page else []))
    runtime.open_page = partial(page.opened, uis)
    return uis


def _terminal(asked: Asked, runtime: WorkerRuntime) -> SessionUI:
    from golem_forge.cli.run.offers import model_names, prompts, rule_ids, server_names, session_ids, zone_names
    from golem_forge.ui.terminal import create_event_cli_adapter

    return create_event_cli_adapter(
        runtime.bus,
        trace_level=asked.trace or "normal",
        home=runtime.home.path,
        zone_listing=zone_names(runtime),
        session_ids=session_ids(runtime),
        model_names=model_names(runtime),
        rule_ids=rule_ids(runtime),
        server_names=server_names(runtime),
        prompts=prompts(runtime),
    )


class _Page:
    """The page of a session, served from the start or from the first `/web` on."""

    def __init__(self, asked: Asked, runtime: WorkerRuntime) -> None:
        self._asked = asked
        self._runtime = runtime
        self._adapter: WebAdapter | None = None

    def adapter(self) -> WebAdapter:
        from golem_forge.cli.web.link import Link
        from golem_forge.cli.web.words import read_reach, web_settings
        from golem_forge.ui.web.adapter import WebAdapter

        directory = self._directory()
        settings = web_settings(directory, self._asked.overrides)
        try:
            reach = read_reach(self._asked, settings.web_port)
        except ForgeError as refused:
            raise ConfigError(refused.message) from None
        link = Link(self._runtime.home)
        self._adapter = WebAdapter(
            self._runtime,
            reach,
            directory=directory,
            show_link=link.show,
            forget_links=link.forget,
            notify=settings.web_notify,
        )
        return self._adapter

    async def opened(self, uis: Together) -> str:
        """What `/web` does: serves the page if nothing does yet, and shows a link."""
        if self._adapter is not None:
            return await self.another_link()
        adapter = self.adapter()
        try:
            await uis.join(adapter)
        except BaseException:
            self._adapter = None
            raise
        return adapter.address

    async def another_link(self) -> str:
        assert self._adapter is not None
        self._adapter.show_link()
        return self._adapter.address

    def _directory(self) -> Path:
        """A resumed session goes on in its own."""
        asked = self._asked
        if asked.resume:
            root = find_session(self._runtime.home.path, asked.resume, root=asked.directory).root
            return Path(root) if root else asked.directory
        return asked.directory
