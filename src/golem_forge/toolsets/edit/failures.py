"""How a patch fails, in words: every text begins by saying that nothing was changed.

A PatchInvalid depends on the patch's text alone; a PatchFailed on the files it met. What the sandbox refuses keeps
its code and status. The caller's own lines may be in these texts; a secret file's lines never are.
"""

from __future__ import annotations

from typing import Final

from golem_forge.core.errors import ForgeError
from golem_forge.core.verdict import Status
from golem_forge.sandbox.errors import SandboxError

NOTHING_CHANGED: Final = "Patch not applied; nothing was changed."


class PatchInvalid(ForgeError):
    """Not in the grammar; `problem` begins with the patch's line number where there is one."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{NOTHING_CHANGED}\n{problem}", status=Status.INPUT_INVALID, code="PATCH_INVALID")


class PatchFailed(ForgeError):
    """In the grammar, but it does not fit the files."""

    def __init__(self, problem: str, code: str = "PATCH_FAILED") -> None:
        super().__init__(f"{NOTHING_CHANGED}\n{problem}", code=code)


def refused(error: SandboxError) -> SandboxError:
    """The sandbox's refusal as this tool says it."""
    return SandboxError(error.code, f"{NOTHING_CHANGED}\n{error.message}", path=error.path, status=error.status)
