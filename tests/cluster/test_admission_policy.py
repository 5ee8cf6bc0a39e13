"""Are people warned of bad pod annotations when they apply them, and of none that are good?"""

import http.client
import json
import ssl
from typing import Any
from urllib.parse import urlsplit

import pytest

from dovetail.api import names
from dovetail.api.manifests.admission import POLICY, admission
from tests.cluster.access import Cluster, eventually

SCHEDULE = names.DISRUPTION_SCHEDULE
DURATION = names.DISRUPTION_SCHEDULE_DURATION
BLOCK = names.DISRUPTION_BLOCK_SCHEDULE
BLOCK_DURATION = names.DISRUPTION_BLOCK_DURATION

GOOD = [
    {},
    {names.DO_NOT_DISRUPT: "true"},
    {names.DO_NOT_DISRUPT: "false"},
    {names.DO_NOT_DISRUPT: "4h"},
    {names.DO_NOT_DISRUPT: "1h30m"},
    {names.DO_NOT_DISRUPT: ".5s"},
    {names.DO_NOT_DISRUPT: "4h".rjust(64, "0")},
    {names.DO_NOT_DISRUPT: "150µs"},
    {SCHEDULE: "0 2 * * 6"},
    {SCHEDULE: "0 2 * * SAT", DURATION: "4h"},
    {SCHEDULE: "CRON_TZ=Europe/Berlin 0 22-23,0-6 * * MON-FRI", DURATION: "168h"},
    {SCHEDULE: "TZ=UTC @daily ; */15 1-5/2 ? JAN,JUL *", DURATION: "1m; 30m"},
    {SCHEDULE: "@midnight", DURATION: ""},
    {BLOCK: "0 8 * * 1-5", BLOCK_DURATION: "10h"},
    {"example.com/other": "anything"},
]

BAD = [
    ({names.DO_NOT_DISRUPT: "1d"}, [names.DO_NOT_DISRUPT]),
    ({names.DO_NOT_DISRUPT: "yes"}, [names.DO_NOT_DISRUPT]),
    ({names.DO_NOT_DISRUPT: ""}, [names.DO_NOT_DISRUPT]),
    ({names.DO_NOT_DISRUPT: "True"}, [names.DO_NOT_DISRUPT]),
    ({names.DO_NOT_DISRUPT: "0s"}, [names.DO_NOT_DISRUPT]),
    ({names.DO_NOT_DISRUPT: "-4h"}, [names.DO_NOT_DISRUPT]),
    ({names.DO_NOT_DISRUPT: "4 h"}, [names.DO_NOT_DISRUPT]),
    ({names.DO_NOT_DISRUPT: "4h".rjust(65, "0")}, [names.DO_NOT_DISRUPT]),
    ({SCHEDULE: "0 2 * *"}, [SCHEDULE]),
    ({SCHEDULE: "0 0 2 * * 6"}, [SCHEDULE]),
    ({SCHEDULE: "@every 1h"}, [SCHEDULE]),
    ({SCHEDULE: "@reboot"}, [SCHEDULE]),
    ({SCHEDULE: "0 2 L * *"}, [SCHEDULE]),
    ({SCHEDULE: "0 2 * * 6;"}, [SCHEDULE]),
    ({SCHEDULE: ";".join(["0 2 * * 6"] * 65)}, [SCHEDULE]),
    ({SCHEDULE: "0 2 * * " + "6" + ",6" * 2048}, [SCHEDULE]),
    ({SCHEDULE: "0 2 * * 6", DURATION: "2h".rjust(65, "0")}, [DURATION]),
    ({SCHEDULE: "0 2 * * 6", DURATION: "30s"}, [DURATION]),
    ({SCHEDULE: "0 2 * * 6", DURATION: "169h"}, [DURATION]),
    ({SCHEDULE: "0 2 * * 6", DURATION: "2d"}, [DURATION]),
    ({SCHEDULE: "0 2 * * 6; 0 3 * * 6; 0 4 * * 6", DURATION: "1h;2h"}, [DURATION]),
    ({DURATION: "4h"}, [DURATION]),
    ({BLOCK: "sometimes"}, [BLOCK]),
    ({BLOCK_DURATION: "4h"}, [BLOCK_DURATION]),
    ({names.DO_NOT_DISRUPT: "1d", BLOCK: "x", DURATION: "1s"}, [names.DO_NOT_DISRUPT, DURATION, DURATION, BLOCK]),
]


