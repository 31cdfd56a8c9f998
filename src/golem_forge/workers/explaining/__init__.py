"""How a call would be judged, without making it: for `forge rules explain`, `check --cases`, `sandbox explain`, the dry
run, `tools show` and the rules page."""
