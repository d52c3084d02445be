"""Checkpoint jobs over HTTP: one replica runs a job, and every replica answers for it."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import numpy as np
import pytest

from requant.checkpoint import jobs
from requant.checkpoint.plan.model import Direction, Request, SchemeFor
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.run.run import run_plan
from requant.checkpoint.run.steps import Steps
from requant.checkpoint.storage.location import open_store
from requant.checkpoints import quantize_checkpoint
from requant_service.app import Application
from requant_service.operations.checkpoint_jobs import identifier_of
from tests.core.checkpoint.storage.http_files import HttpFiles, serving
from tests.support.asgi import ready_app
from tests.support.hand_made_plan import Tensors, write_safetensors
from tests.support.model_directory import LLAMA, contents, make_model, modules_of_llama, save_model

ENDED = {"finished", "failed", "cancelled", "interrupted"}
PREFER = {"prefer": "respond-async"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_model(tmp_path / "root" / "source")
    return tmp_path / "root"


def _replica(*roots: Path | str, jobs: int = 1) -> Application:
    return ready_app(checkpoint_roots=[str(each) for each in roots], checkpoint_jobs=jobs)


def _ask(app: Application, method: str, path: str, body: Any = None) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, json=body, headers=PREFER if body else {})

    return asyncio.run(ask())


def _start(app: Application, body: dict[str, Any]) -> httpx.Response:
    return _ask(app, "POST", "/v1/checkpoints", body)


def _body(root: Path, **members: Any) -> dict[str, Any]:
    names = {"source": str(root / "source"), "destination": str(root / "out" / "model")}
    return {**names, "scheme": "W4A16", "ignore": ["re:.*q_proj"], **members}


def _ended(app: Application, location: str, *, states: set[str] = ENDED) -> dict[str, Any]:
    end = time.monotonic() + 60
    while (found := _ask(app, "GET", location).json())["state"] not in states:
        assert time.monotonic() < end, found
        time.sleep(0.02)
    return dict(found)


def _of_command(root: Path, destination: Path) -> dict[str, bytes]:
    store = open_store(root / "source")
    request = Request(Direction.QUANTIZE, (SchemeFor("W4A16"),), "compressed-tensors-cpu", ("re:.*q_proj",))
    run_plan(plan_conversion(store, request), store, open_store(destination))
    return contents(destination)


class Held:
    """Conversions stop at their first piece until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.let_go = Event(), Event()
        convert = Steps._quantize_piece

        def held(steps: Steps, *arguments: Any) -> None:
            self.reached.set()
            assert self.let_go.wait(60)
            convert(steps, *arguments)

        monkeypatch.setattr(Steps, "_quantize_piece", held)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


def test_a_job_makes_what_the_command_makes(root: Path, tmp_path: Path) -> None:
    app = _replica(root)
    reply = _start(app, _body(root))
    assert reply.status_code == 202, reply.text
    assert reply.headers["preference-applied"] == "respond-async"
    location = reply.headers["location"]
    found = _ended(app, location)
    assert found["state"] == "finished"
    assert contents(root / "out" / "model") == _of_command(root, tmp_path / "command")
    assert found["progress"]["bytes_written"] == found["progress"]["bytes_to_write"] > 0
    assert found["request"]["scheme"] == "W4A16"
    # Any replica, one that was started later included, knows it; the same request leaves it as it is.
    other = _replica(root)
    assert _ask(other, "GET", location).json() == _ask(app, "GET", location).json()
    again = _start(other, _body(root))
    assert (again.status_code, again.json()["state"], again.headers["location"]) == (202, "finished", location)
    assert not list((root / "out" / "model").glob("requant-progress*"))


def test_a_dry_run_writes_nothing(root: Path) -> None:
    reply = _start(_replica(root), _body(root, dry_run=True))
    assert reply.status_code == 200, reply.text
    assert [each["file"] for each in reply.json()["outputs"]] == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]
    assert not (root / "out").exists()


