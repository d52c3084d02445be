"""What the routes of modules read and answer."""

from __future__ import annotations

from typing import Annotated

from pydantic import FailFast, Field

from requant.operations.modules import FUNCTION, MODULE
from requant_service.http.models import ReplyModel, RequestModel
from requant_service.json_api.schemas.tensors import OutputTensor, Tensor


class EvaluateRequest(RequestModel):
    """A module, the function to call, and its arguments."""

    module: str = Field(description="MLIR text, as in /v1/lower.", examples=list(MODULE.examples))
    function: str = Field(default="", description=FUNCTION.description)
    inputs: Annotated[list[Tensor], FailFast()] = Field(
        max_length=64,
        description="One tensor per argument, of its type; scalars are tensors of rank 0. i1 values are 0 and 1.",
    )


class EvaluateReply(ReplyModel):
    """The results of the function, in the same form as the inputs."""

    outputs: list[OutputTensor]
