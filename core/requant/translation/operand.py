"""The operands that systems hold a type in, as options: names, scales, zero points, shapes and axes."""

from __future__ import annotations

from requant.description import LARGEST_INTEGER, Choices, Group, Kind, Option
from requant.mlir.parser import MAXIMUM_RANK
from requant.operators.description import ZERO_POINT_PER_SCALE

INT32 = 1 << 31


def group(title: str, system: str, description: str, held: str, *options: Option) -> Group:
    """Return the operands of a system. `held`: what a system calls them where they are answered."""
    return Group(
        title=f"{title}Parameters",
        description=description,
        reply_title=f"{title}Operands",
        reply_description=f"{system}'s {held} for a type. They can be sent back; fields may be added.",
        options=options,
    )


def named(name: str, choices: Choices, said: str, *, default: str | None = None, optional: bool = False) -> Option:
    """Return an operand that is one of those names."""
    return Option(name=name, choices=choices, description=said, default=default, optional=optional)


def scales(name: str, description: str = "") -> Option:
    """Return the operand that has the scales."""
    return Option(name=name, kind=Kind.NUMBERS, description=description)


def integers(name: str, description: str) -> Option:
    """Return an operand that is a list of numbers, such as zero points."""
    return Option(name=name, kind=Kind.INTEGERS, description=description, optional=True)


def zero_points(name: str) -> Option:
    """Return the operand that has the zero points."""
    return integers(name, ZERO_POINT_PER_SCALE)


def shape(name: str, description: str, *, lowest: int = 0, default: tuple[int, ...] | None = None) -> Option:
    """Return an operand that has a size for each dimension."""
    return Option(
        name=name,
        kind=Kind.INTEGERS,
        description=description,
        default=default,
        optional=default is None,
        lowest=lowest,
        max_length=MAXIMUM_RANK,
    )


def axis(default: int, more: str) -> Option:
    """Return the operand that says which dimension the scales go along."""
    said = f"The dimension that the scales go along; a negative one counts from the end, and needs the shape. {more}"
    return integer("axis", said, default, -MAXIMUM_RANK, MAXIMUM_RANK - 1)


def integer(
    name: str,
    description: str = "",
    default: int | None = None,
    lowest: int = -LARGEST_INTEGER - 1,
    highest: int = LARGEST_INTEGER,
) -> Option:
    """Return an operand that is a number."""
    return Option(
        name=name,
        kind=Kind.INTEGER,
        description=description,
        default=default,
        optional=default is None,
        lowest=lowest,
        highest=highest,
    )


def flag(name: str, description: str, *, default: bool) -> Option:
    """Return an operand that is true or false."""
    return Option(name=name, kind=Kind.BOOLEAN, description=description, default=default)
