"""Frames of portal's protocol: requests, replies, and the number that tells requests apart.

    frame    length (8 bytes, little-endian as all here), content
    request  request number (8), length of the method's name (8), name, packed arguments
    reply    request number (8), status (8, 0 = done), packed result or an error in UTF-8

A request of ours has one argument more, {'$request': client (16) + number (8)}. Client are
random bytes of the client object, and the number counts its calls of that method, so that the
two and the method name a request. Where the server asks for proofs, one (32) ends the frame. A
plain portal.Client sends none of it.
"""

from typing import NamedTuple

from . import packing
from .errors import ProtocolError

GREETING = b'portal_handshake'  # what a client sends first
LIMIT = 2**30  # bytes of a frame
CLIENT, NUMBER = 16, 8  # bytes
KEY = '$request'

# Status of a reply; portal knows the first five and takes all but 0 for an error.
DONE, SHORT, DAMAGED, UNKNOWN, FAILED, REFUSED = range(6)


class RequestId(NamedTuple):
    """Which call of its method by which client object."""

    client: bytes
    number: int


class Request(NamedTuple):
    """A request as it came: what it is for, and its arguments still packed."""

    tag: bytes  # the request number, for the reply
    method: str
    frame: memoryview
    start: int  # of the packed arguments in the frame

    def args(self) -> tuple[list, RequestId | None]:
        """Return arguments and id; none if a plain client sent it. Raises ValueError."""
        args = packing.unpack(self.frame[self.start :])
        if not isinstance(args, list):
            raise ValueError('the arguments are not a list')
        last = args[-1] if args else None
        if not isinstance(last, dict) or [*last] != [KEY]:
            return args, None
        mark = last[KEY]
        if not isinstance(mark, bytes) or len(mark) != CLIENT + NUMBER:
            raise ValueError(f'{KEY} is damaged, or the client of another version')
        number = int.from_bytes(mark[CLIENT:], 'little')
        return args[:-1], RequestId(mark[:CLIENT], number)


def head(tag: int, method: str) -> bytes:
    """Return the first part of a request, to which its arguments are added."""
    name = method.encode()
    return tag.to_bytes(8, 'little') + len(name).to_bytes(8, 'little') + name


def request(tag: int, method: str, args: tuple, ident: RequestId) -> packing.Parts:
    """Return the parts of a request without its length. Raises TypeError or ValueError."""
    mark = ident.client + ident.number.to_bytes(NUMBER, 'little')
    return [head(tag, method), *packing.pack([*args, {KEY: mark}])]


def read_request(frame: memoryview) -> Request:
    """Return the request in a frame. Raises ProtocolError if there is none."""
    size = int.from_bytes(frame[8:16], 'little')
    if len(frame) < 16 or not 0 < size <= min(len(frame) - 16, 1000):
        raise ProtocolError('sent a frame that is no request')
    try:
        name = str(frame[16 : 16 + size], 'utf-8')
    except UnicodeDecodeError:
        raise ProtocolError('sent a method whose name is not UTF-8') from None
    return Request(bytes(frame[:8]), name, frame, 16 + size)


def reply(tag: bytes, status: int, parts: packing.Parts) -> packing.Parts:
    """Return the parts of a reply with its length."""
    return framed([tag + status.to_bytes(8, 'little'), *parts])


def read_reply(frame: memoryview) -> tuple[int, int, memoryview]:
    """Return request number, status and content. Raises ProtocolError."""
    if len(frame) < 16:
        raise ProtocolError('sent a frame that is no reply')
    return (
        int.from_bytes(frame[:8], 'little'),
        int.from_bytes(frame[8:16], 'little'),
        frame[16:],
    )


def framed(parts: packing.Parts) -> packing.Parts:
    """Put the length in front. Raises ValueError if that is over the limit."""
    size = sum(map(len, parts))
    if size > LIMIT:
        raise ValueError(f'a message of {size} bytes is over the limit of {LIMIT}')
    return [size.to_bytes(8, 'little') + parts[0], *parts[1:]]
