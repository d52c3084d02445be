"""Block formats as models: scales derived and elements quantized in one call, and back."""

from __future__ import annotations

from math import prod

from requant.convert.blocks.block_tensor import BlockFormat
from requant.convert.blocks.mx import MxRule
from requant.errors import InvalidRequestError, TypeFitError, default_pointer
from requant.mlir import print_type
from requant.plan.operands import static_shape
from requant.schemes.scheme import parse_factor
from requant_service.oip.call import Call
from requant_service.oip.models.model import Answer, Job, Model, Slot
from requant_service.oip.parameters import Parameter, pointer_to
from requant_service.oip.tensors import Array, output_tensor
from requant_service.operations import blocks
from requant_service.operations.types import read_tensor_type

_FORMAT = Parameter(name="format", description="The block format.", choices=tuple(BlockFormat))
_ELEMENTS = Slot(
    name="elements",
    description="Codes, one per byte; mxint8: integers. Absent for GGUF.",
    datatypes=("UINT8", "INT8"),
    optional=True,
)
_SCALES = Slot(
    name="scales",
    description="One per block along the last axis. Absent for GGUF.",
    datatypes=("UINT8",),
    optional=True,
)
_BLOCKS = Slot(name="blocks", description="GGUF: bytes along the last axis.", datatypes=("UINT8",), optional=True)
_F32_BYTES = 4
_PARTS = (_ELEMENTS, _SCALES, _BLOCKS)


def _plan_quantize(call: Call) -> Job:
    x = call.inputs["x"]
    format_, rule = call.choice("format", BlockFormat), call.choice("rule", MxRule)
    with default_pointer(pointer_to("global_scale")):
        global_scale = blocks.read_global_scale(call.text("global_scale"))
    x_type = call.tensor_type("x", "input_type")
    with default_pointer(x.pointer):
        element = blocks.real_element(x_type)
    source = x.kept_as(element, element.tensor_dtype)

    def run() -> Answer:
        tensor = blocks.quantize(source, x_type, format_, rule, global_scale)
        outputs = tuple(output_tensor(name, part.type, part.data) for name, part in tensor.parts.items())
        scale = {} if tensor.global_scale is None else {"global_scale": repr(tensor.global_scale)}
        return Answer(outputs, {"format": str(format_), **scale})

    return Job(run, 2 * _F32_BYTES * source.size)


QUANTIZE_BLOCKS = Model(
    name="quantize_blocks",
    versions=("1",),
    description="Quantize a tensor to a block format (MX, NVFP4 or GGUF), deriving the scales.",
    inputs=(Slot(name="x", description="The real tensor.", datatypes=("FP32", "FP16", "BF16")),),
    outputs=_PARTS,
    parameters=(
        _FORMAT,
        Parameter(name="input_type", description="MLIR text: the type of x. Default: its datatype.", optional=True),
        Parameter(
            name="rule",
            description="MX formats: the rule for the shared exponent.",
            default=str(MxRule.OCP),
            choices=tuple(MxRule),
        ),
        Parameter(
            name="global_scale",
            description="nvfp4: derived (from the largest magnitude), absent, or a number, also as text.",
            default="derived",
            may_be_number=True,
        ),
    ),
    plan=_plan_quantize,
)


def _part(call: Call, wanted: blocks.Dequantization, name: str) -> Array:
    """Return one part, whose shape and datatype have to be those that the format and the type of y ask for."""
    format_, expected = wanted.format, wanted.parts[name]
    if name not in call.inputs:
        raise InvalidRequestError.of_field("/inputs", "missing", name, message=f"{format_} needs the input {name}")
    tensor = call.inputs[name]
    if tensor.shape != expected.shape:
        raise TypeFitError(
            f"{name} of {format_} is {print_type(expected)}; the input has shape {list(tensor.shape)}",
            pointer=tensor.pointer,
        )
    return tensor.kept_as(expected.element, wanted.dtype(name))


def _plan_dequantize(call: Call) -> Job:
    format_, place = call.choice("format", BlockFormat), pointer_to("output_type")
    y_type = read_tensor_type(call.text("output_type"), call.settings, place)
    with default_pointer(place):
        wanted = blocks.Dequantization.to(y_type, format_)
    parts = {name: _part(call, wanted, name) for name in wanted.parts}
    for name, tensor in call.inputs.items():
        if name not in parts:
            message, detail = f"{format_} has no {name}", f"{format_} has none"
            raise InvalidRequestError.of_field(tensor.pointer, "extra_forbidden", detail, message=message)
    with default_pointer(pointer_to("global_scale")):
        scale = parse_factor(call.text("global_scale")) if call.has("global_scale") else None

    def run() -> Answer:
        y = output_tensor("y", y_type, wanted.run(parts, scale))
        return Answer((y,), {"output_type": print_type(y_type)})

    return Job(run, 2 * _F32_BYTES * prod(static_shape(y_type)))


DEQUANTIZE_BLOCKS = Model(
    name="dequantize_blocks",
    versions=("1",),
    description="Dequantize a tensor in a block format to f32.",
    inputs=_PARTS,
    outputs=(Slot(name="y", description="The real tensor.", datatypes=("FP32",)),),
    parameters=(
        _FORMAT,
        Parameter(name="output_type", description="MLIR text: the type of y, such as tensor<4x64xf32>."),
        Parameter(
            name="global_scale",
            description="nvfp4: the tensor-level scale, as a number or as text.",
            optional=True,
            may_be_number=True,
        ),
    ),
    plan=_plan_dequantize,
)
