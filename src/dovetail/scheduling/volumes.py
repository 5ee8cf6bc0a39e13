"""Where the volumes of a pod can be used, and whether a node can attach them (05 §6)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from dovetail.api import names
from dovetail.api.pod_specs import SchedulingPod
from dovetail.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from dovetail.scheduling.labels import normalised
from dovetail.scheduling.requirements import NO_REQUIREMENTS, RequirementError, Requirements, one_of, read_requirements

# Combinations of the places of several volumes, without contradictory ones.
MAX_ALTERNATIVES: Final = 1000

_EBS_DRIVER: Final = "ebs.csi.aws.com"
# The CSI drivers that replace the in-tree provisioners of Kubernetes.
_MIGRATED: Final = {
    "kubernetes.io/aws-ebs": _EBS_DRIVER,
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/azure-file": "file.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
}


class VolumeFlaw(StrEnum):
    """Why a claim keeps its pod from being placed (06 §2.3)."""

    CLAIM_MISSING = "does not exist"
    CLAIM_DELETING = "is being deleted"
    CLAIM_LOST = "has lost its volume"
    VOLUME_MISSING = "is bound to a volume that does not exist"
    VOLUME_DELETING = "is bound to a volume that is being deleted"
    NOT_YET_BOUND = "is not completely bound yet"
    NO_CLASS = "is not bound and has no storage class"
    CLASS_MISSING = "is not bound and its storage class does not exist"
    BOUND_BEFOREHAND = "is not bound, and its storage class binds volumes before it is known where pods go"
    UNREADABLE = "has a volume whose node affinity cannot be read"
    TOO_MANY = "has, with the others, too many places where it could be used"


class VolumeError(ValueError):
    """The pod cannot be placed because of this claim."""

    def __init__(self, claim: str, flaw: VolumeFlaw, detail: str = "") -> None:
        super().__init__(f"claim {claim} {flaw}" + (f": {detail}" if detail else ""))
        self.claim = claim
        self.flaw = flaw


class Storage(msgspec.Struct, frozen=True):
    """Claims by namespace and name, volumes and classes by name."""

    claims: Mapping[tuple[str, str], PersistentVolumeClaim] = {}
    volumes: Mapping[str, PersistentVolume] = {}
    classes: Mapping[str, StorageClass] = {}


class Attachment(NamedTuple):
    """A claim that a driver attaches to a node. Pods that share the claim share the attachment."""

    driver: str
    namespace: str
    claim: str


class PodVolumes(msgspec.Struct, frozen=True, cache_hash=True):
    """What the volumes of a pod need: attachments, and one of the places, in the order to try."""

    attachments: frozenset[Attachment] = frozenset()
    alternatives: tuple[Requirements, ...] = (NO_REQUIREMENTS,)


NO_VOLUMES: Final = PodVolumes()


def pod_volumes(pod: SchedulingPod, storage: Storage) -> PodVolumes:
    """The volumes of a pod to place. Raises VolumeError."""
    if not pod.spec.volumes:
        return NO_VOLUMES
    places: list[tuple[str, Sequence[Requirements]]] = []
    for key in _claims(pod):
        claim = storage.claims.get(key)
        if flaw := _flaw(claim, storage):
            raise VolumeError(key[1], flaw)
        assert claim is not None
        places.append((key[1], _places(claim, storage)))
    return PodVolumes(attachments(pod, storage), _combined(places))


def _claims(pod: SchedulingPod) -> Iterator[tuple[str, str]]:
    """Namespace and name of each claim, once."""
    names_ = (
        volume.persistent_volume_claim.claim_name
        if volume.persistent_volume_claim is not None
        else f"{pod.metadata.name}-{volume.name}"
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None
    )
    return ((pod.metadata.namespace or "default", name) for name in dict.fromkeys(names_))


def _flaw(claim: PersistentVolumeClaim | None, storage: Storage) -> VolumeFlaw | None:
    """A bound claim needs no storage class."""
    if claim is None:
        return VolumeFlaw.CLAIM_MISSING
    if claim.metadata.deletion_timestamp is not None:
        return VolumeFlaw.CLAIM_DELETING
    if claim.status.phase == "Lost":
        return VolumeFlaw.CLAIM_LOST
    if claim.spec.volume_name:
        volume = storage.volumes.get(claim.spec.volume_name)
        if volume is None:
            return VolumeFlaw.VOLUME_MISSING
        if volume.metadata.deletion_timestamp is not None:
            return VolumeFlaw.VOLUME_DELETING
        return None if names.PVC_BIND_COMPLETED in claim.metadata.annotations else VolumeFlaw.NOT_YET_BOUND
    if not claim.spec.storage_class_name:
        return VolumeFlaw.NO_CLASS
    class_ = storage.classes.get(claim.spec.storage_class_name)
    if class_ is None:
        return VolumeFlaw.CLASS_MISSING
    return VolumeFlaw.BOUND_BEFOREHAND if class_.volume_binding_mode == "Immediate" else None


def _places(claim: PersistentVolumeClaim, storage: Storage) -> Sequence[Requirements]:
    """Where the volume is or can be created; empty: anywhere."""
    if claim.spec.volume_name:
        try:
            return _volume_places(storage.volumes[claim.spec.volume_name])
        except RequirementError as error:
            raise VolumeError(claim.metadata.name, VolumeFlaw.UNREADABLE, str(error)) from None
    return [
        Requirements(
            one_of(normalised(expression.key), expression.values) for expression in term.match_label_expressions
        )
        for term in storage.classes[claim.spec.storage_class_name or ""].allowed_topologies
    ]


def _volume_places(volume: PersistentVolume) -> Sequence[Requirements]:
    """A volume on one machine counts as one that is created again where the pod goes."""
    required = volume.spec.node_affinity.required
    terms = () if required is None else required.node_selector_terms
    places = [read_requirements(term.match_expressions) for term in terms]
    if volume.spec.local is not None or volume.spec.host_path is not None:
        return [place.without(names.HOSTNAME_LABEL) for place in places]
    return places


def _combined(places: Iterable[tuple[str, Sequence[Requirements]]]) -> tuple[Requirements, ...]:
    """All combinations of places that do not contradict each other; if all do, these."""
    combined = [NO_REQUIREMENTS]
    for claim, options in places:
        if not options:
            continue
        both = dict.fromkeys(place & option for place in combined for option in options)
        combined = [place for place in both if not place.impossible] or list(both)
        if len(combined) > MAX_ALTERNATIVES:
            raise VolumeError(claim, VolumeFlaw.TOO_MANY)
    return tuple(combined)


def attachments(pod: SchedulingPod, storage: Storage) -> frozenset[Attachment]:
    """The attachments of a pod on any node, without those of unknown drivers (05 §6.2)."""
    claims = ((_driver(storage.claims.get(key), storage), key) for key in _claims(pod))
    return frozenset(Attachment(driver, *key) for driver, key in claims if driver)


def _driver(claim: PersistentVolumeClaim | None, storage: Storage) -> str:
    """The CSI driver; empty if there is none or it is unknown."""
    if claim is None:
        return ""
    if claim.spec.volume_name:
        volume = storage.volumes.get(claim.spec.volume_name)
        if volume is None:
            return ""
        if volume.spec.csi is not None:
            return volume.spec.csi.driver
        return _EBS_DRIVER if volume.spec.aws_elastic_block_store is not None else ""
    class_ = storage.classes.get(claim.spec.storage_class_name or "")
    return "" if class_ is None else _MIGRATED.get(class_.provisioner, class_.provisioner)


def attach_limits(node: CSINode | None) -> dict[str, int]:
    """The limits of attachments by driver."""
    drivers = () if node is None else node.spec.drivers
    return {driver.name: driver.allocatable.count for driver in drivers if driver.allocatable.count is not None}


def over_limit(added: frozenset[Attachment], attached: frozenset[Attachment], limits: Mapping[str, int]) -> str | None:
    """The first driver, by name, that cannot attach the added claims."""
    new = added - attached
    if not new:
        return None
    counts = Counter(volume.driver for volume in attached | new)
    return next(
        (name for name in sorted({volume.driver for volume in new}) if counts[name] > limits.get(name, counts[name])),
        None,
    )
