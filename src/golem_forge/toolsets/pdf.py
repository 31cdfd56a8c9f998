"""A PDF for `read_file`: its text, and the pages of the lines that were asked for as pictures.

`read_pdf` returns a PdfContent, or says in `problem` why there is none: the library is missing (extra `pdf`), there are
no walls to read it in, it needs a password, it is damaged, it takes too long. Never raises for what the file holds.

Threat: whoever made the file chose its bytes, and a PDF is a program for a large library in C. So it is read by
`pdf_child.py` inside walls: no network, zones read-only with their secrets masked, bounded in time, memory and output.
What comes back is text and pictures of a stranger, as of any file.
"""

from __future__ import annotations

import binascii
import json
import os
from base64 import b64decode
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.config.sandbox_block import ResourceLimits
from golem_forge.core.images import image_size
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.host import base_python
from golem_forge.sandbox.walls.model import HostDirectory, Job, Level, StartDirectory, Streams
from golem_forge.sandbox.walls.toolchains import own_python_directory
from golem_forge.storage.home import forge_home
from golem_forge.toolsets import pdf_child

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.walls import Walls

MOST_PICTURES: Final = 4
"""Maximum pages that are drawn for one call."""
_SIDE: Final = 1_200
"""Pixels of a page's longer side: small print can be read, and no provider makes it smaller."""
_LIBRARY: Final = ("pypdfium2", "pypdfium2_raw", "pypdfium2_cfg")
_INNER: Final = "/opt/forge/pdf"
_LIMITS: Final = ResourceLimits(timeout_s=30, memory=1 << 30, processes=16, cpu_s=30, file_size=64 << 20)
_MISSING: Final = "install its reader with: pip install 'golem-forge[pdf]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class PdfContent:
    problem: str = ""
    """Why the content is not complete."""
    text: str = ""
    pages: int = 0
    cut: bool = False
    """Whether there is more text."""
    pictures: tuple[tuple[int, str], ...] = ()
    """Each page number with its PNG in base64."""


async def read_pdf(data: bytes, offset: int, limit: int, walls: Walls | None) -> PdfContent:
    level = await walls.level() if walls is not None else Level.NONE
    if walls is None or level not in (Level.FULL, Level.LANDLOCK):
        return PdfContent(problem="a PDF is read inside walls, and there are none here; see 'forge doctor'")
    found = _library()
    if len(found) < len(_LIBRARY):
        return PdfContent(problem=_MISSING)
    python, hidden = own_python_directory(forge_home().path)
    if hidden:
        return PdfContent(problem=f"the directory of this Python {hidden}; install Forge with another Python")
    shown = [HostDirectory(python, python)] if python else []
    shown += [HostDirectory(each, f"{_INNER}/{os.path.basename(each)}") for each in found]
    order = {
        "packages": _INNER if level is Level.FULL else os.path.dirname(found[0]),
        "offset": offset,
        "limit": limit,
        "pictures": MOST_PICTURES,
        "side": _SIDE,
    }
    return _content(await _answer(walls, tuple(shown), order, data))


def _library() -> list[str]:
    """Returns the directories of the library's packages."""
    places = [util.find_spec(name) for name in _LIBRARY]
    return [os.path.dirname(os.path.realpath(each.origin)) for each in places if each is not None and each.origin]


def _program() -> str:
    return Path(pdf_child.__file__).read_text(encoding="utf-8")


async def _answer(walls: Walls, shown: tuple[HostDirectory, ...], order: dict[str, Any], data: bytes) -> Any:
    """Returns the JSON that the child printed, or {problem}."""
    written = os.memfd_create("pdf", os.MFD_CLOEXEC)
    try:
        job = Job(
            argv=(base_python(), "-I", "-S", "-c", _program(), json.dumps(order)),
            nowhere=StartDirectory.TEMPORARY,
            streams=Streams.APART,
            limits=_LIMITS,
            reads_only=True,
            stdin=data,
            stdout=written,
            shown=shown,
        )
        try:
            walled = await walls.start(job)
        except SandboxError as error:
            return {"problem": error.message}
        try:
            ending = await walled.child.wait()
        finally:
            await walled.child.end()
        if ending is None or ending.code or ending.exit_code:
            why = f" ({ending.code})" if ending is not None and ending.code else ""
            return {"problem": f"its reader gave up{why}"}
        with os.fdopen(os.dup(written), "rb") as file:
            file.seek(0)
            return json.loads(file.read(_LIMITS.file_size))
    except ValueError:
        return {"problem": "its reader gave up"}
    finally:
        os.close(written)


def _content(said: Any) -> PdfContent:
    """Threat: a file may have taken the reader over, so its answer is checked like anybody's."""
    if not isinstance(said, dict) or not isinstance(said.get("text"), str):
        problem = said.get("problem") if isinstance(said, dict) else None
        return PdfContent(problem=problem[:500] if isinstance(problem, str) else "its reader gave up")
    pages, pictures = said.get("pages"), said.get("pictures")
    drawn = [each for each in pictures if _is_picture(each)] if isinstance(pictures, list) else []
    return PdfContent(
        text=said["text"],
        pages=pages if isinstance(pages, int) else 0,
        cut=said.get("cut") is True,
        pictures=tuple((page, png) for page, png in drawn[:MOST_PICTURES]),
    )


def _is_picture(said: Any) -> bool:
    if not isinstance(said, list) or [type(each) for each in said] != [int, str]:
        return False
    try:
        return 0 < max(image_size(b64decode(said[1], validate=True))) <= _SIDE + 1
    except (binascii.Error, ValueError):
        return False
