"""`dovetail manifests`: prints the manifests that install the controller."""

import sys

import click

from dovetail import __version__
from dovetail.api.manifests import NAMESPACE, Part, manifests
from dovetail.api.manifests.rbac import RIGHTS
from dovetail.api.names import DovetailMode
from dovetail.cli.common.process import fail
from dovetail.cli.common.providers import provider_named, provider_option
from dovetail.cli.common.scheduler_config import SCHEDULER_CONFIG, SchedulerConfig


@click.command("manifests")
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in RIGHTS]),
    default=DovetailMode.RUN.value,
    show_default=True,
    help="What is installed: the controller of the cluster, or guard or drive beside Karpenter.",
)
@click.option("--hold-pods", is_flag=True, help="Run it with this option, and with the right to patch pods.")
@click.option("-n", "--namespace", default=NAMESPACE, show_default=True, help="Where the controller runs.")
@click.option("--image", default=f"dovetail-k8s:{__version__}", show_default=True, help="The image of the controller.")
@click.option(
    "--only",
    "parts",
    type=click.Choice([part.value for part in Part]),
    multiple=True,
    help="Print only this part. Can be repeated.",
)
@provider_option()
@SCHEDULER_CONFIG
def command(
    *,
    mode: str,
    hold_pods: bool,
    namespace: str,
    image: str,
    parts: tuple[str, ...],
    provider: str,
    scheduler_config: SchedulerConfig,
) -> None:
    """Print the manifests that install the controller, as YAML:

    \b
      dovetail manifests | kubectl apply -f -

    They are the CustomResourceDefinitions (crds), the service account and its rights (rbac), a policy that warns about
    bad annotations when pods are applied (admission), and the controller itself (deployment). Beside Karpenter there
    are no CustomResourceDefinitions, because Karpenter's own are installed.
    """
    if hold_pods and mode == DovetailMode.RUN:
        fail("--hold-pods is for guard and drive: give --mode guard")
    chosen = [Part(part) for part in parts] or list(Part)
    profiles, bundle = scheduler_config.profiles, provider_named(provider)
    printed = manifests(
        namespace=namespace,
        image=image,
        parts=chosen,
        provider_crds=bundle.crds(),
        provider_rules=bundle.rules(),
        scheduler_config=scheduler_config.text,
        spread_by_default=profiles is not None and profiles.any_constraints,
        mode=DovetailMode(mode),
        hold_pods=hold_pods,
    )
    sys.stdout.write(printed)
