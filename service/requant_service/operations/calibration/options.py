"""How scales are found, as options of a flat list: the query of a `.npy` request, the fields of a form, the parameters
of a V2 call. In JSON the same names are members of `calibration`, but for the two of `_FLAT_NAMES`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from requant.calibration.methods.search import DEFAULT_METHOD, GranularityName
from requant.description import LARGEST_INTEGER, Kind, Option
from requant.errors import InvalidRequestError, RequantError
from requant.operations import parameters
from requant_service.operations.conversion_call import Value

_SIZES = re.compile(r"[0-9]{1,19}(,[0-9]{1,19})*", re.ASCII)

# Flat lists name a profile and a storage for other purposes too.
_FLAT_NAMES = {"profile": "calibration_profile", "storage": "storage_type"}
_JSON_NAMES = {flat: name for name, flat in _FLAT_NAMES.items()}

STORAGE_TYPE = Option(
    name="storage_type",
    description="For a calibrated type, which states a range: the storage, such as i8, u4 or i8<-127:127>.",
    optional=True,
)
AXIS = parameters.axis_option("One scale for each index along this axis.")


def _in_flat_list(option: Option) -> Option:
    """Return an option of a JSON request as one of a flat list, in which counts are not below 0."""
    return replace(option, lowest=0) if option.kind is Kind.INTEGER else option


CALIBRATION_OPTIONS: tuple[Option, ...] = (
    replace(
        parameters.METHOD,
        description=f"How a range is found in the data. Default: {DEFAULT_METHOD}.",
        default=None,
        optional=True,
    ),
    replace(
        parameters.METHOD_SCHEME,
        description="How scale and zero point are derived from the range. Default: the rule of the method's system.",
    ),
    parameters.GRANULARITY,
    AXIS,
    Option(
        name="block_sizes",
        description="One scale for each block: its size along each dimension, such as 1,32.",
        optional=True,
    ),
    *map(_in_flat_list, (*parameters.RANGE_OPTIONS, *parameters.METHOD_OPTIONS[:-1])),
    replace(
        parameters.METHOD_OPTIONS[-1],
        name="calibration_profile",
        description="For mse: the profile that quantizes and dequantizes the candidates. Default: stablehlo.",
    ),
    STORAGE_TYPE,
)
"""For quantize with an output type that leaves its scales open. Names of methods, schemes and profiles are checked
where they are looked up.
"""


OF_SCALES = ("storage_type", "axis", "block_sizes")
"""Those that have a meaning for given scales too."""


def check_scales_are_given(names: Iterable[str]) -> None:
    """Raise InvalidRequestError if one of the options that are there says how scales are found."""
    searching = {option.name for option in CALIBRATION_OPTIONS} - set(OF_SCALES)
    for name in names:
        if name in searching:
            detail = f"{name} applies only to derived scales, but the scales are given"
            raise InvalidRequestError.of_field(f"/{name}", "extra_forbidden", detail)


def given_calibration(values: Mapping[str, Value | None]) -> tuple[tuple[str, Any], ...]:
    """Return the options that are there, by the names that JSON requests have for them.

    Raise InvalidRequestError for a granularity or block sizes that are none.
    """
    options: list[tuple[str, Any]] = []
    for option in CALIBRATION_OPTIONS:
        value: Any = values.get(option.name)
        if value is None:
            continue
        if (fault := option.choice_fault(value)) is not None:
            raise InvalidRequestError.of_field(f"/calibration/{option.name}", "enum", fault)
        if option.name == "block_sizes":
            value = read_block_sizes(value)
        elif option.name == "granularity":
            value = GranularityName(value)
        options.append((_JSON_NAMES.get(option.name, option.name), value))
    return tuple(options)


def read_block_sizes(text: str) -> tuple[int, ...]:
    """Return sizes that are given as 1,32 or as [1, 32]. Raise InvalidRequestError."""
    listed = text if len(text) <= 22 * parameters.MAX_BLOCK_DIMENSIONS else ""
    listed = listed.strip().removeprefix("[").removesuffix("]").replace(" ", "")
    sizes = tuple(map(int, listed.split(","))) if _SIZES.fullmatch(listed) else ()
    if not 1 <= len(sizes) <= parameters.MAX_BLOCK_DIMENSIONS or not all(
        1 <= size <= LARGEST_INTEGER for size in sizes
    ):
        detail = "expected one size for each dimension, at least 1, with commas between, such as 1,32"
        raise InvalidRequestError.of_field("/calibration/block_sizes", "block_sizes", detail)
    return sizes


@contextmanager
def flat_pointers(place: str | None = None) -> Iterator[None]:
    """Point at the fields of a flat list of options, not at those of a JSON request. `place`: that of the input."""
    try:
        yield
    except RequantError as error:
        error.pointer = None if error.pointer is None else _flat(error.pointer, place)
        if isinstance(error, InvalidRequestError):
            error.faults = tuple(replace(fault, pointer=_flat(fault.pointer, "") or "") for fault in error.faults)
        raise


def _flat(pointer: str, place: str | None) -> str | None:
    first, _, name = pointer.removeprefix("/").partition("/")
    if first == "input":
        return place
    if first != "calibration" or not name:
        return pointer
    member = name.partition("/")[0]
    return f"/{_FLAT_NAMES.get(member, member)}"
