"""The container files are sound as far as that can be told without a container engine or a cluster."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate
import pytest
import yaml
from typer.main import get_command as click_command

from disavow import __version__
from disavow.cli.app import app
from disavow.server.settings import LOCAL_HOSTS, public_host

DEPLOY = Path(__file__).parents[1] / "deploy"
CHART = DEPLOY / "helm"
BIN = Path(sys.executable).parent

VALUE = re.compile(r"\{\{ \.(\S+) \}\}")
"""The only kind of template expression that the chart uses, so that a look-up renders it."""


def run(*command: str | Path) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def rendered(template: Path) -> dict[str, Any]:
    """Render a template of the chart with its default values."""
    known = {"Values": yaml.safe_load((CHART / "values.yaml").read_text()), "Release": {"Name": "test"}}

    def value_of(match: re.Match[str]) -> str:
        found: Any = known
        for part in match[1].split("."):
            found = found[part]
        return str(found)

    text = VALUE.sub(value_of, template.read_text())
    assert "{{" not in text, f"{template.name} uses an expression that is not a plain value"
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def test_dockerfile_is_clean() -> None:
    run(BIN / "hadolint", DEPLOY / "Dockerfile")


@pytest.mark.parametrize("name", ["compose.yaml", "compose-flower.yaml"])
def test_compose_files_follow_their_schema(name: str) -> None:
    run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / name)


@pytest.mark.parametrize("template", sorted(path.name for path in (CHART / "templates").iterdir()))
def test_chart_renders_to_valid_kubernetes_objects(template: str) -> None:
    kubernetes_validate.validate(rendered(CHART / "templates" / template), "1.34", strict=True)


def test_containers_have_no_rights_they_do_not_need() -> None:
    pod = rendered(CHART / "templates" / "statefulset.yaml")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    for container in pod["containers"]:
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"]
        assert not context["allowPrivilegeEscalation"]
    for name in ("compose.yaml", "compose-flower.yaml"):
        for service, made in yaml.safe_load((DEPLOY / name).read_text())["services"].items():
            assert service == "postgres" or (made["read_only"] and made["cap_drop"] == ["ALL"]), (name, service)


def commands() -> dict[str, list[str]]:
    """What the containers run, by where that is written."""
    found = {}
    for line in (DEPLOY / "Dockerfile").read_text().splitlines():
        if line.startswith("CMD ["):
            found["Dockerfile"] = json.loads(line.removeprefix("CMD "))
    for name, made in yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"].items():
        if "command" in made:
            found[f"compose {name}"] = made["command"]
    pod = rendered(CHART / "templates" / "statefulset.yaml")["spec"]["template"]["spec"]
    return found | {f"helm {container['name']}": container["args"] for container in pod["containers"]}


@pytest.mark.parametrize("where", sorted(commands()))
def test_what_the_containers_run_is_a_command_with_such_options(where: str) -> None:
    name, *arguments = commands()[where]
    command = click_command(app).commands[name]  # type: ignore[attr-defined]
    context = command.make_context(name, list(arguments), resilient_parsing=False)
    assert context.params["state"] == "/state"


def test_health_checks_name_a_host_that_the_service_answers_to() -> None:
    [url] = re.findall(r"http://[^']+", (DEPLOY / "Dockerfile").read_text())
    assert urlsplit(url).hostname in LOCAL_HOSTS
    assert (urlsplit(url).port, urlsplit(url).path) == (8321, "/healthz")
    [server, _] = rendered(CHART / "templates" / "statefulset.yaml")["spec"]["template"]["spec"]["containers"]
    public_url = server["args"][server["args"].index("--public-url") + 1]
    for probe in ("livenessProbe", "readinessProbe"):
        [header] = server[probe]["httpGet"]["httpHeaders"]
        assert (header["name"], (header["value"],)) == ("Host", public_host(public_url))


def test_chart_and_image_are_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert chart["appVersion"] == values["image"]["tag"] == __version__
