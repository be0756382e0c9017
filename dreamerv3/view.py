"""`dreamerv3 view LOGDIR`: scope's viewer of runs, in one process and for this machine alone.

The viewer of scope listens on all interfaces, starts 32 processes, keeps copies of videos in
/tmp, and reads files outside of its base folder for whoever asks. Here its application runs
behind a gate, which sends the files itself, and under a server of our own. Works with scope
0.6.3, whose viewer is `scope.viewer`, and with 0.7 and later, which call it `scope_viewer`.
"""

import argparse
import asyncio
import importlib
import importlib.util
import logging
import pathlib
import re
import socket
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from embodied import UserError

LOOPBACK = ('127.0.0.1', 'localhost', '::1')
FILES = ('api/exp', 'api/exps', 'api/run', 'api/col', 'api/file')  # what ids are paths of
METHODS = ('GET', 'HEAD')
PATIENCE = 2  # seconds that an interrupt waits for those who are being answered


def main(argv: Sequence[str]) -> None:
    """Serve until an interrupt. Raises UserError for a folder or port that cannot be used."""
    parser = argparse.ArgumentParser('dreamerv3 view', description=main.__doc__)
    parser.add_argument('logdir', help='a run, or a folder of runs (one or two levels down)')
    parser.add_argument('--port', type=int, default=8000, help='0 takes a free one')
    parser.add_argument('--host', default='127.0.0.1', help='0.0.0.0: everyone may connect')
    args = parser.parse_args(argv)
    folder = pathlib.Path(args.logdir).expanduser().resolve()
    if not folder.is_dir():
        raise UserError(f'{folder} is no folder; expected a run or a folder of runs.')
    with listen(args.host, args.port) as sock, tempfile.TemporaryDirectory() as other:
        base, roots = arrange(folder, pathlib.Path(other))
        gate = Gate(load(base), base, roots, LOOPBACK if args.host in LOOPBACK else ())
        shown = f'[{args.host}]' if ':' in args.host else args.host
        print(f'Viewer of {folder}: http://{shown}:{sock.getsockname()[1]}', flush=True)
        serve(gate, sock)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises UserError if it cannot."""
    if not 0 <= port < 2**16:
        raise UserError(f'--port {port} is no port; expected 0 (a free one) to 65535.')
    try:
        family = socket.AF_INET6 if ':' in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise UserError(
            f'Cannot listen on {host} port {port}: {error}. Another --port may be free.'
        ) from error


def arrange(
    folder: pathlib.Path, other: pathlib.Path
) -> tuple[pathlib.Path, list[pathlib.Path]]:
    """The base folder for the viewer, and the folders it may read.

    The viewer shows what lies one or two levels below its base; a single run gets a base with
    a link to it alone.
    """
    if not (folder / 'scope').is_dir():
        return folder, [folder]
    (other / folder.name).symlink_to(folder)
    return other, [other.resolve(), folder]


def load(base: pathlib.Path) -> Callable:
    """The viewer's application for a base folder. Raises UserError if there is no scope.

    It reads its settings from the command line of the process when it is imported.
    """
    names = [x for x in ('scope.viewer', 'scope_viewer') if find(x)]
    if not names:
        raise UserError('The viewer needs the package scope; pip install scope==0.6.3.')
    before = sys.argv
    # One folder more than by default for 0.7; and no copies of files in /tmp.
    sys.argv = ['scope', '--basedir', str(base), '--maxdepth', '2', '--cachesize', '0']
    try:
        return importlib.import_module(f'{names[0]}.server').app
    finally:
        sys.argv = before


def find(name: str) -> bool:
    """Whether there is a module of this name."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # not even the package around it
        return False


def serve(app: Callable, sock: socket.socket) -> None:
    """Answer requests on a socket until an interrupt."""
    import uvicorn

    warnings.filterwarnings('ignore', message='ORJSONResponse')  # of the viewer, at each answer

    class Server(uvicorn.Server):
        """Says nothing of answers that the interrupt cuts."""

        async def shutdown(self, sockets: Any = None) -> None:
            logging.getLogger('uvicorn.error').disabled = True
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        log_level='warning',
        lifespan='off',
        ws='none',
        timeout_graceful_shutdown=PATIENCE,
    )
    Server(config).run(sockets=[sock])


class Gate:
    """Lets requests through to an application if they stay within the folders.

    An id is a path below the base with ':' between its parts. Everything that names a parent
    folder is a 400; what is not there, or lies outside after links are followed, a 404.
    hosts: names under which a browser may ask, since a page of another site can have its own
    name point here; without any, all.
    """

    def __init__(
        self,
        app: Callable,
        base: pathlib.Path,
        roots: Sequence[pathlib.Path],
        hosts: Sequence[str],
    ):
        self._app = app
        self._base = base
        self._roots = roots
        self._hosts = hosts

    async def __call__(self, scope: dict, receive: Callable, send: Callable) -> None:
        """Answer one request, as ASGI asks for it."""
        if scope['type'] != 'http':
            return
        status = self.status(scope['method'], scope['path'], _host(scope['headers']))
        if status != 200:
            await _refuse(send, status)
            return
        from dreamerv3 import viewfiles

        kind, name = _split(scope['path'])
        if kind not in ('api/col', 'api/file'):  # which answers GET alone
            await self._app({**viewfiles.whole(scope), 'method': 'GET'}, receive, send)
            return
        answer = viewfiles.column if kind == 'api/col' else viewfiles.file
        try:
            response = await asyncio.to_thread(answer, name, self._path(name))
        except OSError:  # removed meanwhile
            response = None
        if response is None:
            await _refuse(send, 404)
        else:
            size = int(response.headers['content-length'])
            await response(viewfiles.ranged(scope, size), receive, send)

    def status(self, method: str, path: str, host: str) -> int:
        """200 for a request that may pass; path: with escapes resolved."""
        if method not in METHODS:
            return 405
        if self._hosts and host not in self._hosts:
            return 400
        if '..' in re.split(r'[/:\\]', path) or '\0' in path:
            return 400
        kind, name = _split(path)
        if kind not in FILES:
            return 200
        return 200 if self._allowed(_read(kind, name)) else 404

    def _path(self, name: str) -> pathlib.Path:
        return self._base / name.replace(':', '/').strip('/')

    def _allowed(self, name: str) -> bool:
        try:
            path = self._path(name).resolve(strict=True)
        except (OSError, RuntimeError):  # it is not there, too long, or a circle of links
            return False
        return any(path.is_relative_to(root) for root in self._roots)


def _split(path: str) -> tuple[str, str]:
    """The kind and the id that a request is for."""
    kind, _, name = path.strip('/').rpartition('/')
    return kind, name


def _read(kind: str, name: str) -> str:
    """The id of what is read to answer for an id."""
    if kind == 'api/run':
        return f'{name}:scope'
    files = kind == 'api/col' and not name.endswith('.float')
    return f'{name}:index' if files else name


def _host(headers: Sequence[tuple[bytes, bytes]]) -> str:
    """The name that a browser asked for, without the port."""
    value = dict(headers).get(b'host', b'').decode('latin-1')
    return re.sub(r':\d*$', '', value).strip('[]')


async def _refuse(send: Callable, status: int) -> None:
    headers = [(b'content-type', b'text/plain'), (b'allow', ', '.join(METHODS).encode())]
    headers = headers if status == 405 else headers[:1]
    await send({'type': 'http.response.start', 'status': status, 'headers': headers})
    await send({'type': 'http.response.body', 'body': f'{status}\n'.encode()})
