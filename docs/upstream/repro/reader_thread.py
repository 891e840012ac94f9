"""Read by a background thread while the main thread runs steps, synchronisation deadlocks."""

import faulthandler
import queue
import tempfile
import threading

import jax
import ray


@ray.remote(num_cpus=0)
class Process:
    def run(self, rank, address, shard):
        faulthandler.dump_traceback_later(15)  # says where it is stuck, if it is by then
        jax.distributed.initialize(address, 2, rank, coordinator_bind_address=address)
        ready = queue.Queue(maxsize=2)
        batches = shard.iter_jax_batches(batch_size=4, drop_last=True, synchronize_batches=True)
        threading.Thread(target=lambda: [ready.put(b) for b in batches], daemon=True).start()
        return [int(ready.get()["id"].sum()) for _ in range(200)][-1]  # a step each


ray.init(num_cpus=4, runtime_env={"env_vars": {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2"}})
shards = ray.data.range(1600).split_at_indices([800])
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
