"""A `linalg.generic` under construction: for each index of the loops one scalar, computed in `arith` from others.

`Choice` is whose arithmetic the pass emits: a profile's, or a scheme's in the place of it. Both must have fixed point.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import AffineMapAttr, IntegerType, TensorType, i64
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.dialects.linalg.ops import FillOp, GenericOp, YieldOp
from xdsl.dialects.tensor import EmptyOp
from xdsl.ir import Block, Region, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineExpr, AffineMap

from requant.convert.scaling import Granularity
from requant.errors import UnsupportedError
from requant.lowering.dialects.upstream import CONVERSIONS
from requant.lowering.passes.rewriting import Emitter, Options
from requant.lowering.quantized import dense, scalar_integer
from requant.plan.channels import block_counts
from requant.profiles import PROFILES, Operation, Profile
from requant.profiles.rule import Addition
from requant.schemes import SCHEMES, FixedPoint

PROFILE, SCHEME, OF_PROFILE = "profile", "scheme", "of-profile"
DEFAULT = "litert"

FIXED_POINT_SCHEMES = tuple(name for name, scheme in SCHEMES.items() if isinstance(scheme.stage, FixedPoint))


def _schemes(profile: Profile) -> Iterator[str | None]:
    """Return the schemes of everything that a profile scales by one."""
    rule = profile.operations.get(Operation.REQUANTIZE)
    if rule is not None:
        yield from (each.scheme for each in (rule, *rule.variants.values()))
    for product in profile.products.values():
        yield from (each.scheme for each in (product, *product.variants.values()))


def has_fixed_point(profile: Profile) -> bool:
    """Return whether something that the profile defines is computed by integer multipliers and shifts."""
    adds = profile.addition is not None and profile.addition.addition in (
        Addition.FIXED_POINT,
        Addition.RESCALE,
        Addition.COMMON_SCALE,
    )
    return adds or not {*_schemes(profile)}.isdisjoint(FIXED_POINT_SCHEMES)


FIXED_POINT_PROFILES = tuple(name for name, profile in PROFILES.items() if has_fixed_point(profile))
OPTIONS = {
    PROFILE: (DEFAULT, *(name for name in PROFILES if name != DEFAULT)),
    SCHEME: (OF_PROFILE, *SCHEMES),
}


@dataclass(frozen=True, slots=True)
class Choice:
    """A profile, and the scheme that replaces its own, if one does."""

    profile: str
    scheme: str | None

    @classmethod
    def of(cls, options: Options) -> Choice:
        """Return what the options name. Raises UnsupportedError, naming those that there are, without fixed point."""
        profile, scheme = options[PROFILE], None if options[SCHEME] == OF_PROFILE else options[SCHEME]
        chosen = cls(profile, scheme)
        if scheme is not None:
            chosen.check(scheme)
        elif profile not in FIXED_POINT_PROFILES:
            raise UnsupportedError(
                f"profile {profile} has no fixed point; {', '.join(FIXED_POINT_PROFILES)} have. With a scheme any "
                f"profile is taken: {', '.join(FIXED_POINT_SCHEMES)}"
            )
        return chosen

    def check(self, scheme: str | None) -> None:
        """Raise UnsupportedError, naming those that there are, for a scheme without fixed point."""
        if scheme not in FIXED_POINT_SCHEMES:
            named = "a float factor" if scheme is None else f"scheme {scheme}"
            where = "" if self.scheme else f"profile {self.profile} computes this by {named}; "
            raise UnsupportedError(
                f"{where}{named} has no fixed point; a scheme that has is one of {', '.join(FIXED_POINT_SCHEMES)}"
            )


Place = Sequence[AffineExpr]


class Loops:
    """Parallel loops over `sizes`, and inside of them loops over `summed`, which add to `total` if it is not None.

    `outer` puts operations before the generic, `inner` into its body.
    """

    def __init__(
        self, outer: Emitter, sizes: Sequence[int], element: IntegerType, summed: Sequence[int] | None = None
    ) -> None:
        self.outer, self.sizes, self.element = outer, tuple(sizes), element
        self._summed = summed
        self._block = Block(arg_types=[element])
        self.inner = Emitter.at_end(self._block)
        self._inputs: list[SSAValue] = []
        self._places: list[Place] = []

    @property
    def total(self) -> SSAValue:
        """The sum so far."""
        return self._block.args[-1]

    @property
    def _here(self) -> Place:
        return [AffineDimExpr(loop) for loop in range(len(self.sizes))]

    def read(self, tensor: SSAValue, place: Place | None = None) -> SSAValue:
        """Return the element of a tensor at `place`; by default at the index of the parallel loops."""
        self._inputs.append(tensor)
        self._places.append(self._here if place is None else place)
        type_ = cast(TensorType[Any], tensor.type)
        return self._block.insert_arg(type_.element_type, len(self._inputs) - 1)

    def constant(self, number: int, element: IntegerType = i64) -> SSAValue:
        """Return a constant."""
        return self.inner.add(arith.ConstantOp(scalar_integer(number, element)))

    def vector(self, numbers: Sequence[int], element: IntegerType, place: Place, sizes: Sequence[int]) -> SSAValue:
        """Return the number at `place` in a constant tensor; a constant where all numbers are one."""
        if len(set(numbers)) == 1:
            return self.constant(numbers[0], element)
        return self.read(self.outer.add(arith.ConstantOp(dense(element, sizes, numbers))), place)

    def parameter(self, numbers: Sequence[int], granularity: Granularity) -> SSAValue:
        """Return the number, in i64, of the block of `granularity` that the index lies in. One number is for all."""
        counts = block_counts(self.sizes, granularity.blocks)
        along = [axis for axis, count in enumerate(counts) if count > 1]
        place = [_block_of(AffineDimExpr(axis), granularity.blocks[axis]) for axis in along]
        numbers = numbers[:1] if 0 in self.sizes else numbers
        return self.vector(numbers, i64, place, [counts[axis] for axis in along])

    def extend(self, value: SSAValue, *, signed: bool, element: IntegerType = i64) -> SSAValue:
        """Return an integer with more bits."""
        name = "extsi" if signed else "extui"
        return value if value.type == element else self.inner.add(CONVERSIONS[name](value, element))

    def cut(self, value: SSAValue, element: IntegerType) -> SSAValue:
        """Return an integer's lowest bits."""
        return value if value.type == element else self.inner.add(CONVERSIONS["trunci"](value, element))

    def finish(self, result: SSAValue) -> SSAValue:
        """End the body with `result`, and return the tensor of all of them."""
        self._block.add_op(YieldOp(result))
        target = TensorType(self.element, self.sizes)
        start = self.outer.add(EmptyOp([], target))
        if self._summed is not None:
            zero = self.outer.add(arith.ConstantOp(scalar_integer(0, self.element)))
            start = self.outer.add(FillOp([zero], [start]))
        kinds = [IteratorTypeAttr.parallel()] * len(self.sizes)
        kinds += [IteratorTypeAttr.reduction()] * len(self._summed or ())
        maps = [AffineMapAttr(AffineMap(len(kinds), 0, tuple(place))) for place in (*self._places, self._here)]
        return self.outer.add(GenericOp(self._inputs, [start], Region(self._block), maps, kinds, [target]))


def _block_of(index: AffineExpr, size: int) -> AffineExpr:
    return index if size == 1 else index // size
