"""TPU slices that are not there: a Ray cluster of this machine whose nodes say they are TPU hosts.

What Ray decides by resources and labels is as on real slices: reservation, placement, worker ids,
several nodes. What computes is JAX on CPU devices.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from ray.cluster_utils import Cluster

from harness.backends.ray_cluster import QUIET
from harness.backends.slices import POD_TYPE, SLICE_NAME, TOPOLOGY, WORKER_ID, SliceShape
from harness.custody import Custody

# Tasks that read datasets run where no TPU is: a host has but the CPU that goes with its bundle.
HEAD_CPUS = 2
_HOST_CPUS = 1
_STORE_BYTES = 100 * 1024 * 1024
_START_LIMIT_S = 120.0

_logger = logging.getLogger(__name__)


class FakeSlices:
    """A cluster with slices of this shape, and a node without TPU that programs connect to.

    ```python
    shape = SliceShape("4x4", "v6e")
    with FakeSlices(shape) as fake:
        backend = TpuBackend("4x4", "v6e", address=fake.address, platform="cpu")
    ```

    It ends with `close`, or with this process, however that ends. Gangs on it are to be closed
    before it.

    Args:
        shape: the slices; each host is a node.
        missing_hosts: so many hosts of the last slice are not started.

    Attributes:
        address: what `ray.init` takes to connect to the cluster.
    """

    def __init__(self, shape: SliceShape, *, missing_hosts: int = 0) -> None:
        self.shape = shape
        try:
            self._start(missing_hosts)
        except Exception as error:  # noqa: BLE001 - whatever Ray raises where a node does not start
            # Ray finds a port, lets it go and binds it later: another cluster may have it by then.
            _logger.warning("the fake slices did not start, trying once more: %s", error)
            self._start(missing_hosts)
        self.address = str(self._cluster.address)

    def _start(self, missing_hosts: int) -> None:
        self._custody = Custody()
        self._cluster = Cluster(shutdown_at_exit=False)
        try:
            with _environment(self._custody):
                self._cluster.add_node(
                    num_cpus=HEAD_CPUS,
                    include_dashboard=False,
                    object_store_memory=2 * _STORE_BYTES,
                    temp_dir=str(self._custody.directory),
                )
                for index in range(self.shape.hosts - missing_hosts):
                    self._add_host(index)
                self._cluster.wait_for_nodes(_START_LIMIT_S)
            # Ray's agents lose the mark, and their parent when that ends before they do.
            self._custody.hold()
        except BaseException:
            self.close()
            raise

    def _add_host(self, index: int) -> None:
        shape = self.shape
        which, worker = divmod(index, shape.hosts // shape.slices)
        name = f"fake-{which}"
        head = {f"TPU-{shape.pod_type}-head": 1} if worker == 0 else {}
        self._cluster.add_node(
            wait=False,
            num_cpus=_HOST_CPUS,
            object_store_memory=_STORE_BYTES,
            temp_dir=str(self._custody.directory),
            resources={
                "TPU": shape.chips_per_host,
                f"accelerator_type:TPU-{shape.version.upper()}": 1,
                **head,
            },
            env_vars={
                "TPU_NAME": name,
                "TPU_WORKER_ID": str(worker),
                "TPU_ACCELERATOR_TYPE": shape.pod_type,
                "TPU_TOPOLOGY": shape.topology,
            },
            labels={
                SLICE_NAME: name,
                WORKER_ID: str(worker),
                POD_TYPE: shape.pod_type,
                TOPOLOGY: shape.topology,
            },
        )

    def close(self) -> None:
        """End the cluster and remove its files. May be called again."""
        self._custody.close()
        for node in self._cluster.list_all_nodes():
            # They are dead: this process takes notice, so that none stays a zombie.
            node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@contextlib.contextmanager
def _environment(custody: Custody) -> Iterator[None]:
    """What all processes of the cluster inherit; below RAY_TMPDIR Ray notes its address."""
    (custody.directory / "ray").mkdir()
    name, value = custody.mark
    wanted = {name: value, **QUIET, "RAY_TMPDIR": str(custody.directory)}
    # A host has no checkout: what its ranks import must come to it by Ray.
    before = {each: os.environ.get(each) for each in (*wanted, "PYTHONPATH")}
    os.environ.pop("PYTHONPATH", None)
    os.environ.update(wanted)
    try:
        yield
    finally:
        for each, old in before.items():
            os.environ.pop(each, None)
            if old is not None:
                os.environ[each] = old
