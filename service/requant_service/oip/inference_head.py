"""The head of a request: everything beside the binary tensors, decoded and checked against the model, and kept.

Clients send the same head again and again, and decoding it costs more than the arithmetic of a small tensor. So what a
head means is kept by its bytes. Clients also number their requests: an `id` at either end of the JSON is cut out, and
is no part of the key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from requant.errors import FieldFault, InvalidRequestError
from requant_service.http.json_body import read_json
from requant_service.oip import schemas
from requant_service.oip import wire as oip
from requant_service.oip.models.model import Model
from requant_service.oip.parameters import Value, completed
from requant_service.oip.shared_memory.region_part import RegionPart
from requant_service.oip.tensors import InputTensor
from requant_service.operations.conversion_call import ConversionResult, PlannedConversion
from requant_service.runtime.settings import Settings

# An `id` without escapes. As the first or the last member of valid JSON it is one of the outermost object.
_ID = rb'"id"\s*:\s*"([ !#-\[\]-~]{0,%d})"' % schemas.LONGEST_ID
_FIRST_ID = re.compile(rb"\{\s*" + _ID)
_LAST_ID = re.compile(rb",\s*" + _ID + rb"\s*\}\s*\Z")
# An `id` at the end is looked for in so many bytes.
_LAST_BYTES = schemas.LONGEST_ID + 32


@dataclass(slots=True)
class InferenceHead:
    """What a request asks for, apart from the bytes of its tensors.

    `heads`: its inputs, in order. `inputs`: those whose elements were in the head. `wanted`: the outputs by name, each
    with whether it is sent in binary. `planned` is what it means for a model that is a conversion, if no other input
    has a say in that; `replied` is the last result of that with the JSON of its reply. `input_regions` and
    `output_regions`: where in shared memory tensors are, or are wanted; `uses_shared_memory`: whether there are any.
    """

    heads: list[oip.InputHead]
    inputs: dict[str, InputTensor]
    parameters: Mapping[str, Value | None]
    wanted: Mapping[str, bool]
    all_wanted: bool = True
    id: str | None = None
    planned: PlannedConversion | None = None
    replied: tuple[ConversionResult, bytes] | None = None
    output_regions: Mapping[str, RegionPart] = field(default_factory=dict)
    input_regions: Mapping[str, RegionPart] = field(init=False)
    uses_shared_memory: bool = field(init=False)
    binary: list[oip.InputHead] = field(init=False)
    blob_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.binary = [head for head in self.heads if head.is_binary]
        self.input_regions = {head.name: head.region for head in self.heads if head.region is not None}
        self.uses_shared_memory = bool(self.input_regions or self.output_regions)
        self.blob_bytes = sum(head.blob_bytes for head in self.binary)


class HeadText(NamedTuple):
    """The JSON of a head: the text around the content of its `id`, and that, None if none was cut out."""

    before: bytes
    after: bytes
    id: str | None

    def is_text_of(self, head: InferenceHead) -> bool:
        """Return whether every text with the same two parts means the same as this one, up to its `id`.

        Of repeated members the last one counts, so no other `id` may follow, however it is spelt. A head that has the
        elements of a tensor is not worth keeping.
        """
        return not head.inputs and b'"id"' not in self.after and b"\\" not in self.after


def head_text(text: bytes) -> HeadText:
    """Cut the `id` out of the JSON of a head, if it is the first or the last member."""
    found = _FIRST_ID.match(text)
    if found is None and text.find(b'"id"', -_LAST_BYTES) > 0:
        found = _LAST_ID.search(text, max(len(text) - _LAST_BYTES, 0))
    if found is None:
        return HeadText(text, b"", None)
    start, stop = found.span(1)
    return HeadText(text[:start], text[stop:], found[1].decode("ascii"))


def read_head(text: bytes, model: Model, settings: Settings) -> InferenceHead:
    """Decode the JSON of a head and check it against the model.

    Raise MalformedRequestError, InvalidRequestError, TensorDataError or LimitError.
    """
    request = read_json(text, schemas.InferenceRequest, settings)
    if request.model_name not in ("", model.name):
        detail = "the path names another model"
        raise InvalidRequestError(f"model_name: {detail}", (FieldFault("/model_name", "mismatch", detail),))
    heads = oip.input_heads(request.inputs, model, settings.max_rank)
    given = {name: value for name, value in request.parameters.items() if name != oip.BINARY_OUTPUT}
    return InferenceHead(
        heads=heads,
        inputs={head.name: oip.tensor_of_json(head, text, settings) for head in heads if head.values is not None},
        parameters=completed(model.parameters, given),
        wanted=oip.wanted_outputs(request, model),
        all_wanted=not request.outputs,
        id=request.id if "id" in request.model_fields_set else None,
        output_regions=oip.output_regions(request),
    )
