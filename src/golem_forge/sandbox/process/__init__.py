"""Starts and ends child processes: one place, whatever walls stand around them.

In the order of a child's life: `launch` (what is to be started, its pipes, terminal and output) → `child` (start, wait,
end; children that idle) → `monitor` (/proc, limits, exit status) → `tree` (ends every process of the tree, the
watchdog). Programs of their own, run in a bare interpreter: `launcher` (holds a tree together where there is no
pid namespace; it loads `cleanup` from this folder) and `watchdog_child`.
"""
