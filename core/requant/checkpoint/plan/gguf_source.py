"""The tensors of a GGUF file, by the names that they have in Hugging Face's model, as a checkpoint's."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from requant.checkpoint.gguf.header import TensorInfo
from requant.checkpoint.gguf.names import MADE_BY_CONVERTER, Names, Place
from requant.checkpoint.gguf.tensor_types import FLOATS, READABLE
from requant.checkpoint.gguf.weights import FloatRows, GgufWeight
from requant.checkpoint.plan.dequantization import SourceTensor
from requant.checkpoint.plan.model import QuantizedSource, Repack, Request, SourceRange, WeightSource
from requant.checkpoint.plan.model_files import stated_dtype
from requant.checkpoint.plan.refusals import Refusals, abbreviate
from requant.checkpoint.plan.source import WEIGHTS, GgufPart, Source
from requant.errors import CheckpointError
from requant.errors.cancellation import checked

_WITHOUT_F16 = (*FLOATS, "MXFP4", "NVFP4")
_THE_SAME_MODEL = "give the directory of the model that the file was made of"


def dtype_of_gguf(source: Source, request: Request) -> str:
    """Return the dtype of a GGUF file's tensors as they are without quantization.

    Blocks with F16 scales are moved to F32, which holds their numbers: BF16 does not, and loaders round scales to the
    dtype that config.json states. Otherwise it is the latter.
    """
    assert source.gguf is not None
    stated = request.dtype or stated_dtype(source.config) or "BF16"
    quantized = any(info.type.name not in _WITHOUT_F16 for info in source.gguf.header.tensors)
    return "F32" if request.dtype is None and request.repack is not Repack.NO and quantized else stated


def gguf_tensors(source: Source, dtype: str, refusals: Refusals) -> tuple[list[SourceTensor], int]:
    """Return the tensors of the model, of `dtype`, in the order of the file, and the number of activation parameters,
    which are dropped. Refused are tensors that the directory of the model does not have, or of another shape, those
    that the file lacks, and types that are not read.
    """
    assert source.gguf is not None
    (file,) = source.shards
    header, names = source.gguf.header, Names.of(source.gguf.header.keys, source.config, file)
    scales: dict[str, SourceRange] = {}
    tensors: list[SourceTensor] = []
    dropped = 0
    for info in header.tensors:
        if info.name.endswith(".scale"):
            begin = header.data + info.offset
            for number, place in enumerate(names.places(info)):
                at = begin + 4 * number
                scales[place.module] = SourceRange(file, info.name, info.type.name, (1,), at, at + 4)
    for info in checked(header.tensors):
        if info.name in MADE_BY_CONVERTER or info.name.endswith(".scale"):
            continue
        if info.name.endswith(".input_scale"):
            dropped += 1
            continue
        try:
            for place in names.places(info):
                tensor = _tensor(file, header.data, info, place, dtype, scales)
                output, shape = source.gguf.places.get(tensor.name, (WEIGHTS, None))
                found = _shape(info, place)
                if shape is not None and shape != found:
                    raise CheckpointError(
                        f"{tensor.name} has the shape {list(found)}; in the directory of the model it has "
                        f"{list(shape)}: {_THE_SAME_MODEL}",
                        file=file,
                        tensor=info.name,
                    )
                tensors.append(SourceTensor(tensor.name, tensor.source, output))
        except CheckpointError as error:
            refusals.add_error(error, _THE_SAME_MODEL, file=error.file or file, tensor=error.tensor or info.name)
    _check_names(tensors, source.gguf, file, refusals)
    return tensors, dropped


def _check_names(tensors: list[SourceTensor], gguf: GgufPart, file: str, refusals: Refusals) -> None:
    if not gguf.places or refusals.count:
        return
    names = {each.name for each in tensors}
    for which, others in (
        (f"the directory of the model has tensors that {file} lacks", gguf.places.keys() - names),
        (f"{file} has tensors that the directory of the model lacks", names - gguf.places.keys()),
    ):
        # Buffers that older models stored.
        missing = sorted(name for name in others if not name.endswith(".rotary_emb.inv_freq"))
        if missing:
            refusals.add(f"{which}: {abbreviate(missing)}", _THE_SAME_MODEL, file=file)


def _shape(info: TensorInfo, place: Place) -> tuple[int, ...]:
    shape = tuple(reversed(info.dimensions))
    return shape if place.index is None else shape[1:]


def _tensor(
    file: str, data: int, info: TensorInfo, place: Place, dtype: str, scales: Mapping[str, SourceRange]
) -> SourceTensor:
    shape, begin = _shape(info, place), data + info.offset
    size = info.type.size(prod(shape))
    if place.index is not None:
        begin += place.index * size
    is_float = info.type.name in FLOATS
    if info.type.name not in READABLE or len(shape) not in ((1, 2) if is_float else (2,)):
        raise CheckpointError(
            f"is {info.type.name} of shape {list(shape)}; expected floats, or a matrix in blocks that are read: "
            "convert it with llama-quantize first",
            file=file,
            tensor=info.name,
        )
    source: WeightSource
    if is_float and place.head == 1 and not place.added and info.type.name == dtype:
        source = SourceRange(file, info.name, dtype, shape, begin, begin + size)
        return SourceTensor(place.name, source)
    matrix = (shape[0], shape[1] if len(shape) > 1 else 1)
    if is_float:
        stored = {place.parameter: SourceRange(file, info.name, info.type.name, matrix, begin, begin + size)}
        form = FloatRows(info.type.name, place.head, place.parameter, is_vector=len(shape) == 1, added=place.added)
        source = QuantizedSource(place.module, stored, form, dtype, matrix)
        return SourceTensor(place.name, source)
    row = (matrix[0], info.type.size(matrix[1]))
    stored = {"weight": SourceRange(file, info.name, "U8", row, begin, begin + size)}
    scale = scales.get(place.module) if info.type.name == "NVFP4" else None
    if scale is not None:
        stored["scale"] = scale
    source = QuantizedSource(place.module, stored, GgufWeight(info.type, place.head, scale is not None), dtype, matrix)
    return SourceTensor(place.name, source)
