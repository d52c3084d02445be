"""The requantize rule of a profile whose arithmetic is a scheme's: in the scheme's own words."""

from __future__ import annotations

from typing import Any

from core.profiles.rule import NO_NAN, OperationRule, ZeroPoint
from core.schemes import FixedPoint, Scheme, Sum


def scheme_rule(scheme: Scheme, **more: Any) -> OperationRule:
    """Return the rule that says what the scheme says. `more` are fields of OperationRule that are the profile's own."""
    wraps = isinstance(scheme.stage, FixedPoint) and scheme.stage.total is Sum.WRAPS
    where = f"; {scheme.where}" if scheme.where else ""
    said: dict[str, Any] = {
        "formula": f"clamp({scheme.formula}, lo, hi), v = q - z_in{where}",
        "precision": f"the factor d is {scheme.factor}; {scheme.derivation}; m and shift stand for {scheme.convention}",
        "rounding": scheme.rounding,
        "zero_point": ZeroPoint.AFTER_ROUNDING,
        "saturation": f"clamp after the addition of z_out{', which wraps in int32' if wraps else ''}; an element is an "
        f"error unless {', and '.join(scheme.stage.demands.values())}",
        "nan": NO_NAN,
        "scheme": scheme.name,
    }
    return OperationRule(**(said | more))
