"""Include: the `include` glob of a search. Without a slash it is about the name, else about the path from where the
search began; a leading `!` turns it round, a trailing slash means everything below."""

from __future__ import annotations

from .globs import compiled


class Include:
    def __init__(self, glob: str, start: int) -> None:
        """`start`: how many components of a path lead to where the search began. Raises GlobError."""
        self._wanted = not glob.startswith("!")
        glob = glob.removeprefix("!").removeprefix("./")
        self._by_name = "/" not in glob
        glob = glob.lstrip("/")
        self._pattern = compiled(f"{glob}**" if glob.endswith("/") else glob)
        self._start = start

    def __call__(self, parts: tuple[str, ...]) -> bool:
        text = parts[-1] if self._by_name else "/".join(parts[self._start :])
        return (self._pattern.fullmatch(text) is not None) is self._wanted
