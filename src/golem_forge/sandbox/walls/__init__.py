"""Walls: the kernel enforces a worker's zones on every process that runs on its behalf.

Start with `walls.py` (a Job in, a running child out) and `model.py` (Job, Level, WallPlan). Then by question:

    what holds on this machine?      probe · probe_host · probe_child
    what does a child see?           planner → scan · directories · changes · restrictions · layout · toolchains
    how is level full built?         bubblewrap · seccomp · zone_lease
    how is level landlock built?     landlock · seccomp
    what does a child get?           environment · cache
    what did a child leave?          inspection · leftovers · sandbox/git
    what was refused?                denials
"""
