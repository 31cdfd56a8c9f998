"""What is known of a tool of the person's beside its definition: its folder, state, permissions, tests and ratings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from golem_forge.custom.testing.report import case_name
from golem_forge.custom.trust.permissions import permissions
from golem_forge.custom.trust.standing import standing_of

if TYPE_CHECKING:
    from golem_forge.custom.entry import Entry
    from golem_forge.custom.workshop import Workshop


def about(shop: Workshop, entry: Entry) -> dict[str, Any]:
    """For `forge tools show`, in words and as JSON, and for the tools page."""
    standing, manifest = standing_of(shop, entry), entry.manifest
    return {
        "folder": shop.shown_folder(entry.name),
        "version": manifest.version,
        "state": standing.state.value,
        "skipped": standing.why.to_json() if standing.why is not None else None,
        "digest": entry.digest,
        "entrypoint": manifest.entrypoint,
        "provenance": shop.book.provenance(entry.name).to_json(),
        "author": shop.book.provenance(entry.name).describe(),
        "permissions": {each.label: each.words for each in permissions(manifest)},
        "tests": [case_name(case.name, index) for index, case in enumerate(manifest.tests)],
        "ratings": shop.book.ratings(entry.name).to_json(),
    }
