"""The types of a kernel's parameters, as annotations, and the signatures that they make.

    @kernel({Real: types.float32}, {Real: types.float64})
    def scale(source: In[Real], factor: F32, target: Out[Real]) -> None:

is compiled for f32 and for f64. To the type checker numbers are those of Python, and what is read cannot be written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Generic, SupportsIndex, TypeVar, cast, get_args, get_origin, overload

from numba import types
from numba.core.typing.templates import Signature

Bool = Annotated[bool, types.boolean]
I8 = Annotated[int, types.int8]
U8 = Annotated[int, types.uint8]
I16 = Annotated[int, types.int16]
U16 = Annotated[int, types.uint16]
I32 = Annotated[int, types.int32]
U32 = Annotated[int, types.uint32]
I64 = Annotated[int, types.int64]
U64 = Annotated[int, types.uint64]
F32 = Annotated[float, types.float32]
F64 = Annotated[float, types.float64]

Element = TypeVar("Element")
Real = TypeVar("Real", F32, F64)
Integer = TypeVar("Integer", I32, I64)


class In(Generic[Element]):
    """An array that is read: 1-D, C-contiguous, possibly read-only (as arrays over received bytes are)."""

    size: int
    itemsize: int
    ctypes: Any

    @overload
    def __getitem__(self, place: SupportsIndex) -> Element: ...
    @overload
    def __getitem__(self, place: slice) -> In[Element]: ...
    def __getitem__(self, place: Any) -> Any:
        raise NotImplementedError("for kernels only")

    def __iter__(self) -> Iterator[Element]:
        raise NotImplementedError("for kernels only")

    def sum(self) -> Any:
        raise NotImplementedError("for kernels only")

    def copy(self) -> Any:
        raise NotImplementedError("for kernels only")


class Out(In[Element]):
    """An array that is written, and may be read: 1-D, C-contiguous."""

    @overload
    def __getitem__(self, place: SupportsIndex) -> Element: ...
    @overload
    def __getitem__(self, place: slice) -> Out[Element]: ...
    def __getitem__(self, place: Any) -> Any:
        raise NotImplementedError("for kernels only")

    def __setitem__(self, place: SupportsIndex | slice, value: Any) -> None:
        raise NotImplementedError("for kernels only")


Binding = Mapping[TypeVar, types.Type]


def signature_of(function: Callable[..., Any], binding: Binding) -> Signature:
    """Return the signature that the annotations of `function` make. `binding`: the type of each type variable."""
    hints = {name: _evaluated(each, function.__module__) for name, each in function.__annotations__.items()}
    returns, *arguments = (_numba_type(each, binding) for each in (hints.pop("return"), *hints.values()))
    return returns(*arguments)


@cache
def _evaluated(annotation: str, module: str) -> Any:
    """Return what an annotation of a function in `module` stands for: `typing.get_type_hints`, but once for all."""
    return eval(annotation, vars(sys.modules[module]))


def _numba_type(hint: Any, binding: Binding) -> types.Type:
    if hint is None:
        return types.void
    if isinstance(hint, TypeVar):
        return binding[hint]
    kind = get_origin(hint)
    if kind is tuple:
        members = [_numba_type(each, binding) for each in get_args(hint)]
        return cast(types.Type, types.Tuple(members))  # type: ignore[no-untyped-call]
    if kind in (In, Out):
        return _array(_numba_type(get_args(hint)[0], binding), kind is In)
    _, element = get_args(hint)
    return cast(types.Type, element)


@cache
def _array(element: types.Type, readonly: bool) -> types.Array:
    return types.Array(element, 1, "C", readonly=readonly)
