"""Draws the pictures of the README and the docs into docs/pictures: `make pictures`.

    .venv/bin/python scripts/draw_pictures.py [--into DIR] [diagrams] [terminal] [page]

- diagrams: the path of a call; the benchmarks of benchmarks/record.json, which `make bench BENCH_ARGS=--record` writes
- terminal: a session of `forge` on a real pty
- page: the same on a page, in a real Chromium, light and dark

The sessions are real; a script plays the model, so no key and no network is needed. Nothing of this machine gets into a
picture: a picture with its name or one of its paths is refused. Exits with 1 and says why.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pictures import diagrams, page, terminal
from pictures.shop import set_up

ROOT: Final = Path(__file__).resolve().parent.parent
PICTURES: Final = ROOT / "docs" / "pictures"
RECORD: Final = ROOT / "benchmarks" / "record.json"
FORGE: Final = str(Path(sys.executable).with_name("forge"))
MOST_BYTES: Final = 150_000
"""Of one picture: they are kept in the repository."""


class NotDrawn(Exception):
    """A picture that cannot be drawn, or must not be kept."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="draw_pictures.py", description="Draws the pictures of README and docs.")
    parser.add_argument("--into", type=Path, default=PICTURES, metavar="DIR")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    options = parser.parse_args()
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"there is no kind {unknown.pop()!r}; choose from {', '.join(KINDS)}")
    options.into.mkdir(parents=True, exist_ok=True)
    for kind in options.kinds or KINDS:
        with tempfile.TemporaryDirectory(prefix="forge-pictures-") as folder:
            try:
                drawn = KINDS[kind](Path(folder), options.into)
            except (NotDrawn, RuntimeError, ValueError) as problem:
                print(f"pictures: {kind}: {problem}", file=sys.stderr)
                return 1
        for file in drawn:
            print(f"{file.stat().st_size:>8,}  {file.name}")
    return 0


def draw_diagrams(_folder: Path, into: Path) -> list[Path]:
    record = json.loads(RECORD.read_text())
    return [_kept(into / "path.svg", diagrams.path()), _kept(into / "benchmarks.svg", diagrams.plot(record))]


def draw_terminal(folder: Path, into: Path) -> list[Path]:
    return keep_terminal(terminal.play(set_up(folder, workers=False), [FORGE]), into)


def keep_terminal(frames: dict[str, terminal.Frame], into: Path) -> list[Path]:
    return [
        _kept(into / "terminal.svg", terminal.animated(frames)),
        _kept(into / "terminal-card.svg", terminal.still(frames["card"])),
    ]


def draw_page(folder: Path, into: Path) -> list[Path]:
    shop = set_up(folder, workers=True)
    subprocess.run([FORGE, "trust", "--yes"], cwd=shop.project, env=shop.environ, check=True, stdout=subprocess.DEVNULL)

    async def photographs() -> dict[str, page.Photograph]:
        async with page.chromium() as browser:
            with page.running([FORGE], shop) as link:
                return await page.photograph(browser, link, shop)

    from playwright.async_api import Error

    try:
        return keep_page(asyncio.run(photographs()), into)
    except Error as problem:
        raise NotDrawn(f"the page does not do what it did: {problem.message}") from problem


def keep_page(found: dict[str, page.Photograph], into: Path) -> list[Path]:
    return [_kept(into / f"{name}.png", one.text, one.png) for name, one in found.items()]


KINDS: Final[dict[str, Callable[[Path, Path], list[Path]]]] = {
    "diagrams": draw_diagrams,
    "terminal": draw_terminal,
    "page": draw_page,
}


def _kept(file: Path, text: str, data: bytes = b"") -> Path:
    """Writes a picture. `text`: what one reads on it, which is the picture itself if there is no `data`."""
    if found := of_this_machine(text):
        raise NotDrawn(f"{file.name} would show {found!r}, which belongs to this machine")
    data = data or text.encode()
    if len(data) > MOST_BYTES:
        raise NotDrawn(f"{file.name} has {len(data):,} bytes; at most {MOST_BYTES:,} are kept in the repository")
    file.write_bytes(data)
    return file


def of_this_machine(text: str) -> str:
    """The first thing in it that says where it was drawn: a path of this machine, or its name where that is no word
    like `shop`."""
    host = platform.node() if re.search(r"[\d.-]", platform.node()) else ""
    for name in (host, str(Path.home()), str(ROOT), tempfile.gettempdir()):
        if len(name) > 2 and (found := re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)):
            return found[0]
    return ""


if __name__ == "__main__":
    raise SystemExit(main())
