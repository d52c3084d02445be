"""Several schemes in one run: each weight as a run with its scheme alone makes it, and config.json says which it is."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import requant
from requant.checkpoint.loaders import Loader, loaders_of
from requant.checkpoint.plan.dry_run import plan_document, plan_text
from requant.checkpoint.plan.model import Direction, Plan, Request, SchemeFor, request_of
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.plan.warnings import is_known_to_load
from requant.checkpoint.run.run import run_plan
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.verify.verification import verify
from requant.checkpoint.workers import parse_plan_file, plan_file_of, work
from requant.checkpoints import conversion_request
from requant.command.exit_status import DONE, FAILED, WRONG_USAGE
from requant.command.main import main
from requant.errors import CheckpointError, ParameterError, RequantError, UnknownNameError
from tests.support.hand_made_plan import Tensors
from tests.support.model_directory import LLAMA, contents, modules_of_llama, quantization_config, save_model
from tests.support.safetensors_files import tensors_in

Schemes = Sequence[tuple[str, Sequence[str]]]
HIDDEN = 128
SHAPES = modules_of_llama(HIDDEN, inner=256, keys=64)

MIXTURES: dict[str, Schemes] = {
    "experts and attention": [("NVFP4A16", ["re:.*mlp.*"]), ("FP8_BLOCK", ["re:.*self_attn.*"])],
    "one container": [("W4A16:group=32", [r"re:.*down_proj$"]), ("W8A16", ["Linear"])],
    "a name": [("W8A8", ["model.layers.0.mlp.down_proj"]), ("FP8_DYNAMIC", ["re:.*mlp.*"])],
    "parts of fused sets": [("NVFP4A16", [r"re:.*[qv]_proj$"]), ("W8A8", [r"re:.*k_proj$"]), ("MXFP4A16", ["Linear"])],
    "one scale by two groups": [("NVFP4A16", [r"re:.*q_proj$"]), ("NVFP4A16", [r"re:.*[kv]_proj$", "re:.*mlp.*"])],
    # Loaders of compressed-tensors, which go by the alphabet, would take the second for attention, too.
    "another order than that of the alphabet": [("FP8_BLOCK", ["re:.*self_attn.*"]), ("W4A16", ["re:.*layers.*"])],
    "a name after an expression": [
        ("W8A16", [r"re:.*layers\.0.*"]),
        ("W4A16", ["model.layers.0.mlp.up_proj", "Linear"]),
    ],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a head, whose fused sets are spread over two files."""
    random = np.random.default_rng(29)
    shards: tuple[Tensors, Tensors] = ({}, {})
    for number, (name, shape) in enumerate({**SHAPES, "lm_head": (HIDDEN, HIDDEN)}.items()):
        scaled = random.standard_normal(shape) * np.exp2(random.integers(-6, 1, (shape[0], 1)))
        bits = (scaled.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        shards[number % 2][f"{name}.weight"] = ("BF16", bits)
    return save_model(tmp_path_factory.mktemp("model"), shards, LLAMA)


def request(schemes: Schemes, **options: Any) -> Request:
    return conversion_request(Direction.QUANTIZE, scheme=schemes, **options)


def planned(model: Path, schemes: Schemes, **options: Any) -> Plan:
    return plan_conversion(LocalStore(model), request(schemes, **options))


def converted(model: Path, target: Path, schemes: Schemes) -> Path:
    run_plan(planned(model, schemes), LocalStore(model), LocalStore(target))
    return target


def means(entry: str, module: str) -> bool:
    return re.match(entry[3:], module) is not None if entry.startswith("re:") else entry == module


def first_of(module: str, groups: Sequence[Sequence[str]]) -> int | None:
    """Return the first group of which a target means the module."""
    matching = (n for n, targets in enumerate(groups) if any(t == "Linear" or means(t, module) for t in targets))
    return next(matching, None)


def found_by_compressed_tensors(module: str, groups: Sequence[Sequence[str]]) -> int | None:
    """As `match_targets` and `apply_quantization_config` of compressed-tensors 0.20."""
    number = {target: n for n, targets in enumerate(groups) for target in targets}
    ordered = sorted(number, key=lambda target: ("re:" in target, target))
    matching = [target for target in ordered if means(target, module)]
    return number.get((matching or ["Linear"])[0])


@pytest.mark.parametrize("name", MIXTURES)
def test_each_weight_is_what_its_scheme_alone_makes_of_it(name: str, model: Path, tmp_path: Path) -> None:
    schemes = MIXTURES[name]
    mixed = tensors_in(converted(model, tmp_path / "mixed", schemes))
    targets = [of_one for _, of_one in schemes]
    modules = [*SHAPES]
    expected: set[str] = set()
    by_scheme: dict[str, list[str]] = {}
    for module in modules:
        number = first_of(module, targets)
        if number is None:
            expected.add(f"{module}.weight")
        else:
            by_scheme.setdefault(schemes[number][0], []).append(module)
    for scheme, of_scheme in by_scheme.items():
        alone = tensors_in(converted(model, tmp_path / scheme, [(scheme, of_scheme)]))
        for module in of_scheme:
            parts = [each for each in alone if each.rpartition(".")[0] == module]
            assert all(mixed[part] == alone[part] for part in parts)
            expected |= {*parts}
    assert mixed.keys() == expected | {"lm_head.weight"}
    # As in llm-compressor the parts of a set have one file if one of the schemes is NVFP4.
    places = json.loads((tmp_path / "mixed" / "model.safetensors.index.json").read_text())["weight_map"]
    together = {places[tensor] for tensor in mixed if re.search(r"layers\.0\.self_attn\.[qkv]_proj\.", tensor)}
    assert len(together) == (1 if "NVFP4A16" in by_scheme else 2)


@pytest.mark.parametrize("name", MIXTURES)
def test_loaders_find_the_scheme_of_each_module(name: str, model: Path, tmp_path: Path) -> None:
    schemes = MIXTURES[name]
    target = converted(model, tmp_path / "mixed", schemes)
    stated = quantization_config(target)
    groups = list(stated["config_groups"].values())
    assert list(stated["config_groups"]) == [f"group_{number}" for number in range(len(schemes))]
    layouts = {group["format"] for group in groups}
    assert stated["format"] == ("mixed-precision" if len(layouts) > 1 else layouts.pop())
    targets = [group["targets"] for group in groups]
    for of_one, (_, given) in zip(targets, schemes, strict=True):
        kept = [entry for entry in given if "after" not in name or entry != "model.layers.0.mlp.up_proj"]
        assert of_one[: len(kept)] == kept
    for module in SHAPES:
        number = first_of(module, [given for _, given in schemes])
        assert first_of(module, targets) == found_by_compressed_tensors(module, targets) == number
    added = sum(map(len, targets)) - sum(len(given) for _, given in schemes)
    assert added == (8 if "alphabet" in name else 0)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", MIXTURES)
def test_verify_dequantize_and_diff(name: str, model: Path, tmp_path: Path) -> None:
    schemes = MIXTURES[name]
    target = converted(model, tmp_path / "mixed", schemes)
    assert verify(LocalStore(target)).faults == ()
    checked = verify(LocalStore(target), LocalStore(model))
    assert checked.faults == ()
    assert checked.tensors_compared == checked.tensors
    requant.dequantize_checkpoint(target, tmp_path / "restored")
    restored = tensors_in(tmp_path / "restored")
    assert restored.keys() == tensors_in(model).keys()
    for number, (scheme, _) in enumerate(schemes):
        named = [
            module
            for module in SHAPES
            if (at := first_of(module, [of_one for _, of_one in schemes])) is not None and schemes[at][0] == scheme
        ]
        alone = converted(model, tmp_path / f"alone {number}", [(scheme, named)])
        requant.dequantize_checkpoint(alone, tmp_path / f"plain {number}")
        plain = tensors_in(tmp_path / f"plain {number}")
        assert all(restored[f"{module}.weight"] == plain[f"{module}.weight"] for module in named)
    assert requant.diff_checkpoints(target, target).differences == ()
    # One byte of one weight.
    file = sorted(target.glob("*.safetensors"))[-1]
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert verify(LocalStore(target), LocalStore(model)).faults != ()


def test_a_run_goes_on_and_workers_share_it(model: Path, tmp_path: Path) -> None:
    schemes = MIXTURES["parts of fused sets"]
    whole = converted(model, tmp_path / "whole", schemes)
    source, destination = LocalStore(model), LocalStore(tmp_path / "shared")
    file = parse_plan_file(plan_file_of(planned(model, schemes), source, destination).to_json())
    assert work(file.plan(source), source, destination).finished
    assert contents(tmp_path / "shared") == contents(whole)
    manifest = "requant-manifest.json"
    assert (tmp_path / "shared" / manifest).read_bytes() == (whole / manifest).read_bytes()
    (whole / "model-00002-of-00002.safetensors").unlink()
    report = run_plan(planned(model, schemes), source, LocalStore(whole))
    assert report.kept == ("model-00001-of-00002.safetensors", "model.safetensors.index.json")
    assert contents(tmp_path / "shared") == contents(whole)
    # From one mixture to another: that of the source is read as config.json states it.
    again = converted(whole, tmp_path / "again", MIXTURES["one container"])
    requant.dequantize_checkpoint(whole, tmp_path / "plain")
    assert tensors_in(again) == tensors_in(converted(tmp_path / "plain", tmp_path / "twice", MIXTURES["one container"]))
    assert verify(LocalStore(again), LocalStore(whole)).faults == ()


def test_all_faces_ask_for_the_same(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schemes = MIXTURES["experts and attention"]
    options = [part for name, of_one in schemes for part in ("--scheme", name.lower(), *("--for", of_one[0]))]
    listed = tmp_path / "schemes.json"
    listed.write_text(json.dumps([{"scheme": name, "targets": of_one} for name, of_one in schemes]))
    assert main(["checkpoint", "quantize", str(model), str(tmp_path / "a"), *options]) == DONE
    assert main(["checkpoint", "quantize", str(model), str(tmp_path / "b"), "--schemes", str(listed)]) == DONE
    assert capsys.readouterr().out.count("To serve it: vllm serve ") == 2
    requant.quantize_checkpoint(model, tmp_path / "c", schemes)
    first, *others = ({p.name: p.read_bytes() for p in (tmp_path / each).iterdir()} for each in "abc")
    assert all(each == first for each in others)
    asked = json.loads(first["requant-manifest.json"])["request"]
    assert asked["schemes"] == json.loads(listed.read_text())
    assert asked.keys() == {"direction", "schemes", "profile", "ignore", "not_finite", "dtype"}
    assert main(["checkpoint", "plan", str(model), *options, "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["request"] == asked
    # A model without a manifest, as other programs write it.
    (tmp_path / "a" / "requant-manifest.json").unlink()
    checked = ["checkpoint", "verify", str(tmp_path / "a"), "--source", str(model)]
    assert main([*checked, *options]) == DONE
    assert main([*checked, "--schemes", str(listed), "--report", str(tmp_path / "report.html")]) == DONE
    assert "NVFP4A16 for re:.*mlp.*, FP8_BLOCK for re:.*self_attn.*" in (tmp_path / "report.html").read_text()


def test_modules_of_one_scheme_may_stand_before_it(model: Path, tmp_path: Path) -> None:
    for folder, options in {
        "a": ["--for", "re:.*mlp.*", "--scheme", "W8A8"],
        "b": ["--scheme", "W8A8", "--targets", "re:.*mlp.*"],
    }.items():
        assert main(["checkpoint", "quantize", str(model), str(tmp_path / folder), *options]) == DONE
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / each).iterdir()} for each in "ab")
    assert first == second
    request = json.loads(first["requant-manifest.json"])["request"]
    assert (request["scheme"], request["targets"]) == ("W8A8", ["re:.*mlp.*"])


def test_what_a_plan_says(model: Path) -> None:
    plan = planned(model, MIXTURES["parts of fused sets"])
    text = plan_text(plan)
    assert "Quantize to NVFP4A16 for re:.*[qv]_proj$, W8A8 for re:.*k_proj$, MXFP4A16 for Linear, profile" in text
    assert "2 x BF16 64x128 to W8A8 " in text
    converted = plan_document(plan, "a")["converted"]
    assert {each["scheme"] for each in converted} == {"NVFP4A16", "W8A8", "MXFP4A16"}
    assert sum(each["count"] for each in converted) == len(SHAPES)
    (warning,) = (each for each in plan.warnings if "different schemes" in each)
    assert "model.layers.*.self_attn.q_proj/k_proj/v_proj (2) get different schemes" in warning
    assert not is_known_to_load(plan)
    whole = planned(model, MIXTURES["experts and attention"])
    assert is_known_to_load(whole)
    assert not [each for each in whole.warnings if "scheme" in each or "scales" in each]
    assert loaders_of(json.loads(whole.config)["quantization_config"]) == (Loader.VLLM, Loader.TRANSFORMERS)


def test_more_groups_than_ten_keep_their_order(model: Path) -> None:
    names = [*SHAPES]
    plan = planned(model, [(("W8A16", "W4A16")[number % 2], [name]) for number, name in enumerate(names)])
    groups = json.loads(plan.config)["quantization_config"]["config_groups"]
    assert [group["targets"] for group in groups.values()] == [[name] for name in names]
    assert list(groups)[1] == "group_01"


def test_a_request_comes_back() -> None:
    for schemes in ([("W8A8", ["Linear"])], MIXTURES["one container"]):
        asked = request(schemes)
        assert request_of(json.loads(json.dumps(asked.members))) == asked
    members = request(MIXTURES["one container"]).members
    wrongs: list[dict[str, Any]] = [{"schemes": "W8A8"}, {"schemes": [{"scheme": "W8A8"}]}, {"schemes": ["W8A8"]}]
    for wrong in (*wrongs, {"targets": []}):
        with pytest.raises((KeyError, TypeError)):
            request_of(json.loads(json.dumps({**members, **wrong})))
    assert asked.schemes[0] == SchemeFor("W4A16:group=32", (r"re:.*down_proj$",))


REFUSED: dict[str, tuple[Schemes, type[RequantError], str]] = {
    "no match": (
        [("W8A8", ["re:.*experts.*"]), ("W4A16", ["Linear"])],
        CheckpointError,
        r"nothing to quantize to W8A8: no module with a \.weight matches 're:.*experts.*': correct its targets",
    ),
    "no match of all": ([("W8A8", ["a"]), ("W4A16", ["b"])], CheckpointError, r"nothing to quantize: .*\['a', 'b'\]"),
    "all have one": (
        [("W8A8", ["Linear"]), ("W4A16", ["re:.*mlp.*"])],
        CheckpointError,
        r"nothing to quantize to W4A16: all that match 're:.*mlp.*' have a scheme that is stated before it "
        r"\(6 weights\): name the schemes in another order",
    ),
    "all ignored": (
        [("W8A8", ["re:.*lm_head"]), ("W4A16", ["Linear"])],
        CheckpointError,
        r"nothing to quantize to W8A8: all that match 're:.*lm_head' are in ignore \(1 weights\): choose other targets",
    ),
    "another container": (
        [("AWQ", ["re:.*mlp.*"]), ("W4A16", ["Linear"])],
        ParameterError,
        "scheme AWQ cannot be one of several: .*Choose schemes of compressed-tensors .W8A8, .*MXFP8.",
    ),
    "GPTQ": ([("W8A8", ["a"]), ("GPTQ_W4A16", ["b"])], ParameterError, "scheme GPTQ_W4A16 cannot be one of several"),
    "no targets": ([("W8A8", []), ("W4A16", ["Linear"])], ParameterError, "scheme W8A8 is one of several and has no"),
    "one target of two": (
        [("W8A8", ["Linear"]), ("W4A16", ["Linear"])],
        ParameterError,
        "'Linear' is a target of both W8A8 and W4A16: give it to one of them",
    ),
    "no scheme of that name": ([("W8A8", ["a"]), ("W4A17", ["b"])], UnknownNameError, "did you mean W4A16"),
    "a pattern": ([("W8A8", ["re:("]), ("W4A16", ["b"])], ParameterError, r"targets: 're:\('"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_what_to_do(name: str, model: Path) -> None:
    schemes, error, message = REFUSED[name]
    with pytest.raises(error, match=f"(?s){message}"):
        planned(model, schemes)


@pytest.mark.parametrize(
    ("scheme", "targets", "message"),
    [
        ([("W8A8", ["a"]), ("W4A16", ["b"])], ["c"], "state them with each in scheme"),
        (["W8A8", "W4A16"], ["Linear"], "scheme has the entry 'W8A8'; expected a name with targets"),
        ([("W8A8", "re:.*")], ["Linear"], "the targets of W8A8 is 're:.*'; expected a list"),
        ([], ["Linear"], "scheme is an empty list"),
        (8, ["Linear"], "scheme has the entry 8"),
    ],
)
def test_what_is_no_list_of_schemes(scheme: Any, targets: list[str], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        request(scheme, targets=targets)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--for", "a"], "one of the arguments --scheme --schemes is required"),
        (["--for", "a", "--scheme", "W8A8", "--scheme", "W4A16", "--for", "b"], "--for 'a' stands before the first"),
        (["--scheme", "W8A8", "--schemes", "x.json"], "not allowed with argument --scheme"),
        (["--schemes", "x.json", "--for", "a"], "--for is not for --schemes: write the modules into that file"),
    ],
)
def test_options_that_do_not_fit(
    options: list[str], message: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["checkpoint", "quantize", str(model), str(tmp_path / "out"), *options])
    assert ended.value.code == WRONG_USAGE
    assert message in capsys.readouterr().err


def test_two_schemes_without_modules(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--scheme", "W8A8", "--scheme", "W4A16", "--for", "Linear"]
    assert main(["checkpoint", "quantize", str(model), str(tmp_path / "out"), *options]) == WRONG_USAGE
    assert "scheme W8A8 is one of several and has no targets: name its modules" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "does not exist"),
        ("[", "is not JSON that is read"),
        ('[{"scheme": "W8A8", "for": ["a"]}]', "has other members; expected [{"),
        ('[{"scheme": "W8A8", "targets": "a"}]', "has other members; expected [{"),
        ("{}", "has other members; expected [{"),
    ],
)
def test_files_that_state_no_schemes(
    text: str | None, message: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "schemes.json"
    if text is not None:
        file.write_text(text)
    status = main(["checkpoint", "quantize", str(model), str(tmp_path / "out"), "--schemes", str(file)])
    assert status in (FAILED, WRONG_USAGE)
    assert message in capsys.readouterr().err


def test_files_of_other_kinds_have_one_scheme(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for source in ("model.gguf", "model.onnx"):
        for options in (["--scheme", "Q8_0", "--scheme", "Q4_0"], ["--schemes", "x.json"]):
            with pytest.raises(SystemExit):
                main(["checkpoint", "quantize", str(tmp_path / source), str(tmp_path / "out"), *options])
            assert "for safetensors" in capsys.readouterr().err
