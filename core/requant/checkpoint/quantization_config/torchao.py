"""`quant_method` torchao: how weights are stored is said in the `__metadata__` of the safetensors files.

`tensor_names` has the names of the weights, a JSON list. Each is a key itself, with a JSON object: `_type` is the class
of the tensor, or `Tensor` for a plain one; `_data` has its attributes, `_tensor_data_names` its parts. A dtype is
`{"_type": "torch.dtype", "_data": "bfloat16"}`. What config.json states, `quant_type`, is how to quantize, and is not
read.

Source: torchao 0.18.0, `flatten_tensor_state_dict` and `TensorSubclassAttributeJSONEncoder` (`prototype/safetensors`);
transformers 5.23.0, `TorchAoHfQuantizer.set_metadata` (`quantizers/quantizer_torchao.py`), which takes the metadata of
all files together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from requant.checkpoint.quantization_config.members import member, strings
from requant.checkpoint.small_json import parse_small_json
from requant.checkpoint.weights.torchao import (
    MX_ELEMENTS,
    Float8TensorWeight,
    Int8TensorWeight,
    MxTensorWeight,
    Nvfp4TensorWeight,
)
from requant.checkpoint.weights.weight_format import WeightFormat
from requant.errors import CheckpointError, excerpt
from requant.errors.cancellation import checked

METHOD = "torchao"
Metadata = Iterable[Mapping[str, str] | None]
"""The `__metadata__` of each file."""

_NAMES = "tensor_names"
_PLAIN = "Tensor"
_MAX_BYTES = 8 << 20
_MAX_BYTES_OF_TENSOR = 4096
_MATRIX = 2
_PARTS = "_tensor_data_names"
_PRE_SCALE = "act_pre_scale"
_NVFP4_BLOCK = 16

_REASONS = {
    "Int4TilePackedTo4dTensor": "its codes lie in the order of the tiles of a GPU's matrix instructions, which only "
    "that kernel undoes",
    "Int4PlainInt32Tensor": "its codes are packed by the kernels of XPU and NPU, and only they undo it",
    "Int4Tensor": "its codes are packed and multiplied by mslk's GPU kernels alone, and torchao defines no values of "
    "the weight",
}
"""Why tensors of a class are not read."""


def is_quantized(metadata: Metadata) -> bool:
    """Return whether the metadata of a file describe a tensor of parts."""
    return any(
        each is not None and _NAMES in each and any(_PARTS in text for text in each.values()) for each in metadata
    )


def formats_of_metadata(metadata: Metadata) -> Iterator[tuple[str, WeightFormat]]:
    """Yield the modules whose weight is quantized, and how it is stored.

    Raises CheckpointError for metadata that are not of torchao's form, that differ from file to file, or state a class
    of tensors that is not read.
    """
    texts: dict[str, str] = {}
    for of_file in metadata:
        if of_file is None or _NAMES not in of_file:
            continue
        names = _parsed(of_file[_NAMES], _NAMES, _MAX_BYTES)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise CheckpointError(f"{_NAMES} of the metadata of a file is not a list of strings")
        for name in checked(names):
            text = of_file.get(name)
            if text is None:
                raise CheckpointError("the metadata name the tensor, and do not describe it", tensor=name)
            if texts.setdefault(name, text) != text:
                raise CheckpointError("the metadata of two files describe the tensor differently", tensor=name)
    if not texts:
        raise CheckpointError(
            f"no safetensors file has {_NAMES} in its metadata, as torchao writes them: save the model again with "
            "transformers' save_pretrained, as safetensors"
        )
    for name, text in checked(texts.items()):
        try:
            weight_format = _format(_parsed(text, "the description", _MAX_BYTES_OF_TENSOR))
        except CheckpointError as error:
            raise CheckpointError(f"{excerpt(name)}: {error.detail}", tensor=name) from None
        module, _, parameter = name.rpartition(".")
        if weight_format is None:
            continue
        if parameter != "weight" or not module:
            raise CheckpointError(
                f"{excerpt(name)} is quantized, and only the `weight` of a module is read: save the experts of the "
                "model as modules of their own",
                tensor=name,
            )
        yield module, weight_format


def _parsed(text: str, what: str, most: int) -> Any:
    try:
        return parse_small_json(text.encode("utf-8", "surrogatepass"), most)
    except ValueError as error:
        raise CheckpointError(f"{what} in the metadata is not JSON that is read: {excerpt(str(error))}") from None


def _format(description: Any) -> WeightFormat | None:
    """Return how a tensor is stored, None for a plain one."""
    if not isinstance(description, dict):
        raise CheckpointError("its description in the metadata is not a JSON object")
    kind = member(description, "_type", str, "its metadata")
    if kind == _PLAIN:
        return None
    if kind in _REASONS:
        raise CheckpointError(
            f"is stored as {kind}: {_REASONS[kind]}. Quantize the original model again, as Int8WeightOnlyConfig or "
            "Float8WeightOnlyConfig do, or use the original"
        )
    if kind is None or kind not in _CLASSES:
        raise CheckpointError(
            f"is stored as {excerpt(str(kind))}, which is not supported; expected one of {', '.join(_CLASSES)}"
        )
    parts = strings(description, _PARTS, "its metadata")
    if _PRE_SCALE in parts:
        raise CheckpointError(
            f"has {_PRE_SCALE}, which multiplies the activations: a plain weight alone does not stand for the layer. "
            "Use the original model"
        )
    return _CLASSES[kind](member(description, "_data", dict, "its metadata") or {}, parts)


def _float8(data: Mapping[str, Any], parts: Collection[str]) -> WeightFormat:
    return Float8TensorWeight()


def _int8(data: Mapping[str, Any], parts: Collection[str]) -> WeightFormat:
    return Int8TensorWeight(block=_block(data), has_zero_points="zero_point" in parts)


def _intx(data: Mapping[str, Any], parts: Collection[str]) -> WeightFormat:
    target = _dtype(data, "target_dtype")
    bits = target.removeprefix("int")
    if bits not in ("1", "2", "3", "4", "5", "6", "7", "8"):
        raise CheckpointError(f"target_dtype is {excerpt(target)}; expected int1 to int8")
    return Int8TensorWeight(block=_block(data), bits=int(bits), has_zero_points=True)


def _mx(data: Mapping[str, Any], parts: Collection[str]) -> WeightFormat:
    stated = data.get("elem_dtype")
    element = stated if isinstance(stated, str) else _dtype(data, "elem_dtype")
    if element not in MX_ELEMENTS:
        raise CheckpointError(f"elem_dtype is {excerpt(element)}; expected one of {', '.join(MX_ELEMENTS)}")
    return MxTensorWeight(width=_width(data), in_tiles=_swizzled(data), element=element)


def _nvfp4(data: Mapping[str, Any], parts: Collection[str]) -> WeightFormat:
    if (width := _width(data)) != _NVFP4_BLOCK:
        raise CheckpointError(f"block_size is {width}; expected {_NVFP4_BLOCK}")
    return Nvfp4TensorWeight(in_tiles=_swizzled(data), has_tensor_scale="per_tensor_scale" in parts)


_CLASSES: Mapping[str, Callable[[Mapping[str, Any], Collection[str]], WeightFormat]] = {
    "Float8Tensor": _float8,
    "Int8Tensor": _int8,
    "IntxUnpackedToInt8Tensor": _intx,
    "MXTensor": _mx,
    "NVFP4Tensor": _nvfp4,
}


def _width(data: Mapping[str, Any]) -> int:
    width = member(data, "block_size", int, "its metadata")
    if width is None or width < 1:
        raise CheckpointError(f"block_size is {width}; expected a positive integer")
    return width


def _swizzled(data: Mapping[str, Any]) -> bool:
    return member(data, "is_swizzled_scales", bool, "its metadata") is True


def _block(data: Mapping[str, Any]) -> tuple[int, int]:
    sizes = member(data, "block_size", list, "its metadata") or []
    if len(sizes) != _MATRIX or not all(
        isinstance(size, int) and not isinstance(size, bool) and (size > 0 or size == -1) for size in sizes
    ):
        raise CheckpointError(
            f"block_size is {excerpt(str(sizes))}; expected two positive integers: only weights of two dimensions are "
            "read"
        )
    return sizes[0], sizes[1]


def _dtype(data: Mapping[str, Any], name: str) -> str:
    stated = member(data, name, dict, "its metadata") or {}
    return str(member(stated, "_data", str, f"its metadata.{name}"))
