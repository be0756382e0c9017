"""What can go wrong with a call."""


class RemoteError(RuntimeError):
    """The server answered with an error; the message names method, address and reason."""


class Timeout(TimeoutError):
    """There is no answer yet; the call goes on, and its result may be asked for again."""


class Closed(RuntimeError):
    """The client was closed before the call was answered."""


class ProtocolError(Exception):
    """The bytes of a connection are not what portal's protocol wants."""
