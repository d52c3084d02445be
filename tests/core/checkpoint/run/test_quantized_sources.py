"""From one quantized form to another in one pass: the same bytes as by way of a directory of plain weights."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from requant.checkpoint.plan.dry_run import plan_text
from requant.checkpoint.plan.model import Direction, Plan, Request, SchemeFor
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.run.run import run_plan
from requant.checkpoint.schemes import scheme_named
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.verify.verification import verify
from requant.errors import ParameterError
from tests.support.cases import sample
from tests.support.model_directory import contents, make_model

SCHEMES = (
    "W8A8", "W4A16", "W4A16_ASYM", "W3A16:channel", "FP8_DYNAMIC", "FP8_BLOCK", "NVFP4A16", "MXFP4A16", "MXFP8A16",
    "FINE_GRAINED_FP8", "FINE_GRAINED_FP8_UE8M0", "GPTQ_W4A16", "GPTQ_W8A16:asymmetric", "AWQ", "NF4",
    "MODELOPT_FP8_PER_CHANNEL_PER_TOKEN", "MODELOPT_FP8_PB_WO", "MODELOPT_W4A16_NVFP4",
)  # fmt: skip


def plan(source: Path, scheme: str | None, dtype: str | None = None) -> Plan:
    direction = Direction.DEQUANTIZE if scheme is None else Direction.QUANTIZE
    profile = "" if scheme is None else scheme_named(scheme).profiles[0]
    schemes = () if scheme is None else (SchemeFor(scheme),)
    return plan_conversion(LocalStore(source), Request(direction, schemes, profile, dtype=dtype))


def convert(source: Path, target: Path, scheme: str | None, dtype: str | None = None) -> Path:
    run_plan(plan(source, scheme, dtype), LocalStore(source), LocalStore(target))
    return target


@pytest.mark.sample(2)
@pytest.mark.parametrize(("first", "second"), sample(list(product(SCHEMES, SCHEMES)), 24))
def test_one_pass_writes_what_two_write(tmp_path: Path, first: str, second: str) -> None:
    dtype = ("BF16", "F32")[(SCHEMES.index(first) + SCHEMES.index(second)) % 2]
    quantized = convert(make_model(tmp_path / "plain", size=256), tmp_path / "first", first)
    once = convert(quantized, tmp_path / "once", second, dtype)
    twice = convert(convert(quantized, tmp_path / "back", None, dtype), tmp_path / "twice", second)
    assert contents(once) == contents(twice)
    assert verify(LocalStore(once), LocalStore(quantized)).faults == ()


def test_what_the_plan_says(tmp_path: Path) -> None:
    """A layer that is ignored becomes plain."""
    quantized = convert(make_model(tmp_path / "plain", shards=1), tmp_path / "first", "W8A8")
    request = Request(Direction.QUANTIZE, (SchemeFor("W4A16"),), "compressed-tensors-cpu", ignore=("re:.*q_proj$",))
    made = plan_conversion(LocalStore(quantized), request)
    text = plan_text(made)
    assert "Quantized: 1 weight, " in text
    assert "1 x BF16 256x128 " in text
    assert "1 dequantized to BF16: model.layers.*.self_attn.q_proj.weight" in text
    assert set(json.loads(made.config)["quantization_config"]["config_groups"]) == {"group_0"}


def test_a_dtype_is_for_a_quantized_source(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="the weights of this checkpoint are not quantized"):
        plan(make_model(tmp_path / "plain"), "W8A8", "F32")


def test_a_change_of_what_config_says_is_another_plan(tmp_path: Path) -> None:
    """The codes would be read differently, though no header is another."""
    quantized = convert(make_model(tmp_path / "plain"), tmp_path / "first", "GPTQ_W4A16")
    before = plan(quantized, "W8A8").digest
    config = json.loads((quantized / "config.json").read_text())
    config["quantization_config"]["sym"] = False
    (quantized / "config.json").write_text(json.dumps(config))
    assert plan(quantized, "W8A8").digest != before
