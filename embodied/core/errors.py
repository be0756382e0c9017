"""Errors that a user can cause and mend."""


class UserError(ValueError):
    """What was found, what was expected, and which flag to change, in one short sentence.

    The command line prints it without a traceback and exits with code 2. Everything else
    that is raised is a bug and keeps its traceback.
    """
