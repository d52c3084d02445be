"""Matrix products, convolutions and additions of stored integers: limits, memory, arithmetic and report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.errors import LimitError
from core.integer.add import AddPlan
from core.integer.product import ProductPlan
from core.integer.trace import STAGES_OF_SUMS, Trace, trace_addition, trace_product
from service.runtime.settings import Settings

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
