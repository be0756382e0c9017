"""Errors that are told without a traceback, since they are no bugs."""


class UserError(ValueError):
    """What was found, what was expected, and which flag to change, in one short sentence.

    The command line prints it without a traceback and exits with code 2. Everything else
    that is raised is a bug and keeps its traceback.
    """


class NotFinite(FloatingPointError):
    """Losses, parameters or actions that are not finite any more: the run diverged.

    The command line prints it without a traceback and exits with code 1. Another
    FloatingPointError comes from an environment, or is a bug, and keeps its traceback.
    """
