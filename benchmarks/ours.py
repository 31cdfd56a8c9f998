"""Our side: a real session, wired as the product wires it, and (unless told otherwise) with a listener on its
bus, as a UI would be.

Home and journal are in build/, on the disk the checkout is on: a journal in memory would flatter us.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from benchmarks.rows import BENCH_JSON
from golem_forge.agent.session import Session, open_session
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.tool import Tool


@contextmanager
def project_and_home() -> Iterator[tuple[Path, Path]]:
    BENCH_JSON.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BENCH_JSON.parent, prefix="bench-") as folder:
        project = Path(folder, "project")
        project.mkdir()
        yield project, Path(folder, "home")


@contextmanager
def session_with(tools: Iterable[Tool], *, journal: bool, listener: bool = True, config: str = "") -> Iterator[Session]:
    """`config`: the person's own config.yaml."""
    with project_and_home() as (project, home):
        if config:
            ForgeHome(home).ensure()
            ForgeHome(home).config.write_text(config)
        session = open_session(project, tools=tools, home=ForgeHome(home), journal=journal)
        if listener:
            session.bus.on("*", lambda event: None)
        try:
            yield session
        finally:
            session.close()


@asynccontextmanager
async def session_in(directory: Path) -> AsyncIterator[Session]:
    """A session of its own home in a directory, nobody asked, nothing journalled."""
    with tempfile.TemporaryDirectory(prefix="bench-home-") as home:
        async with open_session(
            directory, home=ForgeHome(Path(home)), journal=False, approval="approve_all"
        ) as session:
            yield session
