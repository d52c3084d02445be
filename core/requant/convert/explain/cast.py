"""Explains casts between floats."""

from __future__ import annotations

from dataclasses import dataclass

from requant.convert.cast import CastPlan
from requant.convert.explain.explainer import Array, Explainer, formulas, numbers
from requant.convert.explain.explanation import ElementExplanation, StepKind
from requant.convert.explain.float_codes import FloatCodes, code_bits, code_text
from requant.convert.explain.float_steps import Rounded
from requant.convert.explain.number_text import float_text
from requant.convert.explain.working import Working
from requant.convert.small_floats import SMALL_FLOATS, small_float
from requant.formats.elements import FloatElement
from requant.formats.rounding import Rounding
from requant.plan.lanes import LANES
from requant.plan.operands import float_element
from requant.profiles import profile_named


@dataclass(frozen=True, slots=True)
class CastExplainer(Explainer):
    """From any float to another. Without codes the result is exact.

    Steps show every NaN as NaN, also those at the end of a tensor that get other bits (`CastRule.nan_tails`).
    """

    codes: FloatCodes | None

    def element(self, index: int, source: Array) -> ElementExplanation:
        """See Explainer.element."""
        (x,) = numbers(source[index : index + 1], self.plan.input_type)
        return self._explained(x)

    def formula(self) -> tuple[str, ...]:
        """See Explainer.formula."""
        is_code = self._source.name not in LANES
        return formulas(self._explained(0 if is_code else 0.0)) if self.plan.elements else ()

    @property
    def _source(self) -> FloatElement:
        element = self.plan.input_type.element
        assert isinstance(element, FloatElement)
        return element

    def _explained(self, x: int | float) -> ElementExplanation:
        working = Working()
        if isinstance(x, int):
            text, symbol, value = str(x), "v", decode(working, "x", x, self._source.name)
        else:
            text, symbol, value = float_text(x, self._source), "x", x
            working.know(x=text)
        if self.codes is None:
            target = float_element(self.plan.output_type, "output")
            working.float(StepKind.CONVERT, "y", f"{target.name}({symbol})", Rounded(value), target)
            return ElementExplanation(text, 0, tuple(working.steps), value)
        found = self.codes.explain(working, symbol, value)
        result: int | float = found.code
        if self.codes.target in LANES:
            result = self.codes.format.value(found.code)
        return ElementExplanation(text, 0, tuple(working.steps), result, found.saturated)


def decode(working: Working, symbol: str, code: int, name: str) -> float:
    """Add the step from a code of a small float to its value, and return that."""
    format_ = small_float(name)
    working.know(**{symbol: str(code)})
    working.text(
        StepKind.DECODE, "v", f"{name}({symbol})", code_text(format_, code), name, bits=code_bits(format_, code)
    )
    return format_.value(code)


def cast_explainer(plan: CastPlan, *, rounding: Rounding | None = None, saturate: bool | None = None) -> CastExplainer:
    """Return the explanation of a cast. `rounding` and `saturate` replace the profile's own."""
    rule = profile_named(plan.profile).cast_rule()
    source, target = plan.input_type.element, plan.output_type.element
    assert isinstance(source, FloatElement)
    assert isinstance(target, FloatElement)
    if target.name not in SMALL_FLOATS:
        return CastExplainer(plan, None)
    return CastExplainer(plan, FloatCodes(rule, target.name, source.name, saturate, rounding))
