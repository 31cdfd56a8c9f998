"""StoredLogin: what the SDK's OAuth client keeps of one resource and finds again, in the vault. Imported with the flow.

Beside tokens and registration it keeps what the flow learnt on the way (`learnt`), and tells whoever must know of it
which values are secret (`told`). A part that is not what it was counts as missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from golem_forge.mcp import sdk
from golem_forge.mcp.client.oauth.vault import Record, Vault
from golem_forge.tools.threads import run_in_thread

_M = TypeVar("_M", bound=BaseModel)
_LONGEST_SCOPE: Final = 4096


class StoredLogin:
    def __init__(self, vault: Vault, resource: str) -> None:
        self._vault = vault
        self._resource = resource
        self.record: Record = {}
        self.issuer: Callable[[], str] = lambda: ""
        self.learnt: Callable[[], Record] = dict
        """What the flow knows beside tokens and registration; set by it."""
        self.told: Callable[[Record], None] = lambda record: None

    async def load(self) -> Record:
        self.record = await run_in_thread(lambda: self._vault.load(self._resource) or {})
        self.told(self.record)
        return self.record

    async def get_tokens(self) -> sdk.OAuthToken | None:
        return read_model(sdk.OAuthToken, self.record.get("tokens"))

    async def get_client_info(self) -> sdk.OAuthClientInformationFull | None:
        return read_model(sdk.OAuthClientInformationFull, self.record.get("client"))

    async def set_tokens(self, tokens: sdk.OAuthToken) -> None:
        self.record.pop("wantedScope", None)
        await self._save({"tokens": tokens.model_dump(mode="json", exclude_none=True)})

    async def set_client_info(self, client_info: sdk.OAuthClientInformationFull) -> None:
        await self._save({"client": client_info.model_dump(mode="json", exclude_none=True)})

    async def note_scope(self, scope: str) -> None:
        """What the server wanted beyond what was granted, for the next login."""
        if self.record:
            await self._save({"wantedScope": scope[:_LONGEST_SCOPE]})

    async def _save(self, news: Record) -> None:
        self.record = {**self.record, **self.learnt(), **news}
        self.told(self.record)
        issuer = self.issuer()
        await run_in_thread(lambda: self._vault.save(self._resource, issuer, self.record))


def read_model(model: type[_M], value: Any) -> _M | None:
    """A stored part, or None where it is not there or not what it was."""
    try:
        return model.model_validate(value) if value is not None else None
    except sdk.ValidationError:
        return None
