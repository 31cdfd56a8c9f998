"""Approval modes and who may choose one: the command line, the person, a trusted program; a stranger only stricter."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Generic, TypeVar

from golem_forge.core.lazy_dataclass import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """A configured value and where it was written (`forge.yaml:7`)."""

    value: T
    origin: str


class ApprovalMode(StrEnum):
    """Who answers when a call asks."""

    INTERACTIVE = "interactive"
    STRICT = "strict"
    APPROVE_ALL = "approve_all"
    AUTO_DENY = "auto_deny"


_STRICTNESS: Final = (
    ApprovalMode.APPROVE_ALL,
    ApprovalMode.INTERACTIVE,
    ApprovalMode.STRICT,
    ApprovalMode.AUTO_DENY,
)


def is_stricter_mode(one: ApprovalMode, other: ApprovalMode) -> bool:
    return _STRICTNESS.index(one) > _STRICTNESS.index(other)


def choose_mode(
    flag: ApprovalMode | None,
    user: Setting[ApprovalMode] | None,
    project: Setting[ApprovalMode] | None,
    *,
    project_trusted: bool,
) -> Setting[ApprovalMode]:
    """Command line, user config, program, `interactive`. An untrusted program counts only where it is stricter."""
    if flag is not None:
        return Setting(flag, "--approval")
    if user is not None:
        return user
    if project is not None and (project_trusted or is_stricter_mode(project.value, ApprovalMode.INTERACTIVE)):
        return project
    return Setting(ApprovalMode.INTERACTIVE, "default")
