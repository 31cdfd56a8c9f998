"""The REST API: operations, and the models that they take and give. `openapi` has every one, once.

Here is the base of all request and response models, and how a request is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class ApiModel(BaseModel):
    """What goes over the wire: camelCase there, snake_case here, nothing that is not declared.

    `title=` is its name in the API's description; `-Input` and `-Output` tell two apart that have one title. The string
    below an attribute is its description there.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        defer_build=True,
    )


class ApiProblem(ApiModel, title="Problem"):
    """Why a request was refused, and what to do about it."""

    problem: str
    fields: dict[str, str] = {}
    """By the name of each part of the request that is wrong."""


class ActionResult(ApiModel, title="Said"):
    """What was done, in one or two sentences."""

    text: str


class ApiRefusal(Exception):
    """The answer to this request is no."""

    def __init__(self, status: int, problem: str, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(problem)
        self.status = status
        self.problem = ApiProblem(problem=problem, fields=dict(fields or {}))
