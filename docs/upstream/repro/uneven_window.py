"""Shards that end two batches apart within one look-ahead: IndexError here, a hang there."""

import faulthandler
import tempfile

import jax
import ray


@ray.remote(num_cpus=0)
class Process:
    def run(self, rank, address, shard):
        faulthandler.dump_traceback_later(15)  # says where it is stuck, if it is by then
        jax.distributed.initialize(address, 2, rank, coordinator_bind_address=address)
        args = {"batch_size": 4, "paddings": -1, "prefetch_batches": 3}
        sums = []
        for batch in shard.iter_jax_batches(synchronize_batches=True, **args):
            sums.append(int(batch["id"].sum()))  # a step across processes
        return sums


ray.init(num_cpus=4, runtime_env={"env_vars": {"JAX_PLATFORMS": "cpu"}})
shards = ray.data.range(14).split_at_indices([10])  # 3 batches, and 1
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
