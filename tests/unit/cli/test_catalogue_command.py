"""`dovetail catalogue`: what it makes of a cluster, a price list and metrics, and that other commands read it."""

import json
import re
from pathlib import Path

import pytest

from dovetail.model.type_table import TypeRow, read_table
from tests.harness.eks import AT, DUMP
from tests.unit.cli.running import Outcome, Program

LIST = """\
API Name,Instance Memory,vCPUs,Linux On Demand cost,Linux Spot Average cost
m6i.large,8.0 GiB,2 vCPUs,$0.107000 hourly,$0.042 hourly
c6g.xlarge,"8,192 MiB",4 vCPUs,$0.1456 hourly,unavailable
u.huge,1 TB,4,unavailable,
"""
PRICE = "karpenter_cloudprovider_instance_type_offering_price_estimate"
METRICS = f"""\
# HELP karpenter_cloudprovider_instance_type_cpu_cores VCPUs cores for a given instance type.
# TYPE karpenter_cloudprovider_instance_type_cpu_cores gauge
karpenter_cloudprovider_instance_type_cpu_cores{{instance_type="m6g.large"}} 2
karpenter_cloudprovider_instance_type_cpu_cores{{instance_type="odd"}} 2
# TYPE karpenter_cloudprovider_instance_type_memory_bytes gauge
karpenter_cloudprovider_instance_type_memory_bytes{{instance_type="m6g.large"}} 8.589934592e+09
# TYPE {PRICE} gauge
{PRICE}{{capacity_type="spot",instance_type="m6g.large",zone="eu-west-1a"}} 0.0312
{PRICE}{{capacity_type="on-demand",instance_type="m6g.large",zone="eu-west-1a"}} 0.086
{PRICE}{{capacity_type="spot",instance_type="odd",zone="eu-west-1a"}} 1
# TYPE karpenter_nodes_total gauge
karpenter_nodes_total 7
"""


def rows_in(outcome: Outcome) -> tuple[TypeRow, ...]:
    assert outcome.code == 0, outcome.err
    rows = read_table(outcome.out.encode())
    assert rows is not None
    return rows


def test_a_cluster_shows_its_types_with_what_pods_can_use(dovetail: Program) -> None:
    outcome = dovetail("catalogue", "from-cluster", "-f", str(DUMP))
    rows = rows_in(outcome)
    assert "6 instance types in 3 zones: 15 rows, 0 with a price, the others are guessed" in outcome.err
    gpu = next(row for row in rows if row.type == "g5.xlarge")
    assert (gpu.cpu, gpu.allocatable_cpu, gpu.gpu, gpu.gpu_resource) == ("4", "3920m", "1", "nvidia.com/gpu")
    assert gpu.node_labels["karpenter.k8s.aws/instance-gpu-name"] == "a10g"
    assert not any("hostname" in row.labels or "nodepool" in row.labels for row in rows)
    assert {row.arch for row in rows if row.type == "c6g.2xlarge"} == {"arm64"}
    assert "t3.medium" not in {row.type for row in rows}, "Karpenter does not buy the types of node groups"


def test_prices_of_a_list_are_added_and_plan_names_the_share_that_is_known(dovetail: Program) -> None:
    types = str(dovetail.folder / "types.json")
    listed = dovetail.file(LIST, "prices.csv")
    written = dovetail("catalogue", "from-cluster", "-f", str(DUMP), "--prices", listed, "-o", types)
    assert (written.code, written.out) == (0, "")
    rows = read_table(Path(types).read_bytes())
    assert rows is not None
    assert {(row.capacity_type, row.price) for row in rows if row.type == "m6i.large"} == {
        ("on-demand", 0.107),
        ("spot", 0.042),
    }
    plan = ("plan", "-f", str(DUMP), "--at", AT)
    answer = json.loads(dovetail(*plan, "--instance-types", types, "-o", "json").out)
    assert answer["prices"]["source"] == types
    assert 0 < answer["prices"]["knownShare"] < 1
    percent = int(100 * answer["prices"]["knownShare"])
    of_table = f"\nPrices: {types} for {percent}% of the cost; the others are guessed"
    with_table, without = dovetail(*plan, "--instance-types", types).out, dovetail(*plan).out
    assert of_table in with_table
    assert re.search(r", saving \$[0-9.]+/h \(partly guessed\);", with_table)
    assert "\nPrices: guessed from cpu and memory" in without
    assert re.search(r", saving \$[0-9.]+/h \(guessed\);", without)


