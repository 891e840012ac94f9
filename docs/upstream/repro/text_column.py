"""A column that JAX cannot hold: the error does not say which."""

import ray

dataset = ray.data.from_items([{"id": i, "name": f"row {i}", "x": 0.5} for i in range(4)])
for arguments in ({}, {"dtypes": {"id": "int32"}}):
    try:
        print(next(iter(dataset.iter_jax_batches(batch_size=4, **arguments))))
    except Exception as error:
        print(arguments, "->", repr(error))
