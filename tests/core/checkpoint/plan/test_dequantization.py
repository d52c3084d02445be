"""Plans that dequantize: what was planned in one direction is understood in the other; what is not whole is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from time import process_time
from typing import Any

import pytest

from requant.checkpoint.plan.model import DequantizeStep, Plan
from requant.checkpoint.plan.stored_formats import stored_formats
from requant.checkpoint.profiles import CHECKPOINT_PROFILES
from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.schemes import SCHEMES, scheme_named
from requant.errors import CheckpointError
from tests.support.planned_checkpoint import (
    INDEX,
    HeadersOnly,
    Tensors,
    checkpoint,
    header_of,
    outputs_of,
    planned,
    tensors_of,
)

Q = "model.layers.0.self_attn.q_proj"
OTHER: Tensors = [
    ("model.norm.weight", "BF16", (256,)),
    (f"{Q}.bias", "BF16", (384,)),
    ("model.embed_tokens.weight", "F32", (9, 256)),
]
IGNORE = ["re:.*embed_tokens$"]
CONFIG = {"torch_dtype": "bfloat16", "architectures": ["X"], "hidden_size": 256}


def source(dtype: str = "BF16", shape: tuple[int, int] = (384, 256)) -> HeadersOnly:
    return checkpoint({"1.safetensors": [(f"{Q}.weight", dtype, shape)], "2.safetensors": OTHER}, CONFIG)


def quantized(scheme: str = "W4A16") -> HeadersOnly:
    return outputs_of(planned(source(), scheme, ignore=IGNORE))


def steps(plan: Plan) -> dict[str, DequantizeStep]:
    return {step.module: step for task in plan.tasks for step in task.steps if isinstance(step, DequantizeStep)}


def without_index(store: HeadersOnly) -> HeadersOnly:
    del store.start[INDEX], store.sizes[INDEX]
    return store


def with_tensors(
    store: HeadersOnly, file: str = "1.safetensors", **changes: tuple[str, tuple[int, ...]] | None
) -> HeadersOnly:
    """Return the store with other parameters of the module `Q`, and without those that are None."""
    return with_names(store, file, {f"{Q}.{parameter}": each for parameter, each in changes.items()})


def with_names(store: HeadersOnly, file: str, changes: Mapping[str, tuple[str, tuple[int, ...]] | None]) -> HeadersOnly:
    """Return the store with other tensors, and without an index. `weight_shape` keeps its value."""
    tensors: dict[str, tuple[str, tuple[int, ...]] | None] = {
        entry.name: (entry.dtype, entry.shape) for entry in header_of(store.start[file], store.sizes[file]).tensors
    }
    header = store.add_tensors(
        file, [(name, *each) for name, each in {**tensors, **changes}.items() if each is not None]
    )
    values = list(store.pieces.get(file, {}).values())
    places = [entry.begin for entry in header.tensors if entry.name.endswith("weight_shape")]
    store.pieces[file] = dict(zip(places, values, strict=False))
    return without_index(store)


def configured(scheme: str = "W4A16", place: str = "", **changes: Any) -> HeadersOnly:
    """Return a quantized checkpoint with other members in `quantization_config`, and without those that are None."""
    store = quantized(scheme)
    config = json.loads(store.start["config.json"])
    members = config["quantization_config"]
    for name in place.split():
        members = members[name]
    members |= changes
    for name in [name for name, value in changes.items() if value is None]:
        del members[name]
    store.add("config.json", json.dumps(config).encode())
    return store


GROUP = "config_groups group_0"
WEIGHTS = f"{GROUP} weights"
VARIANTS = [
    "W4A16:channel",
    "W8A16:tensor",
    "W8A8:asymmetric",
    "W4A16:channel,asymmetric",
    "W3A16:group=32",
    "GPTQ_W4A16:asymmetric",
]


@pytest.mark.parametrize("scheme", [scheme for scheme in (*SCHEMES, *VARIANTS) if scheme != "NF4"])
def test_what_was_quantized_is_plain_again(scheme: str) -> None:
    profile = scheme_named(scheme).profiles[0]
    assert profile in CHECKPOINT_PROFILES
    plan = planned(source(), scheme, profile=profile, ignore=IGNORE)
    back = planned(outputs_of(plan), None)
    plain = tensors_of(back)
    assert plain == {file: {name: (dtype, shape) for name, dtype, shape in tensors} for file, tensors in {
        "1.safetensors": [(f"{Q}.weight", "BF16", (384, 256))], "2.safetensors": OTHER,
    }.items()}  # fmt: skip
    (step,) = steps(back).values()
    stored = step.source.format.stored("BF16", (384, 256))
    assert (
        stored
        == step.source.format.stored("BF16", (384, 256))
        == scheme_named(scheme).format(profile).stored("BF16", (384, 256))
    )
    assert {suffix: (each.dtype, each.shape) for suffix, each in step.source.stored.items()} == {
        each.suffix: (each.dtype, each.shape) for each in stored
    }
    assert json.loads(back.config) == CONFIG
    assert all(task.header.metadata == {"format": "pt"} for task in back.tasks)


def test_the_shape_of_packed_weights_is_read() -> None:
    """29 columns of 3 bits take as many words as 30, 31 or 32; `weight_shape` says which it was."""
    for columns in (29, 30, 31, 32):
        store = outputs_of(planned(source(shape=(8, columns)), "W3A16:channel", ignore=IGNORE))
        assert steps(planned(store, None))[Q].source.shape == (8, columns)


def test_of_the_data_only_shapes_are_read() -> None:
    """Shapes that lie side by side are read at once, and nothing between those that do not."""
    tensors: Tensors = [(f"a.{at}.weight", "BF16", (8, 128)) for at in range(5)]
    store = outputs_of(planned(checkpoint({"m.safetensors": tensors}), "W4A16"))
    store = with_names(store, "m.safetensors", {"a.2.x": ("I64", (1000,))})
    plan = planned(store, None)
    assert [step.source.shape for step in steps(plan).values()] == [(8, 128)] * 5
    assert [length for _, _, length in store.reads[2:]] == [3 * 16, 2 * 16]


@pytest.mark.parametrize(
    ("asked", "stated", "found"), [("F32", "bfloat16", "F32"), (None, "float16", "F16"), (None, None, "BF16")]
)
def test_the_dtype_is_the_one_asked_for_or_that_of_config(asked: str | None, stated: str | None, found: str) -> None:
    store = outputs_of(
        planned(checkpoint({"m.safetensors": [(f"{Q}.weight", "F16", (8, 128))]}, {"dtype": stated}), "W4A16")
    )
    plan = planned(store, None, dtype=asked)
    assert tensors_of(plan) == {"m.safetensors": {f"{Q}.weight": (found, (8, 128))}}
    names = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
    assert json.loads(plan.config)["dtype"] == names[found]


def test_parameters_of_activations_are_left_out() -> None:
    scales: Mapping[str, Any] = {f"{Q}.input_scale": ("F32", (1,)), "model.layers.0.self_attn.k_scale": ("F32", ())}
    plan = planned(with_names(quantized("FP8_DYNAMIC"), "1.safetensors", scales), None)
    assert "2 scales of quantized activations are dropped" in plan.warnings
    assert set(tensors_of(plan)["1.safetensors"]) == {f"{Q}.weight"}


def test_extents_of_one_may_be_missing() -> None:
    """A scale of a channel as [out] instead of [out, 1]."""
    plan = planned(with_tensors(quantized("W8A8"), weight_scale=("BF16", (384,))), None)
    assert steps(plan)[Q].source.stored["weight_scale"].shape == (384, 1)


EMPTY: Mapping[str, Any] = dict.fromkeys(("weight", "weight_scale"))
CASES: Mapping[str, tuple[Callable[[], HeadersOnly], str]] = {
    "plain": (source, "no quantization_config"),
    "another method": (
        lambda: configured(quant_method="hqq"),
        "'hqq' is not supported; expected one of",
    ),
    "method is a list": (lambda: configured(quant_method=[]), "'[]' is not supported"),
    "no groups": (lambda: configured(config_groups={}), "no config_groups"),
    "groups are a list": (lambda: configured(config_groups=[1]), "config_groups is [1]; expected an object"),
    "a group is a number": (lambda: configured(config_groups={"a": 1}), "config_groups.a is 1; expected an object"),
    "weights are a list": (
        lambda: configured(place=GROUP, weights=[]),
        "config_groups.group_0.weights is []; expected an object",
    ),
    "no bits": (lambda: configured(place=WEIGHTS, num_bits=None), "num_bits is None; expected 1 to 8"),
    "bits are a list": (
        lambda: configured(place=WEIGHTS, num_bits=[]),
        "weights.num_bits is []; expected an integer",
    ),
    "17 bits": (lambda: configured(place=WEIGHTS, num_bits=17), "num_bits is 17"),
    "group of 0": (lambda: configured(place=WEIGHTS, group_size=0), "group_size is 0"),
    "group of 1.5": (lambda: configured(place=WEIGHTS, group_size=1.5), "group_size is 1.5"),
    "unknown strategy": (lambda: configured(place=WEIGHTS, strategy="x"), "strategy 'x'"),
    "unknown format": (lambda: configured(place=GROUP, format="x"), "format 'x'"),
    "an unknown order": (
        lambda: configured(place=WEIGHTS, actorder="random"),
        "weights.actorder is random; expected one of group, dynamic, weight, static",
    ),
    "an order that is a list": (lambda: configured(place=WEIGHTS, actorder=[]), "weights.actorder is []"),
    "an order of channels": (
        lambda: configured("W4A16:channel", WEIGHTS, actorder="group"),
        "actorder orders groups, and these weights are no integers in groups",
    ),
    "an order that is missing": (
        lambda: configured(place=WEIGHTS, actorder="group"),
        "lacks weight_g_idx (I32 [256])",
    ),
    "an order that is not stated": (
        lambda: with_tensors(quantized(), weight_g_idx=("I32", (256,))),
        "weight_g_idx: is a parameter",
    ),
    "rotated": (lambda: configured(transform_config={"config_groups": {"a": {}}}), "rotated"),
    "other targets": (
        lambda: configured(place=GROUP, targets=["re:.*k_proj"]),
        "quantization_config applies to it",
    ),
    "a wrong target": (lambda: configured(place=GROUP, targets=["re:("]), "an unclosed group"),
    "a target that takes forever": (
        lambda: configured(place=GROUP, targets=["re:(?=((.|[^!])+)+!)x", "Linear"]),
        "is not supported in a pattern",
    ),
    "no scale": (lambda: with_tensors(quantized(), weight_scale=None), "lacks weight_scale (BF16 [384, 2])"),
    "no codes": (lambda: with_tensors(quantized(), weight_packed=None), "lacks weight_packed (I32 [384, 32])"),
    "no shape": (lambda: with_tensors(quantized(), weight_shape=None), "none that determines the shape of its weight"),
    "another group size": (
        lambda: configured(place=WEIGHTS, group_size=64),
        "weight_scale is BF16 [384, 2]; expected BF16 [384, 4]",
    ),
    "other codes": (lambda: with_tensors(quantized("W8A8"), weight=("U8", (384, 256))), "weight is U8"),
    "zero points": (
        lambda: with_tensors(quantized("W8A8"), weight_zero_point=("I8", (384, 1))),
        "q_proj.weight_zero_point: is a parameter",
    ),
    "another method's scale": (
        lambda: with_tensors(quantized("W8A8"), weight_scale_2=("F32", ())),
        "weight_scale_2: is a parameter",
    ),
    "nothing quantized": (lambda: with_tensors(quantized("W8A8"), **EMPTY), "no module has a scale"),
    "a float without scale": (
        lambda: with_names(quantized("W8A8"), "2.safetensors", {"x.gate_up_proj": ("F8_E4M3", (2, 2, 2))}),
        "2.safetensors, x.gate_up_proj: is F8_E4M3, but its module has no known scale",
    ),
}


@pytest.mark.parametrize(("store", "message"), CASES.values(), ids=CASES)
def test_is_refused(store: Callable[[], HeadersOnly], message: str) -> None:
    with pytest.raises(CheckpointError) as raised:
        planned(store(), None)
    assert message in raised.value.detail


@pytest.mark.parametrize("dtype", DTYPES)
def test_other_tensors_are_copied(dtype: str) -> None:
    """But for floats of up to 8 bits, which would be weights whose scale is not known."""
    store = with_names(quantized(), "1.safetensors", {"freqs": (dtype, (32,))})
    if dtype.startswith("F") and DTYPES[dtype].bits <= 8:
        with pytest.raises(CheckpointError, match=f"is {dtype}, but its module has no known scale"):
            planned(store, None)
    else:
        assert tensors_of(planned(store, None))["1.safetensors"]["freqs"] == (dtype, (32,))


def test_all_modules_that_lack_a_tensor_are_told() -> None:
    tensors: Tensors = [(f"model.layers.{at}.mlp.down_proj.weight", "BF16", (8, 128)) for at in range(3)]
    store = outputs_of(planned(checkpoint({"1.safetensors": tensors}), "W4A16"))
    lacking = dict.fromkeys(f"model.layers.{at}.mlp.down_proj.weight_scale" for at in (0, 2))
    with pytest.raises(CheckpointError, match="2 problems") as raised:
        planned(with_names(store, "1.safetensors", lacking), None)
    assert raised.value.tensor == "model.layers.0.mlp.down_proj"


def test_a_module_may_lie_in_two_files() -> None:
    """As transformers splits them: by size alone."""
    store = quantized("W8A8")
    for file, name, dtype, shape in (
        ("1.safetensors", f"{Q}.weight", "I8", (384, 256)), ("3.safetensors", f"{Q}.weight_scale", "BF16", (384, 1)),
    ):  # fmt: skip
        store.add_tensors(file, [(name, dtype, shape)])
    plan = planned(without_index(store), None)
    assert {suffix: each.file for suffix, each in steps(plan)[Q].source.stored.items()} == {
        "weight": "1.safetensors", "weight_scale": "3.safetensors",
    }  # fmt: skip
    assert list(tensors_of(plan)) == ["1.safetensors", "2.safetensors"]


def test_groups_of_modules() -> None:
    """A name goes before a class; several groups are what llm-compressor writes of several schemes."""
    tensors: Tensors = [(f"a.{name}.weight", "BF16", (8, 128)) for name in ("q", "k")]
    eight, four = (
        outputs_of(planned(checkpoint({"m.safetensors": tensors}), scheme)) for scheme in ("FP8_DYNAMIC", "W8A8")
    )
    config, other = (json.loads(store.start["config.json"]) for store in (eight, four))
    of_other = other["quantization_config"]["config_groups"]["group_0"]
    config["quantization_config"]["config_groups"]["group_1"] = {**of_other, "targets": ["a.k"]}
    config["quantization_config"]["format"] = "mixed-precision"
    mixed = with_names(eight, "m.safetensors", {"a.k.weight": ("I8", (8, 128))})
    mixed.add("config.json", json.dumps(config).encode())
    found = {module: type(step.source.format).__name__ for module, step in steps(planned(mixed, None)).items()}
    assert found == {"a.q": "FloatQuantized", "a.k": "IntQuantized"}


def mixed(groups: Mapping[str, tuple[list[str], str]], modules: Iterable[str] = ("a.q", "a.k")) -> dict[str, str]:
    """Return the number of bits in which the weight of each module is read. `groups`: targets and bits."""
    members = {
        "quant_method": "compressed-tensors",
        "format": "mixed-precision",
        "config_groups": {
            name: {
                "targets": targets,
                "format": "int-quantized" if bits == "8" else "pack-quantized",
                "weights": {"num_bits": int(bits), "type": "int", "strategy": "channel"},
            }
            for name, (targets, bits) in groups.items()
        },
    }
    found = stored_formats(members, ())
    return {module: str(getattr(found.of(module), "bits", None)) for module in modules}


def test_which_of_several_targets_counts() -> None:
    """Names, then expressions, then classes, each by the alphabet, as `match_targets` of compressed-tensors sorts
    them."""
    every, expression, name = (["Linear"], "8"), (["re:a.*"], "4"), (["a.q"], "2")
    assert mixed({"0": every, "1": expression, "2": name}) == {"a.q": "2", "a.k": "4"}
    assert mixed({"0": (["re:a[.]k"], "3"), "1": (["re:.*k$"], "5"), "2": every}) == {"a.q": "8", "a.k": "5"}
    assert mixed({"0": (["a.q"], "3"), "1": (["a.q"], "5")}) == {"a.q": "5", "a.k": "None"}
    classes = {"0": (["Linear"], "4"), "1": (["Embedding"], "8")}
    assert mixed(classes, ("model.embed_tokens", "a.q")) == {"model.embed_tokens": "8", "a.q": "4"}
    assert mixed({"0": (["Qwen3MoeExperts"], "4")}) == {"a.q": "4", "a.k": "4"}


def test_a_thousand_groups_are_followed_at_once() -> None:
    """Names are looked up, and more expressions than a thousand are refused."""
    names = {str(at): ([f"model.layers.{at}.q_proj"], "48"[at % 2]) for at in range(20_000)}
    modules = [f"model.layers.{at}.q_proj" for at in range(20_000)]
    begin = process_time()
    found = mixed(names, modules)
    assert process_time() - begin < 20
    assert all(found[module] == "48"[at % 2] for at, module in enumerate(modules))
    with pytest.raises(CheckpointError, match="1001 regular expressions; at most 1000"):
        mixed({str(at): ([f"re:.*{at}x"], "4") for at in range(1001)})


@pytest.mark.parametrize(("stated", "ordered"), [("weight", False), ("STATIC", False), (False, False), (True, True)])
def test_orders_of_activations(stated: Any, ordered: bool) -> None:
    store = configured(place=WEIGHTS, actorder=stated)
    if ordered:
        store = with_tensors(store, weight_g_idx=("I32", (256,)))
    (step,) = steps(planned(store, None)).values()
    assert ("weight_g_idx" in step.source.stored) == ordered


def test_a_strategy_that_is_not_stated_is_that_of_the_group_size() -> None:
    (step,) = steps(planned(configured(place=WEIGHTS, strategy=None, type="INT"), None)).values()
    assert step.source.stored["weight_scale"].shape == (384, 2)


def test_no_tensor_takes_the_place_of_another() -> None:
    """`weight` and `.weight` are both the weight of a module without a name."""
    store = with_names(quantized(), "1.safetensors", {"weight": ("BF16", (3,)), ".weight": ("BF16", (5,))})
    with pytest.raises(CheckpointError, match="two tensors belong to the same module"):
        planned(store, None)


def test_a_weight_without_a_module_is_not_dequantized() -> None:
    store = with_names(quantized("W8A8"), "1.safetensors", {"weight": ("I8", (3, 5)), "weight_scale": ("BF16", (3, 1))})
    with pytest.raises(CheckpointError, match="nothing in quantization_config applies to it"):
        planned(store, None)


@pytest.mark.parametrize(
    ("place", "changes", "message"),
    [
        (WEIGHTS, {"num_bits": float("inf")}, "num_bits is inf; expected an integer"),
        (GROUP, {"targets": 5}, "targets is 5; expected a list"),
        (GROUP, {"targets": [5]}, "targets has the entry 5; expected strings"),
        (WEIGHTS, {"strategy": "block", "block_structure": [4097, 1]}, "at most 4096"),
        (WEIGHTS, {"strategy": "block", "block_structure": 7}, "block_structure is 7"),
    ],
)
def test_members_of_no_use(place: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        planned(configured(place=place, **changes), None)
