"""Matrix products, convolutions and additions of stored integers: limits, memory, arithmetic and report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import LimitError, UnsupportedError, at, sides
from requant.integer.add import AddPlan
from requant.integer.product import ProductPlan
from requant.integer.trace import STAGES_OF_SUMS, Trace, trace_addition, trace_product
from requant.integer.window import Layout, Padding, WeightsLayout, Window
from requant.mlir.types import TensorType, Type
from requant.schemes import scheme_named
from requant_service.runtime.settings import Settings

Array = NDArray[Any]

# Bytes for an element of the output: its sum, the steps from there, the stored integer, and base64 of that; and with
# every stage, of up to 8 bytes, and its base64.
_BYTES_OF_SUM = 24
_BYTES_OF_TRACED_SUM = 256
# How many products take as long as the work on a byte of a tensor.
_PRODUCTS_OF_A_BYTE = 16


@dataclass(frozen=True, slots=True)
class IntegerResult:
    """The output as flat stored integers, the report, and the trace where it was asked for."""

    output: Array
    report: dict[str, Any]
    trace: Trace | None


@dataclass(frozen=True, slots=True)
class IntegerOperation:
    """A plan of an integer operation, and whether every stage of it is returned."""

    plan: ProductPlan | AddPlan
    traced: bool

    def check_limits(self, settings: Settings) -> None:
        """Raise LimitError for an output that is too large to be computed or traced, or takes too many products."""
        elements, limit = self.plan.elements, settings.max_traced
        _check_elements(elements, settings)
        if self.traced and elements > limit:
            detail = f"the output has {elements} elements; the stages of at most {limit} are traced"
            raise LimitError(detail, limit=limit, pointer="/trace")
        check_size(elements, self._products, settings)

    @property
    def _products(self) -> int:
        if isinstance(self.plan, AddPlan):
            return 0
        return self.plan.accumulation.cost * (1 + STAGES_OF_SUMS if self.traced else 1)

    @property
    def byte_count(self) -> int:
        """About how much memory the operation takes beside its operands."""
        return (_BYTES_OF_TRACED_SUM if self.traced else _BYTES_OF_SUM) * self.plan.elements

    @property
    def weight(self) -> int:
        """The bytes of a tensor that take about as long."""
        return weight_of(self.plan.elements, self._products)

    def run(self, operands: Mapping[str, Array]) -> IntegerResult:
        """Compute on flat stored integers: of `lhs`, `rhs`, and `bias` where the plan has one.

        Raise TensorDataError or PreconditionError, about the operand at fault.
        """
        plan, lhs, rhs, bias = self.plan, operands["lhs"], operands["rhs"], operands.get("bias")
        output = np.empty(plan.elements, plan.output_dtype)
        trace = None
        if isinstance(plan, AddPlan):
            report = plan.run(lhs, rhs, output)._asdict()
            if plan.arithmetic.scheme is not None:
                report["scheme"] = plan.arithmetic.scheme
            trace = trace_addition(plan, lhs, rhs, output) if self.traced else None
            return IntegerResult(output, report, trace)
        report = plan.run(lhs, rhs, bias, output)._asdict()
        if plan.stage is not None and plan.stage.scheme is not None:
            report["scheme"] = plan.stage.scheme.name
        report |= {"accumulator": plan.accumulation.accumulator, "overflow": plan.accumulation.overflow}
        trace = trace_product(plan, lhs, rhs, bias, output) if self.traced else None
        return IntegerResult(output, report, trace)


def plan_integer(
    plan_for: Callable[..., ProductPlan | AddPlan],
    types: Mapping[str, TensorType],
    output: Type,
    options: Mapping[str, Any],
    *,
    traced: bool,
    pointers: Mapping[str, str],
    settings: Settings,
) -> IntegerOperation:
    """Plan a call of `plan_matmul`, `plan_conv2d` or `plan_add` of `requant.integer`, which is `plan_for`.

    `types`: those of `lhs`, `rhs`, and `bias` where there is one. `options`: the other arguments, by their names.
    `pointers`: the field that gave each of the types, and that of `output`. Other errors point at the option at fault.
    """
    given = dict(options)
    if "scheme" in given:
        with at("/scheme"):
            given["scheme"] = scheme_named(given["scheme"]).name
    with at("/profile", UnsupportedError), sides(**pointers):
        found = IntegerOperation(plan_for(**types, output=output, **given), traced)
    found.check_limits(settings)
    return found


def convolution_window(
    *,
    layout: Layout,
    weights_layout: WeightsLayout | None,
    strides: Sequence[int],
    dilations: Sequence[int],
    padding: Padding,
    pads: Sequence[int],
    groups: int,
) -> Window:
    """Return the window of a convolution. A list without members, or no layout of the weights, is the default."""
    default = WeightsLayout.OHWI if layout is Layout.NHWC else WeightsLayout.OIHW
    top, left, bottom, right = pads or (0, 0, 0, 0)
    vertical, horizontal = strides or (1, 1)
    down, across = dilations or (1, 1)
    return Window(
        layout=layout,
        weights_layout=weights_layout or default,
        strides=(vertical, horizontal),
        dilations=(down, across),
        padding=padding,
        pads=(top, left, bottom, right),
        groups=groups,
    )


def weight_of(elements: int, products: int) -> int:
    """Return about how many bytes of a tensor take as long as so many elements of an output and so many products."""
    return max(elements * 4, products // _PRODUCTS_OF_A_BYTE)


def check_size(elements: int, products: int, settings: Settings) -> None:
    """Raise LimitError for an output of too many elements, or of too many products."""
    _check_elements(elements, settings)
    limit = settings.max_products
    if products > limit:
        detail = f"the output takes {products} multiplications, or as long as so many; at most {limit} are done"
        raise LimitError(detail, limit=limit)


def _check_elements(elements: int, settings: Settings) -> None:
    limit = settings.max_sums
    if elements > limit:
        raise LimitError(f"the output has {elements} elements; at most {limit} are computed", limit=limit)
