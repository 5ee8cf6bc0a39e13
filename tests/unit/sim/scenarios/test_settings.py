"""`--set KIND/NAME.FIELD=VALUE`."""

from datetime import UTC, datetime

import pytest

from dovetail.api.documents import read_documents
from dovetail.sim.scenarios.reading import Scenario, read_scenario
from dovetail.sim.scenarios.settings import SettingError, read_setting, with_settings

TEXT = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec: {disruption: {budgets: [{nodes: "1"}, {nodes: "2"}]}, template: {spec: {}}}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default.large}
spec: {template: {spec: {}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {replicas: 3, template: {metadata: {annotations: {a.b/c: x}}}}
"""


def scenario() -> Scenario:
    return read_scenario(read_documents(TEXT.encode(), "a.yaml"), now=datetime(2026, 3, 2, tzinfo=UTC))


def spec(name: str, *texts: str) -> object:
    changed = with_settings(scenario(), [read_setting(text) for text in texts])
    return next(each.body["spec"] for each in changed.objects if each.key == name)


def test_values_are_yaml() -> None:
    found = spec("default", "nodepool/default.spec.disruption.budgets=[{nodes: 10%, reasons: [Drifted]}]")
    assert found == {"disruption": {"budgets": [{"nodes": "10%", "reasons": ["Drifted"]}]}, "template": {"spec": {}}}


def test_what_is_on_the_way_is_made() -> None:
    found = spec("default.large", "NodePool/default.large.spec.disruption.consolidateAfter=1h")
    assert found == {"template": {"spec": {}}, "disruption": {"consolidateAfter": "1h"}}


def test_items_and_quoted_keys() -> None:
    texts = "nodepool/default.spec.disruption.budgets[1].nodes='0'", "nodepool/default.spec.weight=3"
    assert spec("default", *texts) == {
        "disruption": {"budgets": [{"nodes": "1"}, {"nodes": "0"}]},
        "template": {"spec": {}},
        "weight": 3,
    }
    found = spec("shop/web", "deployment/shop/web.spec.template.metadata.annotations['a.b/c']=null")
    assert found == {"replicas": 3, "template": {"metadata": {"annotations": {}}}}


def test_the_scenario_itself_stays_as_it_was() -> None:
    before = scenario()
    with_settings(before, [read_setting("nodepool/default.spec.disruption.budgets[0].nodes='9'")])
    assert before.objects[0].body["spec"]["disruption"]["budgets"][0] == {"nodes": "1"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("budgets", "want KIND/NAME.FIELD=VALUE"),
        ("nodepool/other.spec.weight=1", "nodepool/other.spec.weight: there is no such object; there are"),
        ("pod/a.spec.weight=1", "pod/a.spec.weight: there is no such object"),
        ("nodepool/default.spec.disruption.budgets[7].nodes=1", "there is no item [7]"),
        ("nodepool/default.spec.disruption.budgets.nodes=1", "'nodes' is below something that has no fields"),
        ("nodepool/default.status.nodes=1", "only what stands below spec or metadata"),
        ("nodepool/default.spec..weight=1", "is no field"),
        ("nodepool/default.spec.weight=[1", "the value is not YAML"),
    ],
)
def test_bad_settings(text: str, said: str) -> None:
    with pytest.raises(SettingError) as raised:
        with_settings(scenario(), [read_setting(text)])
    assert said in str(raised.value)
