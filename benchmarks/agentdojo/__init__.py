"""AgentDojo's tools as ours, and the calls of its tasks replayed through the one path. Run with `make agentdojo`."""
