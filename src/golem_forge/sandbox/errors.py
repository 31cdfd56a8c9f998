"""What the sandbox refuses, in words: one function per code, each giving a SandboxError with the exact text.

Takes virtual paths only. Threat: text of the operating system names host paths, so an OSError is turned into one of
these codes and its own message is dropped; raise the result `from None`.
"""

from __future__ import annotations

import errno

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.core.text import escape_control_chars

_LONGEST_SHOWN = 512


class SandboxError(ForgeError):
    """Ends one call: `code` for programs, `path` as the caller addresses it."""

    stated_name = "SandboxError"

    def __init__(self, code: str, text: str, *, path: str = "", status: Status = Status.EXECUTION_FAILED) -> None:
        super().__init__(text, status=status, code=code)
        self.path = path


def _shown(path: str) -> str:
    """A path on one line, without characters that could forge a second message."""
    return escape_control_chars(path).replace("\n", "\\x0a").replace("\t", "\\x09")


def _denied(code: str, text: str, path: str) -> SandboxError:
    return SandboxError(code, text, path=path, status=Status.SANDBOX_DENIED)


def invalid_path(path: str, why: str) -> SandboxError:
    shown = _shown(path)
    if len(shown) > _LONGEST_SHOWN:
        shown = shown[:_LONGEST_SHOWN] + "…"
    text = f"Invalid path '{shown}': {why}"
    return SandboxError("INVALID_PATH", text, path=shown, status=Status.INPUT_INVALID)


def zone_access_denied(path: str, zones: str) -> SandboxError:
    """`zones` is what the worker does have, as `Sandbox.describe_zones` writes it."""
    shown = _shown(path)
    return _denied("ZONE_ACCESS_DENIED", f"No access to '{shown}'. Zones: {zones}", shown)


def no_sandbox(path: str = "", *, builtin: bool = False) -> SandboxError:
    fix = "Start forge in a project directory."
    if not builtin:
        fix = 'Add "sandbox: {zones: [{name: workspace}]}" to its file.'
    return _denied("NO_SANDBOX", f"This worker has no file access. {fix}", _shown(path))


def read_only_zone(zone: str, path: str) -> SandboxError:
    shown = _shown(path)
    return _denied("READ_ONLY_ZONE", f"Zone '/{zone}' is read-only; '{shown}' was not changed.", shown)


def symlink_escape(path: str) -> SandboxError:
    shown = _shown(path)
    return _denied("SYMLINK_ESCAPE", f"'{shown}' is a link that leaves its zone.", shown)


def permission_escalation(worker: str, parent: str, zone: str, right: str) -> SandboxError:
    text = f"Worker '{_shown(worker)}' asks for more than '{_shown(parent)}' has: /{zone} {_shown(right)}."
    return _denied("PERMISSION_ESCALATION", text, f"/{zone}")


def not_found(path: str) -> SandboxError:
    shown = _shown(path)
    return SandboxError("NOT_FOUND", f"File not found: {shown}", path=shown)


def is_a_directory(path: str) -> SandboxError:
    shown = _shown(path)
    return SandboxError("IS_A_DIRECTORY", f"'{shown}' is a directory.", path=shown)


def held_by_walls(path: str) -> SandboxError:
    shown = _shown(path)
    text = f"Nothing can be made at '{shown}' while commands run: their walls stand there. Try again once they ended."
    return SandboxError("IS_A_DIRECTORY", text, path=shown)


def not_a_directory(path: str) -> SandboxError:
    shown = _shown(path)
    return SandboxError("NOT_A_DIRECTORY", f"'{shown}' is not a directory.", path=shown)


def not_a_file(path: str, what: str) -> SandboxError:
    shown = _shown(path)
    return SandboxError("NOT_A_FILE", f"'{shown}' is not a regular file ({what}).", path=shown)


def too_large(path: str, size: int, limit: int, advice: str, *, unit: str = "bytes") -> SandboxError:
    shown = _shown(path)
    return SandboxError("TOO_LARGE", f"'{shown}' is {size} {unit}; the limit is {limit}. {advice}", path=shown)


def path_changed(path: str) -> SandboxError:
    shown = _shown(path)
    return SandboxError("PATH_CHANGED", f"'{shown}' changed while it was being used; nothing was done.", path=shown)


def zone_gone(zone: str, path: str) -> SandboxError:
    text = f"The directory of zone '/{zone}' is gone; nothing was done. Put it back, or start Forge again."
    return SandboxError("PATH_CHANGED", text, path=_shown(path))


def zone_replaced(zone: str, path: str) -> SandboxError:
    text = f"Another directory was put in the place of zone '/{zone}'; nothing was done. Start Forge again to use it."
    return SandboxError("PATH_CHANGED", text, path=_shown(path))


def permission_denied(path: str) -> SandboxError:
    shown = _shown(path)
    return SandboxError("PERMISSION_DENIED", f"The system refused access to '{shown}'.", path=shown)


def no_space(path: str) -> SandboxError:
    shown = _shown(path)
    return SandboxError("NO_SPACE", f"No space left for '{shown}'; the old content is intact.", path=shown)


def io_error(path: str) -> SandboxError:
    shown = _shown(path)
    return SandboxError("IO_ERROR", f"Input/output error on '{shown}'.", path=shown)


def too_many_open_files(path: str) -> SandboxError:
    shown = _shown(path)
    return SandboxError("IO_ERROR", f"Input/output error on '{shown}': too many open files.", path=shown)


def walls_unavailable(cause: str, fix: str) -> SandboxError:
    text = f"Walls could not be built: {cause}. The command was not run. {fix}"
    return SandboxError("WALLS_UNAVAILABLE", text)


_BY_ERRNO = {
    errno.ENOENT: not_found,
    errno.ENOTDIR: not_a_directory,
    errno.EISDIR: is_a_directory,
    errno.EACCES: permission_denied,
    errno.EPERM: permission_denied,
    errno.EROFS: permission_denied,
    errno.ENOSPC: no_space,
    errno.EDQUOT: no_space,
    errno.EFBIG: no_space,
    errno.EMFILE: too_many_open_files,
    errno.ENFILE: too_many_open_files,
    errno.ELOOP: path_changed,  # every open is no-follow on a path judged free of links: one appeared since
    errno.ESTALE: path_changed,
}


def from_os_error(error: OSError, path: str) -> SandboxError:
    """The code for a refusal of the operating system; nothing of its text is passed on."""
    if error.errno == errno.ENAMETOOLONG:
        return invalid_path(path, "too long")
    return _BY_ERRNO.get(error.errno or 0, io_error)(path)
