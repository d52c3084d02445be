"""The chart renders the manifests of deploy/kubernetes, with what a release's values change; helm takes both."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from requant.version import VERSION
from tests.conftest import ROOT

CHART = ROOT / "deploy/helm/requant"
KUBERNETES = ROOT / "deploy/kubernetes"
HELM = Path(sys.executable).with_name("helm")
pytestmark = pytest.mark.skipif(not HELM.exists(), reason="helm's package is for Linux on x86-64 alone")

Manifests = dict[tuple[str, str], Any]


def helm(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(HELM), *map(str, arguments)], capture_output=True, text=True, check=False)


def rendered(release: str = "requant", **values: object) -> Manifests:
    """The manifests of a release by their kind and name."""
    given = [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
    ran = helm("template", release, CHART, "--namespace", "numbers", *given)
    assert ran.returncode == 0, ran.stderr
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(ran.stdout)}


def original(path: str) -> Any:
    (document,) = yaml.safe_load_all((KUBERNETES / path).read_text())
    return document


def without_labels(node: Any) -> Any:
    """A manifest without what Kustomize and helm add: labels, the namespace, and what selects by labels."""
    if isinstance(node, dict):
        added = ("labels", "matchLabels", "namespace", "selector", "labelSelector")
        return {key: without_labels(each) for key, each in node.items() if key not in added}
    return [without_labels(each) for each in node] if isinstance(node, list) else node


def selectors(node: Any) -> Iterator[Any]:
    if isinstance(node, dict):
        yield from (each for key, each in node.items() if key == "matchLabels")
        for each in node.values():
            yield from selectors(each)
    elif isinstance(node, list):
        for each in node:
            yield from selectors(each)


def environment(manifests: Manifests, release: str = "requant") -> dict[str, Any]:
    (container,) = manifests["Deployment", release]["spec"]["template"]["spec"]["containers"]
    assert len({each["name"] for each in container["env"]}) == len(container["env"])
    return {each["name"]: each.get("value") for each in container["env"]}


def test_the_chart_is_linted_and_has_the_versions_of_the_project() -> None:
    ran = helm("lint", "--strict", CHART)
    assert ran.returncode == 0, ran.stdout
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == VERSION


def test_without_values_it_is_the_base_of_kustomize() -> None:
    found = rendered()
    originals = [original(f"base/{name}") for name in original("base/kustomization.yaml")["resources"]]
    expected = {(each["kind"], each["metadata"]["name"]): each for each in originals}
    assert found.keys() == expected.keys()
    (container,) = expected["Deployment", "requant"]["spec"]["template"]["spec"]["containers"]
    container["image"] = f"registry.example.com/requant:{VERSION}"
    expected["Deployment", "requant"]["spec"]["template"]["metadata"] = {}
    expected["Service", "requant"]["spec"]["type"] = "ClusterIP"
    for name, manifest in found.items():
        assert without_labels(manifest) == without_labels(expected[name]), name


def test_the_components_come_with_their_values() -> None:
    found = rendered(
        "prod",
        tokensSecret="ours",
        ingress={
            "http": {"host": "numbers.example.com"},
            "grpc": {"host": "grpc.example.com"},
            "annotations": {"a": "b"},
        },
        monitoring={"enabled": True, "namespace": "watch"},
        traces={"endpoint": "http://collector:4318", "namespace": "seen"},
    )
    assert set(found) - set(rendered("prod")) == {
        ("ConfigMap", "prod-dashboard"),
        ("Ingress", "prod"),
        ("Ingress", "prod-grpc"),
        ("NetworkPolicy", "prod-metrics"),
        ("NetworkPolicy", "prod-traces"),
        ("PrometheusRule", "prod"),
        ("ServiceMonitor", "prod"),
    }
    pod = found["Deployment", "prod"]["spec"]["template"]["spec"]
    assert pod["volumes"][0]["secret"] == {"secretName": "ours", "defaultMode": 0o440}
    assert pod["containers"][0]["volumeMounts"][0]["mountPath"] == "/run/secrets/requant"
    variables = environment(found, "prod")
    assert variables["REQUANT_TOKENS_FILE"] == "/run/secrets/requant/tokens"
    assert variables["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://collector:4318"
    for name, host in (("prod", "numbers"), ("prod-grpc", "grpc")):
        ingress = found["Ingress", name]
        (rule,) = ingress["spec"]["rules"]
        assert rule["host"] == ingress["spec"]["tls"][0]["hosts"][0] == f"{host}.example.com"
        assert rule["http"]["paths"][0]["backend"]["service"]["name"] == "prod"
        assert ingress["metadata"]["annotations"]["a"] == "b"
    dashboard = json.loads(found["ConfigMap", "prod-dashboard"]["data"]["dashboard.json"])
    assert dashboard == json.loads((KUBERNETES / "components/monitoring/dashboard.json").read_text())
    rules = json.dumps(found["PrometheusRule", "prod"]["spec"])
    assert "prod-.*" in rules
    assert "requant-.*" not in rules
    assert "watch" in json.dumps(found["NetworkPolicy", "prod-metrics"])
    assert "seen" in json.dumps(found["NetworkPolicy", "prod-traces"])
    # Two releases in a namespace leave each other's pods alone.
    ours = {"app.kubernetes.io/name": "requant", "app.kubernetes.io/instance": "prod"}
    namespaces = [{"kubernetes.io/metadata.name": each} for each in ("watch", "seen", "kube-system")]
    allowed = [ours, {"k8s-app": "kube-dns"}, *namespaces]
    assert all(each in allowed for manifest in found.values() for each in selectors(manifest))


def test_a_setting_is_a_variable_and_goes_before_that_of_the_manifest() -> None:
    found = environment(rendered(settings={"workers": 4, "max_binary_bytes": 1 << 36, "log_format": "text", "h": True}))
    assert found["REQUANT_WORKERS"] == "4"
    assert found["REQUANT_MAX_BINARY_BYTES"] == "68719476736"
    assert found["REQUANT_LOG_FORMAT"] == "text"
    assert found["REQUANT_H"] == "true"
    assert found["REQUANT_GRPC_PORT"] == "8081"


def test_one_replica_has_neither_an_autoscaler_nor_a_budget_that_keeps_nodes_from_being_drained() -> None:
    found = rendered(replicas={"min": 1, "max": 1}, networkPolicy={"enabled": False})
    assert {kind for kind, _ in found} == {"Deployment", "Service"}
    assert found["Deployment", "requant"]["spec"]["replicas"] == 1


def test_a_pod_takes_what_a_cluster_asks_for() -> None:
    found = rendered(pod={"priorityClassName": "high", "terminationGracePeriodSeconds": 90}, image={"tag": "sha256:ab"})
    pod = found["Deployment", "requant"]["spec"]["template"]["spec"]
    assert pod["priorityClassName"] == "high"
    assert pod["terminationGracePeriodSeconds"] == 90
    assert pod["containers"][0]["image"] == "registry.example.com/requant@sha256:ab"
    assert pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    "values",
    [{"setings": {}}, {"settings": {"Workers": 1}}, {"replicas": {"min": 0}}, {"pod": {"containers": []}}],
    ids=json.dumps,
)
def test_values_that_would_be_without_effect_are_refused(values: dict[str, Any]) -> None:
    given = [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
    ran = helm("template", "requant", CHART, *given)
    assert ran.returncode == 1
    assert "values don't meet the specifications of the schema" in ran.stderr
