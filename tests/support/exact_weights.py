"""Stored tensors of whole weights from the oracle of compressed-tensors, and the values that they give back."""

from __future__ import annotations

from fractions import Fraction
from math import inf
from typing import Any

import numpy as np

from requant.checkpoint.weights.blocks import Block, Extremes
from requant.checkpoint.weights.floats import bits_of, values
from tests.oracles import compressed_tensors as oracle

Stored = dict[str, np.ndarray]
BF16 = oracle.DTYPES["BF16"]


def weights_of(bits: np.ndarray, dtype: str) -> list[oracle.Weight]:
    numbers = values(np.ascontiguousarray(bits), dtype).reshape(-1)
    return [(bool(np.signbit(each)), abs(Fraction(float(each)))) for each in numbers]


class Blocks:
    """The blocks of a weight: where each is, and a place for what it gives."""

    def __init__(self, rows: np.ndarray, dtype: str, block: Block) -> None:
        self.rows, self.dtype, self.block = rows, dtype, block
        height, width = block
        self.shape = (-(-rows.shape[0] // height), -(-rows.shape[1] // width))
        self.codes = np.zeros(rows.shape, int)
        self.values = np.zeros(rows.shape, np.float32)

    def __iter__(self) -> Any:
        """Yield the place of each scale, and the weights that it is for."""
        for place in np.ndindex(*self.shape):
            yield place, weights_of(self.rows[self.at(place)], self.dtype)

    def at(self, place: tuple[int, ...]) -> tuple[slice, ...]:
        return tuple(slice(i * size, (i + 1) * size) for i, size in zip(place, self.block, strict=True))

    def put(self, place: tuple[int, ...], codes: list[int], back: list[float]) -> None:
        for target, found in ((self.codes, codes), (self.values, back)):
            target[self.at(place)] = np.reshape(found, target[self.at(place)].shape)


def integers(
    rows: np.ndarray, dtype: str, bits: int, block: Block, *, symmetric: bool, rounds: bool, packs: bool
) -> tuple[Stored, np.ndarray]:
    """NaN among the values is where a scale is infinite."""
    blocks, exact = Blocks(rows, dtype, block), oracle.DTYPES[dtype]
    scales, points = np.zeros(blocks.shape, np.float32), np.zeros(blocks.shape, int)
    for place, weights in blocks:
        scale: oracle.Number
        if symmetric:
            scale, zero = oracle.symmetric_scale(weights, Fraction(2**bits - 1, 2), exact), 0
        else:
            scale, zero = oracle.asymmetric_scale(weights, bits, exact)
        codes = oracle.integer_codes(weights, scale, zero, bits, exact, rounds)
        scales[place], points[place] = float(scale), zero
        back = [
            np.nan if scale == inf else float(oracle.integer_value(code, zero, Fraction(scale), exact))
            for code in codes
        ]
        blocks.put(place, codes, back)
    stored = {"weight_scale": bits_of(scales, dtype)}
    if packs:
        stored["weight_packed"] = packed(blocks.codes, bits)
        stored["weight_shape"] = np.array([rows.shape], "<i8")
    else:
        stored["weight"] = blocks.codes.astype(np.int8)
    if not symmetric:
        stored["weight_zero_point"] = packed(points.T, bits).T if packs else points.astype(np.int8)
    return stored, blocks.values


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    rows = [oracle.packed((each + (1 << (bits - 1))).tolist(), bits) for each in codes]
    return np.frombuffer(b"".join(rows), "<i4").reshape(len(rows), -1)


def float8(rows: np.ndarray, dtype: str, block: Block, *, rounds: bool) -> tuple[Stored, np.ndarray]:
    blocks, exact = Blocks(rows, dtype, block), oracle.DTYPES[dtype]
    scales = np.zeros(blocks.shape, np.float32)
    for place, weights in blocks:
        scale = oracle.symmetric_scale(weights, Fraction(448), exact)
        scales[place] = float(scale)
        codes = [oracle.e4m3_code(each, scale, exact, rounds) for each in weights]
        blocks.put(place, codes, float_values(codes, oracle.E4M3, 0x80, Fraction(scale), exact))
    return {"weight": blocks.codes.astype(np.uint8), "weight_scale": bits_of(scales, dtype)}, blocks.values


def float_values(
    codes: list[int], table: list[Fraction], sign: int, scale: Fraction, dtype: oracle.Dtype
) -> list[float]:
    found = [float(oracle.scaled(table[code & (sign - 1)], scale, dtype)) for code in codes]
    return [-value if code & sign else value for code, value in zip(codes, found, strict=True)]


def mx(rows: np.ndarray, dtype: str, bits: int, *, rounds: bool) -> tuple[Stored, np.ndarray]:
    blocks, exact = Blocks(rows, dtype, Block(1, 32)), oracle.DTYPES[dtype]
    make, table, sign = {
        4: (oracle.e2m1_code, oracle.E2M1, 8),
        6: (oracle.e2m3_code, oracle.E2M3, 0x20),
        8: (oracle.e4m3_code, oracle.E4M3, 0x80),
    }[bits]
    bytes_ = np.zeros(blocks.shape, np.uint8)
    for place, weights in blocks:
        scale, bytes_[place] = oracle.mx_scale(weights, bits, exact)
        codes = [make(each, scale, exact, rounds) for each in weights]
        power = Fraction(2) ** (int(bytes_[place]) - 127)
        blocks.put(place, codes, float_values(codes, table, sign, power, BF16))
    if bits == 8:
        return {"weight": blocks.codes.astype(np.uint8), "weight_scale": bytes_}, blocks.values
    packed = halves(blocks.codes) if bits == 4 else four_in_three_bytes(blocks.codes)
    return {"weight_packed": packed, "weight_scale": bytes_}, blocks.values


def four_in_three_bytes(codes: np.ndarray) -> np.ndarray:
    words = sum(codes[:, place::4] << 6 * place for place in range(4))
    return np.stack([words >> 8 * byte & 255 for byte in range(3)], axis=-1).reshape(len(codes), -1).astype(np.uint8)


def halves(codes: np.ndarray) -> np.ndarray:
    both: np.ndarray = codes[:, ::2] | codes[:, 1::2] << 4
    return both.astype(np.uint8)


def nvfp4(rows: np.ndarray, dtype: str, whole: Extremes) -> tuple[Stored, np.ndarray]:
    blocks, exact = Blocks(rows, dtype, Block(1, 16)), oracle.DTYPES[dtype]
    largest = max(abs(Fraction(whole.minimum)), abs(Fraction(whole.maximum)))
    by = oracle.global_scale(largest, exact)
    scales = np.zeros(blocks.shape, np.uint8)
    for place, weights in blocks:
        scales[place], scale = oracle.nvfp4_scale(weights, by, exact)
        codes = [oracle.e2m1_code(each, scale, exact, rounds=False) for each in weights]
        blocks.put(place, codes, float_values(codes, oracle.E2M1, 8, scale, BF16))
    stored = {
        "weight_packed": halves(blocks.codes),
        "weight_scale": scales,
        "weight_global_scale": np.array([[float(by)]], "<f4"),
    }
    return stored, blocks.values
