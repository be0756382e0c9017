"""Calls between processes and hosts: the border to portal, whose protocol is spoken here.

Server and Client exchange the frames of portal 3.8, so that a plain `portal.Client` reaches a
Server of ours. What runs beneath is our own: portal's sockets sleep between the parts of a
large reply, spin while nothing happens, and end the process at a garbage frame or when a
network is unreachable, and none of that can be mended from outside.

- A Server runs each method in threads of its own, answers every mistake with an error, drops
  what is no request, and waits without polling.
- A Client reconnects for ever and sends again what was not answered. Its requests have
  numbers, so that a method bound with `once` runs once per request. After a restart the handler
  has to know them: the replay keeps those of its steps.
- With a secret (the environment variable DREAMER_SECRET) only who knows it is served, and a
  recorded request is worth nothing (see `proof`, `handshake`). Requests are signed; replies are
  not, and nothing is encrypted.
- Strangers hold little: unproven connections, unfinished frames and queues are bounded (see
  `room`). Where a client of ours finds no room, its requests wait.

Arguments and results are nested dicts and lists of arrays, numbers, str, bytes and None. Lists
and tuples arrive as lists, numbers as arrays without axes. Received arrays are writable,
aligned and belong to the receiver; a small one is a copy, a large one shares the memory of its
message, which it fills to at least a quarter (see `packing`). A sender must leave arrays
unchanged until the call is answered, since they are sent from where they are.
"""

from .address import fill, free_port, split
from .client import Client, Future
from .errors import Closed, RemoteError, RemoteMistake, Timeout, Unanswered
from .methods import Reply
from .proof import secret
from .server import Server

__all__ = [
    'Client',
    'Closed',
    'Future',
    'RemoteError',
    'RemoteMistake',
    'Reply',
    'Server',
    'Timeout',
    'Unanswered',
    'fill',
    'free_port',
    'secret',
    'split',
]
