"""What the tests of the iterator share: eight devices in this process, and no deadlines."""

from typing import Any

import jax
from hypothesis import settings

# The processes that tests start have devices of their own.
config: Any = jax.config  # its methods have no types
config.update("jax_platforms", "cpu")
config.update("jax_num_cpu_devices", 8)

# A loaded machine makes single examples slow; a failure prints what re-runs it.
settings.register_profile("jaxiter", deadline=None, print_blob=True)
settings.load_profile("jaxiter")
