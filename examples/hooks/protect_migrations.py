#!/usr/bin/env python3
"""A `before_call` hook: nobody changes files below `migrations/`. Its `paths` are those that the call would touch.

hooks:
  - {on: before_call, tools: [write_file, apply_patch, delete_file], paths: ["**/migrations/**"],
     run: /home/me/bin/protect_migrations.py}
"""

import json
import sys

told = json.load(sys.stdin)
changed = {effect["target"] for effect in told["effects"] or () if effect["verb"] in ("write", "delete")}
if any("/migrations/" in path for path in changed):
    sys.stderr.write("migrations are written by hand; propose the change in your answer instead")
    sys.exit(2)
