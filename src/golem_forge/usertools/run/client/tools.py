"""Another name of `forge_tools`."""

import sys

import forge_tools  # type: ignore[import-not-found]  # beside it, inside the walls

sys.modules[__name__] = forge_tools
