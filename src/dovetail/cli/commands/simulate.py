"""`dovetail simulate`: simulates the next hours or days of a scenario or dump."""

from collections.abc import Callable, Sequence
from typing import Final

import click
import msgspec
from click.core import ParameterSource

from dovetail.api.documents import Document, InputError, plain_value
from dovetail.cli.common.completion import complete_files
from dovetail.cli.common.dump_age import old_dump
from dovetail.cli.common.files import one_line_errors, private_file
from dovetail.cli.common.instance_types import BUILT_IN, INSTANCE_TYPES, catalogue_in
from dovetail.cli.common.options import CommonOptions, common_options
from dovetail.cli.common.output import Times, be_silent, print_data, print_lines, progress_bar, working
from dovetail.cli.common.process import ends_at_once, fail
from dovetail.cli.common.read_kinds import PLACING_KINDS, RULE_KINDS, WORKLOAD_KINDS, ReadKind, spread_kinds
from dovetail.cli.common.salvage import salvaged_documents
from dovetail.cli.common.scheduler_config import SCHEDULER_CONFIG, SchedulerConfig
from dovetail.cli.common.sources import ClusterInput, cluster_documents, settings_in, understood
from dovetail.cli.text.simulate import comparison_lines, report_lines
from dovetail.model.decider import MODES, Decider, in_mode
from dovetail.model.finding import Finding
from dovetail.model.rule_settings import BudgetSemantics, settings_of
from dovetail.sim.scenarios.player import play_through
from dovetail.sim.scenarios.reading import Scenario, read_scenario
from dovetail.sim.scenarios.settings import Setting, SettingError, read_setting, with_settings
from dovetail.values.foreign_text import plain
from dovetail.views.simulation.page import comparison_page, report_page
from dovetail.views.simulation.report import SimulationReport, compared

_LABEL: Final = 60


@click.command("simulate")
@click.argument("arguments", nargs=-1, metavar="[PATH]...", shell_complete=complete_files)
@common_options(
    ahead="How long to simulate.  [default: what the Scenario says, or 7d]",
    namespace="Of a live cluster, read only this namespace if you may not read all.",
    quiet="Only figures.",
    verbose="Show the whole timeline and all assumptions.",
)
@click.option("--seed", type=int, help="The seed for names, UIDs and the choice of machines.")
@click.option(
    "--from-cluster", is_flag=True, help="Start from the live cluster; files may contain a Scenario with events."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KIND/NAME.FIELD=VALUE",
    help="Start with another value, in YAML: nodepool/default.spec.disruption.budgets='[{nodes: \"1\"}]'.",
)
@click.option("--compare", is_flag=True, help="Simulate twice, without and with the values of --set, and compare.")
@click.option(
    "--compare-set",
    "others",
    multiple=True,
    metavar="KIND/NAME.FIELD=VALUE",
    help="Values for the second run; --set is then for the first.",
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    help="Who acts: Karpenter alone, or with Dovetail's guard or drive beside it, or Dovetail's run.  "
    "[default: whoever decides in the cluster]",
)
@click.option("--compare-mode", type=click.Choice(MODES), help="Who acts in the second run, to compare.")
@click.option("--hold-pods", is_flag=True, help="Guard and drive hold pods, too, as with their own --hold-pods.")
@click.option(
    "--report", "page", type=click.Path(dir_okay=False), metavar="FILE.html", help="Write the report as a web page."
)
@INSTANCE_TYPES
@SCHEDULER_CONFIG
@click.pass_context
def command(
    context: click.Context,
    *,
    arguments: tuple[str, ...],
    common: CommonOptions,
    seed: int | None,
    from_cluster: bool,
    settings: tuple[str, ...],
    compare: bool,
    others: tuple[str, ...],
    mode: str | None,
    compare_mode: str | None,
    hold_pods: bool,
    page: str | None,
    instance_types: str | None,
    scheduler_config: SchedulerConfig,
) -> None:
    """Simulate the next hours or days of a Scenario, or of a dump of a cluster.

    All controllers run in a simulated cluster, in virtual time: Dovetail's, or a simulated Karpenter's with Dovetail's
    guard or drive beside it. Nothing outside is read or written.

    \b
      dovetail simulate examples/scenarios/week.yaml
      kubectl get nodepools,nodeclaims,nodes,pdb,pods -A -o yaml | dovetail simulate - --for 3d
      dovetail simulate week.yaml --set nodepool/default.spec.disruption.budgets='[{nodes: "1"}]' --compare
      dovetail simulate dump.yaml --mode karpenter --compare-mode guard
    """
    be_silent()
    paths = (*arguments, *common.paths)
    if not paths and not from_cluster:
        fail("no input: name files or directories, - for standard input, or --from-cluster")
    if (common.kubeconfig or common.context) and not from_cluster:
        fail("--kubeconfig and --context go with --from-cluster")
    given = context.get_parameter_source("at") is ParameterSource.COMMANDLINE
    with one_line_errors(), working("reading …"):
        profiles = scheduler_config.profiles
        read = _read(common, paths, spread_kinds(profiles), from_cluster=from_cluster)
        scenario = read_scenario(
            read.documents,
            now=common.at,
            start=common.at if given else None,
            span=None if common.end is None else common.end - common.at,
            seed=seed,
            live=from_cluster,
            settings=read.snapshot.settings,
        )
        read.problems.extend(() if from_cluster else old_dump(read.snapshot, scenario.start))
        scenario = msgspec.structs.replace(scenario, problems=(*read.problems_beside_scenario, *scenario.problems))
        catalogue = catalogue_in(instance_types)
        runs = _runs(scenario, settings, others, compare=compare)
        runs = _in_modes(runs, mode, compare_mode, common.budgets)
    with one_line_errors(), ends_at_once(), progress_bar("simulating") as progress:
        reports = [
            play_through(
                run,
                catalogue,
                _part(number, len(runs), progress),
                scheduler_profiles=profiles,
                hold_pods=hold_pods,
            )
            for number, (_, run) in enumerate(runs)
        ]
    reports = [_with_source(report, instance_types or BUILT_IN) for report in reports]
    _show([label for label, _ in runs], reports, common, page, _named(scenario, paths))


