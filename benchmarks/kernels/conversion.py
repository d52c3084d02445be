"""A conversion to be timed: its types and parameters at any size, and data that use the range of the storage."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import NanPolicy, plan_quantize
from requant.formats.elements import FLOATS, FloatElement, IntegerElement, integer_dtype
from requant.mlir.types import (
    StorageType,
    TensorType,
    UniformPerAxisType,
    UniformQuantizedType,
    UniformSubChannelType,
    UniformType,
)
from requant.plan.plan import Plan
from requant.profiles import Operation, Rounding

Array = NDArray[Any]

BLOCK = 32
_NUMPY = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
# So many standard deviations of the data reach the bounds of the storage: a few of 100,000 values saturate.
_REACH = 4.5


class Granularity(StrEnum):
    """How finely parameters are spread over the tensor."""

    TENSOR = "tensor"
    FIRST_AXIS = "first axis"
    MIDDLE_AXIS = "middle axis"
    LAST_AXIS = "last axis"
    BLOCKS = "blocks of 32"


class Data(StrEnum):
    """What the tensor holds."""

    NORMAL = "normal"
    INSIDE = "nothing saturates"
    SATURATING = "5 % saturate"
    SUBNORMAL = "1 % subnormal"
    NAN = "1 % NaN"
    BITS = "random bits"


_AXES = {Granularity.FIRST_AXIS: 0, Granularity.MIDDLE_AXIS: 1, Granularity.LAST_AXIS: -1, Granularity.BLOCKS: -1}


@dataclass(frozen=True)
class Conversion:
    """One quantization or dequantization. `dense` packs numbers narrower than a byte."""

    operation: Operation = Operation.QUANTIZE
    storage: str = "i8"
    expressed: str = "f32"
    profile: str = "onnx"
    granularity: Granularity = Granularity.TENSOR
    data: Data = Data.NORMAL
    dense: bool = False
    rounding: Rounding | None = None
    nan: NanPolicy = NanPolicy.PROFILE
    symmetric: bool = False

    @property
    def quantizes(self) -> bool:
        return self.operation is Operation.QUANTIZE

    @property
    def axis(self) -> int | None:
        return _AXES.get(self.granularity)

    def shape(self, size: int) -> tuple[int, ...]:
        """The shape of a tensor of `size` elements, or a few less where it must be a multiple of the block."""
        match self.granularity:
            case Granularity.TENSOR:
                return (size,)
            case Granularity.FIRST_AXIS:
                return (max(size // 1000, 10), min(1000, size // 10))
            case Granularity.MIDDLE_AXIS:
                return (max(size // 10_000, 1), min(100, size // 100), 100)
            case Granularity.LAST_AXIS:
                return (size // 100, 100)
            case Granularity.BLOCKS:
                return (size // 320, 320)

    def elements(self, size: int) -> int:
        return prod(self.shape(size))

    @property
    def bounds(self) -> tuple[int, int]:
        """The lowest and highest stored integer; of small floats the largest values."""
        return self._storage.minimum, self._storage.maximum

    @property
    def _storage(self) -> StorageType:
        if self.storage.startswith("f"):
            return StorageType.unbounded(FLOATS[self.storage], signed=True)
        return StorageType.unbounded(IntegerElement(int(self.storage[1:])), signed=self.storage[0] == "i")

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        storage = self._storage
        if isinstance(storage.element, FloatElement):
            return np.dtype(np.uint8)
        return integer_dtype(storage.width, signed=storage.signed)

    @property
    def real_dtype(self) -> np.dtype[Any]:
        real: np.dtype[Any] = np.dtype(_NUMPY[self.expressed])
        return real

    def parameters(self, size: int) -> tuple[Array, Array]:
        """Scales (f64, each a value of the expressed type) and zero points: rank 0, rank 1, or of the tensor's rank."""
        shape = self.shape(size)
        if self.axis is None:
            counts: tuple[int, ...] = ()
        elif self.granularity is Granularity.BLOCKS:
            counts = (*shape[:-1], shape[-1] // BLOCK)
        else:
            counts = (shape[self.axis],)
        rng = np.random.default_rng(5)
        scales = rng.uniform(0.01, 0.04, counts).astype(np.float32).astype(self.real_dtype).astype(np.float64)
        lowest, highest = self.bounds
        if self.symmetric or self.storage.startswith("f"):
            return scales, np.zeros(counts, np.int64)
        middle = (lowest + highest + 1) // 2
        return scales, middle + rng.integers(0, max(2, (highest - lowest) // 25), counts)

    def quantized_type(self, size: int) -> TensorType:
        """The quantized tensor's type."""
        scales, zero_points = self.parameters(size)
        expressed, listed = (
            FLOATS[self.expressed],
            (tuple(scales.ravel().tolist()), tuple(zero_points.ravel().tolist())),
        )
        shape, storage = self.shape(size), self._storage
        element: UniformQuantizedType
        if self.axis is None:
            element = UniformType(storage, expressed, float(scales), int(zero_points))
        elif self.granularity is Granularity.BLOCKS:
            blocks = ((0, 1), (1, BLOCK))
            element = UniformSubChannelType(storage, expressed, blocks, scales.shape, *listed)
        else:
            element = UniformPerAxisType(storage, expressed, self.axis % len(shape), *listed)
        return TensorType(shape, element)

    def plan(self, size: int) -> Plan:
        """Our plan."""
        quantized = self.quantized_type(size)
        if not self.quantizes:
            return plan_dequantize(quantized, None, self.profile)
        real = TensorType(quantized.shape, FLOATS[self.expressed])
        return plan_quantize(real, quantized, self.profile, rounding=self.rounding, nan=self.nan)

    def source(self, size: int) -> Array:
        """The flat input: reals as the expressed type's numpy dtype, or stored numbers one to an entry."""
        count = self.elements(size)
        rng = np.random.default_rng(6)
        lowest, highest = self.bounds
        if not self.quantizes:
            return rng.integers(lowest, highest + 1, count).astype(self.stored_dtype)
        if self.data is Data.BITS:
            return rng.integers(0, 1 << 32, count, np.uint32).view(np.float32)
        scales, zero_points = self.parameters(size)
        reach = {Data.SATURATING: 1.96, Data.INSIDE: 8.0}.get(self.data, _REACH)
        steps = rng.standard_normal(count, np.float32) * np.float32((highest - lowest) / 2 / reach)
        steps = steps.reshape(self.shape(size)) + np.float32((lowest + highest) / 2)
        real = (steps - self._along(zero_points, size)) * self._along(scales, size)
        values = real.astype(np.float32).astype(self.real_dtype).ravel()
        if self.data is Data.SUBNORMAL:
            values[rng.integers(0, count, count // 100)] = np.float32(1e-39)
        elif self.data is Data.NAN:
            values[rng.integers(0, count, count // 100)] = np.float32(np.nan)
        return values

    def _along(self, parameters: Array, size: int) -> Array:
        """Parameters in f32, shaped to be combined with the tensor."""
        narrow = parameters.astype(np.float32)
        if self.granularity is Granularity.BLOCKS:
            return np.repeat(narrow, BLOCK, -1)
        if self.axis is None:
            return narrow
        rank = len(self.shape(size))
        return narrow.reshape([-1 if axis == self.axis % rank else 1 for axis in range(rank)])