def test_another_replica_sees_and_cancels_a_job(root: Path, held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("requant.checkpoint.jobs.SECONDS_BETWEEN", 0.05)
    stopped, stop = Event(), jobs.ConversionJob.stop

    def noted(conversion: jobs.ConversionJob) -> None:
        stop(conversion)
        stopped.set()

    monkeypatch.setattr(jobs.ConversionJob, "stop", noted)
    app, other = _replica(root), _replica(root)
    location = _start(app, _body(root)).headers["location"]
    assert held.reached.wait(60)
    assert _ask(other, "GET", location).json()["state"] == "running"
    # The same request to another replica does not start it a second time.
    assert _start(other, _body(root)).json()["state"] == "running"
    assert _ask(other, "POST", f"{location}/cancel").status_code == 200
    assert stopped.wait(60)
    held.let_go.set()
    assert _ended(app, location)["state"] == "cancelled"
    assert _ask(other, "GET", location).json()["state"] == "cancelled"
    assert not (root / "out" / "model" / "config.json").exists()
    # The request that started it continues it, there too.
    _start(other, _body(root))
    assert _ended(other, location)["state"] == "finished"


def test_a_job_that_died_is_interrupted_and_can_be_continued(
    root: Path, tmp_path: Path, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = _replica(root)
    location = _start(app, _body(root)).headers["location"]
    assert held.reached.wait(60)
    # As after SIGTERM.
    app.state.runtime.checkpoint_jobs._running[str(root / "out" / "model")].stop(jobs.JobState.INTERRUPTED)
    held.let_go.set()
    restarted = _replica(root)
    assert _ended(restarted, location)["state"] == "interrupted"
    _start(restarted, _body(root))
    assert _ended(restarted, location)["state"] == "finished"
    assert contents(root / "out" / "model") == _of_command(root, tmp_path / "command")
    # As after SIGKILL: nothing was written at the end, and nothing is written any more.
    record = jobs.JobRecord("p", {}, jobs.JobState.RUNNING, "s", time.time() - 100, time.time() - 90)
    silent = root / "silent"
    silent.mkdir()
    manifest = {"version": 1, "plan": "p", "request": {}, "files": {}}
    (silent / "requant-manifest.json").write_text(json.dumps(manifest))
    jobs.write_record(open_store(silent), record)
    found = jobs.read_record(open_store(silent))
    assert found is not None
    assert found.state is jobs.JobState.INTERRUPTED


def test_failures_are_told(root: Path) -> None:
    make_model(root / "bad", not_finite=True)
    app = _replica(root)
    reply = _start(app, _body(root, source=str(root / "bad"), destination=str(root / "out" / "bad")))
    found = _ended(app, reply.headers["location"])
    assert found["state"] == "failed"
    assert found["error"]["code"] == "checkpoint"
    assert found["error"]["tensor"] == "model.layers.1.mlp.up_proj.weight"


def test_refusals_before_anything_is_written(root: Path, held: Held) -> None:
    app = _replica(root)
    refused: list[tuple[dict[str, Any], int, str]] = [
        ({"scheme": "W4A17"}, 422, "unknown_name"),
        ({"ignore": ["re:("]}, 422, "parameter_invalid"),
        ({"ignore": [r"re:(a|a)*\1$"]}, 422, "parameter_invalid"),
        ({"scheme": "W4A16:grup=32"}, 422, "unknown_name"),
        ({"scheme": "W4A16:group=100"}, 422, "checkpoint"),
        ({"source": str(root / "nothing")}, 422, "checkpoint"),
        ({"destination": str(root / "source")}, 409, "destination"),
        ({"direction": "dequantize"}, 422, "request_invalid"),
        ({"dtype": "F32"}, 422, "parameter_invalid"),
        ({"profile": "onnx"}, 422, "unknown_name"),
        ({"upload": "x"}, 422, "request_invalid"),
    ]
    for members, status, code in refused:
        reply = _start(app, _body(root, **members))
        assert (reply.status_code, reply.json()["code"]) == (status, code), (members, reply.text)
    assert not (root / "out").exists()
    # One destination, two conversions; and more jobs than may run.
    location = _start(app, _body(root)).headers["location"]
    assert held.reached.wait(60)
    assert _start(app, _body(root, scheme="W8A16")).json()["code"] == "destination"
    second = root / "out" / "second"
    assert _start(app, _body(root, destination=str(second))).json()["code"] == "overloaded"
    assert not second.exists()
    held.let_go.set()
    assert _ended(app, location)["state"] == "finished"


def test_a_repack_is_exact_and_says_so(root: Path) -> None:
    app = _replica(root)
    first = str(root / "out" / "first")
    quantized = _start(app, {"source": str(root / "source"), "destination": first, "scheme": "GPTQ_W4A16"})
    assert _ended(app, quantized.headers["location"])["state"] == "finished"
    repack = {"source": first, "destination": str(root / "out" / "second"), "scheme": "W4A16", "repack": "exact"}
    reply = _start(app, {**repack, "ignore": ["lm_head"]})
    assert [each["pointer"] for each in reply.json()["errors"]] == ["/ignore"]
    assert _ended(app, _start(app, repack).headers["location"])["state"] == "finished"
    manifest = json.loads((root / "out" / "second" / "requant-manifest.json").read_text())
    verdicts = manifest["certificate"]["tensors"].values()
    assert {each["verdict"] for each in verdicts} == {"copied", "exact"}
    inexact = {**repack, "destination": str(root / "out" / "third"), "scheme": "FP8_BLOCK"}
    failed = _ended(app, _start(app, inexact).headers["location"])
    assert (failed["state"], failed["error"]["code"]) == ("failed", "checkpoint")
    assert "it would be stored as" in failed["error"]["detail"]


def test_members_without_effect_are_refused(root: Path) -> None:
    app = _replica(root)
    dequantize = {"source": str(root / "source"), "direction": "dequantize", "dry_run": True}
    for name, value in {
        "scheme": "W8A8",
        "schemes": [{"scheme": "W8A8", "targets": ["Linear"]}],
        "profile": "compressed-tensors-cpu",
        "ignore": ["lm_head"],
        "targets": ["lm_head"],
        "not_finite": "convert",
    }.items():
        reply = _start(app, {**dequantize, name: value})
        assert (reply.status_code, reply.json()["code"]) == (422, "request_invalid"), (name, reply.text)
        assert [(each["pointer"], each["code"]) for each in reply.json()["errors"]] == [(f"/{name}", "unexpected")]
    # Defaults that are written out have no effect either, and say nothing else.
    reply = _start(app, {**dequantize, "ignore": [], "targets": ["Linear"], "not_finite": "refuse"})
    assert "quantization_config" in reply.json()["detail"]


SCHEMES = [{"scheme": "nvfp4a16", "targets": ["re:.*mlp.*"]}, {"scheme": "W8A8", "targets": ["Linear"]}]


def _mixed(root: Path, **members: Any) -> dict[str, Any]:
    return {"source": str(root / "source"), "destination": str(root / "mixed"), "schemes": SCHEMES, **members}


def test_a_job_with_several_schemes(root: Path, tmp_path: Path) -> None:
    app = _replica(root)
    reply = _start(app, _mixed(root))
    assert reply.status_code == 202, reply.text
    found = _ended(app, reply.headers["location"])
    assert (found["state"], found["warnings"]) == ("finished", [])
    assert found["request"]["schemes"] == [{**SCHEMES[0], "scheme": "NVFP4A16"}, SCHEMES[1]]
    store = open_store(root / "source")
    schemes = (SchemeFor("NVFP4A16", ("re:.*mlp.*",)), SchemeFor("W8A8", ("Linear",)))
    request = Request(Direction.QUANTIZE, schemes, "compressed-tensors-cpu", ("default",))
    run_plan(plan_conversion(store, request), store, open_store(tmp_path / "command"))
    assert contents(root / "mixed") == contents(tmp_path / "command")
    # Another order is another conversion, and one scheme in the list is that scheme.
    assert _start(app, _mixed(root, schemes=SCHEMES[::-1])).json()["code"] == "checkpoint"
    assert _start(app, _mixed(root, schemes=[{**SCHEMES[1], "scheme": "W8A16"}])).json()["code"] == "destination"
    plan = _start(app, _mixed(root, dry_run=True, schemes=SCHEMES[1:])).json()
    assert (plan["request"]["scheme"], plan["request"]["targets"]) == ("W8A8", ["Linear"])


def test_schemes_that_do_not_fit_together(root: Path) -> None:
    app = _replica(root)
    first = SCHEMES[0]
    refused: list[tuple[dict[str, Any], str, str]] = [
        ({"scheme": "W8A8"}, "request_invalid", "/scheme"),
        ({"targets": ["lm_head"]}, "request_invalid", "/targets"),
        ({"schemes": []}, "request_invalid", "/schemes"),
        ({"schemes": [{"scheme": "W8A8"}]}, "request_invalid", "/schemes/0/targets"),
        ({"schemes": [{"scheme": "W8A8", "targets": []}]}, "request_invalid", "/schemes/0/targets"),
        ({"schemes": [first, {"scheme": "W8A9", "targets": ["Linear"]}]}, "unknown_name", "/schemes/1/scheme"),
        ({"schemes": [first, {"scheme": "W8A8", "targets": ["re:("]}]}, "parameter_invalid", "/schemes"),
        ({"schemes": [first, {"scheme": "AWQ", "targets": ["Linear"]}]}, "parameter_invalid", ""),
        ({"schemes": [first, first]}, "parameter_invalid", ""),
        ({"schemes": [first, {"scheme": "W8A8", "targets": ["a"]}]}, "checkpoint", ""),
    ]
    for members, code, pointer in refused:
        problem = _start(app, _mixed(root, **members)).json()
        errors = problem.get("errors", [{"pointer": problem.get("pointer", "")}])
        assert (problem["code"], errors[0]["pointer"]) == (code, pointer), (members, problem)
    assert not (root / "mixed").exists()


def test_embeddings_and_heads_stay_unless_a_list_is_given(root: Path) -> None:
    names = ["model.embed_tokens", "model.layers.0.self_attn.q_proj", "lm_head"]
    tensors: Tensors = {f"{name}.weight": ("F32", np.ones((8, 128), np.float32)) for name in names}
    (root / "whole").mkdir()
    write_safetensors(root / "whole" / "model.safetensors", tensors)
    (root / "whole" / "config.json").write_text("{}")
    body = {"source": str(root / "whole"), "scheme": "W4A16", "dry_run": True}
    default = [r"re:.*\bembed_tokens$", r"re:.*\blm_head$"]
    for ignore, expected in [
        (None, default),
        (["default"], default),
        (["default", "lm_head"], ["lm_head", default[0]]),
        ([], []),
        (["lm_head"], ["lm_head"]),
    ]:
        reply = _start(_replica(root), body if ignore is None else {**body, "ignore": ignore})
        assert reply.json()["request"]["ignore"] == expected, reply.text


def test_off_by_default(root: Path) -> None:
    app = ready_app()
    reply = _start(app, _body(root))
    assert (reply.status_code, reply.json()["code"]) == (422, "unsupported")
    assert "checkpoint_roots" in reply.json()["detail"]


def test_names_stay_below_the_roots(root: Path, tmp_path: Path) -> None:
    outside = make_model(tmp_path / "outside")
    os.symlink(outside, root / "link")
    linked = make_model(root / "linked")
    (linked / "tokenizer.json").unlink()
    os.symlink(outside / "tokenizer.json", linked / "tokenizer.json")
    inside = make_model(root / "inside")
    (inside / "tokenizer.json").rename(root / "blob")
    os.symlink(root / "blob", inside / "tokenizer.json")
    app = _replica(root, "s3://bucket/models")
    bucket = "s3://bucket/models"
    sources = [
        str(outside), str(root), str(root / ".." / "outside"), str(root / "link"), str(linked), "source", "", "~/x",
        f"{root}-2/x", f"{root}/source\0", "s3://other/models/x", f"{bucket}-2/x", f"{bucket}/../x",
        f"{bucket}/%2e%2e/x", "s3://user@bucket/models/x", "file:///etc", f"file://{root}/source", "/etc/passwd",
    ]  # fmt: skip
    for source in sources:
        reply = _start(app, _body(root, source=source))
        assert reply.status_code == 422, (source, reply.text)
        assert reply.json()["code"] in ("storage", "request_invalid"), source
        assert "root:" not in reply.text
    destinations = [str(outside / "new"), str(root / "link" / "new"), str(root), "https://bucket/models/x"]
    for destination in destinations:
        reply = _start(app, _body(root, destination=destination))
        assert (reply.status_code, reply.json()["code"]) == (422, "storage"), destination
    assert not (outside / "new").exists()
    # Links that stay inside are those of Hugging Face's cache.
    assert _start(app, _body(root, source=str(inside), dry_run=True)).status_code == 200


HALF_URLS = (
    "http://[", "http://]", "http://]x[/", "http://[]/x", "http://[::1/x", "http://::1]/x", "https://[x]/y", "http://[v1.x]/y",
    "http://a\u2100b/", "http://\u2100/x", "http://\uff0f/x", "s3://[", "s3://bucket/[x", "s3://[bucket]/x", "gs://]",
    "az://a\u2100b/x", "http://host:port/x", "http://host:99999/x", "http://host:-1/x", "http://host:\u0663/x", "file://[",
    "file://]x[/", "file://a\u2100b/", "://", "http://", "s3://", "x://[", "http://[/models/../x",
)  # fmt: skip


@pytest.mark.parametrize("url", HALF_URLS)
def test_texts_that_are_no_urls(root: Path, url: str) -> None:
    """As a source, as a destination, and as the id of a job."""
    app = _replica(root, "s3://bucket/models", "http://host/models")
    for members in ({"source": url}, {"destination": url}, {"source": url, "dry_run": True}):
        reply = _start(app, _body(root, **members))
        assert (reply.status_code, reply.json()["code"]) == (422, "storage"), (members, reply.text)
    for method, path in (("GET", ""), ("POST", "/cancel")):
        reply = _ask(app, method, f"/v1/checkpoints/{identifier_of(url)}{path}")
        assert (reply.status_code, reply.json()["code"]) == (422, "storage"), (url, reply.text)


@pytest.mark.parametrize("name", ["config.json", "model-00001-of-00002.safetensors"])
def test_a_fifo_in_the_place_of_a_file(root: Path, name: str) -> None:
    """Nobody writes to it: whoever opens it to read would wait for ever, in one of four threads."""
    (root / "source" / name).unlink()
    os.mkfifo(root / "source" / name)
    app = _replica(root)
    for _ in range(5):
        reply = _start(app, _body(root))
        assert (reply.status_code, reply.json()["code"]) == (422, "checkpoint"), reply.text


@pytest.mark.parametrize("name", ["requant-manifest.json", "requant-progress/.job.json"])
def test_a_fifo_at_the_destination(root: Path, name: str) -> None:
    place = root / "out" / "model" / name
    place.parent.mkdir(parents=True)
    os.mkfifo(place)
    app = _replica(root)
    location = f"/v1/checkpoints/{identifier_of(str(root / 'out' / 'model'))}"
    for reply in (_start(app, _body(root)), _ask(app, "GET", location), _ask(app, "POST", f"{location}/cancel")) * 2:
        assert (reply.status_code, reply.json()["code"]) == (422, "storage"), reply.text
        assert "a FIFO" in reply.json()["detail"]


def test_a_root_that_redirects_elsewhere(root: Path) -> None:
    with serving(HttpFiles()) as served:
        source = root / "source"
        served.files = {
            f"{folder}/{path.name}": path.read_bytes() for folder in ("models/x", "y") for path in source.iterdir()
        }
        served.redirects = {f"models/y/{path.name}": f"/y/{path.name}" for path in source.iterdir()}
        app = _replica(root, f"{served.url}/models")
        assert _start(app, _body(root, source=f"{served.url}/models/x", dry_run=True)).status_code == 200
        reply = _start(app, _body(root, source=f"{served.url}/models/y", dry_run=True))
        assert (reply.status_code, reply.json()["code"]) == (422, "storage"), reply.text
        assert "redirects to a place that is not below the configured root" in reply.json()["detail"]
        assert not [path for _, path, _ in served.requests if path.startswith("/y/")]


def test_links_of_a_destination_lead_nowhere_else(root: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (root / "out" / "model").mkdir(parents=True)
    os.symlink(tmp_path / "outside", root / "out" / "model" / "requant-progress")
    app = _replica(root)
    reply = _start(app, _body(root))
    assert (reply.status_code, reply.json()["code"]) == (422, "storage"), reply.text
    assert str(tmp_path / "outside") not in reply.text
    assert not list((tmp_path / "outside").iterdir())


def test_other_identifiers_are_unknown(root: Path) -> None:
    app = _replica(root)
    for name in ("x", "L2V0Yw", "L2V0Yw==", "%00", "a" * 3000):
        for method, path in (("GET", f"/v1/checkpoints/{name}"), ("POST", f"/v1/checkpoints/{name}/cancel")):
            reply = _ask(app, method, path)
            assert reply.status_code in (404, 422, 431), (name, reply.text)


def test_a_job_whose_record_cannot_be_removed_leaves_its_place(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = _replica(root)

    def failing(*arguments: Any) -> None:
        raise OSError("gone")

    monkeypatch.setattr(jobs, "forget_cancellation", failing)
    monkeypatch.setattr(jobs, "write_record", failing)
    _start(app, _body(root))
    running = app.state.runtime.checkpoint_jobs
    end = time.monotonic() + 30
    while running.running:
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("kind", ["json", "safetensors", "directory", "at the root", "by a link"])
def test_scales_of_activations_are_read_below_the_roots(root: Path, tmp_path: Path, kind: str) -> None:
    shapes = modules_of_llama(32, inner=64, keys=16)
    weights: Tensors = {f"{name}.weight": ("BF16", np.full(shape, 0x3F80, "<u2")) for name, shape in shapes.items()}
    source = save_model(root / "llama", [weights], LLAMA)
    inputs = {f"{module}.input_scale": 0.25 + number / 64 for number, module in enumerate(shapes)}
    kv = {f"model.layers.{layer}.self_attn.{each}": 0.5 for layer in range(2) for each in ("k_scale", "v_scale")}
    (root / "scales").mkdir()
    place = root / "scales" / "inputs.json"
    if kind in ("json", "at the root", "by a link"):
        place = root / "inputs.json" if kind == "at the root" else place
        place.write_text(json.dumps(inputs))
        if kind == "by a link":
            (root / "link.json").symlink_to(place)
            place = root / "link.json"
    else:
        tensors = {name: np.array([number], "<f4") for name, number in inputs.items()}
        place = root / "scales" / "model.safetensors"
        write_safetensors(place, {name: ("F32", value) for name, value in tensors.items()})
        place = root / "scales" if kind == "directory" else place
    (root / "scales" / "kv.json").write_text(json.dumps(kv))
    app = _replica(root)
    places = {"input_scales": str(place), "kv_scales": str(root / "scales" / "kv.json")}
    body = _body(root, source=str(source), scheme="FP8", ignore=[], **places)
    started = _start(app, body)
    assert started.status_code == 202, started.text
    found = _ended(app, started.headers["location"])
    assert found["state"] == "finished", found
    assert found["request"]["input_scales"] == dict(sorted(inputs.items()))
    quantize_checkpoint(source, tmp_path / "expected", "FP8", ignore=[], input_scales=inputs, kv_scales=kv)
    assert contents(root / "out" / "model") == contents(tmp_path / "expected")
    # The same request is the same job; with another number it is another one.
    assert _start(app, body).status_code == 202
    (root / "scales" / "kv.json").write_text(json.dumps(kv | {next(iter(kv)): 0.125}))
    assert _start(app, body).status_code == 409


def test_scales_that_are_not_below_a_root_are_refused(root: Path, tmp_path: Path) -> None:
    app = _replica(root)
    (tmp_path / "outside.json").write_text('{"model.layers.0.self_attn.q_proj": 1.0}')
    (root / "link.json").symlink_to(tmp_path / "outside.json")
    (root / "secret.json").write_text('{"a": "hunter2"}')
    os.mkfifo(root / "pipe.json")
    for member in ("input_scales", "kv_scales"):
        for place, status in (
            (tmp_path / "outside.json", 422),
            (root / "link.json", 422),
            (root / ".." / "outside.json", 422),
            ("outside.json", 422),
            ("s3://bucket/outside.json", 422),
            (root / "missing.json", 422),
            (root / "missing", 422),
            (root / "pipe.json", 422),
            (root / "secret.json", 422),
        ):
            members = {"scheme": "FP8", "dry_run": True, member: str(place)}
            refused = _start(app, _body(root, **members))
            assert refused.status_code == status, (place, refused.text)
            assert refused.json()["errors"][0]["pointer"] == f"/{member}", refused.text
            assert "hunter2" not in refused.text
    running = app.state.runtime.checkpoint_jobs
    assert running.bytes_of_plans == 0


@pytest.mark.parametrize("scheme", ["FP8", "NVFP4"])
def test_a_scheme_with_given_scales_needs_them(root: Path, scheme: str) -> None:
    refused = _start(_replica(root), _body(root, scheme=scheme, dry_run=True))
    assert refused.status_code == 422
    assert "which is found with data: give them (input_scales" in refused.json()["detail"]
    for members in ({"direction": "dequantize"}, {"scheme": "W8A16", "repack": "exact"}):
        body = {**_body(root, kv_scales=str(root / "x.json")), **members}
        for name in ("ignore", *(("scheme",) if "direction" in members else ())):
            del body[name]
        refused = _start(_replica(root), body)
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["pointer"] == "/kv_scales"
