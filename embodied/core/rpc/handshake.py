"""How a client of ours and a server meet: what they say before the first request.

    client   request $hello: version of this protocol (8 bytes)
    server   version (8), whether it asks for proofs (8), random bytes (32), its name
    client   request $prove, with its proof; only if the server asks for proofs
    server   done, or refused

After that a server knows that the client is no stranger, and a client that no call can be in
vain. All that the server said goes into the proofs. A plain portal.Client says none of it.
"""

import os
from typing import NamedTuple

from . import frames, packing
from .proof import Prover, Session

VERSION = 2  # of what clients and servers of ours say to each other
HELLO, PROVE = '$hello', '$prove'
TAGS = {HELLO: 2**64 - 1, PROVE: 2**64 - 2}  # request numbers that no call has
NONCE = 16  # random bytes of a server, and as many of a connection
SAME = 'install the same version of this package for all parts of the run'


class Welcome(NamedTuple):
    """What a server says to a client that has said $hello."""

    signed: bool  # whether it asks for proofs
    nonce: bytes
    name: str

    def pack(self) -> bytes:
        """Return the bytes that are sent, and signed."""
        head = VERSION.to_bytes(8, 'little') + int(self.signed).to_bytes(8, 'little')
        return head + self.nonce + self.name.encode()

    @classmethod
    def read(cls, content: memoryview) -> 'Welcome':
        """Return what was sent. Raises ValueError if it is damaged or of another version."""
        data = bytes(content)
        if len(data) < 16 + 2 * NONCE or data[:8] != VERSION.to_bytes(8, 'little'):
            raise ValueError(f'the server there is of another version; {SAME}')
        name = data[16 + 2 * NONCE :].decode(errors='replace')
        return cls(data[8:16] != bytes(8), data[16 : 16 + 2 * NONCE], name)


class ServerSide:
    """The server's side: welcomes clients."""

    def __init__(self, name: str, prover: Prover):
        self._name, self._prover = name, prover
        self._nonce = os.urandom(NONCE)

    def welcome(self, request: frames.Request) -> tuple[Welcome, Session]:
        """Return the answer to $hello, and the session. Raises ValueError for a version."""
        version = int.from_bytes(request.frame[request.start :], 'little')
        if version != VERSION:
            raise ValueError(f'the server there is of another version; {SAME}')
        nonce = self._nonce + os.urandom(NONCE)
        welcome = Welcome(bool(self._prover), nonce, self._name)
        return welcome, self._prover.session(welcome.pack())


class ClientSide:
    """The client's side of one connection: what to say next, until both know each other.

    over: whether requests may be sent, or `refusal` says why they may not.
    """

    def __init__(self, prover: Prover, server: str):
        """Expect a server of that name; of any if it is empty."""
        self.over, self.refusal = False, ''
        self._prover, self._server = prover, server
        self._session: Session | None = None

    def begin(self) -> packing.Parts:
        """Return what a client sends first."""
        hello = frames.head(TAGS[HELLO], HELLO) + VERSION.to_bytes(8, 'little')
        return [frames.GREETING, *frames.framed([hello])]

    def take(self, tag: int, status: int, content: memoryview) -> packing.Parts:
        """Take an answer of the server; return what is to be sent then, if anything."""
        if status == frames.UNKNOWN:  # it knows no $hello
            self._end(f'the server there is of another version; {SAME}')
        elif status != frames.DONE:
            self._end(str(content, 'utf-8', 'replace'))
        elif tag == TAGS[PROVE]:
            self._end()
        else:
            return self._enter(content)
        return []

    def sign(self, parts: packing.Parts) -> packing.Parts:
        """Return a request with its proof, if it needs one, and its length."""
        if self._session:
            parts = [*parts, self._session.prove(parts)]
        return frames.framed(parts)

    def _enter(self, content: memoryview) -> packing.Parts:
        try:
            welcome = Welcome.read(content)
        except ValueError as error:
            self._end(str(error))
            return []
        if self._server and welcome.name != self._server:
            self._end(f'the server there is {welcome.name[:50]!r}, expected {self._server!r}')
        elif not welcome.signed:
            self._end()
        else:
            if self._prover:
                self._session = self._prover.session(bytes(content))
            return self.sign([frames.head(TAGS[PROVE], PROVE)])
        return []

    def _end(self, refusal: str = '') -> None:
        self.over, self.refusal = True, refusal
