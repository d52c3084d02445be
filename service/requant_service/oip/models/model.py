"""What a model is: a name, versions, the tensors and parameters that it takes, and a function that plans a call of it.

`requant_service.oip.inference` reads requests by this description. It runs a model that is a conversion of its first
input while that arrives, and any other by its plan. To add a model, describe it and put it into
`requant_service.oip.models.registry`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from requant.description import Work
from requant_service.oip.call import Call
from requant_service.oip.parameters import Parameter, Value
from requant_service.oip.tensors import OutputTensor
from requant_service.operations.conversion_call import ConversionCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A tensor that a model takes or gives, of any shape. `datatypes`: those that it can have, the most usual first.

    `variadic`: several tensors, named `NAME_0`, `NAME_1` and so on. One input alone may also be named `NAME`.
    `copied`: out of shared memory, whatever their size, because more than kernels reads them.
    """

    name: str
    description: str
    datatypes: tuple[str, ...]
    optional: bool = False
    variadic: bool = False
    copied: bool = False

    def names(self, count: int) -> list[str]:
        """Return the names of so many tensors of a variadic slot."""
        return [f"{self.name}_{index}" for index in range(count)]


def slot_named(slots: Iterable[Slot], name: str) -> Slot | None:
    """Return the slot of a tensor of that name, None if there is none."""
    base, _, index = name.rpartition("_")
    for slot in slots:
        if slot.name == name or (slot.variadic and slot.name == base and index.isascii() and index.isdigit()):
            return slot
    return None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answers: tensors in the order of its description, and what it reports of its work."""

    outputs: tuple[OutputTensor, ...]
    parameters: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Job:
    """The work that a plan stands for. On arrays it holds the GIL for short times only.

    `byte_count` is about how much memory it takes beside its inputs. `weight`: bytes of a tensor that take about as
    long, where it takes longer than its inputs say; of work on texts, characters.
    """

    run: Callable[[], Answer]
    byte_count: int
    weight: int = 0
    work: Work = Work.ARRAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model. `plan` reads the types of a call, raises what is wrong with them, and returns the work to be done.

    A model that is a conversion of its first input has `conversion` in the place of that: what a call of it means,
    found without the data of that input, which may still be arriving, unless the parameters are such that it
    `needs_input`. One that is `explained` tells the steps of each element, and needs it always.

    `versions` are those of the arithmetic contract, oldest first; the last one answers where none is named.
    """

    name: str
    versions: tuple[str, ...]
    description: str
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    parameters: tuple[Parameter, ...]
    plan: Callable[[Call], Job] | None = None
    conversion: Callable[[Call], ConversionCall] | None = None
    needs_input: Callable[[Mapping[str, Value | None]], bool] = lambda parameters: False
    explained: bool = False
