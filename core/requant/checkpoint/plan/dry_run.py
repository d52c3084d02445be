"""A plan before it is run: as numbers, as JSON for programs and workers, and as text for a person."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from requant.checkpoint.plan.model import (
    DequantizeStep,
    Direction,
    GivenStep,
    Plan,
    QuantizeStep,
    Repack,
    Request,
    Step,
)
from requant.checkpoint.plan.recipe import Recipe
from requant.checkpoint.plan.refusals import without_numbers
from requant.errors import excerpt

_MAX_NAMES = 20
_NOT_DIVISIBLE = "a shape that the format does not quantize"
_PLAIN = "not quantized"
_DEQUANTIZED = "dequantized to"
_GIVEN = "scales of activations, as they are given"


@dataclass(slots=True)
class Amount:
    """Tensors of one kind: how many, their bytes before and after. `names`: the first ones, with `*` for numbers."""

    count: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, name: str, before: int, after: int) -> None:
        """Count a tensor."""
        self.count += 1
        self.bytes_before += before
        self.bytes_after += after
        if len(self.names) < _MAX_NAMES and (pattern := without_numbers(name)) not in self.names:
            self.names.append(pattern)


class Kind(NamedTuple):
    """Weights that are converted alike. `scheme`: theirs, where there are several."""

    dtype: str
    shape: tuple[int, ...]
    scheme: str | None


@dataclass(frozen=True, slots=True)
class Summary:
    """`kept`: by the reason. `carried`: bytes of other files."""

    converted: dict[Kind, Amount]
    kept: dict[str, Amount]
    bytes_before: int
    bytes_after: int
    carried: int


def summary_of(plan: Plan) -> Summary:
    """Return the numbers of a plan. Sizes of files count their headers."""
    recipe = Recipe(plan.request) if plan.request.schemes and plan.request.repack is Repack.NO else None
    converted: dict[Kind, Amount] = {}
    kept: dict[str, Amount] = {}
    for task in plan.tasks:
        after = {entry.name: entry.end - entry.begin for entry in task.header.tensors}
        for step in task.steps:
            size = sum(after[name] for name in outputs_of(step))
            if isinstance(step, GivenStep):
                kept.setdefault(_GIVEN, Amount()).add(step.output, 0, size)
                continue
            before = step.source.byte_count
            if not isinstance(step, QuantizeStep) and step.source.is_plain:
                reason = _PLAIN if recipe is None else recipe.selection.skip_reason(step.output) or _NOT_DIVISIBLE
                kept.setdefault(reason, Amount()).add(step.output, before, size)
            elif isinstance(step, DequantizeStep) and plan.request.direction is Direction.QUANTIZE:
                kept.setdefault(f"{_DEQUANTIZED} {step.source.dtype}", Amount()).add(step.output, before, size)
            else:
                weight = f"{step.module}.weight" if isinstance(step, QuantizeStep) else step.output
                kind = Kind(step.source.dtype, step.source.tensor_shape, _scheme(recipe, weight))
                converted.setdefault(kind, Amount()).add(weight, before, size)
    return Summary(
        converted,
        kept,
        sum(file.size for file in plan.sources),
        sum(task.header.size for task in plan.tasks),
        sum(file.size for file in plan.carried),
    )


def _scheme(recipe: Recipe | None, weight: str) -> str | None:
    """Return the name of a weight's scheme, None where all have one or none."""
    if recipe is None or len(recipe.schemes) == 1:
        return None
    number = recipe.scheme_of(weight)
    return None if number is None else recipe.schemes[number].name


def outputs_of(step: Step) -> tuple[str, ...]:
    """Return the names of the tensors that a step writes."""
    if not isinstance(step, QuantizeStep):
        return (step.output,)
    source = step.source
    stored = step.format.stored(source.dtype, (source.shape[0], source.shape[1]))
    return tuple(f"{step.module}.{tensor.suffix}" for tensor in stored)


def plan_document(plan: Plan, source: str, destination: str | None = None) -> dict[str, Any]:
    """Return what the JSON of a plan holds. `source`, `destination`: where the checkpoints lie."""
    summary = summary_of(plan)
    return {
        "digest": plan.digest,
        "source": source,
        "destination": destination,
        "request": plan.request.members,
        "bytes": {"before": summary.bytes_before, "after": summary.bytes_after, "carried": summary.carried},
        "outputs": [
            {
                "file": task.output,
                "bytes": task.header.size,
                "tensors": len(task.header.tensors),
                "quantized": sum(isinstance(step, QuantizeStep) for step in task.steps),
            }
            for task in plan.tasks
        ],
        "converted": [
            {
                "dtype": kind.dtype,
                "shape": list(kind.shape),
                **({} if kind.scheme is None else {"scheme": kind.scheme}),
                **asdict(amount),
            }
            for kind, amount in summary.converted.items()
        ],
        "kept": [{"reason": reason, **_not_quantized_members(amount)} for reason, amount in summary.kept.items()],
        "carried": [file.name for file in plan.carried],
        "warnings": list(plan.warnings),
    }


