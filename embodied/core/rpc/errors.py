"""What can go wrong with a call."""

from ..errors import UserError


class Unanswered(Exception):
    """Raised by a handler that ends with its server: the client asks the next one again."""


class RemoteError(RuntimeError):
    """The server answered with an error; the message names method, address and reason."""


class RemoteMistake(RemoteError, UserError):
    """The server answered with something that a user can mend."""


class Timeout(TimeoutError):
    """There is no answer yet; the call goes on, and its result may be asked for again."""


class Closed(RuntimeError):
    """The client was closed, or its thread has ended, before the call was answered."""


class ProtocolError(Exception):
    """The bytes of a connection are not what portal's protocol wants."""
