"""Columns of different numbers of rows in one batch: both are delivered."""

import ray
from ray.data.collate_fn import NumpyBatchCollateFn


class DropZeros(NumpyBatchCollateFn):
    """Forgets to filter the second column: a common slip."""

    def __call__(self, batch):
        return {"id": batch["id"][batch["id"] % 2 == 1], "label": batch["id"] * 10}


dataset = ray.data.range(8)
for batch in dataset.iter_jax_batches(batch_size=4, collate_fn=DropZeros(), paddings=-1):
    print({name: column.tolist() for name, column in batch.items()})
for batch in dataset.iter_jax_batches(batch_size=4, collate_fn=DropZeros()):
    print({name: column.tolist() for name, column in batch.items()})
