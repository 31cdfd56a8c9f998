"""Offered: what one server offers, held against the pins, and what is worked out of it once, not for every call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from golem_forge.config.mcp.spec import ServerSpec
from golem_forge.core.errors import ForgeError
from golem_forge.core.verdict import Status
from golem_forge.mcp.client.connecting.link import Link
from golem_forge.mcp.client.definitions.definition import Listing, Reason, RemoteTool
from golem_forge.mcp.client.definitions.manifest import Manifest
from golem_forge.mcp.client.tool import is_offered
from golem_forge.tools.json_values import compact
from golem_forge.tools.jsonschema import SchemaCheck

if TYPE_CHECKING:
    from golem_forge.mcp.client.trust.trust_book import TrustBook

HeaderMap = Mapping[tuple[str, ...], str]


class Offered:
    def __init__(self, spec: ServerSpec, book: TrustBook) -> None:
        self.spec = spec
        self._book = book
        self._checked: Listing | None = None
        self._held: Listing | None = None
        self._stamp: Any = None
        self._indexed: Listing | None = None
        self._present: dict[str, str] = {}
        """Raw name → the digest it has now, or `drift`."""
        self._checks: dict[str, SchemaCheck] = {}
        self._header_maps: dict[str, HeaderMap | None] = {}
        self.manifest: Manifest | None = None

    def take(self, manifest: Manifest) -> bool:
        """Whether it says anything new."""
        from golem_forge.mcp.client.definitions.listing import check_entries

        before, self.manifest = self.manifest, manifest
        if before is not None and _said(before) == _said(manifest):
            return False
        self._checked = check_entries(self.spec.name, manifest.tools, manifest.diagnostics)
        self._held = None
        self._checks.clear()
        self._header_maps.clear()
        return True

    @property
    def listing(self) -> Listing | None:
        """A person's answer in another session counts here too."""
        if self._checked is None:
            return None
        if self._held is None or self._stamp != self._book.stamp:
            from golem_forge.mcp.client.trust.pins import held_against

            try:
                self._held = held_against(self._checked, self._book, self.spec.scope)
            except OSError as error:  # what cannot be pinned cannot be known again: nothing of it is offered
                said = f"the tools of {self.spec.name} could not be pinned: {error.strerror or type(error).__name__}"
                self._held = replace(self._checked, tools=(), diagnostics=(*self._checked.diagnostics, said))
            self._stamp = self._book.stamp  # after: holding may have pinned
        return self._held

    def must_still_be(self, tool: RemoteTool) -> None:
        """Raises ForgeError where the server defines the tool otherwise by now.

        Threat: a call is judged by a definition from the cache, the server starts for it and has another one.
        """
        if (listing := self.listing) is not self._indexed and listing is not None:
            self._indexed = listing
            self._present = {one.name: one.digest for one in listing.tools}
            self._present |= {held.tool.name: held.reason.value for held in listing.held if held.tool is not None}
        now = self._present.get(tool.name, tool.digest)  # one that is gone is the server's to refuse
        if now == tool.digest:
            return
        why = f"{now}: {tool.server} defines it otherwise than it was pinned" if now == Reason.DRIFT else "it changed"
        raise ForgeError(
            f"'{tool.name}' of {tool.server} did not run: {why}; run: forge mcp show {tool.server}",
            status=Status.TOOL_NOT_FOUND,
            code="DEFINITION_CHANGED",
        )

    @property
    def count(self) -> int | None:
        listing = self.listing
        return None if listing is None else sum(is_offered(self.spec, tool.name) for tool in listing.tools)

    def output_check(self, tool: RemoteTool) -> SchemaCheck:
        """Checked when it was listed, so it compiles."""
        assert tool.output_schema is not None
        found = self._checks.get(tool.digest)
        if found is None:
            found = self._checks[tool.digest] = SchemaCheck(dict(tool.output_schema))
        return found

    def headers(self, link: Link, tool: RemoteTool, args: Mapping[str, Any]) -> Mapping[str, str] | None:
        """Arguments that the tool wants in headers too; only the new era knows that, and only over HTTP."""
        if not link.is_modern or not self.spec.is_http:
            return None
        if tool.digest not in self._header_maps:
            self._header_maps[tool.digest] = _header_map(tool)
        if not (found := self._header_maps[tool.digest]):
            return None
        from golem_forge.mcp import sdk

        return sdk.mcp_param_headers(found, args)


def _header_map(tool: RemoteTool) -> HeaderMap | None:
    if "x-mcp-header" not in compact(tool.input_schema):
        return None
    from golem_forge.mcp import sdk

    return sdk.x_mcp_header_map(tool.input_schema)


def _said(manifest: Manifest) -> tuple[Any, ...]:
    return (manifest.tools, manifest.prompts, manifest.instructions, manifest.has_resources, manifest.diagnostics)