def _not_quantized_members(amount: Amount) -> dict[str, Any]:
    return {"count": amount.count, "bytes": amount.bytes_before, "names": amount.names}


def schemes_text(request: Request) -> str:
    """Return the name of the scheme; of several, each with its targets."""
    if len(request.schemes) == 1:
        return request.schemes[0].scheme
    return ", ".join(f"{name} for {' and '.join(map(excerpt, targets))}" for name, targets in request.schemes)


_MAX_SHAPES = 12
_MAX_NAMES_OF_LINE = 4


def plan_text(plan: Plan) -> str:
    """Return a plan as lines of text."""
    summary = summary_of(plan)
    parts = (_head(plan, summary), [""], _converted(plan, summary), _not_quantized(summary), _rest(plan, summary))
    return "\n".join(line for part in parts for line in part)


def _head(plan: Plan, summary: Summary) -> list[str]:
    share = summary.bytes_after / summary.bytes_before if summary.bytes_before else 1.0
    request = plan.request
    verb = "Quantize" if request.repack is Repack.NO else "Repack"
    what = (
        f"{verb} to {schemes_text(request)}, profile {request.profile}"
        if request.direction is Direction.QUANTIZE
        else f"Dequantize to {request.dtype or 'the dtype of config.json'}"
    )
    return [
        what,
        f"{_number(len(plan.sources), 'file')}, {_size(summary.bytes_before)} -> {_number(len(plan.tasks), 'file')}, "
        f"{_size(summary.bytes_after)} ({share:.0%})",
        f"plan {plan.digest}",
    ]


def _converted(plan: Plan, summary: Summary) -> list[str]:
    verb = "Quantized" if plan.request.direction is Direction.QUANTIZE else "Dequantized"
    whole = _sum(summary.converted.values())
    lines = [f"{verb}: {_number(whole.count, 'weight')}, {_size(whole.bytes_before)} -> {_size(whole.bytes_after)}"]
    by_size = sorted(summary.converted.items(), key=lambda item: -item[1].bytes_before)
    for kind, amount in by_size[:_MAX_SHAPES]:
        named = f"{kind.dtype} {'x'.join(map(str, kind.shape))}"
        named += "" if kind.scheme is None else f" to {kind.scheme}"
        lines.append(f"  {amount.count:>6} x {named:<22} {_names(amount)}")
    if len(by_size) > _MAX_SHAPES:
        rest = _sum(amount for _, amount in by_size[_MAX_SHAPES:])
        lines.append(f"  {rest.count:>6} of {len(by_size) - _MAX_SHAPES} other shapes")
    return lines


def _not_quantized(summary: Summary) -> list[str]:
    whole = _sum(summary.kept.values())
    return [
        f"Kept: {_number(whole.count, 'tensor')}, {_size(whole.bytes_before)}",
        *(f"  {amount.count:>6} {reason}: {_names(amount)}" for reason, amount in summary.kept.items()),
    ]


def _rest(plan: Plan, summary: Summary) -> list[str]:
    names = ", ".join(excerpt(file.name) for file in plan.carried[:8])
    more = f" and {len(plan.carried) - 8} more" if len(plan.carried) > 8 else ""
    files = f"Copied: {_number(len(plan.carried), 'file')}, {_size(summary.carried)}"
    lines = [f"{files}: {names}{more}" if names else files]
    if plan.warnings:
        lines += ["", "Warnings:", *(f"- {warning}" for warning in plan.warnings)]
    return lines


def _sum(amounts: Iterable[Amount]) -> Amount:
    whole = Amount()
    for amount in amounts:
        whole.count += amount.count
        whole.bytes_before += amount.bytes_before
        whole.bytes_after += amount.bytes_after
    return whole


def _names(amount: Amount) -> str:
    shown = ", ".join(excerpt(name) for name in amount.names[:_MAX_NAMES_OF_LINE])
    return shown + (", ..." if len(amount.names) > _MAX_NAMES_OF_LINE else "")


def _size(count: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.2f} {unit}"
    return f"{count} bytes"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
