"""Models as other programs quantize them: plain, and quantized in another way in one pass, with the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from requant.checkpoint.plan.model import Direction, Plan, Request, SchemeFor
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.run.run import run_plan
from requant.checkpoint.schemes import scheme_named
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.verify.difference import diff
from requant.checkpoint.verify.verification import verify
from requant.errors import CheckpointError
from tests.support.foreign_models import FOREIGN, LINEAR, save
from tests.support.model_directory import contents
from tests.support.safetensors_files import tensor_places


def plan(source: Path, scheme: str | None) -> Plan:
    direction = Direction.DEQUANTIZE if scheme is None else Direction.QUANTIZE
    profile = "" if scheme is None else scheme_named(scheme).profiles[0]
    ignore = () if scheme is None else ("default",)
    schemes = () if scheme is None else (SchemeFor(scheme),)
    return plan_conversion(LocalStore(source), Request(direction, schemes, profile, ignore))


def convert(source: Path, target: Path, scheme: str | None) -> Path:
    run_plan(plan(source, scheme), LocalStore(source), LocalStore(target))
    return target


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", FOREIGN)
def test_one_pass_writes_what_two_write(kind: str, tmp_path: Path) -> None:
    source = save(tmp_path / "source", FOREIGN[kind])
    plain = convert(source, tmp_path / "plain", None)
    shapes = {
        entry.name: (entry.dtype, entry.shape) for path in plain.glob("*.safetensors") for entry in tensor_places(path)
    }
    for layer in range(2):
        for name, shape in LINEAR.items():
            assert shapes[f"model.layers.{layer}.{name}.weight"] == ("BF16", shape)
    assert len(shapes) == 2 * (len(LINEAR) + 1) + 3
    assert "quantization_config" not in json.loads((plain / "config.json").read_text())
    assert verify(LocalStore(plain), LocalStore(source)).faults == ()
    for scheme in ("NVFP4A16", "FP8_BLOCK"):
        once = convert(source, tmp_path / f"once-{scheme}", scheme)
        twice = convert(plain, tmp_path / f"twice-{scheme}", scheme)
        assert contents(once) == contents(twice)
        assert verify(LocalStore(once), LocalStore(source)).faults == ()


@pytest.mark.parametrize("kind", FOREIGN)
def test_its_numbers_are_those_of_the_plain_model(kind: str, tmp_path: Path) -> None:
    """In F32, to which no value is rounded but by its loader."""
    source = LocalStore(save(tmp_path / "source", FOREIGN[kind], layers=1))
    request = Request(Direction.DEQUANTIZE, (), "", dtype="F32")
    run_plan(plan_conversion(source, request), source, LocalStore(tmp_path / "plain"))
    assert diff(source, LocalStore(tmp_path / "plain")).differences == ()


@pytest.mark.parametrize("kind", FOREIGN)
def test_nothing_is_wrong_with_what_is_stored(kind: str, tmp_path: Path) -> None:
    assert verify(LocalStore(save(tmp_path / "source", FOREIGN[kind]))).faults == ()


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", FOREIGN)
def test_each_tensor_is_needed(kind: str, tmp_path: Path) -> None:
    """Without one of a module, the model is refused, and never read with fewer."""
    whole = save(tmp_path / "source", FOREIGN[kind], layers=1)
    index = json.loads((whole / "model.safetensors.index.json").read_text())
    names = [name for name in index["weight_map"] if any(f".{part}." in name for part in LINEAR)]
    for number, name in enumerate(names):
        folder = save(tmp_path / str(number), FOREIGN[kind], layers=1, without=name)
        # Scales of activations are dropped.
        if name.endswith(("input_scale", "output_scale", "input_global_scale", "act_per_tensor_scale")):
            plan(folder, None)
            continue
        with pytest.raises(
            CheckpointError,
            match=r"lacks|is a parameter|no known scale|module has no scale|none that determines the shape",
        ):
            plan(folder, None)
