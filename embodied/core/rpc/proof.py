"""Proof that a request comes from someone who knows the secret, and is sent for the first time.

The secret is never sent. A signed request ends with a keyed digest over

- what the server said when the two met (see `handshake`): random bytes of this server object,
  random bytes of this connection, and the server's name,
- how many signed requests of the connection came before,
- all of the request: its method, its arguments, and its number.

So a recorded request is worth nothing on the same connection, on another one, at a server that
was started anew, and at another server of this or of another run with the same secret. Replies
are not signed and nothing is encrypted: where others can change, or must not read, what is
sent, use a tunnel as well.
"""

import hashlib
import hmac
import os
from collections.abc import Iterable
from typing import Any

VARIABLE = 'DREAMER_SECRET'
SIZE = 32  # bytes of a proof
REFUSAL = (
    f'this server asks for {VARIABLE}: set it to the same value where the client runs, which '
    f'must have the same version of this package'
)


def secret() -> bytes:
    """Return the secret of this environment, empty if there is none."""
    return os.fsencode(os.environ.get(VARIABLE, ''))


class Prover:
    """Holds a key from which the secret cannot be told."""

    __slots__ = ('_key',)

    def __init__(self, value: bytes | str | None = None):
        """Take a secret, or None for that of the environment; empty asks for no proofs."""
        value = secret() if value is None else value
        value = value.encode() if isinstance(value, str) else bytes(value)
        self._key = hashlib.blake2b(value, person=b'dreamer rpc').digest() if value else b''

    def __bool__(self) -> bool:
        return bool(self._key)

    def session(self, context: bytes) -> 'Session':
        """Return a session that is bound to what both sides know of their connection."""
        digest = hashlib.blake2b(key=self._key, digest_size=SIZE)
        digest.update(len(context).to_bytes(8, 'little') + context)
        return Session(digest)


class Session:
    """Makes or checks the proofs of one connection, one after the other."""

    __slots__ = ('_begun', '_count')

    def __init__(self, begun: Any):
        self._begun, self._count = begun, 0

    def prove(self, parts: Iterable) -> bytes:
        """Return the proof of the next message, which is in parts."""
        self._count += 1
        return self._proof(self._count, parts)

    def accepts(self, message: memoryview) -> bool:
        """Return whether a message ends with the proof of the next one."""
        proof = self._proof(self._count + 1, [message[:-SIZE]])
        if not hmac.compare_digest(bytes(message[-SIZE:]), proof):
            return False
        self._count += 1
        return True

    def _proof(self, count: int, parts: Iterable) -> bytes:
        digest = self._begun.copy()
        digest.update(count.to_bytes(8, 'little'))
        for part in parts:
            digest.update(part)
        return digest.digest()
