"""The page's own files, by exact path, read once: what is not in the table does not exist.

Nothing of a request becomes part of a file's path, so no spelling of `..` leads anywhere. A file of unknown kind is an
error at start: the browser must never guess.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from golem_forge.core.errors import ForgeError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from golem_forge.ui.web.sdk import Request, Response, Route

SHELL: Final = "index.html"
_MEDIA_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/x-icon",
    "woff2": "font/woff2",
    "json": "application/json",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    media_type: str
    data: bytes

    def route(self, path: str) -> Route:
        from golem_forge.ui.web.sdk import Response, Route

        async def answered(request: Request) -> Response:
            return Response(self.data, headers={"content-type": self.media_type})

        return Route(path, answered, methods=["GET"], name=f"asset {path}", include_in_schema=False)


def load_assets(root: Traversable | None = None) -> Mapping[str, Asset]:
    """Path in the URL → file. The shell page stands at `/` as well."""
    found = dict(_below(root if root is not None else files("golem_forge.ui.web") / "page", "/"))
    if (shell := found.get(f"/{SHELL}")) is not None:
        found["/"] = shell
    return found


def _below(folder: Traversable, prefix: str) -> Iterator[tuple[str, Asset]]:
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        if entry.name.startswith((".", "__")):
            continue
        if entry.is_dir():
            yield from _below(entry, f"{prefix}{entry.name}/")
            continue
        media_type = _MEDIA_TYPES.get(entry.name.rpartition(".")[2])
        if media_type is None:
            raise ForgeError(f"The page has a file of unknown kind: {prefix}{entry.name}", code="WEB_BROKEN")
        yield f"{prefix}{entry.name}", Asset(media_type=media_type, data=entry.read_bytes())
