"""Dockerfile, Compose file, manifests, dashboard and alerts agree with the service and with each other."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from requant.command.main import command_parser
from requant.version import VERSION
from requant_service.runtime.metrics import Metrics
from requant_service.runtime.settings import _OTHER_VARIABLES, Limits, Settings

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy/kubernetes"
COMPONENTS = KUBERNETES / "components"
MANIFESTS = sorted(KUBERNETES.rglob("*.yaml"))
# What Prometheus adds to the samples of a pod that the operator has it scrape.
SCRAPE_LABELS = {"namespace", "pod", "job"}
RESTARTS = "kube_pod_container_status_restarts_total"


def read(path: Path) -> Any:
    (document,) = yaml.safe_load_all(path.read_text())
    return document


def everything(node: Any) -> Iterator[Any]:
    """Yield a document and all that is in it."""
    yield node
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from everything(each)


def dockerfile() -> str:
    return re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())


def image_variables() -> dict[str, str]:
    """The variables that the image sets."""
    (line,) = re.findall(r"^ENV (.*)$", dockerfile(), re.M)
    return dict(pair.split("=", 1) for pair in line.split())


DEPLOYMENT = read(KUBERNETES / "base/deployment.yaml")
POD = DEPLOYMENT["spec"]["template"]["spec"]
PREDICTOR = read(KUBERNETES / "kserve/inference-service.yaml")["spec"]["predictor"]
JOB = read(KUBERNETES / "checkpoint-job/job.yaml")["spec"]
WORKER = JOB["template"]["spec"]
COMPOSE = read(ROOT / "deploy/compose.yaml")["services"]["requant"]
SERVICE = read(KUBERNETES / "base/service.yaml")
PODS = pytest.mark.parametrize("pod", [POD, PREDICTOR], ids=["deployment", "kserve"])


def variables(container: Any) -> dict[str, str]:
    """The variables of a container, with those of the image."""
    return {**image_variables(), **{each["name"]: each["value"] for each in container["env"] if "value" in each}}


def test_every_variable_is_a_setting() -> None:
    known = {*(f"REQUANT_{name.upper()}" for name in Settings.model_fields), *_OTHER_VARIABLES}
    named = set(image_variables())
    # Without the chart's templates, which are no YAML and name none.
    for path in (each for each in (ROOT / "deploy").rglob("*.yaml") if each.parent.name != "templates"):
        for node in everything(read(path)):
            if isinstance(node, dict):
                named.update(node.get("environment", {}))
                named.update(each["name"] for each in node.get("env", []))
    ours = {name for name in named if name.startswith("REQUANT_")}
    assert len(ours) >= 8
    assert not ours - known


def test_the_image_has_one_version_of_python_which_is_supported() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    files = ("Dockerfile", "deploy/debian_packages.txt")
    named = [re.findall(r"python(?:-version )?(3\.\d+)", (ROOT / file).read_text()) for file in files]
    (version,) = {each for versions in named for each in versions}
    assert all(named)
    assert f"Programming Language :: Python :: {version}" in classifiers


def test_kernels_are_compiled_from_what_their_stage_of_the_image_copies(tmp_path: Path) -> None:
    (stage,) = re.findall(r"^FROM compiler AS kernels$(.*?)^FROM", dockerfile(), re.M | re.S)
    for *sources, target in (line.split() for line in re.findall(r"^COPY (.*)$", stage, re.M)):
        for source in (ROOT / each for each in sources):
            if source.is_dir():
                shutil.copytree(source, tmp_path / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                (tmp_path / target).mkdir(exist_ok=True)
                shutil.copy(source, tmp_path / target)
    # It imports every kernel, and so what all of them import.
    program = ("-c", "import requant.kernels.jit.bake")
    subprocess.run([sys.executable, *program], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, check=True)


@PODS
def test_ports_are_those_that_the_service_listens_on(pod: Any) -> None:
    (container,) = pod["containers"]
    given = variables(container)
    ports = {each["name"]: str(each["containerPort"]) for each in container["ports"]}
    assert ports == {name: given[f"REQUANT_{setting}"] for name, setting in
                     (("http", "PORT"), ("grpc", "GRPC_PORT"), ("metrics", "METRICS_PORT"))}  # fmt: skip
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] in ports
    (exposed,) = re.findall(r"^EXPOSE (.*)$", dockerfile(), re.M)
    assert set(exposed.split()) == set(ports.values())


def test_ports_of_compose_and_of_what_calls_the_pods() -> None:
    ports = {each["name"]: each["containerPort"] for each in POD["containers"][0]["ports"]}
    assert COMPOSE["environment"]["REQUANT_GRPC_PORT"] == str(ports["grpc"])
    assert {each.rsplit(":", 1)[1] for each in COMPOSE["ports"]} == {str(ports["http"]), str(ports["grpc"])}
    assert {each["targetPort"] for each in SERVICE["spec"]["ports"]} == set(ports)
    offered = {each["name"] for each in SERVICE["spec"]["ports"]}
    (endpoint,) = read(COMPONENTS / "monitoring/service-monitor.yaml")["spec"]["endpoints"]
    assert endpoint["port"] in offered
    for path in (COMPONENTS / "ingress").glob("ingress*.yaml"):
        backends = [each["service"] for each in everything(read(path)) if isinstance(each, dict) and "service" in each]
        assert backends
        for backend in backends:
            assert backend["name"] == SERVICE["metadata"]["name"]
            assert backend["port"]["name"] in offered
    annotations = read(KUBERNETES / "kserve/inference-service.yaml")["metadata"]["annotations"]
    assert annotations["prometheus.kserve.io/port"] == str(ports["metrics"])
    opened = {
        port["port"]
        for path in KUBERNETES.rglob("network-policy.yaml")
        for rule in read(path)["spec"].get("ingress", [])
        for port in rule["ports"]
    }
    assert opened == set(ports)


def test_spans_may_leave() -> None:
    """The port that spans are sent to is one that the component's policy opens, beside that of DNS."""
    patch = read(COMPONENTS / "traces/patch.yaml")
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    endpoint = httpx.URL(variables(container)["OTEL_EXPORTER_OTLP_ENDPOINT"])
    names, collector = read(COMPONENTS / "traces/network-policy.yaml")["spec"]["egress"]
    assert {(each["protocol"], each["port"]) for each in names["ports"]} == {("UDP", 53), ("TCP", 53)}
    assert [each["port"] for each in collector["ports"]] == [endpoint.port]
    (to,) = collector["to"]
    assert endpoint.host.split(".")[1] == to["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]


def test_tokens_are_where_they_are_looked_for() -> None:
    pod = read(COMPONENTS / "tokens/patch.yaml")["spec"]["template"]["spec"]
    (container,), (volume,) = pod["containers"], pod["volumes"]
    (mount,) = container["volumeMounts"]
    secret = read(COMPONENTS / "tokens/secret.yaml")
    assert volume["secret"]["secretName"] == secret["metadata"]["name"]
    (key,) = secret["stringData"]
    assert Path(variables(container)["REQUANT_TOKENS_FILE"]) == Path(mount["mountPath"], key)
    # Who applies it unedited does not run a service whose token everybody knows.
    assert all(line.startswith("#") for line in secret["stringData"][key].splitlines())


@PODS
def test_resources_and_times_fit_the_service(pod: Any) -> None:
    (container,) = pod["containers"]
    resources, settings = container["resources"], Settings.model_fields
    assert resources["requests"]["memory"] == resources["limits"]["memory"]
    assert "cpu" not in resources["limits"]
    sources = {each["name"]: each.get("valueFrom") for each in container["env"]}
    for name in ("REQUANT_WORKERS", "REQUANT_THREADS"):
        assert sources[name] == {"resourceFieldRef": {"resource": "requests.cpu"}}
    assert resources["requests"]["cpu"].isdecimal()
    end = settings["drain_seconds"].default + settings["shutdown_seconds"].default + 2
    assert pod["terminationGracePeriodSeconds"] > end
    assert int(COMPOSE["stop_grace_period"].removesuffix("s")) > end
    startup = container["startupProbe"]
    # 90 s of CPU for the kernels, on less than a quarter of one.
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 600
    assert pod["securityContext"]["runAsUser"] == int(re.findall(r"^USER (\d+)", dockerfile(), re.M)[-1])


def test_a_worker_is_told_its_share() -> None:
    assert JOB["completionMode"] == "Indexed"
    (container,) = WORKER["containers"]
    entry = json.loads(dockerfile().rpartition("ENTRYPOINT ")[2])
    assert container["command"] == entry[:-1]
    names = {each["name"] for each in container["env"]}
    arguments = [argument.replace("$(THREADS)", "4") for argument in container["args"]]
    assert arguments != container["args"]
    assert "THREADS" in names
    parsed = command_parser().parse_args(arguments)
    assert (parsed.of, parsed.threads, parsed.index) == (JOB["completions"], 4, None)


def test_the_pod_of_a_worker_is_that_of_the_service() -> None:
    for name in ("securityContext", "automountServiceAccountToken", "enableServiceLinks"):
        assert WORKER[name] == POD[name]
    (container,), (service,) = WORKER["containers"], POD["containers"]
    assert container["securityContext"] == service["securityContext"]
    resources = container["resources"]
    assert resources["requests"]["memory"] == resources["limits"]["memory"]
    assert "cpu" not in resources["limits"]


def test_the_spool_of_a_worker() -> None:
    """It lies where it may be written, and fits into the storage that is asked for."""
    (container,), (volume,) = WORKER["containers"], WORKER["volumes"]
    (mount,) = container["volumeMounts"]
    assert variables(container)["TMPDIR"] == mount["mountPath"]
    assert mount["name"] == volume["name"]
    storage = {container["resources"][kind]["ephemeral-storage"] for kind in ("requests", "limits")}
    assert int(volume["emptyDir"]["sizeLimit"].removesuffix("Gi")) < int(storage.pop().removesuffix("Gi"))
    assert not storage


def test_the_credentials_of_a_worker() -> None:
    (container,) = WORKER["containers"]
    (source,) = container["envFrom"]
    secret = read(KUBERNETES / "checkpoint-job/secret.yaml")
    assert source["secretRef"]["name"] == secret["metadata"]["name"]
    assert not any(value for name, value in secret["stringData"].items() if "KEY" in name)


def test_a_rollout_waits_for_the_startup_probe() -> None:
    startup = POD["containers"][0]["startupProbe"]
    assert DEPLOYMENT["spec"]["progressDeadlineSeconds"] > startup["periodSeconds"] * startup["failureThreshold"]


def test_kustomizations_name_all_files_and_one_image() -> None:
    for folder in sorted({path.parent for path in MANIFESTS}):
        kustomization = read(folder / "kustomization.yaml")
        generated = [file for each in kustomization.get("configMapGenerator", []) for file in each["files"]]
        patches = [each["path"] for each in kustomization.get("patches", [])]
        named = [*kustomization.get("resources", []), *kustomization.get("components", []), *patches, *generated]
        assert all((folder / name).exists() for name in named), folder
        files = {file.name for file in folder.iterdir() if file.is_file()} - {"kustomization.yaml"}
        assert files == {name for name in named if "/" not in name}, folder
    images = {each["image"] for each in (*POD["containers"], *PREDICTOR["containers"], *WORKER["containers"])}
    assert images == {"requant"}
    for place in ("base", "checkpoint-job", "kserve", "overlays/production"):
        (image,) = read(KUBERNETES / place / "kustomization.yaml")["images"]
        assert image["name"] == "requant"


STATED_VERSIONS = {
    "pyproject.toml": r'^version = "(.+)"',
    "Dockerfile": r"^ARG VERSION=(.+)",
    "CITATION.cff": r"^version: (.+)",
    "CHANGELOG.md": r"^## ([\d.]+) - ",
    "deploy/compose.yaml": r"/requant:([\d.]+)",
    "deploy/helm/requant/Chart.yaml": r"^(?:version|appVersion): (.+)",
    "deploy/examples/shared-memory/kubernetes.yaml": r"image: requant:(.+)",
    "docs/deployment.md": r"requant[:-]([\d]+(?:\.\d+)+)",
} | {
    f"deploy/kubernetes/{each}/kustomization.yaml": r"newTag: (.+)"
    for each in ("base", "checkpoint-job", "kserve", "overlays/production")
}  # fmt: skip


@pytest.mark.parametrize("file", STATED_VERSIONS)
def test_the_version_is_stated_alike(file: str) -> None:
    stated = re.findall(STATED_VERSIONS[file], (ROOT / file).read_text(), re.MULTILINE)
    # A changelog has those before, too.
    assert stated[0] == VERSION
    assert file == "CHANGELOG.md" or set(stated) == {VERSION}


@pytest.mark.sample(1)
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
@pytest.mark.parametrize("folder", ["base", "checkpoint-job", "kserve", "overlays/production"])
def test_kustomize_builds_it(folder: str) -> None:
    run = subprocess.run(["kubectl", "kustomize", KUBERNETES / folder], check=True, capture_output=True, text=True)
    documents = list(yaml.safe_load_all(run.stdout))
    images = {each["image"] for each in everything(documents) if isinstance(each, dict) and "image" in each}
    (image,) = read(KUBERNETES / folder / "kustomization.yaml")["images"]
    assert images == {f"{image.get('newName', image['name'])}:{image['newTag']}"}


@pytest.fixture(scope="module")
def labels(request: pytest.FixtureRequest) -> dict[str, set[str]]:
    """The label names of each sample name of /metrics."""
    server = request.getfixturevalue("server")
    body = {"input": {"type": "tensor<1xf32>", "values": [1e9]}, "output_type": "!quant.uniform<i8:f32, 1.0>"}
    assert httpx.post(f"{server.url}/v1/quantize", json=body, verify=False).status_code == 200
    # A rejection takes a service that is out of memory.
    rejected = Metrics()
    rejected.rejected("any")
    found: dict[str, set[str]] = {}
    for page in (httpx.get(f"{server.url}/metrics", verify=False).text, rejected.text().decode()):
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """Yield the name and the PromQL of each alert and of each panel of the dashboard."""
    for group in read(COMPONENTS / "monitoring/prometheus-rule.yaml")["spec"]["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    dashboard = json.loads((COMPONENTS / "monitoring/dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def test_alerts_and_dashboard_ask_for_metrics_that_exist(labels: dict[str, set[str]]) -> None:
    asked = list(expressions())
    assert len(asked) > 20
    known = {**labels, RESTARTS: {"container"}}
    for name, expression in asked:
        found = re.findall(r"\b((?:requant|kube)_\w+)\b(?:\{([^}]*)\})?", expression)
        assert found, name
        for metric, matchers in found:
            assert metric in known, (name, metric)
            assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)) <= known[metric] | SCRAPE_LABELS, (name, metric)
        grouped = re.findall(r"\b(?:by|without)\s*\(([^)]*)\)", expression)
        allowed = set(itertools.chain.from_iterable(known[metric] for metric, _ in found)) | SCRAPE_LABELS
        assert {each.strip() for each in ",".join(grouped).split(",") if each} <= allowed, name


def test_the_dashboard_shows_every_metric(labels: dict[str, set[str]]) -> None:
    text = (COMPONENTS / "monitoring/dashboard.json").read_text()
    names = {re.sub("_(bucket|sum|count|created)$", "", name) for name in labels}
    assert not {name for name in names if name not in text}


def test_panels_do_not_overlap() -> None:
    dashboard = json.loads((COMPONENTS / "monitoring/dashboard.json").read_text())
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        rows = range(place["y"], place["y"] + place["h"])
        columns = range(place["x"], place["x"] + place["w"])
        cells = set(itertools.product(columns, rows))
        assert columns.stop <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    identifiers = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(identifiers)) == len(identifiers)


def test_the_page_has_every_setting() -> None:
    page = (ROOT / "docs" / "deployment.md").read_text()
    section = page.partition("\n## Settings\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall("`([a-z_]+)`", row)}
    # Those that /v1/info shows are described there.
    assert Settings.model_fields.keys() - Limits.model_fields.keys() <= listed <= Settings.model_fields.keys()