def test_simulate_names_the_share_that_is_known(dovetail: Program) -> None:
    types = str(dovetail.folder / "types.csv")
    dovetail("catalogue", "from-cluster", "-f", str(DUMP), "--prices", dovetail.file(LIST, "prices.csv"), "-o", types)
    played = dovetail("simulate", "-f", str(DUMP), "--at", AT, "--for", "1m", "--instance-types", types, "-o", "json")
    cost = json.loads(played.out)["cost"]
    assert cost["prices"] == types
    assert 0 < cost["knownShare"] < 1


def test_a_price_list_becomes_a_table(dovetail: Program) -> None:
    outcome = dovetail("catalogue", "from-csv", dovetail.file(LIST, "prices.csv"))
    assert [(row.type, row.cpu, row.memory, row.arch, row.capacity_type, row.price) for row in rows_in(outcome)] == [
        ("m6i.large", "2", "8.0Gi", "amd64", "on-demand", 0.107),
        ("m6i.large", "2", "8.0Gi", "amd64", "spot", 0.042),
        ("c6g.xlarge", "4", "8192Mi", "arm64", "on-demand", 0.1456),
    ]
    assert "2 instance types: 3 rows, all with a price; left out 1 row without a price" in outcome.err


def test_columns_with_other_names_are_named(dovetail: Program) -> None:
    file = dovetail.file("Flavor;Cores;RAM;EUR\nbig;8;32;0.5\n", "prices.csv")
    columns = [part for name in ("type=flavor", "price=EUR") for part in ("--column", name)]
    (row,) = rows_in(dovetail("catalogue", "from-csv", file, *columns))
    assert (row.type, row.cpu, row.memory, row.price) == ("big", "8", "32Gi", 0.5)


def test_metrics_of_karpenter_become_a_table(dovetail: Program) -> None:
    rows = rows_in(dovetail("catalogue", "from-prometheus", "-", stdin=METRICS.encode()))
    assert [(row.type, row.memory, row.arch, row.zone, row.capacity_type, row.price) for row in rows] == [
        ("m6g.large", "8192Mi", "arm64", "eu-west-1a", "on-demand", 0.086),
        ("m6g.large", "8192Mi", "arm64", "eu-west-1a", "spot", 0.0312),
    ]
    assert rows[0].node_labels["karpenter.k8s.aws/instance-family"] == "m6g"


@pytest.mark.parametrize(
    ("arguments", "text", "message"),
    [
        (["from-csv"], "a,b\n1,2\n", "no column is known as the type; name it with --column type=NAME, of: a, b"),
        (["from-csv"], "type,vcpu\n1,2\n", "no column is known as the price; name it with --column price=NAME"),
        (["from-csv"], "type,price\nm5.large,free\n", "there is no row with a price in it"),
        (["from-csv"], "type,price\n", "there is no row in it"),
        (["from-csv"], "type,price\nm5.large,1\n", "line 2: cpu: is required"),
        (["from-csv", "--column", "price=Cost"], "type,price\na,1\n", "there is no column 'Cost'; the columns are"),
        (["from-csv", "--column", "cost=price"], "type,price\na,1\n", "--column cost=price: want OURS=THEIRS"),
        (["from-prometheus"], "up 1\n", "there is no metric karpenter_cloudprovider_instance_type_offering_price"),
        (["from-prometheus"], "up{ 1\n", "not the text format of Prometheus"),
        (["from-cluster", "-f"], "kind: ConfigMap\napiVersion: v1\n", "no Node or NodeClaim has an instance type"),
    ],
)
def test_what_cannot_be_read_is_one_line(dovetail: Program, arguments: list[str], text: str, message: str) -> None:
    command, *options = arguments
    file = dovetail.file(text, "input.yaml")
    given = [*options, file] if options[-1:] == ["-f"] else [file, *options]
    outcome = dovetail("catalogue", command, *given)
    assert outcome.code == 2
    (line,) = outcome.err.splitlines()
    assert message in line
