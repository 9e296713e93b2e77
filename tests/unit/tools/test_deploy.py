"""The image and the manifest of `deploy/`.

No test builds the image or starts a pod, because the tests' machines have no Docker.
"""

import re
import shlex
import time
from types import SimpleNamespace
from typing import Any

import kubernetes_validate
import pytest
from ruamel.yaml import YAML

from normalize.monitoring.metrics_listener import MetricsListener
from normalize.run import read_job
from normalize.run.job import Metrics
from tests.support.paths import REPOSITORY

DOCKERFILE = (REPOSITORY / "deploy" / "Dockerfile").read_text("utf-8")
RESOURCES: dict[str, dict[str, Any]] = {
    each["kind"]: each
    for each in YAML(typ="safe").load_all((REPOSITORY / "deploy" / "kubernetes.yaml").read_text())
}
DEPLOYMENT = RESOURCES["Deployment"]["spec"]
POD = DEPLOYMENT["template"]["spec"]
(CONTAINER,) = POD["containers"]


@pytest.mark.parametrize("kind", RESOURCES)
def test_each_resource_is_valid_against_the_schema_of_kubernetes(kind: str) -> None:
    kubernetes_validate.validate(RESOURCES[kind], "1.37", strict=True)


def test_two_drivers_never_run_at_a_time() -> None:
    assert (DEPLOYMENT["replicas"], DEPLOYMENT["strategy"]) == (1, {"type": "Recreate"})
    assert RESOURCES["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteOncePod"]


def test_the_pod_has_what_the_job_file_names(tmp_path: Any, monkeypatch: Any) -> None:
    (variable,) = CONTAINER["env"]
    monkeypatch.setenv(variable["name"], "a login")
    mounts = {each["name"]: each["mountPath"] for each in CONTAINER["volumeMounts"]}
    assert mounts.keys() == {each["name"] for each in POD["volumes"]}
    (file,) = RESOURCES["ConfigMap"]["data"]
    assert f'CMD ["{mounts["job"]}/{file}"]' in DOCKERFILE
    (tmp_path / file).write_text(RESOURCES["ConfigMap"]["data"][file])
    job = read_job(tmp_path / file)
    assert job.arguments["options"]["kafka.sasl.jaas.config"] == "a login"
    for path in (job.checkpoint_location, job.arguments["schema_location"]):
        assert path.startswith(f"{mounts['lake']}/")
    (port,) = (each["containerPort"] for each in CONTAINER["ports"])
    annotations = DEPLOYMENT["template"]["metadata"]["annotations"]
    assert job.metrics == Metrics(int(annotations["prometheus.io/port"])) == Metrics(port)
    probe = CONTAINER["livenessProbe"]["exec"]["command"][-1]
    assert f"http://127.0.0.1:{port}/metrics" in probe
    heap = int(job.spark["spark.driver.memory"].removesuffix("g"))
    assert int(CONTAINER["resources"]["limits"]["memory"].removesuffix("Gi")) >= 2 * heap


def test_the_probe_fails_only_for_a_query_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = CONTAINER["livenessProbe"]["exec"]["command"][-1]
    listener = MetricsListener(port=0)
    alive = listener.registry.get_sample_value
    code = probe.replace("127.0.0.1:9108", f"127.0.0.1:{listener.port}")
    exec(code)
    listener.onQueryStarted(SimpleNamespace(id="0f", runId="1f", name="orders"))
    assert time.time() - alive("changelog_alive_timestamp_seconds", {"query": "orders"}) < 60
    exec(code)
    now = time.time
    with monkeypatch.context() as later:
        later.setattr(time, "time", lambda: now() + 3600)
        with pytest.raises(AssertionError):
            exec(code)
    listener.onQueryIdle(SimpleNamespace(id="0f", runId="1f"))
    exec(code)
    listener.close()


def test_the_image_copies_what_the_package_needs() -> None:
    copied = {
        name
        for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
        for name in shlex.split(line)[:-1]
    }
    assert all((REPOSITORY / name).exists() for name in copied)
    ignored = (REPOSITORY / "deploy" / "Dockerfile.dockerignore").read_text().split()
    assert {name[1:] for name in ignored if name[0] == "!"} == copied
    assert f"useradd --create-home --uid {POD['securityContext']['runAsUser']}" in DOCKERFILE
