"""Sessions as pages watch them: their events now and before, over one socket."""
