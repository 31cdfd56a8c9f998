"""Sessions that outlive a terminal: what a store, runners and workspaces need."""
