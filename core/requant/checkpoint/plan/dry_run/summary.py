"""The summary of a plan: what is converted, what is kept and why, and the sizes of the outputs."""

from __future__ import annotations

from dataclasses import dataclass, field

from requant.checkpoint.plan.model import CopyStep, Plan, QuantizeStep, Request, SourceRange, Step
from requant.checkpoint.plan.names import without_numbers
from requant.checkpoint.plan.selection import Selection
from requant.checkpoint.schemes import scheme_named

_MAX_NAMES = 20
_NOT_DIVISIBLE = "a shape that the format does not quantize"
_PLAIN = "not quantized"


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


@dataclass(frozen=True, slots=True)
class Summary:
    """`converted`: by dtype and shape of the weight. `kept`: by the reason. `carried`: bytes of other files."""

    converted: dict[tuple[str, tuple[int, ...]], Amount]
    kept: dict[str, Amount]
    bytes_before: int
    bytes_after: int
    carried: int


def summary_of(plan: Plan) -> Summary:
    """Return the numbers of a plan. Sizes of files count their headers."""
    selection = _selection(plan.request)
    converted: dict[tuple[str, tuple[int, ...]], Amount] = {}
    kept: dict[str, Amount] = {}
    for task in plan.tasks:
        after = {entry.name: entry.end - entry.begin for entry in task.header.tensors}
        for step in task.steps:
            names, sources = outputs_of(step), sources_of(step)
            before = sum(source.end - source.begin for source in sources)
            size = sum(after[name] for name in names)
            if isinstance(step, CopyStep):
                reason = _PLAIN if selection is None else selection.kept(step.output) or _NOT_DIVISIBLE
                kept.setdefault(reason, Amount()).add(step.output, before, size)
            else:
                plain = step.source if isinstance(step, QuantizeStep) else step
                converted.setdefault((plain.dtype, plain.shape), Amount()).add(f"{step.module}.weight", before, size)
    return Summary(
        converted,
        kept,
        sum(file.size for file in plan.sources),
        sum(task.header.size for task in plan.tasks),
        sum(file.size for file in plan.carried),
    )


def _selection(request: Request) -> Selection | None:
    if request.scheme is None:
        return None
    return Selection(request.targets, (*request.ignore, *scheme_named(request.scheme).always_ignored))


def sources_of(step: Step) -> tuple[SourceRange, ...]:
    """Return what a step reads, without what it only measures."""
    return (step.source,) if isinstance(step, CopyStep | QuantizeStep) else tuple(step.stored.values())


def outputs_of(step: Step) -> tuple[str, ...]:
    """Return the names of the tensors that a step writes."""
    if not isinstance(step, QuantizeStep):
        return (step.output,)
    source = step.source
    stored = step.format.stored(source.dtype, (source.shape[0], source.shape[1]))
    return tuple(f"{step.module}.{tensor.suffix}" for tensor in stored)
