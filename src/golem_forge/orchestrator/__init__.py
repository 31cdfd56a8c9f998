"""The one path that every call takes, a module a stage."""

from golem_forge.orchestrator.orchestrator import Orchestrator
from golem_forge.orchestrator.schedule import BatchMode, OnFailure

__all__ = ["BatchMode", "OnFailure", "Orchestrator"]
