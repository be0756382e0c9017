"""The server: takes requests, has them executed, and survives whatever comes."""

import atexit
import contextlib
import threading
import time
from collections.abc import Callable

from . import address, frames, proof, room
from . import once as repeated
from .connection import Connection
from .errors import ProtocolError, Unanswered
from .handshake import HELLO, PROVE, TAGS, ServerSide
from .listener import Listener
from .log import Log
from .methods import Method, Reply
from .packing import Parts

STALE = 256  # requests of closed connections that may stay in the queues
AT_EXIT = 1.0  # seconds for running handlers where a process ends without closing
STOP = None  # what a worker gets instead of a call


class Server:
    """Serves methods at 'HOST:PORT' to clients of ours and of portal.

    It listens on the interface `bind`; by default on loopback if the host is localhost or
    127.x, and on all interfaces otherwise. `secret` is None for that of the environment, and
    empty for none. A taken port is a UserError. `executed` knows which requests of methods
    bound with `once` were executed here.
    """

    def __init__(
        self,
        addr: str,
        name: str = 'server',
        bind: str = '',
        secret: bytes | str | None = None,
    ):
        host, self.port = address.split(addr)
        self.name = name
        self.log = Log(name)
        self.executed = repeated.Executed()
        self._prover = proof.Prover(secret)
        self._handshake = ServerSide(name, self._prover)
        self._methods: dict[str, Method] = {}
        self._threads: list[threading.Thread] = []
        self._received = self._sent = self._inflight = self._stale = 0
        self._since = time.monotonic()
        self._lock = threading.Lock()
        self._started = self._closed = False
        sock = address.listen(host, self.port, bind, name)
        limit = room.SMALL if self._prover else frames.LIMIT
        self._listener = Listener(sock, self._receive, self._forget, limit, self.log, name)

    def bind(self, method: str, fn: Callable, workers: int = 1, once: bool = False) -> None:
        """Let clients call `fn(*args)`, which returns a result that nobody changes afterwards.

        The calls run in `workers` threads of their own, with one in the order of arrival.
        With `once`, a request that a client of ours sends again is not executed again and
        gets the same reply. The last replies are kept for that, so they should be small.
        """
        self._add(Method(method, fn, workers, once, deferred=False))

    def defer(self, method: str, fn: Callable, once: bool = False) -> None:
        """Let clients call `fn(reply, *args)`, which returns at once and has `reply`, a
        `Reply`, called later. The calls run one by one in a thread of their own.
        """
        self._add(Method(method, fn, 1, once, deferred=True))

    def start(self) -> 'Server':
        """Begin to serve; returns the server."""
        assert not self._started
        self._started = True
        for method in self._methods.values():
            for index in range(method.workers):
                name = f'{self.name}-{method.name}-{index}'
                thread = threading.Thread(target=self._work, args=(method,), name=name)
                thread.daemon = True  # a handler that hangs must not keep the process
                thread.start()
                self._threads.append(thread)
        self._listener.start()
        atexit.register(self.close, AT_EXIT)
        return self

    def check(self) -> None:
        """Raise the error that has ended the thread of the server, if one has."""
        self._listener.check()

    def close(self, timeout: float = 5.0) -> None:
        """Accept nothing more, and wait for running handlers and their replies.

        Requests that no handler has begun are dropped; clients send them to the next server.
        """
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        deadline = time.monotonic() + timeout
        self._listener.stop(timeout)
        for method in self._methods.values():
            for _ in range(method.workers):
                method.calls.put(STOP)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self.log(f'{thread.name} still runs after {timeout:g} s; its reply is lost')
        self._listener.finish(deadline)

    def __enter__(self) -> 'Server':
        return self if self._started else self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def stats(self) -> dict[str, float]:
        """Return figures since the last call.

        numrecv, numsend: requests and replies; recvrate, sendrate: the same per second;
        inflight: requests without reply right now. Per method: METHOD/calls; METHOD/wait,
        METHOD/busy: seconds from arrival to handler and from there to the reply, summed.
        """
        now = time.monotonic()
        with self._lock:
            seconds, self._since = max(1e-6, now - self._since), now
            result = {
                'numrecv': float(self._received),
                'numsend': float(self._sent),
                'recvrate': self._received / seconds,
                'sendrate': self._sent / seconds,
                'inflight': float(self._inflight),
            }
            self._received = self._sent = 0
        for method in self._methods.values():
            result |= method.stats()
        return result

    def send(self, connection: Connection, tag: bytes, status: int, parts: Parts) -> None:
        """Send a reply."""
        try:
            message = frames.reply(tag, status, parts)
        except ValueError as error:  # too large
            message = frames.reply(tag, frames.FAILED, [str(error).encode()])
        with self._lock:
            self._sent += 1
        self._listener.send(connection, message)

    def settle(self, reply: Reply) -> None:
        """Note that a request needs nothing more."""
        with self._lock:
            self._inflight -= 1
        self._listener.free(reply.connection, reply.size)

    def _add(self, method: Method) -> None:
        assert method.workers > 0
        assert method.name not in self._methods, method.name
        assert not self._started, 'methods are bound before the server starts'
        self._methods[method.name] = method

    def _receive(self, connection: Connection, frame: memoryview) -> None:
        """Check a request, and hand it to the threads of its method.

        Runs in the thread of the listener, so that what is refused takes no place in a queue.
        """
        request = frames.read_request(frame)
        if request.method == HELLO:
            self._meet(connection, request)
            return
        if self._prover:
            if not (connection.session and connection.session.accepts(frame)):
                self._refuse(connection, request, frames.REFUSED, proof.REFUSAL)
                return
            request = request._replace(frame=frame[: -proof.SIZE])
        if request.method == PROVE:
            self._listener.trust(connection)
            self._answer(connection, request, frames.DONE, [b''])
            return
        method = self._methods.get(request.method)
        if method is None:
            name = f'{request.method[:50]!r}'
            self._refuse(connection, request, frames.UNKNOWN, f'there is no method {name}')
        elif connection.waiting > room.WAITING:  # not of ours, which wait to be read
            full = f'{room.WAITING} requests are waiting already; ask again later'
            self._refuse(connection, request, frames.FAILED, full)
        else:
            self._listener.trust(connection)
            self._take(connection, request, method)

    def _take(self, connection: Connection, request: frames.Request, method: Method) -> None:
        """Put a request into the queue of its method."""
        with self._lock:
            self._received += 1
            self._inflight += 1
        size, connection.place = connection.place or 0, None
        reply = Reply(self, method, connection, request.tag, size)
        method.calls.put((reply, request))

    def _meet(self, connection: Connection, request: frames.Request) -> None:
        """Welcome a client of ours."""
        try:
            welcome, session = self._handshake.welcome(request)
        except ValueError as error:
            self._refuse(connection, request, frames.REFUSED, str(error))
            return
        if connection.session:  # or what was signed could be sent again in a new session
            raise ProtocolError('said hello twice')
        connection.meets, connection.session = True, session
        self._answer(connection, request, frames.DONE, [welcome.pack()])
        if not self._prover:
            self._listener.trust(connection)

    def _refuse(
        self, connection: Connection, request: frames.Request, status: int, reason: str
    ) -> None:
        """Send an error about a request that takes no place in a queue."""
        known = request.method if request.method in self._methods else 'unknown method'
        if request.method in TAGS:
            known = request.method
        self.log(f'refused a request ({known}): {reason}', f'{known} {status}')
        with self._lock:
            self._received += 1
            self._sent += 1
        self._answer(connection, request, status, [reason.encode(errors='replace')])

    def _answer(
        self, connection: Connection, request: frames.Request, status: int, parts: Parts
    ) -> None:
        """Answer a request that takes no place in a queue."""
        size, connection.place = connection.place, None
        self._listener.send(connection, frames.reply(request.tag, status, parts))
        if size is not None:
            self._listener.free(connection, size)

    def _forget(self, connection: Connection) -> None:
        """Let what waits for a closed connection take no memory. In the listener's thread."""
        self._stale += connection.waiting
        if self._stale < STALE and connection.held < room.RESERVE:
            return
        self._stale = 0
        for method in self._methods.values():
            for reply in method.sweep():
                self.settle(reply)

    def _work(self, method: Method) -> None:
        """Execute the calls of a method until the server closes."""
        while (call := method.calls.get()) is not STOP and not self._closed:
            try:
                self._execute(method, *call)
            except Exception as error:  # such as no memory; this thread serves others as well
                with contextlib.suppress(Exception):
                    call[0].error(error)
            call = None  # it would keep its message alive until the next one comes

    def _execute(self, method: Method, reply: Reply, request: frames.Request) -> None:
        if reply.connection.closed:  # who wants it asks again
            self.settle(reply)
            return
        try:
            args, reply.ident = request.args()
        except Exception as error:
            reason = f'the arguments cannot be read: {error}'
            self.log(f'refused a request ({method.name}): {reason}', f'{method.name} damaged')
            self.send(reply.connection, reply.tag, frames.DAMAGED, [reason.encode()])
            self.settle(reply)
            return
        if method.once and self._is_repeated(method, reply):
            return
        reply.begin()
        try:
            if method.deferred:
                method.fn(reply, *args)
            else:
                reply(method.fn(*args))
        except Unanswered:
            self.settle(reply)
        except BaseException as error:  # SystemExit too: this thread serves others as well
            reply.error(error)

    def _is_repeated(self, method: Method, reply: Reply) -> bool:
        """Answer a request that was executed; if it is running, its end answers this one."""
        if reply.ident is None:
            return False
        state, stored = self.executed.begin(reply.ident, method.name, reply)
        if state == repeated.NEW:
            return False
        if stored:
            status, content = stored
            self.send(reply.connection, reply.tag, status, [content])
        self.settle(reply)
        return True
