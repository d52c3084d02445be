"""Tensors to try next as files that a device or a test bench reads."""

from __future__ import annotations

from base64 import b64encode
from enum import StrEnum
from io import BytesIO

import numpy as np

from requant.arrays.elements import flat_bits
from requant.convert.vectors.conversions import stored_element
from requant.convert.vectors.export import c_array, element_column, hexadecimal_words
from requant.description import Array
from requant.mlir import print_type
from requant.mlir.types import TensorType
from requant.plan.operands import kept_dtype


class FileFormat(StrEnum):
    """The format of a file with one tensor."""

    NPY = "npy"
    C_HEADER = "c_header"
    READMEMH = "readmemh"


def tensor_file(name: str, type_: TensorType, array: Array, form: FileFormat) -> str:
    """Return a tensor as a file: .npy as base64; a C array, and words for $readmemh as text.

    Floats in text are their bits. Raise UnsupportedError for elements that are no integers or floats.
    """
    if form is FileFormat.NPY:
        file = BytesIO()
        np.save(file, array if array.dtype.kind in "iufb" else array.view(f"u{array.dtype.itemsize}"))
        return b64encode(file.getvalue()).decode()
    bits = flat_bits(array, kept_dtype(type_.element, name), type_.element, name)
    numbers = bits if bits.dtype.kind in "iu" else bits.view(f"u{bits.dtype.itemsize}")
    column = element_column(name, numbers.tolist(), stored_element(type_.element))
    about = f"{name}: {print_type(type_)}, in row-major order"
    if form is FileFormat.C_HEADER:
        lines = [f"/* {about} */", "#include <stdint.h>", *c_array("try_next", column, str(numbers.size), ())]
    else:
        lines = [f"// {about}", *hexadecimal_words(column)]
    return "\n".join([*lines, ""])
