"""What a command made or changed in a zone that other programs obey: told afterwards, because it stays writable.

Takes a zone and the paths that changed, gives Leftovers of kind `obeyed_name`, one for each class of names, and one of
kind `own_code` for a link through which Forge was started. Refuses nothing. Names that walls protect are told as
`protected_created` where the scan looks; here only those that lie deeper.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from typing import Final

from golem_forge.core.effects import Mark
from golem_forge.core.leftovers import Leftover, Severity
from golem_forge.core.visible import visible
from golem_forge.sandbox import protected
from golem_forge.sandbox.access import DIRECTORY
from golem_forge.sandbox.own_code import own_code_in
from golem_forge.sandbox.target import takes_the_place_of_another
from golem_forge.sandbox.walls.scan import DEPTH, Parts
from golem_forge.sandbox.zones import Zone

_MOST_PATHS: Final = 20
_MOST_NAMED: Final = 5


def told(zone: Zone, changed: Iterable[Parts]) -> Iterator[Leftover]:
    """`changed`: paths of the zone that a command made or changed; what is gone again is left out."""
    above = tuple(part for part in zone.host.split("/") if part)
    links = own_code_in(zone.host).links
    own, obeyed, instructions = [], [], []
    for parts in _existing(zone, set(changed)):
        if parts in links:
            own.append(parts)
        elif Mark.PROTECTED_PATH in protected.marks((*above, *parts), unprotect=zone.unprotect):
            if len(parts) > DEPTH + 1 and not protected.in_dependencies(parts):
                obeyed.append(parts)
        elif _is_obeyed(zone, parts, above):
            obeyed.append(parts)
        elif protected.instructions(parts) and not protected.in_dependencies(parts):
            instructions.append(parts)
    if own:
        text = "Exchanged, and your next `forge` starts through it; look where it leads before you run Forge again"
        yield _leftover(zone, "own_code", Severity.CRITICAL, text, own)
    if obeyed:
        text = "Made or changed, and other programs obey it without being told to"
        yield _leftover(zone, "obeyed_name", Severity.WARNING, text, obeyed)
    if instructions:
        text = "Made or changed, and other agents read it as instructions"
        yield _leftover(zone, "obeyed_name", Severity.WARNING, text, instructions)


def _is_obeyed(zone: Zone, parts: Parts, above: Parts) -> bool:
    if protected.in_dependencies(parts):  # installers leave hundreds, which nothing reads there
        return False
    return protected.obeyed(parts, above) or takes_the_place_of_another(zone, parts)


def _existing(zone: Zone, changed: set[Parts]) -> Iterator[Parts]:
    """In order. A directory counts only where nothing of what is in it is named: it may have been moved there whole."""
    filled = {parts[:length] for parts in changed for length in range(1, len(parts))}
    for parts in sorted(changed):
        if not parts or protected.GIT_FILE in parts:  # a branch may be called `x.pth`
            continue
        try:
            directory = zone.open(parts[:-1], DIRECTORY)
            info = os.stat(parts[-1], dir_fd=directory.fd, follow_symlinks=False)
        except OSError:
            continue
        if not stat.S_ISDIR(info.st_mode) or parts not in filled:
            yield parts


def _leftover(zone: Zone, kind: str, severity: Severity, text: str, found: list[Parts]) -> Leftover:
    paths = [visible(zone.virtual(parts)).replace("\n", "\\x0a").replace("\t", "\\x09") for parts in found]
    named = ", ".join(paths[:_MOST_NAMED])
    more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    return Leftover(kind=kind, severity=severity, text=f"{text}: {named}{more}", paths=tuple(paths[:_MOST_PATHS]))
