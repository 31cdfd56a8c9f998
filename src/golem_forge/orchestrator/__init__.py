"""The one path that every call takes, a module a stage."""

from golem_forge.orchestrator.batch import BatchMode, OnFailure
from golem_forge.orchestrator.path import Orchestrator

__all__ = ["BatchMode", "OnFailure", "Orchestrator"]
