"""The parts of claims, volumes, storage classes and CSI nodes that say where a pod's volumes can be used."""

from dovetail.api.objects import ApiObject, Wire
from dovetail.api.pod_specs import NodeSelector


class PersistentVolumeClaimSpec(Wire, frozen=True):
    """Without a class (None) is not the same as of no class (empty), but neither can be provisioned."""

    volume_name: str = ""
    storage_class_name: str | None = None


class PersistentVolumeClaimStatus(Wire, frozen=True):
    phase: str = ""


class PersistentVolumeClaim(ApiObject, frozen=True):
    """A PersistentVolumeClaim."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class CSIVolumeSource(Wire, frozen=True):
    driver: str = ""


class VolumeNodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = None


class PersistentVolumeSpec(Wire, frozen=True):
    """Of the sources that are no CSI drivers only their presence is read."""

    csi: CSIVolumeSource | None = None
    aws_elastic_block_store: dict[str, object] | None = None
    local: dict[str, object] | None = None
    host_path: dict[str, object] | None = None
    node_affinity: VolumeNodeAffinity = VolumeNodeAffinity()


class PersistentVolume(ApiObject, frozen=True):
    """A PersistentVolume."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class TopologyExpression(Wire, frozen=True):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Wire, frozen=True):
    match_label_expressions: tuple[TopologyExpression, ...] = ()


class StorageClass(ApiObject, frozen=True):
    provisioner: str = ""
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()
    volume_binding_mode: str = "Immediate"


class DriverCount(Wire, frozen=True):
    count: int | None = None


class NodeDriver(Wire, frozen=True):
    name: str = ""
    allocatable: DriverCount = DriverCount()


class CSINodeSpec(Wire, frozen=True):
    drivers: tuple[NodeDriver, ...] = ()


class CSINode(ApiObject, frozen=True):
    """Of the same name as its Node."""

    spec: CSINodeSpec = CSINodeSpec()
