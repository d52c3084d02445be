"""Collects all reasons why a checkpoint cannot be converted, so that they can be fixed together."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.checkpoint.plan.names import without_numbers
from core.errors import DETAIL_LIMIT, CheckpointError, RequantError, excerpt

MOST_SHOWN = 12
# For the first line, the last one and the ends of lines.
_ROOM_AROUND = 100


@dataclass(slots=True)
class Refusals:
    """The problems found so far. `advice`: what to do about them, shown below the list."""

    found: list[CheckpointError] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)

    def add(self, detail: str, *, file: str | None = None, tensor: str | None = None) -> None:
        """Note a reason."""
        self.found.append(CheckpointError(detail, file=file, tensor=tensor))

    def take(self, error: RequantError, *, file: str | None = None, tensor: str | None = None) -> None:
        """Note an error that was raised, as one about a file and a tensor."""
        self.add(error.detail, file=file, tensor=tensor)

    def raise_any(self) -> None:
        """Raise CheckpointError if anything was noted: how much there is, and the first `MOST_SHOWN` kinds.

        Problems of one kind differ in the numbers of their tensors alone: those of the layers of a model.
        """
        if not self.found:
            return
        alike: dict[tuple[str | None, str | None, str], list[CheckpointError]] = {}
        for error in self.found:
            tensor = error.tensor and without_numbers(error.tensor)
            alike.setdefault((error.file, tensor, error.detail), []).append(error)
        kinds = list(alike.values())
        if len(self.found) == 1:
            lines = [_line(kinds[0])]
        else:
            lines = [f"{len(self.found)} problems:", *_fitting(kinds, sum(map(len, self.advice)))]
        first = self.found[0]
        raise CheckpointError("\n".join([*lines, *self.advice]), file=first.file, tensor=first.tensor)


def _fitting(kinds: list[list[CheckpointError]], others: int) -> list[str]:
    """Return the lines about the first kinds, each whole, that leave room in a message for `others` characters more."""
    shown: list[str] = []
    room = DETAIL_LIMIT - others - _ROOM_AROUND
    for at, errors in enumerate(kinds):
        line = f"- {_line(errors)}"
        room -= len(line) + 1
        if at and (at == MOST_SHOWN or room < 0):
            return [*shown, f"- and {sum(map(len, kinds[at:]))} more"]
        shown.append(line)
    return shown


def _line(errors: list[CheckpointError]) -> str:
    """Return a line about errors that differ in the numbers of their tensors alone."""
    first = errors[0]
    place = [excerpt(name) for name in (first.file, first.tensor) if name]
    others = f" (and {len(errors) - 1} like it)" if len(errors) > 1 else ""
    return f"{', '.join(place)}{others}: {first.detail}" if place else first.detail
