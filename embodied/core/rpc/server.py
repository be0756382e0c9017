"""The server: takes requests, has them executed, and survives whatever comes."""

import atexit
import threading
import time
from collections.abc import Callable

from . import address, frames, packing, proof
from . import once as repeated
from .connection import Connection
from .errors import Unanswered
from .listener import Listener
from .log import Log
from .methods import Method, Reply

WAITING = 4096  # requests of one method; more are answered with an error
AT_EXIT = 1.0  # seconds for running handlers where a process ends without closing
STOP = None  # what a worker gets instead of a call


class Server:
    """Serves methods at 'HOST:PORT' to clients of ours and of portal.

    It listens on the interface `bind`; by default on loopback if the host is localhost or
    127.x, and on all interfaces otherwise. `secret` is None for that of the environment, and
    empty for none. A taken port is a UserError. `executed` has save and load, see there.
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
        self._methods: dict[str, Method] = {}
        self._threads: list[threading.Thread] = []
        self._received = self._sent = self._inflight = 0
        self._since = time.monotonic()
        self._lock = threading.Lock()
        self._started = self._closed = False
        sock = address.listen(host, self.port, bind, name)
        self._listener = Listener(sock, self._receive, self.log, name)

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

    def close(self, timeout: float = 5.0) -> None:
        """Accept nothing more, and wait for running handlers and their replies.

        Requests that no handler has begun are dropped; clients send them to the next server.
        """
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        deadline = time.monotonic() + timeout
        self._listener.stop()
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

    def send(
        self, connection: Connection, tag: bytes, status: int, parts: packing.Parts
    ) -> None:
        """Send a reply."""
        try:
            message = frames.reply(tag, status, parts)
        except ValueError as error:  # too large
            message = frames.reply(tag, frames.FAILED, [str(error).encode()])
        with self._lock:
            self._sent += 1
        self._listener.send(connection, message)

    def settle(self) -> None:
        """Note that a request needs nothing more."""
        with self._lock:
            self._inflight -= 1

    def _add(self, method: Method) -> None:
        assert method.workers > 0
        assert method.name not in self._methods, method.name
        assert not self._started, 'methods are bound before the server starts'
        self._methods[method.name] = method

    def _receive(self, connection: Connection, frame: memoryview) -> None:
        """Hand a request to the threads of its method. Runs in the thread of the listener."""
        request = frames.read_request(frame)
        with self._lock:
            self._received += 1
            self._inflight += 1
        method = self._methods.get(request.method)
        if method is None:
            name = f'{request.method[:50]!r}'
            self._refuse(connection, request, frames.UNKNOWN, f'there is no method {name}')
        elif method.calls.qsize() >= WAITING:
            full = f'{WAITING} requests are waiting already'
            self._refuse(connection, request, frames.FAILED, full)
        else:
            method.calls.put((Reply(self, method, connection, request.tag), request))

    def _refuse(
        self, connection: Connection, request: frames.Request, status: int, reason: str
    ) -> None:
        """Send an error about a request that is not executed."""
        known = request.method if request.method in self._methods else 'unknown method'
        self.log(f'refused a request ({known}): {reason}', f'{known} {status}')
        self.send(connection, request.tag, status, [reason.encode(errors='replace')])
        self.settle()

    def _work(self, method: Method) -> None:
        """Execute the calls of a method until the server closes."""
        while (call := method.calls.get()) is not STOP and not self._closed:
            self._execute(method, *call)
            call = None  # it would keep its message alive until the next one comes

    def _execute(self, method: Method, reply: Reply, request: frames.Request) -> None:
        if not self._prover.accepts(request.frame):
            self._refuse(reply.connection, request, frames.REFUSED, proof.REFUSAL)
            return
        try:
            args, reply.ident = request.args()
        except Exception as error:
            reason = f'the arguments cannot be read: {error}'
            self._refuse(reply.connection, request, frames.DAMAGED, reason)
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
            self.settle()
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
        self.settle()
        return True
