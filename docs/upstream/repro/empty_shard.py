"""A shard without rows beside one with rows, with paddings: one raises, the other hangs."""

import faulthandler
import tempfile

import jax
import ray


@ray.remote(num_cpus=0)
class Process:
    def run(self, rank, address, shard):
        faulthandler.dump_traceback_later(15)  # says where it is stuck, if it is by then
        jax.distributed.initialize(address, 2, rank, coordinator_bind_address=address)
        sums = []
        for batch in shard.iter_jax_batches(batch_size=4, paddings=-1, synchronize_batches=True):
            sums.append(int(batch["id"].sum()))  # a step across processes
        return sums


ray.init(num_cpus=4, runtime_env={"env_vars": {"JAX_PLATFORMS": "cpu"}})
shards = ray.data.range(8).split_at_indices([8])  # 8 rows, and none
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
