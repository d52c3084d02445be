"""Verification without a source finds each kind of value that no quantizer writes, and none in what was converted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from requant.checkpoint.plan.model import CopyStep, Direction, Plan, QuantizeStep, Request, SchemeFor
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.run.run import run_plan
from requant.checkpoint.safetensors.header import TensorEntry
from requant.checkpoint.schemes import SCHEMES, scheme_named
from requant.checkpoint.storage.location import open_store
from requant.checkpoint.verify.verification import Verification, verify
from requant.checkpoint.weights.floats import bits_of
from tests.support.cases import EXHAUSTIVE
from tests.support.hand_made_plan import Tensors, write_safetensors
from tests.support.safetensors_files import tensor_places

FILE = "model.safetensors"
LAYER = "model.layers.0"
NAMES = ("q_proj", "zero_rows", "small", "large", "down_proj")
OPTIONS = (
    *SCHEMES, "W8A8:asymmetric", "W8A8:tensor", "W4A16:channel", "W3A16:group=32", "W4A16:asymmetric,group=64",
    "W5A16:channel,asymmetric", "FP8_DYNAMIC:tensor", "GPTQ_W4A16:asymmetric", "GPTQ_W2A16:channel", "AWQ:channel",
)  # fmt: skip
HALF_SCALES = ("GPTQ", "AWQ")
"""Whose scales are f16: what is below them becomes 0, a whole weight if it is."""
WORDS = {"I32": "<u4", "I8": "|u1", "U8": "|u1", "F8_E4M3": "|u1", "F8_E8M0": "|u1", "BF16": "<u2", "F16": "<u2",
         "F32": "<u4", "I64": "<u8"}  # fmt: skip
FLOATS = {"BF16": (0x7FC1, 0xFF80, 0x8000), "F16": (0x7E01, 0xFC00, 0x8000), "F32": (0x7FC00001, 0xFF800000, 1 << 31)}
"""A NaN, an infinity, the bit of the sign."""


def model(folder: Path, scheme: str, dtype: str = "BF16", shape: tuple[int, int] = (128, 256)) -> Path:
    random = np.random.default_rng(5)
    small, large = (2e-3, 1e4) if scheme.startswith(HALF_SCALES) or dtype == "F16" else (1e-30, 1e30)
    tensors: Tensors = {"model.embed_tokens.weight": (dtype, np.zeros(shape, "<u4" if dtype == "F32" else "<u2"))}
    for name in NAMES:
        numbers = random.standard_normal(shape).astype(np.float32)
        numbers[::3] *= 0 if name == "zero_rows" else 1
        numbers[:, :32] *= 0 if name == "zero_rows" else 1
        numbers = np.clip(numbers, -2, 2) * np.float32({"small": small, "large": large}.get(name, 1))
        tensors[f"{LAYER}.{name}.weight"] = (dtype, bits_of(numbers.astype(np.float32), dtype))
    folder.mkdir(parents=True)
    write_safetensors(folder / FILE, tensors)
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "dtype": "bfloat16"}))
    return folder


def converted(source: Path, target: Path, scheme: str) -> tuple[Path, Plan]:
    request = Request(
        Direction.QUANTIZE, (SchemeFor(scheme),), scheme_named(scheme).profiles[0], ("model.embed_tokens",)
    )
    store = open_store(source)
    plan = plan_conversion(store, request)
    run_plan(plan, store, open_store(target), threads=1)
    return target, plan


def verified(folder: Path, *, hashes: bool = False, source: Path | None = None) -> Verification:
    opened = None if source is None else open_store(source)
    return verify(open_store(folder), opened, hashes=hashes, threads=1)


def places(folder: Path) -> dict[str, TensorEntry]:
    return {entry.name: entry for entry in tensor_places(folder / FILE)}


class Changed:
    """A stored tensor has other elements for a while."""

    def __init__(self, folder: Path, entry: TensorEntry, change: Callable[[np.ndarray], object]) -> None:
        self.path, self.entry, self.change = folder / FILE, entry, change

    def __enter__(self) -> None:
        self.before = self.path.read_bytes()
        data = bytearray(self.before)
        part = np.frombuffer(data, np.uint8)[self.entry.begin : self.entry.end]
        self.change(part.view(WORDS[self.entry.dtype]))
        self.path.write_bytes(data)

    def __exit__(self, *_: object) -> None:
        self.path.write_bytes(self.before)


def setting(at: int, value: int) -> Callable[[np.ndarray], object]:
    return lambda elements: elements.__setitem__(at, value)


def wrong_elements(scheme: str, suffix: str, entry: TensorEntry, at: int, now: int) -> Iterator[tuple[str, int]]:
    """Yield what a checkpoint may have in place of an element, and that is wrong."""
    if suffix in ("weight_scale", "weight_scale_inv", "scales", "weight.absmax", "weight_global_scale"):
        if entry.dtype in FLOATS:
            nan, infinity, sign = FLOATS[entry.dtype]
            yield from {"NaN": nan, "infinite": infinity, "0": 0}.items()
            if not (scheme.startswith("GPTQ") and "asymmetric" not in scheme):
                yield "negative", now | sign
        elif entry.dtype == "F8_E4M3":
            yield from {"NaN": 0xFF, "negative": now | 0x80, "0": 0x80}.items()
        else:
            yield "NaN", 0xFF
    elif suffix == "weight" and entry.dtype == "F8_E4M3":
        yield "NaN", 0x7F
        yield "NaN", 0xFF
    elif suffix == "qzeros" and "asymmetric" not in scheme and scheme.startswith("GPTQ"):
        yield "other zero points", now ^ 1 << 30
    elif suffix == "weight.quant_map":
        yield "not finite", FLOATS["F32"][0]
        if at:
            yield "not above", FLOATS["F32"][2] | 0x3F900000


@pytest.mark.sample(4)
@pytest.mark.parametrize("scheme", OPTIONS)
def test_each_wrong_value_is_found_where_it_is(scheme: str, tmp_path: Path) -> None:
    source = model(tmp_path / "source", scheme)
    folder, _ = converted(source, tmp_path / "out", scheme)
    found = verified(folder, hashes=True)
    assert (found.faults, found.warnings) == ((), ())
    random, kinds = np.random.default_rng(1), 0
    before = (folder / FILE).read_bytes()
    for name, entry in places(folder).items():
        if ".q_proj." not in name:
            continue
        suffix = name.removeprefix(f"{LAYER}.q_proj.")
        elements = np.frombuffer(before[entry.begin : entry.end], WORDS[entry.dtype])
        at = int(random.integers(elements.size))
        for what, value in wrong_elements(scheme, suffix, entry, at, int(elements[at])):
            kinds += 1
            with Changed(folder, entry, setting(at, value)):
                faults = verified(folder).faults
                index = tuple(int(each) for each in np.unravel_index(at, entry.shape))
                said = [(fault.file, fault.tensor, fault.detail) for fault in faults]
                assert (FILE, name) in [each[:2] for each in said], (name, what)
                assert any(what in fault.detail for fault in faults), (said, what)
                if what != "0":
                    assert index in [fault.index for fault in faults], (faults, index)
    assert kinds >= (1 if scheme.startswith(("MXFP4", "MXFP6")) else 3)


@pytest.mark.sample(4)
@pytest.mark.parametrize("scheme", OPTIONS)
def test_a_weight_of_zeros_is_found(scheme: str, tmp_path: Path) -> None:
    source = model(tmp_path / "source", scheme)
    folder, plan = converted(source, tmp_path / "out", scheme)
    # As the scheme stores zeros.
    zeros = {entry.name: entry for entry in tensor_places(source / FILE)}[f"{LAYER}.q_proj.weight"]
    with Changed(source, zeros, lambda elements: elements.fill(0)):
        of_zeros, _ = converted(source, tmp_path / "zeros", scheme)
        found = verified(of_zeros, hashes=True)
        (fault,) = found.faults
        assert fault.detail == "all codes stand for 0: the whole weight is 0"
        assert fault.tensor is not None
        assert fault.tensor.startswith(f"{LAYER}.q_proj.")
        # That the source is so is no fault of the conversion, and is told.
        with_source = verified(of_zeros, source=source)
        assert (with_source.faults, with_source.warnings) == ((), (fault,))
    assert not verified(folder, source=source).faults
    assert {type(step) for task in plan.tasks for step in task.steps} == {CopyStep, QuantizeStep}


@pytest.mark.parametrize("dtype", ["F16", "F32"])
@pytest.mark.parametrize("scheme", ["W8A8", "W4A16", "W4A16_ASYM", "FP8_BLOCK", "MXFP4A16", "GPTQ_W4A16", "AWQ", "NF4"])
def test_weights_of_other_dtypes_have_no_fault(scheme: str, dtype: str, tmp_path: Path) -> None:
    folder, _ = converted(model(tmp_path / "source", scheme, dtype), tmp_path / "out", scheme)
    found = verified(folder)
    assert (found.faults, found.warnings) == ((), ())


@pytest.mark.parametrize(
    ("scheme", "shape", "suffix", "bit"),
    [
        ("W3A16:channel", (130, 250), "weight_packed", 31),
        ("W4A16:channel", (8, 36), "weight_packed", 16),
        ("W4A16:channel,asymmetric", (130, 256), "weight_zero_point", 8),
        ("W8A16:channel", (8, 35), "weight_packed", 24),
        ("NF4", (3, 43), "weight", 1),
    ],
)
def test_bits_beyond_the_codes_are_found(
    scheme: str, shape: tuple[int, int], suffix: str, bit: int, tmp_path: Path
) -> None:
    folder, _ = converted(model(tmp_path / "source", scheme, shape=shape), tmp_path / "out", scheme)
    assert not verified(folder).faults
    entry = places(folder)[f"{LAYER}.down_proj.{suffix}"]
    count = (entry.end - entry.begin) // np.dtype(WORDS[entry.dtype]).itemsize
    with Changed(folder, entry, lambda elements: elements.__setitem__(count - 1, elements[count - 1] ^ 1 << bit)):
        (fault,) = verified(folder).faults
    assert "beyond the codes" in fault.detail
    assert fault.index == tuple(each - 1 for each in entry.shape)


@pytest.mark.parametrize("suffix", ["weight", "weight_zero_point"])
def test_codes_in_bytes_are_within_their_bits(suffix: str, tmp_path: Path) -> None:
    """As other programs store 4 bits in bytes."""
    folder, _ = converted(model(tmp_path / "source", "W8A8"), tmp_path / "out", "W8A8:asymmetric")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["config_groups"]["group_0"]["weights"]["num_bits"] = 4
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "requant-manifest.json").unlink()
    for name, entry in places(folder).items():
        if entry.dtype == "I8":
            Changed(folder, entry, lambda each: each.__setitem__(..., each % 16 - 8)).__enter__()
            assert name.endswith(("weight", "weight_zero_point"))
    assert not verified(folder).faults
    entry = places(folder)[f"{LAYER}.down_proj.{suffix}"]
    for code in (8, 0xF7):
        with Changed(folder, entry, setting(77, code)):
            (fault,) = verified(folder).faults
        assert fault.detail.startswith("1 of ")
        assert "outside of [-8, 7]" in fault.detail
        assert fault.index == tuple(int(each) for each in np.unravel_index(77, entry.shape))


@pytest.mark.parametrize("scheme", ["W4A16", "W8A8", "NVFP4A16", "GPTQ_W4A16:asymmetric", "AWQ", "NF4"])
def test_a_scale_of_zero_is_no_fault_where_the_codes_are_zero(scheme: str, tmp_path: Path) -> None:
    """As other programs store groups of zeros."""
    folder, _ = converted(model(tmp_path / "source", scheme), tmp_path / "out", scheme)
    name = next(
        name for name in places(folder) if ".zero_rows." in name and name.endswith(("weight_scale", "scales", "absmax"))
    )
    # The scale of the first row's first group.
    with Changed(folder, places(folder)[name], setting(0, 0)):
        found = verified(folder)
    assert not found.faults
    assert [(each.tensor, each.index) for each in found.warnings] == ([] if scheme == "NF4" else [(name, (0, 0))])


def tensors_of(folder: Path) -> Tensors:
    data = (folder / FILE).read_bytes()
    return {
        name: (each.dtype, np.frombuffer(data[each.begin : each.end], WORDS[each.dtype]).reshape(each.shape))
        for name, each in places(folder).items()
    }


def written_elsewhere(folder: Path, tensors: Tensors, **members: object) -> None:
    """Replace the tensors, and members of quantization_config, as if another program had written them."""
    for name in ("requant-manifest.json", "model.safetensors.index.json"):
        (folder / name).unlink(missing_ok=True)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] |= members
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / FILE, tensors)


def test_groups_in_the_order_of_activations(tmp_path: Path) -> None:
    folder, _ = converted(model(tmp_path / "source", "GPTQ_W4A16"), tmp_path / "out", "GPTQ_W4A16")
    tensors = tensors_of(folder)
    for name in NAMES:
        tensors[f"{LAYER}.{name}.g_idx"] = ("I32", np.tile(np.arange(2, dtype="<i4"), 128))
    written_elsewhere(folder, tensors, quant_method="gptq", checkpoint_format="gptq", group_size=128)
    assert not verified(folder).faults
    entry = places(folder)[f"{LAYER}.q_proj.g_idx"]
    for group in (2, 0xFFFFFFFF):
        with Changed(folder, entry, setting(7, group)):
            (fault,) = verified(folder).faults
        assert (fault.tensor, fault.index) == (entry.name, (7,))
        assert fault.detail == "1 of 256 values are outside of the 2 groups, the first at [7]"


def test_scales_that_are_quantized_themselves(tmp_path: Path) -> None:
    folder, _ = converted(model(tmp_path / "source", "NF4"), tmp_path / "out", "NF4")
    tensors = tensors_of(folder)
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [128, 256]}
    state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 1.5}
    for name in NAMES:
        weight = f"{LAYER}.{name}.weight"
        tensors[f"{weight}.absmax"] = ("U8", np.arange(512, dtype="<u2").astype("|u1"))
        tensors[f"{weight}.nested_absmax"] = ("F32", np.array([0.5, 0], np.float32))
        tensors[f"{weight}.nested_quant_map"] = ("F32", np.linspace(-1, 1, 256, dtype=np.float32))
        text = np.frombuffer(json.dumps(state).encode(), np.uint8)
        tensors[f"{weight}.quant_state.bitsandbytes__nf4"] = ("U8", text)
    written_elsewhere(folder, tensors)
    assert not verified(folder).faults
    nan = FLOATS["F32"][0]
    for suffix, at in (("nested_absmax", 1), ("nested_quant_map", 200), ("quant_map", 3)):
        entry = places(folder)[f"{LAYER}.q_proj.weight.{suffix}"]
        with Changed(folder, entry, setting(at, nan)):
            faults = verified(folder).faults
        assert (entry.name, (at,), True) in [(each.tensor, each.index, "not finite" in each.detail) for each in faults]


def test_scales_of_activations_are_looked_at(tmp_path: Path) -> None:
    folder, _ = converted(model(tmp_path / "source", "W8A8"), tmp_path / "out", "W8A8")
    tensors = tensors_of(folder)
    for value, wrong in ((0.25, None), (0.0, "0"), (np.nan, "NaN"), (-1.0, "negative")):
        scale = np.array([value], np.float32)
        written_elsewhere(folder, {**tensors, f"{LAYER}.q_proj.input_scale": ("F32", scale)})
        faults = verified(folder).faults
        assert [each.detail for each in faults] == ([] if wrong is None else [f"the value is {wrong}"])


@pytest.mark.sample(1)
@pytest.mark.parametrize("scheme", ["W4A16_ASYM", "GPTQ_W4A16", "NF4"])
def test_a_flipped_bit_of_any_file_is_found(scheme: str, tmp_path: Path) -> None:
    folder, _ = converted(model(tmp_path / "source", scheme, shape=(32, 128)), tmp_path / "out", scheme)
    assert not verified(folder, hashes=True).faults
    random = np.random.default_rng(9)
    for name in sorted(path.name for path in folder.iterdir()):
        path = folder / name
        before = path.read_bytes()
        chosen = range(len(before)) if EXHAUSTIVE and len(before) < 10000 else random.integers(0, len(before), 60)
        for at in map(int, chosen):
            data = bytearray(before)
            data[at] ^= 1 << int(random.integers(8))
            path.write_bytes(data)
            assert verified(folder, hashes=True).faults, (name, at, bytes(data[max(at - 20, 0) : at + 20]))
        path.write_bytes(before)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"direction"', '"direktion"'), ('"version"', '"versiom"'), ('"plan"', '"plam"'), ('"files"', '"fileS"'),
        ('"sha256"', '"sha257"'), ('"size"', '"sizd"'), ('"request"', '"reqwest"'), ('"scheme"', '"schemd"'),
        ('"W4A16_ASYM"', '"W5A16"'), ("compressed-tensors-cpu", "compressed-tensors-cpt"), ('"Linear"', '"Limear"'),
        ('"model.embed_tokens"', '"model.embed_tokenr"'), ('"refuse"', '"refuce"'), ('"dtype": null', '"dtype": "F32"'),
        ("  ", "\t"), ('"model.safetensors"', '"model.safetensorr"'), ('"quantize"', '"dequantize"'),
    ],
)  # fmt: skip
def test_a_changed_manifest_is_found(old: str, new: str, tmp_path: Path) -> None:
    folder, _ = converted(model(tmp_path / "source", "W4A16_ASYM"), tmp_path / "out", "W4A16_ASYM")
    path = folder / "requant-manifest.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    assert verified(folder).faults


def test_a_dequantized_model_has_no_fault(tmp_path: Path) -> None:
    folder, _ = converted(model(tmp_path / "source", "W8A8"), tmp_path / "out", "W8A8")
    store = open_store(folder)
    back = tmp_path / "back"
    run_plan(plan_conversion(store, Request(Direction.DEQUANTIZE, (), "")), store, open_store(back))
    assert not verified(back, hashes=True).faults
    shutil.copy(folder / "requant-manifest.json", back)
    assert verified(back).faults
