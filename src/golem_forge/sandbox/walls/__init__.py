"""Walls: the kernel enforces a worker's zones on every process that runs on its behalf.

Where to begin: `walls.py` (a Job in, a running child out), `job.py`, `levels.py`. Then by question:

    what holds on this machine?      probe · probe_ground · probe_host · probe_child · probe_causes
    what does a child see?           planning → scan · restrictions · masking · budget · layout · toolchains
                                     repository
    how is level full built?         bubblewrap · backend · seccomp · placeholder · devices
    how is level landlock built?     landlock · landlock_rules · seccomp
    what does a child get?           environment · bytecode · child_output
    what stays true meanwhile?       guard
    what was refused, and now?       plan · denials · error_lines · widening · outside
"""
