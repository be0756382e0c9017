"""Addresses HOST:PORT: where clients connect, and where a server listens for them."""

import contextlib
import random
import re
import socket

from ..errors import UserError

PATTERN = re.compile(r'(?:\[([0-9a-fA-F:.%\w]+)\]|([\w.-]+)):(\d{1,5})', re.ASCII)

PORTS = 12_000, 32_768  # to draw from


def fill(addr: str) -> str:
    """Return an address with `{auto}` replaced by a port that is free right now."""
    return addr.replace('{auto}', str(free_port())) if '{auto}' in addr else addr


def free_port() -> int:
    """Return a port that nothing uses, drawn at random.

    It lies below those that systems give to outgoing connections, so that none of these takes
    it before a server does.
    """
    while True:
        port = random.SystemRandom().randrange(*PORTS)
        with contextlib.suppress(OSError), socket.socket() as sock:
            sock.bind(('', port))
            return port


def split(addr: str) -> tuple[str, int]:
    """Return host and port of 'HOST:PORT' or '[IPV6]:PORT'. Raises UserError."""
    match = PATTERN.fullmatch(str(addr))
    if not match or not 0 < int(match[3]) < 65536:
        raise UserError(
            f'Found the address {addr!r}; expected HOST:PORT, such as localhost:2222 or '
            f'[::1]:2222.'
        )
    return match[1] or match[2], int(match[3])


def interface(host: str, bind: str = '') -> str:
    """Return the address of the interface to listen on for clients that connect to `host`.

    That is `bind` if given, else loopback for a host that can only mean this machine, else
    all interfaces (of the same family if the host is a number).
    """
    if bind:
        return bind.strip('[]')
    if host == 'localhost':
        return '127.0.0.1'
    if host.startswith('127.') or host == '::1':
        return host
    return '::' if ':' in host else '0.0.0.0'


def listen(host: str, port: int, bind: str, name: str) -> socket.socket:
    """Return a listening socket that does not block. Raises UserError with port and name."""
    where = interface(host, bind)
    sock = socket.socket(socket.AF_INET6 if ':' in where else socket.AF_INET)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((where, port))
        sock.listen(1024)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise UserError(
            f'Server {name!r} cannot listen on port {port} of {where} '
            f'({error.strerror or error}); choose another port in its address, or another '
            f'run.bind.'
        ) from None
    return sock
