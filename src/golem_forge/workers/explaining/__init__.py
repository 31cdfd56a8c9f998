"""How a call would be judged, without making it: for `forge rules explain`, `check --cases` and the rules page."""
