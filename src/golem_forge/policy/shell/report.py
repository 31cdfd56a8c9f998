"""Report: what one whole analysis of a command text found out besides commands. It holds the budget too.

Threat: a text made to be read for hours. Who reads on has paid first; nothing left means `too_deep`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Report:
    budget: int  # how many characters may still be read
    too_deep: bool = False
    fork_bomb: bool = False
    certain: bool = True
    swallowed: bool = False  # were whole lines taken for text, in quotes or a heredoc?

    def spend(self, amount: int) -> bool:
        self.budget -= amount + 16
        if self.budget < 0:
            self.too_deep = True
        return self.budget >= 0
