"""`python -m golem_forge` is `forge`."""

import sys

from golem_forge.cli.main import main

sys.exit(main())
