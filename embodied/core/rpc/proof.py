"""Proof that a request comes from someone who knows the secret.

The secret is never sent: a request ends with a keyed digest over all that comes before it,
which includes method, arguments and the number of the request. A recorded request that is
sent again has a valid proof; methods bound with `once` do not run a second time for it.
Replies are not signed and nothing is encrypted, so on a network where others can change or
must not read what is sent, use a tunnel as well.
"""

import hashlib
import hmac
import os
from collections.abc import Iterable

VARIABLE = 'DREAMER_SECRET'
SIZE = 32  # bytes of a proof
REFUSAL = f'this server asks for {VARIABLE}: set it to the same value where the client runs'


def secret() -> bytes:
    """Return the secret of this environment, empty if there is none."""
    return os.fsencode(os.environ.get(VARIABLE, ''))


class Prover:
    """Makes and checks proofs. Holds a key from which the secret cannot be told."""

    __slots__ = ('_key',)

    def __init__(self, value: bytes | str | None = None):
        """Take a secret, or None for that of the environment; empty asks for no proofs."""
        value = secret() if value is None else value
        value = value.encode() if isinstance(value, str) else bytes(value)
        self._key = hashlib.blake2b(value, person=b'dreamer rpc').digest() if value else b''

    def __bool__(self) -> bool:
        return bool(self._key)

    def prove(self, parts: Iterable) -> bytes:
        """Return the proof for a message in parts."""
        digest = hashlib.blake2b(key=self._key, digest_size=SIZE)
        for part in parts:
            digest.update(part)
        return digest.digest()

    def accepts(self, message: memoryview) -> bool:
        """Return whether a message ends with its proof; any does if there is no secret."""
        if not self:
            return True
        proof = bytes(message[-SIZE:])
        return hmac.compare_digest(proof, self.prove([message[:-SIZE]]))
