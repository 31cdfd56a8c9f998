"""`forge runner` with short leases, so that tests need not wait: `python quick_runner.py SECONDS SWEEP [words]`.

The proportions are those of the product: renewed after a third, trusted for two thirds. SWEEP: seconds between
two looks for what no ring told of.
"""

from __future__ import annotations

import sys

from golem_forge.cli.main import main
from golem_forge.team import leases, runner

if __name__ == "__main__":
    seconds = float(sys.argv[1])
    leases.LEASE_S = runner.LEASE_S = seconds  # type: ignore[misc,attr-defined]
    runner.RENEW_S, runner.TRUST_S = seconds / 3, seconds * 2 / 3  # type: ignore[misc]
    runner.SWEEP_S = float(sys.argv[2])  # type: ignore[misc]
    sys.exit(main(["runner", *sys.argv[3:]]))
