"""Starting and ending child processes: one place, whatever walls stand around them.

In the order of a child's life: `launch` (what is to be started) → `start` with `wires` and `spawn` → `child`, which has
`reading` and `capture` for its output, `terminal` for its keyboard, `watcher` and `tree` for its limits → `holder` and
`exits`, which know when nobody of it is left → `ending`. `launcher` is the program that holds a tree together where
there is no pid namespace; `clearing` removes what it left on disk.
"""
