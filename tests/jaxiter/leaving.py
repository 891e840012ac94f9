"""A job of two processes, started by hand, that ends in some way: `leaving.py RANK SOCKET HOW`."""

import sys
from typing import Any


def main() -> None:
    """Play the part of one rank; what it saw goes to stdout."""
    me, address, how = int(sys.argv[1]), f"unix:{sys.argv[2]}", sys.argv[3]
    import jax as typed_jax
    import numpy as np

    jax: Any = typed_jax
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 1)
    import jaxiter

    jax.distributed.initialize(
        address, 2, me, coordinator_bind_address=address, initialization_timeout=60
    )
    leaver = int(how[-1])
    batches = jaxiter.iter_jax_batches([{"x": np.arange(800)}], batch_size=4)
    try:
        for k, batch in enumerate(batches):
            batch["x"].block_until_ready()
            if k == 3 and me == leaver:
                if how.startswith("exit"):
                    sys.exit(0)
                if how.startswith("raise"):
                    raise ValueError("a bug in the step")
                if how.startswith("shutdown"):
                    break
    except jaxiter.JaxIterError as error:
        print(f"{type(error).__name__}: {error}")
    if how.startswith("shutdown"):
        jax.distributed.shutdown()
    print("done")


if __name__ == "__main__":
    main()