def pod_spec() -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "none"}], "restartPolicy": "Never"}


def pod(annotations: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": "warned", "annotations": annotations}, "spec": pod_spec()}


def deployment(annotations: dict[str, str]) -> dict[str, Any]:
    labels = {"app": "warned"}
    spec = pod_spec() | {"restartPolicy": "Always"}
    template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}
    return {"metadata": {"name": "warned"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}


def cron_job(annotations: dict[str, str]) -> dict[str, Any]:
    job = {"spec": {"template": {"metadata": {"annotations": annotations}, "spec": pod_spec()}}}
    return {"metadata": {"name": "warned"}, "spec": {"schedule": "@daily", "jobTemplate": job}}


def warnings(cluster: Cluster, path: str, body: dict[str, Any]) -> list[str]:
    """What the server warns of when this is made; it is not really made."""
    place = urlsplit(cluster.url)
    tls = ssl.create_default_context(cafile=str(cluster.ca_file))
    connection = http.client.HTTPSConnection(place.hostname or "", place.port, context=tls, timeout=30)
    headers = {"Authorization": f"Bearer {cluster.token}", "Content-Type": "application/json"}
    try:
        connection.request("POST", f"{path}?dryRun=All", json.dumps(body), headers)
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    assert response.status == 201, content
    headers_ = ((name, value.encode("latin-1").decode()) for name, value in response.getheaders())
    return [value for name, value in headers_ if name == "Warning" and POLICY in value]


@pytest.fixture(scope="module")
def warned(control_plane: Cluster) -> Cluster:
    """The control plane with the policy in force."""
    policy, binding = admission()
    root = "/apis/admissionregistration.k8s.io/v1"
    for plural, body in (("validatingadmissionpolicies", policy), ("validatingadmissionpolicybindings", binding)):
        path = f"{root}/{plural}/{body['metadata']['name']}?fieldManager=test&force=true"
        control_plane.patch(path, body, kind="apply")
    bad = pod({names.DO_NOT_DISRUPT: "1d"})
    path = "/api/v1/namespaces/default/pods"
    eventually(lambda: bool(warnings(control_plane, path, bad)), seconds=20, what=lambda: "no warning yet")
    return control_plane


@pytest.mark.parametrize("annotations", GOOD)
def test_nobody_is_warned_of_what_is_right(warned: Cluster, annotations: dict[str, str]) -> None:
    assert warnings(warned, "/api/v1/namespaces/default/pods", pod(annotations)) == []


@pytest.mark.parametrize(("annotations", "named"), BAD)
def test_everybody_is_warned_of_what_is_wrong(warned: Cluster, annotations: dict[str, str], named: list[str]) -> None:
    found = warnings(warned, "/api/v1/namespaces/default/pods", pod(annotations))
    assert len(found) == len(named)
    for key, warning in zip(named, found, strict=True):
        assert f": Pod/warned: {key} '" in warning


def test_a_warning_shows_the_beginning_of_a_long_value_and_no_value_of_several_lines(warned: Cluster) -> None:
    path = "/api/v1/namespaces/default/pods"
    (warning,) = warnings(warned, path, pod({names.DO_NOT_DISRUPT: "x" * 400}))
    assert f"Pod/warned: {names.DO_NOT_DISRUPT} '{'x' * 40}…' is neither" in warning
    (warning,) = warnings(warned, path, pod({names.DO_NOT_DISRUPT: "1d\n"}))
    assert f": {names.DO_NOT_DISRUPT} is neither" in warning


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/apis/apps/v1/namespaces/default/deployments", deployment),
        ("/apis/batch/v1/namespaces/default/cronjobs", cron_job),
    ],
)
def test_authors_of_workloads_are_warned(warned: Cluster, path: str, body: Any) -> None:
    (warning,) = warnings(warned, path, body({names.DO_NOT_DISRUPT: "1d"}))
    assert f"/warned: {names.DO_NOT_DISRUPT} '1d' is neither" in warning
    assert warnings(warned, path, body({names.DO_NOT_DISRUPT: "24h"})) == []
    # On the workload itself the annotation means nothing.
    itself = body({})
    itself["metadata"]["annotations"] = {names.DO_NOT_DISRUPT: "1d"}
    assert warnings(warned, path, itself) == []
