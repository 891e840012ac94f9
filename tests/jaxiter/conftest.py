"""What the tests of the iterator share: eight devices in this process, and no deadlines."""

import jax
from hypothesis import settings

# The processes that tests start have devices of their own.
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)

# A loaded machine makes single examples slow; a failure prints what re-runs it.
settings.register_profile("jaxiter", deadline=None, print_blob=True)
settings.load_profile("jaxiter")
