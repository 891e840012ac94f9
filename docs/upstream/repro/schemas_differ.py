"""Rows of 3 numbers on one process and of 5 on the other: nobody raises."""

import faulthandler
import tempfile

import jax
import numpy as np
import ray


@ray.remote(num_cpus=0)
class Process:
    def run(self, rank, address, shard):
        faulthandler.dump_traceback_later(15)  # says where it is stuck, if it is by then
        jax.distributed.initialize(address, 2, rank, coordinator_bind_address=address)
        arrays = list(shard.iter_jax_batches(batch_size=4, synchronize_batches=True))
        return [(a["x"].shape, str(a["x"].dtype)) for a in arrays]


ray.init(num_cpus=4, runtime_env={"env_vars": {"JAX_PLATFORMS": "cpu"}})
shards = [
    ray.data.from_numpy(np.ones((4, 3), np.float32)).rename_columns({"data": "x"}),
    ray.data.from_numpy(np.ones((4, 5), np.int32)).rename_columns({"data": "x"}),
]
address = f"unix:{tempfile.mkdtemp()}/jax"
processes = [Process.remote() for _ in shards]
calls = [p.run.remote(i, address, s) for i, (p, s) in enumerate(zip(processes, shards))]
for rank, call in enumerate(calls):
    try:
        print(f"process {rank}: {ray.get(call, timeout=25)}")
    except ray.exceptions.GetTimeoutError:
        print(f"process {rank}: stuck for 25 s")
    except Exception as error:
        print(f"process {rank}: {str(error).splitlines()[-1]}")
for process in processes:
    ray.kill(process)