def _with_source(report: SimulationReport, prices: str) -> SimulationReport:
    return msgspec.structs.replace(report, cost=msgspec.structs.replace(report.cost, prices=prices))


def _read(common: CommonOptions, paths: Sequence[str], also: Sequence[ReadKind], *, from_cluster: bool) -> ClusterInput:
    problems: list[Finding] = []
    live: list[Document] = []
    if from_cluster:
        kinds = tuple(dict.fromkeys((*RULE_KINDS, *PLACING_KINDS, *WORKLOAD_KINDS, *also)))
        live = list(cluster_documents(common.source._replace(paths=()), kinds, problems))
    written = list(salvaged_documents(paths, problems))
    _refuse_half_manifests(written, problems)
    documents = [*live, *written]
    return understood(documents, problems, settings_in(common.source, documents, problems, live=from_cluster))


def _refuse_half_manifests(documents: Sequence[Document], problems: Sequence[Finding]) -> None:
    """Half a dump is simulated as far as it goes. A manifest that ends early is a mistake of its author."""
    for problem in problems:
        if problem.rule == "CutOff" and not any(
            document.file == problem.file and _is_dumped(document) for document in documents
        ):
            raise InputError(problem.file, str(problem.message))


def _is_dumped(document: Document) -> bool:
    """Whether it has a creation time, which nobody writes by hand."""
    meta = plain_value(document).get("metadata")
    return isinstance(meta, dict) and "creationTimestamp" in meta


def _runs(
    scenario: Scenario, settings: Sequence[str], others: Sequence[str], *, compare: bool
) -> list[tuple[str, Scenario]]:
    """The runs, each with its label."""
    if compare and not settings and not others:
        fail("--compare needs --set, for what differs")
    try:
        first, second = [read_setting(text) for text in settings], [read_setting(text) for text in others]
        if others:
            return [(_label(first), with_settings(scenario, first)), (_label(second), with_settings(scenario, second))]
        if compare:
            return [("as it is", scenario), (_label(first), with_settings(scenario, first))]
        return [("", with_settings(scenario, first))]
    except SettingError as error:
        fail(f"--set {error}")


def _in_modes(
    runs: list[tuple[str, Scenario]], mode: str | None, other: str | None, budgets: BudgetSemantics | None
) -> list[tuple[str, Scenario]]:
    """The same runs with whom the user wants to act, and with somebody else for comparison."""
    if other is None:
        return [(label, _acting(run, mode, "--mode", budgets)) for label, run in runs]
    (first, run), (second, again) = runs[0], runs[-1]
    pair = [(first, _acting(run, mode, "--mode", budgets)), (second, _acting(again, other, "--compare-mode", budgets))]
    return [(_label_of_mode(run.settings.decider, label if len(runs) > 1 else ""), run) for label, run in pair]


def _label_of_mode(decider: Decider, label: str) -> str:
    return ", ".join(filter(None, (decider.mode or decider.controller, label)))


def _acting(scenario: Scenario, mode: str | None, option: str, budgets: BudgetSemantics | None) -> Scenario:
    as_seen = scenario.settings.decider
    decider = as_seen if mode is None else in_mode(mode, as_seen, f"{option} says so")
    if decider == as_seen:
        return scenario
    return msgspec.structs.replace(scenario, settings=settings_of(decider, budgets))


def _label(settings: Sequence[Setting]) -> str:
    text = ", ".join(setting.text for setting in settings) or "as it is"
    return text if len(text) <= _LABEL else text[: _LABEL - 1] + "…"


def _part(number: int, parts: int, progress: Callable[[float], None]) -> Callable[[float], None]:
    """Reports the progress of one part as progress of the whole."""
    return lambda share: progress((number + share) / parts)


def _named(scenario: Scenario, paths: Sequence[str]) -> str:
    """The name of the Scenario; of a dump, its files."""
    meta = {} if scenario.document is None else plain_value(scenario.document).get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    return plain(str(name)) if name else ", ".join(map(plain, paths)) or "the live cluster"


def _show(
    labels: Sequence[str],
    reports: Sequence[SimulationReport],
    common: CommonOptions,
    page: str | None,
    scenario: str,
) -> None:
    times = Times(reports[0].end, common.zone)
    comparison = compared(reports[0], reports[1], (labels[0], labels[1])) if len(reports) > 1 else None
    if page is not None:
        html = (
            report_page(reports[0], common.zone, scenario)
            if comparison is None
            else comparison_page(comparison, common.zone, scenario)
        )
        try:
            with private_file(page) as file:
                file.write(html.encode())
        except OSError as error:
            fail(f"--report {page}: {error.strerror}")
    if common.output != "table":
        print_data(reports[0] if comparison is None else comparison, common.output)
    elif comparison is not None:
        print_lines(comparison_lines(comparison, times, verbose=common.verbose))
    else:
        print_lines(report_lines(reports[0], times, verbose=common.verbose, quiet=common.quiet))
