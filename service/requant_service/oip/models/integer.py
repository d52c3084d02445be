"""Matrix product, convolution and addition of quantized tensors as models. Types are parameters; stages are outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from requant.errors import InvalidRequestError, at, sides
from requant.integer.add import AddPlan, plan_add
from requant.integer.conv2d import plan_conv2d
from requant.integer.matmul import plan_matmul
from requant.integer.product import ProductPlan
from requant.integer.window import Layout, Padding, WeightsLayout
from requant.mlir import print_type
from requant.mlir.types import TensorType
from requant.plan.operands import static_shape
from requant.plan.packing import Packing, check_dense_bytes, dense_width, pack, unpack
from requant.profiles import PROFILES
from requant.profiles.integer_rule import Accumulator, SumOverflow
from requant.schemes import SCHEMES, Multiplier
from requant_service.oip.call import Call
from requant_service.oip.datatypes import DATATYPES, STORED
from requant_service.oip.models.model import Answer, Job, Model, Slot
from requant_service.oip.models.pointers import pointing_into
from requant_service.oip.parameters import Kind, Parameter, pointer_to
from requant_service.oip.tensors import Array, InputTensor, OutputTensor, output_tensor
from requant_service.operations.integer import IntegerOperation, IntegerResult, convolution_window, plan_integer
from requant_service.operations.types import read_tensor_type

PlanFor = Callable[..., ProductPlan | AddPlan]

_BYTES, _INT32, _INT64 = (DATATYPES[name] for name in ("UINT8", "INT32", "INT64"))
_INTEGERS = (*STORED, "INT64")
_STAGES = ("INT32", "INT64", "FP32", "FP64", "FP16")


def _packed_width(call: Call, type_: TensorType, side: str) -> int | None:
    """Return the bits of the numbers of a tensor that is packed, None for one that is not. A bias never is."""
    return dense_width(type_) if side != "bias" and call.choice("packing", Packing) is Packing.DENSE else None


def _operand_type(call: Call, side: str, slot: str, parameter: str) -> TensorType:
    """Return what an operand is. The type of one that is packed has to tell its shape, which bytes do not."""
    if call.has(parameter) and side != "bias" and call.choice("packing", Packing) is Packing.DENSE:
        found = call.type(parameter)
        if not isinstance(found, TensorType) or _packed_width(call, found, side) is not None:
            return read_tensor_type(call.text(parameter), call.settings, pointer_to(parameter))
    return call.tensor_type(slot, parameter)


def _check_kept(call: Call, tensor: InputTensor, type_: TensorType, dtype: np.dtype[Any], side: str) -> None:
    """Raise TensorDataError unless an operand travels as elements of its type do."""
    width = _packed_width(call, type_, side)
    if width is None:
        tensor.check_kept(type_.element, dtype)
        return
    tensor.check_kept(_BYTES.element, _BYTES.dtype)
    with at(tensor.pointer):
        check_dense_bytes(tensor.data.size, prod(static_shape(type_)), width)


def _elements(call: Call, tensor: InputTensor, type_: TensorType, dtype: np.dtype[Any], side: str) -> Array:
    width = _packed_width(call, type_, side)
    if width is None:
        return tensor.data
    with at(tensor.pointer):
        return unpack(tensor.data, width, prod(static_shape(type_)), dtype)


def _plan(
    call: Call, operands: Mapping[str, tuple[str, str]], plan_for: PlanFor, options: Mapping[str, Any], *, traced: bool
) -> Job:
    """Plan a call. `operands`: the input of each operand, and the parameter that has its type."""
    given = {side: names for side, names in operands.items() if names[0] in call.inputs}
    pointers = {
        side: pointer_to(parameter) if call.has(parameter) else call.inputs[slot].pointer
        for side, (slot, parameter) in given.items()
    }
    with pointing_into(call):
        types = {side: _operand_type(call, side, *names) for side, names in given.items()}
        output = call.type("output_type")
        operation = plan_integer(
            plan_for,
            types,
            output,
            options,
            traced=traced,
            pointers={**pointers, "output": pointer_to("output_type")},
            settings=call.settings,
        )
    tensors = {side: call.inputs[slot] for side, (slot, _) in given.items()}
    kept = {side: operation.plan.operand(side) for side in tensors}
    for side, tensor in tensors.items():
        type_, integers = kept[side]
        _check_kept(call, tensor, type_, integers.dtype, side)

    def run() -> Answer:
        read = {
            side: _elements(call, tensor, kept[side][0], kept[side][1].dtype, side) for side, tensor in tensors.items()
        }
        with sides(**{side: tensor.pointer for side, tensor in tensors.items()}):
            result = operation.run(read)
        return _answer(call, operation, result)

    return Job(run, operation.byte_count, operation.weight)


def _answer(call: Call, operation: IntegerOperation, result: IntegerResult) -> Answer:
    y_type = operation.plan.output_type
    width = _packed_width(call, y_type, "output")
    y = output_tensor("y", y_type, result.output)
    if width is not None:
        packed = pack(result.output, width)
        y = OutputTensor("y", _BYTES, packed.shape, packed, y.element_type)
    outputs = [y]
    if result.trace is not None:
        outputs += [output_tensor(stage.name, stage.tensor, stage.elements) for stage in result.trace.stages]
        outputs += _multipliers(result.trace.multipliers)
    return Answer(tuple(outputs), {"output_type": print_type(y_type), **result.report})


def _multipliers(multipliers: tuple[Multiplier, ...]) -> list[OutputTensor]:
    count = (len(multipliers),)
    values = np.array([each.multiplier for each in multipliers], _INT64.dtype)
    shifts = np.array([each.shift for each in multipliers], _INT32.dtype)
    return [
        OutputTensor("multiplier", _INT64, count, values, "i64"),
        OutputTensor("shift", _INT32, count, shifts, "i32"),
    ]


def _operand(name: str, description: str, *, optional: bool = False) -> Slot:
    return Slot(name=name, description=description, datatypes=_INTEGERS, optional=optional)


def _type(parameter: str, operand: str) -> Parameter:
    description = f"MLIR text: the type of {operand}. Default: its datatype, integers without a scale."
    return Parameter(name=parameter, description=description, optional=True)


def _profile(defining: Callable[[str], bool]) -> Parameter:
    choices = tuple(name for name in PROFILES if defining(name))
    return Parameter(name="profile", description="The arithmetic contract.", default="litert", choices=choices)


_BIAS = _operand(
    "bias",
    "One number per column, added to its sums: plain integers at their scale, or quantized with zero point 0.",
    optional=True,
)
_OUTPUT_TYPE = Parameter(
    name="output_type",
    description="MLIR text: a quantized type, whose storage bounds act as a fused activation, or i32 or i64 for the "
    "unscaled sums. A bare element type takes its shape from the operation.",
)
_PACKING = Parameter(
    name="packing",
    description="How elements of widths other than 8 or 16 bits, such as i4, are stored, except those of a bias. "
    "Dense elements are a UINT8 tensor of rank 1, and the type must then be a whole tensor type.",
    default=str(Packing.UNPACKED),
    choices=tuple(Packing),
)
_TRACE = Parameter(
    name="trace", kind=Kind.BOOLEAN, description="Whether to return every stage as an output.", default=False
)
_PRODUCT_OPTIONS = (
    Parameter(name="scheme", description="Replaces the profile's scheme.", optional=True, choices=tuple(SCHEMES)),
    Parameter(
        name="accumulator",
        description="The accumulator type of the products. Default: i32, or i64 where the output, a plain bias or "
        "operands of more than 8 bits ask for it.",
        optional=True,
        choices=tuple(Accumulator),
    ),
    Parameter(
        name="overflow",
        description="What to do if a sum, including the bias, overflows i32. Default: as in the profile's system.",
        optional=True,
        choices=tuple(SumOverflow),
    ),
    _PACKING,
    _TRACE,
)


def _outputs(stages: Mapping[str, str]) -> tuple[Slot, ...]:
    shown = [
        Slot(name=name, description=f"With trace: {said}", datatypes=_STAGES, optional=True)
        for name, said in stages.items()
    ]
    return (
        Slot(name="y", description="The result.", datatypes=_INTEGERS),
        *shown,
        Slot(name="after_clamp", description="With trace: y.", datatypes=_INTEGERS, optional=True),
        Slot(
            name="multiplier",
            description="With trace: in the scheme's convention; empty if nothing is scaled by integers.",
            datatypes=("INT64",),
            optional=True,
        ),
        Slot(name="shift", description="With trace: one per multiplier.", datatypes=("INT32",), optional=True),
    )


_PRODUCT_OUTPUTS = _outputs(
    {
        "accumulator": "sums of products of stored numbers.",
        "lhs_zero_point_correction": "-za * sum b.",
        "rhs_zero_point_correction": "-zb * sum a.",
        "zero_points_correction": "K * za * zb, with K products per sum.",
        "corrected": "the sum of these four: sum (a - za) * (b - zb).",
        "bias": "the bias at the scale of the sums.",
        "biased": "the sums plus the bias.",
        "scaled": "multiplied and shifted.",
        "after_zero_point": "rounded, plus the output's zero point, clamped to i32.",
    }
)
_SUM_OUTPUTS = _outputs(
    {
        "lhs_shifted": "(a - za) * 2^20, or 2^15 for 16 bits.",
        "rhs_shifted": "the same of rhs.",
        "lhs_scaled": "lhs at the scale of the sum.",
        "rhs_scaled": "rhs at the scale of the sum.",
        "sum": "the sum.",
        "scaled": "the sum at the scale of the output.",
        "after_zero_point": "after adding the output's zero point.",
        "lhs_real": "lhs as real numbers.",
        "rhs_real": "rhs as real numbers.",
        "real_sum": "their sum.",
    }
)


def _product_options(call: Call) -> dict[str, Any]:
    found: dict[str, Any] = {"profile": call.text("profile")}
    if call.has("scheme"):
        found["scheme"] = call.text("scheme")
    if call.has("accumulator"):
        found["accumulator"] = call.choice("accumulator", Accumulator)
    if call.has("overflow"):
        found["overflow"] = call.choice("overflow", SumOverflow)
    return found


def _plan_matmul(call: Call) -> Job:
    operands = {name: (name, f"{name}_type") for name in ("lhs", "rhs", "bias")}
    return _plan(call, operands, plan_matmul, _product_options(call), traced=call.boolean("trace") is True)


MATMUL = Model(
    name="matmul",
    versions=("1",),
    description="Multiply quantized matrices, [.., M, K] by [.., K, N]. Batch dimensions are broadcast.",
    inputs=(
        _operand("lhs", "Quantized, or plain integers (zero point 0); storage of 2 to 16 bits."),
        _operand("rhs", "As lhs. Parameters may go along any dimension but K, such as N."),
        _BIAS,
    ),
    outputs=_PRODUCT_OUTPUTS,
    parameters=(
        _OUTPUT_TYPE,
        _type("lhs_type", "lhs"),
        _type("rhs_type", "rhs"),
        _type("bias_type", "bias"),
        _profile(lambda name: "matmul" in PROFILES[name].products),
        *_PRODUCT_OPTIONS,
    ),
    plan=_plan_matmul,
)


def _numbers(call: Call, name: str, count: int) -> tuple[int, ...]:
    """Return a parameter that is a list of so many integers, or none if it is absent."""
    found = call.integers(name)
    if found is not None and len(found) != count:
        detail = f"expected {count} integers; there are {len(found)}"
        raise InvalidRequestError.of_field(pointer_to(name), "wrong_length", detail)
    return found or ()


def _plan_conv2d(call: Call) -> Job:
    window = convolution_window(
        layout=call.choice("layout", Layout),
        weights_layout=call.choice("weights_layout", WeightsLayout) if call.has("weights_layout") else None,
        strides=_numbers(call, "strides", 2),
        dilations=_numbers(call, "dilations", 2),
        padding=call.choice("padding", Padding),
        pads=_numbers(call, "pads", 4),
        groups=call.integer("groups"),
    )
    operands = {"lhs": ("x", "input_type"), "rhs": ("weights", "weights_type"), "bias": ("bias", "bias_type")}
    options = {"window": window, **_product_options(call)}
    return _plan(call, operands, plan_conv2d, options, traced=call.boolean("trace") is True)


_PAIR = "Vertical and horizontal, a JSON list as text. Default: [1, 1]."

CONV2D = Model(
    name="conv2d",
    versions=("1",),
    description="Convolve a quantized input with quantized weights. Depthwise: as many groups as input channels.",
    inputs=(
        _operand("x", "Quantized per tensor, or plain integers; storage of 2 to 16 bits."),
        _operand("weights", "Like the input, or quantized along the output channels."),
        _BIAS,
    ),
    outputs=_PRODUCT_OUTPUTS,
    parameters=(
        _OUTPUT_TYPE,
        _type("input_type", "x"),
        _type("weights_type", "weights"),
        _type("bias_type", "bias"),
        Parameter(
            name="layout",
            description="The dimensions of x and y.",
            default=str(Layout.NHWC),
            choices=tuple(Layout),
        ),
        Parameter(
            name="weights_layout",
            description="The dimensions of the weights. Default: OHWI with NHWC, OIHW with NCHW.",
            optional=True,
            choices=tuple(WeightsLayout),
        ),
        Parameter(name="strides", description=_PAIR, optional=True),
        Parameter(name="dilations", description=_PAIR, optional=True),
        Parameter(
            name="padding",
            description="How x is padded, with its zero point. same_upper is TensorFlow's SAME.",
            default=str(Padding.EXPLICIT),
            choices=tuple(Padding),
        ),
        Parameter(
            name="pads",
            description="Top, left, bottom, right, with explicit padding, as a JSON list in text. Default: [0, 0, 0, "
            "0].",
            optional=True,
        ),
        Parameter(name="groups", kind=Kind.INTEGER, description="The number of groups.", default=1, lowest=1),
        _profile(lambda name: "conv2d" in PROFILES[name].products),
        *_PRODUCT_OPTIONS,
    ),
    plan=_plan_conv2d,
)


def _plan_add(call: Call) -> Job:
    operands = {name: (name, f"{name}_type") for name in ("lhs", "rhs")}
    options = {"profile": call.text("profile")}
    return _plan(call, operands, plan_add, options, traced=call.boolean("trace") is True)


ADD = Model(
    name="add",
    versions=("1",),
    description="Add quantized tensors with broadcasting: rescale both to a common scale, add, rescale the sum.",
    inputs=(
        _operand("lhs", "Quantized, with storage of 2 to 16 bits."),
        _operand("rhs", "As lhs."),
    ),
    outputs=_SUM_OUTPUTS,
    parameters=(
        _OUTPUT_TYPE,
        _type("lhs_type", "lhs"),
        _type("rhs_type", "rhs"),
        _profile(lambda name: PROFILES[name].addition is not None),
        _PACKING,
        _TRACE,
    ),
    plan=_plan_add,
)
