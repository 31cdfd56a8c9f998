"""The program of a module host: runs inside the walls and speaks with Forge over its standard input, a socket.

Started as `python -I -S -B host_child.py DIRECTORY…`: the directories are where Forge itself and installed packages
stand in there. Threats: what a tool prints must not look like an answer, and what it starts must not inherit the
socket, so the socket is moved away from standard input at once, to a descriptor that programs do not inherit.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    wire = os.dup(0)  # not inheritable
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.path[:0] = sys.argv[1:]
    sys.argv[1:] = []
    from golem_forge.agent.modules.host_loop import HostLoop

    HostLoop(wire).run()


if __name__ == "__main__":
    main()
