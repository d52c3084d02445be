"""FBGEMM's own functions in C++, as torch's library has them: torch's operators reach only some."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]

# fbgemm::Requantize<T>(const int32_t*, T*, int64_t, const RequantizationParams&, int, int), and so on.
WHOLE = {
    ("fbgemm", "u8"): "_ZN6fbgemm10RequantizeIhEEvPKiPT_lRKNS_20RequantizationParamsEii",
    ("fbgemm", "u16"): "_ZN6fbgemm10RequantizeItEEvPKiPT_lRKNS_20RequantizationParamsEii",
    ("fbgemm_fixed_point", "u8"): "_ZN6fbgemm20RequantizeFixedPointIhEEvPKiPT_lRKNS_20RequantizationParamsEii",
    ("fbgemm_fixed_point", "u16"): "_ZN6fbgemm20RequantizeFixedPointItEEvPKiPT_lRKNS_20RequantizationParamsEii",
}
AVX2 = {
    "fbgemm": "_ZN6fbgemm14RequantizeAvx2EPKiPhiRKNS_20RequantizationParamsE",
    "fbgemm_fixed_point": "_ZN6fbgemm24RequantizeFixedPointAvx2EPKiPhiRKNS_20RequantizationParamsE",
}
CHOOSE = "_ZN6fbgemm30ChooseRequantizationMultiplierEfPiS0_i"


class RequantizationParams(ctypes.Structure):
    """fbgemm::RequantizationParams, and in it TensorQuantizationParams."""

    _fields_ = (
        ("real_multiplier", ctypes.c_float),
        ("multiplier", ctypes.c_int32),
        ("right_shift", ctypes.c_int),
        ("scale", ctypes.c_float),
        ("zero_point", ctypes.c_int32),
        ("precision", ctypes.c_int),
    )


@cache
def library() -> ctypes.CDLL:
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib/libtorch_cpu.so"))


def chosen(factor: float) -> tuple[int, int]:
    """ChooseRequantizationMultiplier."""
    multiplier, shift = ctypes.c_int32(), ctypes.c_int()
    library()[CHOOSE](ctypes.c_float(factor), ctypes.byref(multiplier), ctypes.byref(shift), ctypes.c_int(32))
    return multiplier.value, shift.value


def by_fbgemm(function: str, values: Array, params: RequantizationParams, whole: bool) -> Array:
    """Run one of the functions, to as many bits as the parameters say."""
    found = np.empty(values.size, np.uint8 if params.precision == 8 else np.uint16)
    pointers = (values.ctypes.data_as(ctypes.c_void_p), found.ctypes.data_as(ctypes.c_void_p))
    length = ctypes.c_int64(values.size)
    threads = (ctypes.c_int(0), ctypes.c_int(1)) if whole else ()
    library()[function](*pointers, length, ctypes.byref(params), *threads)
    return found
