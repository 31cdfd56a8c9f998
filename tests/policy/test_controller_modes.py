"""A mode is switched in the middle of a session: what it means from then on, and where it cannot be."""

from __future__ import annotations

import pytest

from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.errors import ForgeError
from golem_forge.policy.controller import ApprovalController


@pytest.mark.parametrize("mode", [ApprovalMode.INTERACTIVE, ApprovalMode.STRICT])
def test_a_mode_that_asks_is_refused_where_nobody_can_be_asked(mode: ApprovalMode) -> None:
    controller = ApprovalController("auto_deny")
    with pytest.raises(ForgeError, match="Nobody can be asked in this session"):
        controller.switch(mode)
    assert controller.mode is ApprovalMode.AUTO_DENY
    controller.switch(ApprovalMode.APPROVE_ALL)
    assert controller.mode is ApprovalMode.APPROVE_ALL


def test_where_somebody_can_every_mode_can_be_chosen() -> None:
    controller = ApprovalController("interactive", lambda request: {"approved": False})
    for mode in ApprovalMode:
        controller.switch(mode)
        assert controller.mode is mode
