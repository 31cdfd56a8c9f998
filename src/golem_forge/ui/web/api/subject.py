"""Subject: the session that a request about tools, rules or settings speaks of, and what can be asked about it.

One that runs here is asked itself; of any other the home knows the person's tools and rules, and the program it ran in.
Whatever leaves goes through `fit`: secrets and host paths are taken out as they are of events, and nothing of it can
break the JSON it is written as.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.api.operation import Call
from golem_forge.ui.web.wire import Refused

if TYPE_CHECKING:
    from golem_forge.config.home import ForgeHome
    from golem_forge.events.redaction import Redactor
    from golem_forge.workers.runtime import WorkerRuntime

_DEEPEST: Final = 100
_NOT_READY: Final = "The session is just being started; try again in a moment."
_READ_ONLY: Final = (
    "This session does not run in the process that serves this page; do it where it runs, or resume it first."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    home: ForgeHome
    root: Path
    """Of its program; where that is gone, the directory this server was started in."""
    runtime: WorkerRuntime | None
    """None: it does not run here."""
    redactor: Redactor

    @property
    def live(self) -> WorkerRuntime:
        """Refused (409) where it does not run here."""
        if self.runtime is None:
            raise Refused(409, _READ_ONLY)
        return self.runtime

    async def look_at_tools(self) -> None:
        """What changed on disk counts from now on, as before every command of a person; folders are read off the
        loop."""
        if self.runtime is None:
            return
        if (placed := self.runtime.user_tools) is not None:
            await run_in_thread(placed.shop.registry.refresh)
        self.runtime.look_at_tools()

    def fit(self, value: Any) -> Any:
        return fit(value, self.redactor.text)


async def subject_of(call: Call) -> Subject:
    """The session in the path of the request. Refused (404): there is none."""
    session = await call.house.find(call.path["id"])
    runtime: WorkerRuntime | None = getattr(session, "runtime", None)
    if runtime is None:
        return await run_in_thread(lambda: _recorded(call, session.id))
    if not runtime.is_ready:
        raise Refused(409, _NOT_READY)
    tree = runtime.tree
    return Subject(home=runtime.home, root=tree.program.root, runtime=runtime, redactor=tree.redactor)


def _recorded(call: Call, session_id: str) -> Subject:
    from golem_forge.events.index import Index
    from golem_forge.workers.tree import known_secrets

    home = call.house.home
    known = next((each for each in Index(home.path).sessions(prefix=session_id, limit=1)), None)
    root = Path(known.root) if known is not None and known.root else call.house.directory
    there = root if root.is_absolute() and root.is_dir() else call.house.directory
    return Subject(home=home, root=there, runtime=None, redactor=known_secrets(home))


def fit(value: Any, clean: Callable[[str], str], depth: int = 0) -> Any:
    """Strangers' values as JSON that can be written: texts without what must not be shown, no NaN, no lone surrogate,
    bounded nesting."""
    if isinstance(value, str):
        return clean(value).encode("utf-8", "backslashreplace").decode()
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth > _DEEPEST:
        return "[nested too deep]"
    if isinstance(value, Mapping):
        return {fit(str(key), clean): fit(each, clean, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [fit(each, clean, depth + 1) for each in value]
    return fit(str(value), clean)
