"""A process of pytest-xdist, as its library starts one: the program comes on standard input.

Run by a ready_forge that has imported every test, in place of `python -c …`: eight processes that each import the tests
and the libraries of the models took as long as a thousand tests.
"""

from __future__ import annotations

import sys

exec(eval(sys.stdin.readline()))
