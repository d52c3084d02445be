"""Block formats as models: scales derived and elements quantized in one call, and back."""

from __future__ import annotations

from math import prod

from core.blocks.block_tensor import BlockFormat, dequantize_blocks, expected_parts, quantize_blocks
from core.blocks.mx import MxRule
from core.errors import FieldFault, InvalidRequestError, TypeFitError, UnsupportedError, at
from core.formats.elements import FLOATS, FloatElement, IntegerElement
from core.mlir import print_type
from core.mlir.types import TensorType
from core.plan.lanes import widen
from core.plan.operands import float_element, static_shape
from core.schemes.factors import parse_factor
from service.json_api.schemas.blocks import read_global_scale
from service.oip.call import Call
from service.oip.models.model import Answer, Job, Model, Slot
from service.oip.parameters import Parameter, pointer_to
from service.oip.tensors import Array, output_tensor
from service.operations.types import read_tensor_type

_FORMAT = Parameter(name="format", description="The block format.", choices=tuple(BlockFormat))
_ELEMENTS = Slot(
    name="elements",
    description="Codes, one to a byte; mxint8: integers. Not of GGUF.",
    datatypes=("UINT8", "INT8"),
    optional=True,
)
_SCALES = Slot(
    name="scales", description="One for each block of the last axis. Not of GGUF.", datatypes=("UINT8",), optional=True
)
_BLOCKS = Slot(name="blocks", description="GGUF: bytes along the last axis.", datatypes=("UINT8",), optional=True)
_F32_BYTES = 4
_PARTS = (_ELEMENTS, _SCALES, _BLOCKS)


def _plan_quantize(call: Call) -> Job:
    x = call.inputs["x"]
    format_, rule = call.choice("format", BlockFormat), call.choice("rule", MxRule)
    with at(pointer_to("global_scale")):
        global_scale = read_global_scale(call.text("global_scale"))
    x_type = call.tensor_type("x", "input_type")
    with at(x.pointer):
        element = float_element(x_type, "input")
        if element.name == "f64":
            raise UnsupportedError("the input has elements of f64; block formats are made from f32, f16 and bf16")
    source = x.kept_as(element, element.tensor_dtype)

    def run() -> Answer:
        tensor = quantize_blocks(widen(source, element).reshape(x.shape), format_, rule=rule, global_scale=global_scale)
        named = (("elements", tensor.elements), ("scales", tensor.scales), ("blocks", tensor.blocks))
        outputs = tuple(output_tensor(name, part.type, part.data) for name, part in named if part is not None)
        scale = {} if tensor.global_scale is None else {"global_scale": repr(tensor.global_scale)}
        return Answer(outputs, {"format": str(format_), **scale})

    return Job(run, 2 * _F32_BYTES * source.size)


QUANTIZE_BLOCKS = Model(
    name="quantize_blocks",
    versions=("1",),
    description="Real numbers to a block format: MX, NVFP4 or GGUF. Its scales are derived.",
    inputs=(Slot(name="x", description="Real numbers.", datatypes=("FP32", "FP16", "BF16")),),
    outputs=_PARTS,
    parameters=(
        _FORMAT,
        Parameter(
            name="input_type", description="MLIR text: what x is. Default: what its datatype says.", optional=True
        ),
        Parameter(
            name="rule",
            description="How the MX formats choose the shared exponent.",
            default=str(MxRule.OCP),
            choices=tuple(MxRule),
        ),
        Parameter(
            name="global_scale",
            description="nvfp4: derived (from the largest magnitude), absent, or a number as text.",
            default="derived",
        ),
    ),
    plan=_plan_quantize,
)


def _part(call: Call, format_: BlockFormat, name: str, expected: TensorType) -> Array:
    """Return one part, whose shape and datatype have to be those that the format and the type of y ask for."""
    if name not in call.inputs:
        raise InvalidRequestError(f"{format_} needs the input {name}", (FieldFault("/inputs", "missing", name),))
    tensor = call.inputs[name]
    element = expected.element
    assert isinstance(element, (FloatElement, IntegerElement))
    dtype = element.tensor_dtype if isinstance(element, FloatElement) else element.dtype
    if tensor.shape != expected.shape:
        raise TypeFitError(
            f"{name} of {format_} is {print_type(expected)}; the input has shape {list(tensor.shape)}",
            pointer=tensor.pointer,
        )
    return tensor.kept_as(element, dtype)


def _plan_dequantize(call: Call) -> Job:
    format_ = call.choice("format", BlockFormat)
    place = pointer_to("output_type")
    y_type = read_tensor_type(call.text("output_type"), call.settings, place)
    with at(place):
        shape = static_shape(y_type)
        if y_type.element != FLOATS["f32"]:
            raise UnsupportedError("blocks are dequantized to f32")
        expected = expected_parts(format_, shape)
    parts = {name: _part(call, format_, name, part_type) for name, part_type in expected.items()}
    for name in call.inputs:
        if name not in expected:
            raise InvalidRequestError(
                f"{format_} has no {name}",
                (FieldFault(call.inputs[name].pointer, "extra_forbidden", f"{format_} has none"),),
            )
    scale = None
    if call.has("global_scale"):
        with at(pointer_to("global_scale")):
            scale = parse_factor(call.text("global_scale"))

    def run() -> Answer:
        y = dequantize_blocks(format_, shape, parts, scale)
        return Answer((output_tensor("y", y_type, y.reshape(-1)),), {"output_type": print_type(y_type)})

    return Job(run, 2 * _F32_BYTES * prod(shape))


DEQUANTIZE_BLOCKS = Model(
    name="dequantize_blocks",
    versions=("1",),
    description="A tensor in a block format to the f32 numbers that it stands for.",
    inputs=_PARTS,
    outputs=(Slot(name="y", description="Real numbers.", datatypes=("FP32",)),),
    parameters=(
        _FORMAT,
        Parameter(name="output_type", description="MLIR text: the type of y, such as tensor<4x64xf32>."),
        Parameter(name="global_scale", description="nvfp4: the second level of scale, as text.", optional=True),
    ),
    plan=_plan_dequantize,
)
