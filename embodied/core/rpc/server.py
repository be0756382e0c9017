"""The server: methods with threads of their own, and replies to whatever comes."""

import queue
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from ..errors import UserError
from . import address, frames, once, packing, proof
from .connection import Connection
from .frames import RequestId
from .listener import Listener
from .log import Log

WAITING = 4096  # requests of one method; more are answered with an error
STOP = None  # what a worker gets instead of a call


class Reply:
    """Answers one request, from any thread, now or later: `reply(value)` or `reply.error(e)`.

    Only the first answer counts. Each request needs one, or its client waits for ever.
    `client` are the random bytes of the client object that asks, None for a plain client.
    """

    def __init__(self, server: 'Server', method: '_Method', connection: Connection, tag: bytes):
        self.connection, self.tag = connection, tag
        self.ident: RequestId | None = None
        self._server, self._method = server, method
        self._came = self._began = time.monotonic()
        self._unanswered = threading.Lock()

    @property
    def client(self) -> bytes | None:
        return self.ident.client if self.ident else None

    def __call__(self, value: Any) -> None:
        """Send a result, which must not change afterwards; an error if it cannot be sent."""
        try:
            parts = packing.pack(value)
        except Exception as error:
            self.error(error)
        else:
            self._finish(frames.DONE, parts)

    def error(self, error: BaseException) -> None:
        """Send an error, and print it: with its traceback unless a user can mend it."""
        message = f'{type(error).__name__}: {error}' if str(error) else type(error).__name__
        self._server.log(f'{self._method.name} failed: {message}{_trace(error)}', message)
        self._finish(frames.FAILED, [message.encode(errors='replace')])

    def refuse(self, status: int, message: str) -> None:
        """Send an error about the request itself, which is not executed."""
        self._server.log(f'{self._method.name}: {message}')
        if self._unanswered.acquire(blocking=False):
            self._server.answer(self, status, [message.encode(errors='replace')])

    def begin(self) -> None:
        """Note that the handler starts."""
        self._began = time.monotonic()

    def _finish(self, status: int, parts: packing.Parts) -> None:
        if not self._unanswered.acquire(blocking=False):
            return
        waiters = [self]
        if self._method.once and self.ident:
            name = self._method.name
            waiters = self._server.executed.end(self.ident, name, status, parts)
        for waiter in waiters:
            self._server.answer(waiter, status, parts)
        self._method.count(self._began - self._came, time.monotonic() - self._began)


class _Method:
    """A function that clients may call, the threads that run it, and how busy they are."""

    def __init__(self, name: str, fn: Callable, workers: int, once: bool, deferred: bool):
        self.name, self.fn, self.once, self.deferred = name, fn, once, deferred
        self.workers = workers
        self.calls: queue.SimpleQueue = queue.SimpleQueue()
        self._totals = [0, 0.0, 0.0]
        self._lock = threading.Lock()

    def count(self, waited: float, busy: float) -> None:
        with self._lock:
            for place, value in enumerate((1, waited, busy)):
                self._totals[place] += value

    def stats(self) -> dict[str, float]:
        """Return totals since the last call."""
        with self._lock:
            totals, self._totals = self._totals, [0, 0.0, 0.0]
        names = 'calls', 'wait', 'busy'
        return {f'{self.name}/{k}': float(x) for k, x in zip(names, totals, strict=True)}


