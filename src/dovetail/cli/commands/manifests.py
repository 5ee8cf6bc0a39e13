"""`dovetail manifests`: what installs the controller into a cluster."""

import sys

import click

from dovetail import __version__
from dovetail.api.manifests import NAMESPACE, Part, manifests


@click.command("manifests")
@click.option("-n", "--namespace", default=NAMESPACE, show_default=True, help="Where the controller runs.")
@click.option("--image", default=f"dovetail-k8s:{__version__}", show_default=True, help="The image that it runs from.")
@click.option(
    "--only",
    "parts",
    type=click.Choice([part.value for part in Part]),
    multiple=True,
    help="Print this part alone. May be given several times.",
)
def command(*, namespace: str, image: str, parts: tuple[str, ...]) -> None:
    """Print what installs the controller into a cluster, as YAML:

    \b
      dovetail manifests | kubectl apply -f -

    That is the CustomResourceDefinitions (crds), the account and what it may do (rbac), a policy that warns of bad
    annotations on pods when they are applied (admission), and the controller itself (deployment).
    """
    chosen = [Part(part) for part in parts] or list(Part)
    sys.stdout.write(manifests(namespace=namespace, image=image, parts=chosen))
