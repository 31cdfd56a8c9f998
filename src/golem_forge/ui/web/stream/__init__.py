"""Sessions as pages watch them: their events, past and present, over one WebSocket."""
