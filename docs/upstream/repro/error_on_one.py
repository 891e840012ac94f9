"""An error while one process reads: it raises alone, and its peer hangs."""

import faulthandler
import tempfile

import jax
import ray


@ray.remote(num_cpus=0)
class Process:
    def run(self, rank, address, shard):
        faulthandler.dump_traceback_later(15)  # says where it is stuck, if it is by then
        jax.distributed.initialize(address, 2, rank, coordinator_bind_address=address)
        for batch in shard.iter_jax_batches(batch_size=4, drop_last=True, synchronize_batches=True):
            batch["id"].sum().block_until_ready()  # a step across processes


def check(batch):
    if 20 in batch["id"]:
        raise OSError("row 20 is damaged")
    return batch


ray.init(num_cpus=4, runtime_env={"env_vars": {"JAX_PLATFORMS": "cpu"}})
rows = ray.data.range(24, override_num_blocks=6)
shards = [half.map_batches(check, batch_size=None) for half in rows.split_at_indices([12])]
address = f"unix:{tempfile.mkdtemp()}/jax"
processes = [Process.remote() for _ in shards]
calls = [p.run.remote(i, address, s) for i, (p, s) in enumerate(zip(processes, shards))]
for rank, call in enumerate(calls):
    try:
        print(f"process {rank}: {ray.get(call, timeout=25)}")
    except ray.exceptions.GetTimeoutError:
        print(f"process {rank}: stuck for 25 s")
    except Exception as error:
        print(f"process {rank}: raises {type(error).__name__}")
for process in processes:
    ray.kill(process)
