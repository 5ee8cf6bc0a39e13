"""`dovetail catalogue`: makes a table of instance types and prices for `--instance-types`."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from dovetail.api import names
from dovetail.api.documents import InputError, decode
from dovetail.api.objects import Node, NodeClaim
from dovetail.cli.common.completion import complete_files
from dovetail.cli.common.files import one_line_errors, private_file, read_file
from dovetail.cli.common.options import CONTEXT, FILES, KUBECONFIG, ClusterSource
from dovetail.cli.common.output import count, working
from dovetail.cli.common.process import fail
from dovetail.cli.common.sources import read_cluster
from dovetail.model.type_table import COLUMNS, TableError, TypeRow, written_csv, written_json
from dovetail.views.catalogue import (
    METRICS,
    PriceList,
    Sample,
    read_price_list,
    rows_of_cluster,
    rows_of_metrics,
    rows_of_prices,
    with_prices,
)

_OUTPUT = click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="The file to write: JSON if its name ends in .json, else CSV.  [default: CSV on standard output]",
)
_COLUMN = click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="OURS=THEIRS",
    help="What the price list calls a column, for example price='On Demand cost'. Can be repeated.",
)


@click.group("catalogue")
def command() -> None:
    """Make a table of instance types and prices, for --instance-types of plan, simulate, explain and forecast.

    The table has one row for each type, zone and capacity type. You can edit it, or write it by hand.
    """


@command.command("from-cluster")
@FILES
@KUBECONFIG
@CONTEXT
@click.option("--prices", metavar="FILE", shell_complete=complete_files, help="A price list in CSV for these types.")
@_COLUMN
@_OUTPUT
def from_cluster(*, prices: str | None, columns: tuple[str, ...], output: str | None, **given: Any) -> None:
    """List the types of the cluster's Nodes and NodeClaims, with their true capacity and labels.

    Nodes show no prices: add them with --prices, or by hand.

    \b
      dovetail catalogue from-cluster --prices prices.csv -o types.csv
      dovetail plan --instance-types types.csv
    """
    source = ClusterSource(**given)
    source.check()
    with one_line_errors(), working("reading …"):
        documents = read_cluster(source).documents
        nodes = [decode(document, Node) for document in documents if document.kind == "Node"]
        claims = [decode(document, NodeClaim) for document in documents if document.kind == names.NODECLAIM_KIND]
        rows: Sequence[TypeRow] = rows_of_cluster(nodes, claims)
    if not rows:
        fail("no Node or NodeClaim has an instance type and a capacity")
    if prices is not None:
        listed = _price_list(prices, columns)
        rows = with_prices(rows, listed.rows)
    elif columns:
        fail("--column goes with --prices")
    _write(rows, output)


@command.command("from-csv")
@click.argument("file", metavar="FILE", shell_complete=complete_files)
@_COLUMN
@_OUTPUT
def from_csv(*, file: str, columns: tuple[str, ...], output: str | None) -> None:
    """Convert a price list in CSV. It needs the type, the price, cpu and memory.

    Common names of columns and forms of values are understood, such as "4 vCPUs", "16 GiB" and "$0.0960 hourly". A
    column for spot prices makes rows of its own. Rows without a price are left out.
    """
    listed = _price_list(file, columns)
    with _named(file):
        rows = rows_of_prices(listed.rows)
    _write(rows, output, unpriced=listed.unpriced)


@command.command("from-prometheus")
@click.argument("file", metavar="FILE", shell_complete=complete_files)
@_OUTPUT
def from_prometheus(*, file: str, output: str | None) -> None:
    """Convert the metrics of a running Karpenter, as its metrics port serves them.

    Only some providers, such as that for AWS, have metrics of instance types. They do not tell GPUs. FILE can be - for
    standard input:

    \b
      kubectl get --raw /api/v1/namespaces/kube-system/services/karpenter:8080/proxy/metrics |
        dovetail catalogue from-prometheus - -o types.csv
    """
    with _named(file):
        rows = rows_of_metrics(_samples(_text(file)))
    _write(rows, output)


def _samples(text: str) -> Iterable[Sample]:
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415  (the others need it not)

    try:
        for family in text_string_to_metric_families(text):
            if family.name in METRICS:
                yield from (Sample(sample.name, sample.labels, sample.value) for sample in family.samples)
    except (ValueError, KeyError, IndexError) as error:
        raise TableError(f"not the text format of Prometheus: {error}") from None


# -- reading and writing -----------------------------------------------------------------------------------------------


def _price_list(file: str, columns: Sequence[str]) -> PriceList:
    with _named(file):
        return read_price_list(_text(file), _renamed(columns))


def _renamed(columns: Sequence[str]) -> Mapping[str, str]:
    ours = (*COLUMNS, "spot")
    renamed = {}
    for text in columns:
        column, equals, name = text.partition("=")
        if not equals or column not in ours or not name:
            fail(f"--column {text}: want OURS=THEIRS, with one of {', '.join(ours)} before the =")
        renamed[column] = name
    return renamed


def _text(file: str) -> str:
    try:
        return read_file(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TableError(f"not UTF-8: {error}") from None


@contextmanager
def _named(file: str) -> Iterator[None]:
    """Ends the program with one line that names the file, if it cannot be read."""
    try:
        yield
    except InputError as error:
        fail(str(error))
    except TableError as error:
        fail(f"{'standard input' if file == '-' else file}: {error}")


def _write(rows: Sequence[TypeRow], output: str | None, *, unpriced: int = 0) -> None:
    text = written_json(rows) if output is not None and output.lower().endswith(".json") else written_csv(rows)
    if output in (None, "-"):
        click.echo(text, nl=False)
        sys.stdout.flush()
    else:
        with one_line_errors(), private_file(str(output)) as file:
            file.write(text.encode())
    click.echo(_summary(rows, unpriced), err=True)


def _summary(rows: Sequence[TypeRow], unpriced: int) -> str:
    types, zones = len({row.type for row in rows}), len({row.zone for row in rows if row.zone})
    priced = sum(row.price is not None for row in rows)
    where = f" in {count(zones, 'zone')}" if zones else ""
    left_out = f"; left out {count(unpriced, 'row')} without a price" if unpriced else ""
    pricing = "all with a price" if priced == len(rows) else f"{priced} with a price, the others are guessed"
    return f"{count(types, 'instance type')}{where}: {count(len(rows), 'row')}, {pricing}{left_out}"
