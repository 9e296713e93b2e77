"""Checks of compose.yaml and the files that it mounts.

They are checked against the specification's schema, this repository's rules and the formats.

The tests start no container, because their machines have no Docker.
"""

import configparser
import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kubernetes_validate
import pytest
from ruamel.yaml import YAML

from cdc_formats import get_format
from normalize.monitoring.metrics_listener import MetricsListener
from normalize.run import read_job
from normalize.run.job import Metrics
from tests.support.paths import REPOSITORY

COMPOSE = YAML(typ="safe").load((REPOSITORY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ONE_SHOT = {"connectors", "connectors-avro"}
CONNECTORS = sorted((REPOSITORY / "compose" / "connectors").glob("*/*.json"))
DEFAULTED = re.compile(r"\$\{([A-Z_]+):-([^}]*)\}")
README = (REPOSITORY / "compose" / "README.md").read_text()


def test_compose_file_is_valid_against_the_specification_schema() -> None:
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        "compose.yaml",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert (done.returncode, done.stdout) == (0, "ok -- validation done\n")


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_has_one_version_a_health_check_and_what_it_mounts_and_needs(name: str) -> None:
    service = SERVICES[name]
    tag = service["image"].rpartition(":")[2]
    assert re.fullmatch(r"v?[0-9]+\.[0-9]+\.?[0-9]*(\.Final|-bookworm)?", tag)
    check = service.get("healthcheck", {"test": [""]})
    # A one-shot service ends, and does not restart.
    has_check = check["test"][0] in ("CMD", "CMD-SHELL")
    assert (has_check, service.get("restart") == "no") == (name not in ONE_SHOT, name in ONE_SHOT)
    assert name in ONE_SHOT or {"interval", "timeout", "retries", "start_period"} <= set(check)
    sources = {volume.split(":")[0] for volume in service.get("volumes", [])}
    files = {source for source in sources if source.startswith("./")}
    assert all((REPOSITORY / file).exists() for file in files)
    assert sources - files <= set(COMPOSE["volumes"])
    profiles = set(service.get("profiles", []))
    for other, how in service.get("depends_on", {}).items():
        assert how == {"condition": "service_healthy"}
        there = set(SERVICES[other].get("profiles", []))
        assert not there or (profiles and profiles <= there)


def test_the_dockerfile_has_a_pinned_image_files_and_extras_that_exist() -> None:
    dockerfile = (REPOSITORY / SERVICES["jupyter"]["build"]["dockerfile"]).read_text()
    assert re.findall(r"^FROM (.*)", dockerfile, re.MULTILINE) == ["python:3.12.12-slim-bookworm"]
    for source in re.findall(r"^COPY (.*) \S+$", dockerfile, re.MULTILINE):
        assert [path for path in source.split() if not (REPOSITORY / path).exists()] == []
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    (extras,) = re.findall(r"/src\[(.*?)\]", dockerfile)
    assert set(extras.split(",")) <= set(setup["options.extras_require"])


def test_services_publish_different_ports_on_localhost_only() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    ports = [
        re.fullmatch(r"127\.0\.0\.1:\$\{[A-Z_]+:-([0-9]+)\}:[0-9]+", port)[1]  # type: ignore[index]
        for port in published
    ]
    assert len(set(ports)) == len(ports)


def test_each_variable_is_in_the_readme_and_has_one_default_that_is_no_real_secret() -> None:
    text = (REPOSITORY / "compose.yaml").read_text()
    # A variable that is only tested (:+) has its default elsewhere.
    named = sorted({*re.findall(r"(?<!\$)\$\{?([A-Z_]+)", text)})
    defaults = {*DEFAULTED.findall(text)}
    assert named == sorted(name for name, _ in defaults)
    assert [name for name in named if f"`{name}`" not in README] == []
    secrets = {name: default for name, default in defaults if name.endswith(("PASSWORD", "TOKEN"))}
    assert secrets
    assert all(default.startswith("demo-only") for default in secrets.values())
    mounted = [path for path in (REPOSITORY / "compose").rglob("*") if path.is_file()]
    assert {path.name for path in mounted if "demo-only" in path.read_text()} <= {"README.md"}


# --------------------------------------------------------------------------------------------------
# configurations


@pytest.mark.parametrize("file", CONNECTORS, ids=lambda file: file.stem)
def test_connector_has_its_own_prefix_and_reads_its_password_from_the_environment(
    file: Path,
) -> None:
    config = json.loads(file.read_text())
    assert all(isinstance(value, str) for value in config.values())
    assert config["topic.prefix"] == file.stem
    (variable,) = re.findall(r"^\$\{env:(\w+)\}$", config["database.password"])
    ours, theirs = (
        SERVICES[name]["environment"][variable] for name in ("connect", config["database.hostname"])
    )
    assert ours == theirs
    assert f"`{config['topic.prefix']}." in README


def test_server_ids_are_unique() -> None:
    maxwell = properties("maxwell/maxwell.properties")["replica_server_id"]
    numbers = [json.loads(file.read_text()).get("database.server.id") for file in CONNECTORS]
    used = [number for number in [*numbers, maxwell, "1"] if number]
    assert len(set(used)) == len(used) == 4


def test_connector_settings_match_the_options_in_the_readme() -> None:
    for file in (REPOSITORY / "compose" / "connectors" / "debezium").glob("*.json"):
        config = json.loads(file.read_text())
        options = {
            name.replace(".", "_"): config[name]
            for name in ("decimal.handling.mode", "time.precision.mode")
        }
        get_format("debezium-json", **options)
        spelled = ", ".join(f'{name}="{value}"' for name, value in options.items())
        assert re.search(rf"`{config['topic.prefix']}\..*`debezium-json` \| `{spelled}`", README)
        assert config["value.converter.schemas.enable"] == "false"


def test_scripts_are_bash_and_stop_at_the_first_failure() -> None:
    scripts = sorted((REPOSITORY / "compose").rglob("*.sh"))
    assert len(scripts) == 3
    for script in scripts:
        assert "\nset -eu\n" in script.read_text()
        assert subprocess.run(["bash", "-n", str(script)], capture_output=True).returncode == 0


def properties(path: str) -> dict[str, str]:
    lines = (REPOSITORY / "compose" / path).read_text().splitlines()
    pairs = (line.split("=", 1) for line in lines if line and not line.startswith(("#", "[")))
    return {name.strip(): value.strip() for name, value in pairs}


def test_sources_write_what_the_formats_require() -> None:
    maxwell, mysql = properties("maxwell/maxwell.properties"), properties("mysql/cdc.cnf")
    expected = {
        **dict.fromkeys(("output_binlog_position", "output_xoffset", "output_server_id"), "true"),
        "kafka.bootstrap.servers": "kafka:19092",
    }
    assert maxwell.items() >= expected.items()
    assert (
        SERVICES["canal"]["environment"].items()
        >= {"kafka.bootstrap.servers": "kafka:19092"}.items()
    )
    assert "password" not in maxwell
    images = {"binlog-format": "ROW", "binlog-row-image": "FULL", "binlog-row-metadata": "FULL"}
    assert mysql.items() >= images.items()
    assert "wal_level=logical" in SERVICES["postgres"]["command"]


# --------------------------------------------------------------------------------------------------
# The image and the manifest of `deploy/`
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
