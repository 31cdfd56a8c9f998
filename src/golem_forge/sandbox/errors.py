"""What the sandbox refuses, in words: one function per code, each giving a SandboxError with the exact text.

Takes virtual paths only. Threat: text of the operating system names host paths, so an OSError is turned into one of
these codes and its own message is dropped; raise the result `from None`.
"""

from __future__ import annotations

import errno
from functools import partial

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.core.text import clip, escape_control_chars

_LONGEST_SHOWN = 512


class SandboxError(ForgeError):
    """Ends one call: `code` for programs, `path` as the caller addresses it."""

    stated_name = "SandboxError"

    def __init__(self, code: str, text: str, *, path: str = "", status: Status = Status.EXECUTION_FAILED) -> None:
        super().__init__(text, status=status, code=code)
        self.path = path


def one_line(text: str) -> str:
    """Text without characters that could forge a second message."""
    return escape_control_chars(text).replace("\n", "\\x0a").replace("\t", "\\x09")


def _failed(code: str, text: str, path: str, *, status: Status = Status.EXECUTION_FAILED) -> SandboxError:
    """Builds a SandboxError; `{path}` in `text` is replaced by the path."""
    shown = one_line(path)
    return SandboxError(code, text.replace("{path}", shown, 1), path=shown, status=status)


_denied = partial(_failed, status=Status.SANDBOX_DENIED)

symlink_escape = partial(_denied, "SYMLINK_ESCAPE", "'{path}' is a link that leaves its zone.")
not_found = partial(_failed, "NOT_FOUND", "File not found: {path}")
is_a_directory = partial(_failed, "IS_A_DIRECTORY", "'{path}' is a directory.")
held_by_walls = partial(
    _failed,
    "IS_A_DIRECTORY",
    "Nothing can be created at '{path}' while commands run: their walls use it. Try again when they have ended.",
)
not_a_directory = partial(_failed, "NOT_A_DIRECTORY", "'{path}' is not a directory.")
path_changed = partial(_failed, "PATH_CHANGED", "'{path}' changed while it was being used; nothing was done.")
permission_denied = partial(_failed, "PERMISSION_DENIED", "The system refused access to '{path}'.")
no_space = partial(_failed, "NO_SPACE", "No space left for '{path}'; the old content is intact.")
io_error = partial(_failed, "IO_ERROR", "Input/output error on '{path}'.")
too_many_open_files = partial(_failed, "IO_ERROR", "Input/output error on '{path}': too many open files.")


def invalid_path(path: str, why: str) -> SandboxError:
    shown = clip(one_line(path), _LONGEST_SHOWN)
    text = f"Invalid path '{shown}': {why}"
    return SandboxError("INVALID_PATH", text, path=shown, status=Status.INPUT_INVALID)


def zone_access_denied(path: str, zones: str) -> SandboxError:
    """`zones` is what the worker does have, as `Sandbox.describe_zones` writes it."""
    return _denied("ZONE_ACCESS_DENIED", f"No access to '{{path}}'. Zones: {zones}", path)


def no_sandbox(path: str = "", *, builtin: bool = False) -> SandboxError:
    fix = 'Add "sandbox: {zones: [{name: workspace}]}" to its file.'
    if builtin:
        fix = "Start forge in a project directory."
    return _denied("NO_SANDBOX", f"This worker has no file access. {fix}", path)


def read_only_zone(zone: str, path: str) -> SandboxError:
    return _denied("READ_ONLY_ZONE", f"Zone '/{zone}' is read-only; '{{path}}' was not changed.", path)


def permission_escalation(worker: str, parent: str, zone: str, right: str) -> SandboxError:
    text = f"Worker '{one_line(worker)}' asks for more than '{one_line(parent)}' has: /{zone} {one_line(right)}."
    return _denied("PERMISSION_ESCALATION", text, f"/{zone}")


def not_a_file(path: str, what: str) -> SandboxError:
    return _failed("NOT_A_FILE", f"'{{path}}' is not a regular file ({what}).", path)


def too_large(path: str, size: int, limit: int, advice: str, *, unit: str = "bytes") -> SandboxError:
    return _failed("TOO_LARGE", f"'{{path}}' is {size} {unit}; the limit is {limit}. {advice}", path)


def zone_gone(zone: str, path: str) -> SandboxError:
    text = f"The directory of zone '/{zone}' is gone; nothing was done. Put it back, or start Forge again."
    return _failed("PATH_CHANGED", text, path)


def zone_replaced(zone: str, path: str) -> SandboxError:
    text = f"Another directory was put in the place of zone '/{zone}'; nothing was done. Start Forge again to use it."
    return _failed("PATH_CHANGED", text, path)


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
