from ..core.errors import UserError

try:
    import jax  # noqa: F401 - it reads its settings from the environment, and checks them, here
except ValueError as error:
    raise UserError(f'JAX refuses a setting of this shell: {error}.') from error
