"""Latent states as the replay stores them: small, and without loss.

stoch (one-hot) becomes class indices; deter stays in the compute dtype, bfloat16 as its
16-bit pattern, since not every receiver of these arrays knows that dtype.
"""

from collections.abc import Mapping

import elements
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


class Latents:
    """Converts on the device between states and stored arrays `dyn/deter`, `dyn/stoch`."""

    def __init__(self, deter: int, stoch: int, classes: int, dtype):
        self.classes, self.dtype = classes, jnp.dtype(dtype)
        self.stored = np.dtype(np.uint16) if self.dtype == jnp.bfloat16 else self.dtype
        index = np.uint8 if classes <= 256 else np.int32
        self.spaces = {
            'dyn/deter': elements.Space(self.stored, deter),
            'dyn/stoch': elements.Space(index, stoch, 0, min(classes, np.iinfo(index).max)),
        }

    def encode(self, state: Mapping[str, Array]) -> dict[str, Array]:
        """Stored arrays of states with any leading axes."""
        deter = state['deter'].astype(self.dtype)
        index = jnp.argmax(state['stoch'], -1).astype(self.spaces['dyn/stoch'].dtype)
        return {
            'dyn/deter': jax.lax.bitcast_convert_type(deter, self.stored),
            'dyn/stoch': index,
        }

    def decode(self, stored: Mapping[str, Array]) -> dict[str, Array]:
        """States of stored arrays."""
        return {
            'deter': jax.lax.bitcast_convert_type(stored['dyn/deter'], self.dtype),
            'stoch': jax.nn.one_hot(stored['dyn/stoch'], self.classes, dtype=self.dtype),
        }
