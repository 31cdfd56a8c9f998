"""What an environment is made from in the tool's own folder: wheels, or an index of such, beside the script.

Takes the script's block, its lock and the folder's files; gives a text that is another one whenever these could come to
another environment. Empty: everything comes from elsewhere, so an edited file needs no other packages.

Threat: environments are shared by all tools with equal blocks. One whose block names files of its own folder must not
leave what is in them to a tool that says the same words and has other files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from golem_forge.custom.building.script_block import ScriptBlock
from golem_forge.custom.manifest import MANIFEST

if TYPE_CHECKING:
    from golem_forge.custom.registry.folder import FolderFiles

_LONGEST_LOCK: Final = 4 << 20
_LOCAL_KEYS: Final = frozenset({"path", "directory", "editable", "virtual"})
_ADDRESSES: Final = frozenset({"registry", "url", "git"})
_REMOTE: Final = ("https://", "http://")


def local_sources(script: str, block: ScriptBlock, lock: bytes, files: FolderFiles) -> str:
    """`script`: the entrypoint's name."""
    # What it says to uv may name places in many ways; a requirement only after `@`, or as a path.
    named = bool(block.uv) or any(set("@/\\") & set(each) for each in block.dependencies)
    if not named and not (lock and _names_files(lock)):
        return ""
    others = {script, f"{script}.lock", MANIFEST}
    return "\n".join(f"{fact.sha256} {fact.path}" for fact in files.facts if fact.path not in others)


def _names_files(lock: bytes) -> bool:
    """What cannot be read names whatever it likes."""
    if len(lock) > _LONGEST_LOCK:
        return True
    import tomllib

    try:
        return _has_local(tomllib.loads(lock.decode()))
    except (ValueError, RecursionError):
        return True


def _has_local(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_is_local(key, each) or _has_local(each) for key, each in value.items())
    return isinstance(value, Iterable) and not isinstance(value, str) and any(map(_has_local, value))


def _is_local(key: str, value: Any) -> bool:
    return key in _LOCAL_KEYS or (key in _ADDRESSES and isinstance(value, str) and not value.startswith(_REMOTE))
