"""With prefetch_batches of 2 or more, batches leave in the order in which they are ready."""

import time

import ray
from ray.data.collate_fn import NumpyBatchCollateFn


class FirstIsSlow(NumpyBatchCollateFn):
    def __call__(self, batch):
        if 0 in batch["id"]:
            time.sleep(1)
        return batch


dataset = ray.data.range(16, override_num_blocks=4).materialize()
for preserve_order in (False, True):
    dataset.context.execution_options.preserve_order = preserve_order
    for ahead in (1, 2, 4):
        arguments = {"batch_size": 4, "prefetch_batches": ahead, "collate_fn": FirstIsSlow()}
        ids = [int(batch["id"][0]) for batch in dataset.iter_jax_batches(**arguments)]
        print(f"preserve_order={preserve_order}, prefetch_batches={ahead}: first ids {ids}")