class Server:
    """Serves methods at an address, as `portal.Server` does.

    It listens on the interface `bind`; by default on loopback if the address names this
    machine as localhost or 127.x, and on all interfaces otherwise. `secret` is None for that
    of the environment, and empty for none. A taken port is a UserError.
    """

    def __init__(
        self,
        addr: str,
        name: str = 'server',
        bind: str = '',
        secret: bytes | str | None = None,
    ):
        host, self.port = address.split(addr)
        self.executed = once.Executed()
        self.log = Log(name)
        self._prover = proof.Prover(secret)
        self._methods: dict[str, _Method] = {}
        self._threads: list[threading.Thread] = []
        self._counts, self._since = [0, 0], time.monotonic()
        self._lock = threading.Lock()
        self._inflight = 0
        self._closed = False
        sock = address.listen(host, self.port, bind, name)
        self._listener = Listener(sock, self._receive, self.log, name)
        self._name = name

    def bind(self, method: str, fn: Callable, workers: int = 1, once: bool = False) -> None:
        """Let clients call `fn(*args)`, which returns the result and must then not change it.

        The calls run in `workers` threads of their own, with one in the order of arrival.
        With `once`, a request that a client of ours sends again is not executed again.
        """
        self._add(_Method(method, fn, workers, once, deferred=False))

    def defer(self, method: str, fn: Callable, once: bool = False) -> None:
        """Let clients call `fn(reply, *args)`, which returns at once and has `reply`, a
        `Reply`, called later. The calls run one by one in a thread of their own.
        """
        self._add(_Method(method, fn, 1, once, deferred=True))

    def start(self) -> 'Server':
        """Begin to serve; returns the server."""
        for method in self._methods.values():
            for index in range(method.workers):
                name = f'{self._name}-{method.name}-{index}'
                thread = threading.Thread(
                    target=self._work, args=(method,), name=name, daemon=True
                )
                self._threads.append(thread)
                thread.start()
        self._listener.start()
        return self

    def close(self, timeout: float = 5.0) -> None:
        """Accept nothing more, and wait for running handlers and their replies.

        Requests that no handler has begun are dropped; clients send them to the next server.
        """
        if self._closed:
            return
        self._closed = True
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
        return self.start()

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
            (received, sent), self._counts = self._counts, [0, 0]
            seconds, self._since = max(1e-6, now - self._since), now
            inflight = self._inflight
        result = {
            'numrecv': float(received),
            'numsend': float(sent),
            'recvrate': received / seconds,
            'sendrate': sent / seconds,
            'inflight': float(inflight),
        }
        for method in self._methods.values():
            result |= method.stats()
        return result

    def answer(self, reply: Reply, status: int, parts: packing.Parts) -> None:
        """Send a reply."""
        with self._lock:
            self._counts[1] += 1
            self._inflight -= 1
        try:
            message = frames.reply(reply.tag, status, parts)
        except ValueError as error:  # too large
            message = frames.reply(reply.tag, frames.FAILED, [str(error).encode()])
        self._listener.send(reply.connection, message)

    def _add(self, method: _Method) -> None:
        assert method.workers > 0
        assert method.name not in self._methods, method.name
        assert not self._threads, 'methods are bound before the server starts'
        self._methods[method.name] = method

    def _receive(self, connection: Connection, frame: memoryview) -> None:
        """Hand a request to the threads of its method. Runs in the thread of the listener."""
        request = frames.read_request(frame)
        with self._lock:
            self._counts[0] += 1
            self._inflight += 1
        method = self._methods.get(request.method)
        if method is None:
            nobody = _Method('unknown method', print, 0, False, False)
            reply = Reply(self, nobody, connection, request.tag)
            reply.refuse(frames.UNKNOWN, f'there is no method {request.method[:50]!r}')
            return
        reply = Reply(self, method, connection, request.tag)
        if method.calls.qsize() >= WAITING:
            reply.refuse(frames.FAILED, f'{WAITING} requests are waiting already')
        else:
            method.calls.put((reply, request))

    def _work(self, method: _Method) -> None:
        """Execute the calls of a method until the server closes."""
        while (call := method.calls.get()) is not STOP and not self._closed:
            self._execute(method, *call)
            call = None  # it would keep its message alive until the next one comes

    def _execute(self, method: _Method, reply: Reply, request: frames.Request) -> None:
        if not self._prover.accepts(request.frame):
            reply.refuse(frames.REFUSED, proof.REFUSAL)
            return
        try:
            args, reply.ident = request.args()
        except Exception as error:
            reply.refuse(frames.DAMAGED, f'could not read the arguments: {error}')
            return
        if method.once and reply.ident and self._is_known(method, reply):
            return
        reply.begin()
        try:
            if method.deferred:
                method.fn(reply, *args)
            else:
                reply(method.fn(*args))
        except Exception as error:
            reply.error(error)

    def _is_known(self, method: _Method, reply: Reply) -> bool:
        """Answer a request that was executed, and leave one that is running alone."""
        assert reply.ident
        state, stored = self.executed.begin(reply.ident, method.name, reply)
        if state == once.OVER:
            status, content = stored
            self.answer(reply, status, [content])
        return state != once.NEW


def _trace(error: BaseException) -> str:
    """Return the traceback of a bug below the call itself, empty if there is none."""
    trace = error.__traceback__
    if isinstance(error, UserError) or trace is None or trace.tb_next is None:
        return ''
    return '\n' + ''.join(traceback.format_tb(trace.tb_next)).rstrip()
