"""A call, the work that it stands for, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property
from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import LimitError
from requant.mlir import print_type
from requant.mlir.parser import MAXIMUM_RANK
from requant.mlir.types import TensorType
from requant.plan.operands import static_shape
from requant.plan.plan import Conversion

Array = NDArray[Any]

# How many products take as long as the work on a byte of a tensor.
_PRODUCTS_OF_A_BYTE = 16


def cost_of_sums(sums: int, products: int) -> int:
    """Return about how many bytes of a tensor take as long as so many elements of an output and so many products."""
    return max(sums * 4, products // _PRODUCTS_OF_A_BYTE)


class Work(Enum):
    """What an operation works on. A service has threads of their own for each."""

    ARRAYS = auto()
    TEXTS = auto()
    """Types and such, for which no kernel is needed."""
    MODULES = auto()
    """MLIR modules, and what is in them."""


@dataclass(frozen=True, slots=True)
class TensorValue:
    """A tensor: a static type, and its elements flat and contiguous.

    `text`: of the type, where it is known. Printing a type of many scales takes long.
    """

    type: TensorType
    data: Array
    text: str = ""

    @property
    def type_text(self) -> str:
        """The type as text."""
        return self.text or print_type(self.type)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, which is static."""
        assert self.type.shape is not None
        return tuple(size for size in self.type.shape if size is not None)


_UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class ModuleLimits:
    """Limits of one request: characters and operations of a module, elements of its constants; bytes and products of an
    evaluation.
    """

    characters: int = 1 << 20
    operations: int = 10_000
    nesting: int = 64
    constant_elements: int = 1 << 20
    evaluation_bytes: int = 256 << 20
    evaluation_products: int = 1 << 28


@dataclass(frozen=True, slots=True)
class Limits:
    """What a service does not take more of. In process there is no limit but those of types, of nesting, and of
    what aliases stand for. `threads`: how many compute where every input of two rules is; None: one for each core.
    """

    rank: int = MAXIMUM_RANK
    factors: int = _UNLIMITED
    passes: int = _UNLIMITED
    explained: int = _UNLIMITED
    compute_seconds: float = inf
    threads: int | None = None
    module: ModuleLimits = ModuleLimits(
        characters=_UNLIMITED,
        operations=_UNLIMITED,
        constant_elements=_UNLIMITED,
        evaluation_bytes=_UNLIMITED,
        evaluation_products=_UNLIMITED,
    )

    def check_rank(self, rank: int, pointer: str) -> None:
        """Raise LimitError for the rank of a shape that is not served."""
        if rank > self.rank:
            detail = f"the shape has rank {rank}; at most {self.rank} is served"
            raise LimitError(detail, limit=self.rank, pointer=pointer)


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class OperationCall:
    """A call before its data are there: the type of each input that is given, and the value of each option.

    Values are read: a type is a `Type`, a choice of an enumeration its member, a list a tuple, a name what it stands
    for (`Option.read`), a group a mapping. An option that is absent and has no default is None. `counts`: how many
    tensors there are in the place of an input that takes several. `untyped`: the inputs of which only the shape is
    known. `arrays`: the data, where they are there already.
    """

    types: Mapping[str, TensorType]
    options: Mapping[str, Any]
    numbers: Mapping[str, Array] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    untyped: frozenset[str] = frozenset()
    limits: Limits = NO_LIMITS
    calls: Sequence[Any] = ()
    arrays: Mapping[str, Array] = field(default_factory=dict)

    def has(self, *options: str) -> dict[str, Any]:
        """Return those of the options that have a value."""
        return {name: self.options[name] for name in options if self.options[name] is not None}


@dataclass(frozen=True, slots=True)
class Result:
    """What an operation gives.

    Its tensors and lists of numbers, in the order of the reply; the members of its reply and its report, and those of
    the reply whose name the report has too in `members`; of its trace the stages; and the records of its reply or its
    trace. The tensors of records have `record_shape`, or are vectors. Or a `file`, in the place of everything else.
    `conversion`: that which was done.
    """

    outputs: Mapping[str, TensorValue] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, Array] = field(default_factory=dict)
    stages: Mapping[str, TensorValue] = field(default_factory=dict)
    records: Sequence[Mapping[str, Any]] | None = None
    record_shape: tuple[int, ...] | None = None
    file: bytes | None = None
    members: Mapping[str, Any] = field(default_factory=dict)
    conversion: Conversion | None = None


@dataclass(frozen=True)
class Stored:
    """How the elements of an input have to be there: of which type, kept in which dtype."""

    type: TensorType
    dtype: np.dtype[Any]

    @cached_property
    def elements(self) -> int:
        """How many there are."""
        return prod(static_shape(self.type))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWork:
    """The work that a call stands for. `run` takes the tensors of an input that takes several as `NAME_0`, `NAME_1`.

    `operands`: what `run` takes, flat, for each input that is given. `sums`: the elements of an output that takes many
    products each. `products`: how many multiplications take as long as the whole. `byte_count`: about how much memory
    it takes beside its operands. `weight`: the bytes of a tensor that take about as long, where that is more than the
    operands have. `searches`: it holds the GIL for long, whatever its size. `characters`: it is work on texts, which
    holds the GIL throughout, and takes about as long as reading a type of so many. `conversion`: that of the input
    `input` to the output `output` which the work does. If it is nothing else (`in_pieces`), it can run in pieces, while
    the one arrives or the other leaves. `plan`: that of other work, if it decides all bits beside the operands.
    """

    operands: Mapping[str, Stored]
    run: Callable[[Mapping[str, Array]], Result]
    byte_count: int
    weight: int = 0
    sums: int = 0
    products: int = 0
    traced: bool = False
    searches: bool = False
    characters: int = 0
    conversion: Conversion | None = None
    in_pieces: bool = False
    plan: object | None = None

    @property
    def arithmetic(self) -> object | None:
        """The plan that decides all bits beside the operands, where there is one."""
        return self.plan if self.conversion is None else self.conversion.plan

    @property
    def cost(self) -> int:
        """The bytes of a tensor that take about as long."""
        return max(self.weight, cost_of_sums(self.sums, self.products))
