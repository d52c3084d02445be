"""The tensors of scales that are given: which module each is for, and its dtype.

    X.input_scale          [1]  dtype of X.weight  beside it
    X.input_global_scale   [1]  F32                beside X.weight
    X.k_scale, X.v_scale   [1]  dtype of the first weight of _ATTENTION that X has, beside it

Numbers are rounded to f32 and then to the dtype, to the nearest, ties to even. Each module that needs a scale has one.
Of attention modules those need them whose names differ only in numbers from one that has them.

Source: compressed-tensors 0.20.0, `initialize_qparams`, `initialize_attn_qparams` and `is_cached_attention_module`
(`quantization/lifecycle/initialize.py`), which looks for projections in what is called attention.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from requant.checkpoint.given_scales import (
    INPUT_GLOBAL_SCALE,
    OF_INPUTS,
    OF_KV_CACHE,
    Scales,
    bytes_of,
    number_of,
)
from requant.checkpoint.plan.model import GivenStep
from requant.checkpoint.plan.refusals import Refusals, abbreviate, without_numbers
from requant.checkpoint.weights.floats import EPSILON
from requant.errors import excerpt

_ATTENTION = ("k_proj", "v_proj", "qkv_proj", "kv_b_proj")
_RANGE = "give a number within its range, or choose weights of another dtype"
_WHAT = {
    "input_scale": "largest magnitude of the inputs / 448",
    "input_global_scale": "448 * 6 / largest magnitude of the inputs",
}


class GivenScales:
    """The given scales of a plan, as steps by the name of the weight beside which they lie.

    `weights`: the dtype of each tensor that ends in `.weight`, by its name. `inputs`: the parameter of each module that
    is quantized to a scheme that has one, by the module's name; `quantized`: all modules that are quantized.
    What is wrong is added to `refusals`.
    """

    def __init__(
        self,
        input_scales: Scales,
        kv_scales: Scales,
        weights: Mapping[str, str],
        inputs: Mapping[str, str],
        quantized: Iterable[str],
        refusals: Refusals,
    ) -> None:
        self._weights, self._refusals = weights, refusals
        self._steps: dict[str, list[GivenStep]] = {}
        self._of_inputs(input_scales, inputs, {*quantized})
        self._of_kv_cache(kv_scales)

    def beside(self, weight: str) -> list[GivenStep]:
        """Return the steps of the scales that lie beside a weight."""
        return self._steps.get(weight, [])

    def _of_inputs(self, scales: Scales, inputs: Mapping[str, str], quantized: set[str]) -> None:
        # Those of which something is said.
        found: set[str] = set()
        for name, number in scales:
            before, _, last = name.rpartition(".")
            module, stated = (before, last) if last in OF_INPUTS else (name, None)
            tensor = f"{module}.{inputs.get(module)}"
            if f"{module}.weight" not in self._weights:
                self._refuse(name, "the model has no such module with a .weight", "correct the name, or remove it")
            elif module not in quantized:
                self._refuse(name, "the module is not quantized", "remove its scale, or choose other targets or ignore")
            elif module not in inputs:
                self._refuse(name, "the scheme of the module has no scale of inputs", "remove it")
            elif stated not in (None, inputs[module]):
                found.add(tensor)
                wanted = f"{tensor}, {_WHAT[inputs[module]]}"
                self._refuse(name, f"the scheme of the module has another parameter: {wanted}", "give that")
            elif tensor in found:
                self._refuse(name, "the module has a scale by its own name too", "remove one of them")
            else:
                found.add(tensor)
                weight = f"{module}.weight"
                dtype = "F32" if inputs[module] == INPUT_GLOBAL_SCALE else self._weights[weight]
                self._add(weight, name, tensor, dtype, number)
        missing = [module for module, suffix in inputs.items() if f"{module}.{suffix}" not in found]
        if missing:
            self._refusals.add(
                f"there is no scale for the inputs of {abbreviate(missing)}",
                f"give input_scales with {excerpt(missing[0])}.{inputs[missing[0]]}, {_WHAT[inputs[missing[0]]]}, and "
                "so on, or add the modules to ignore",
            )

    def _of_kv_cache(self, scales: Scales) -> None:
        if not scales:
            return
        weights = dict(self._attention())
        given: dict[str, set[str]] = {}
        for name, number in scales:
            module, _, last = name.rpartition(".")
            if last not in OF_KV_CACHE:
                self._refuse(name, "is no name of a scale of keys or values", "name it X.k_scale or X.v_scale")
            elif module not in weights:
                without = f"the model has no such module with one of {', '.join(_ATTENTION)}"
                self._refuse(name, without, "correct the name, or remove it")
            else:
                given.setdefault(module, set()).add(last)
                self._add(weights[module], name, name, self._weights[weights[module]], number)
        kinds = {without_numbers(module) for module in given}
        missing = [
            f"{module}.{parameter}"
            for module in weights
            if without_numbers(module) in kinds
            for parameter in OF_KV_CACHE
            if parameter not in given.get(module, ())
        ]
        if missing:
            self._refusals.add(
                f"there is no {abbreviate(missing)}, and other modules of the same kind have theirs",
                f"give kv_scales with {excerpt(missing[0])} and so on",
            )

    def _attention(self) -> Iterator[tuple[str, str]]:
        """Yield each attention module with the weight whose dtype its scales have."""
        for last in reversed(_ATTENTION):
            for weight in self._weights:
                if weight.endswith(f".{last}.weight"):
                    yield weight.removesuffix(f".{last}.weight"), weight

    def _add(self, weight: str, name: str, tensor: str, dtype: str, number: float) -> None:
        if not math.isfinite(number) or number <= 0:
            self._refuse(name, f"is {number!r}", "give a finite number above 0")
            return
        if dtype not in EPSILON:
            self._refuse(name, f"{weight} is {dtype}", "choose a model whose weights are BF16, F16 or F32")
            return
        data = bytes_of(number, dtype)
        stored = number_of(data, dtype)
        if not math.isfinite(stored) or stored == 0:
            self._refuse(name, f"is {number!r}, which is {stored!r} as {dtype}, the dtype of the tensor", _RANGE)
            return
        self._steps.setdefault(weight, []).append(GivenStep(tensor, dtype, (1,), data))

    def _refuse(self, name: str, detail: str, instead: str) -> None:
        self._refusals.add(f"given scale: {detail}", instead, tensor=name)
