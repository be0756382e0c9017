"""Errors that are told without a traceback, since they are no bugs."""


class UserError(ValueError):
    """Tell what was found, what was expected, and which flag to change, in one short sentence.

    The command line prints it without a traceback and exits with code 2. Everything else
    that is raised is a bug and keeps its traceback.

    >>> raise UserError('--batch_size is 0, expected at least 1')
    Traceback (most recent call last):
        ...
    embodied.core.errors.UserError: --batch_size is 0, expected at least 1
    """


class NotFinite(FloatingPointError):
    """Tell that losses, parameters or actions are not finite any more: the run diverged.

    The command line prints it without a traceback and exits with code 1. Another
    FloatingPointError comes from an environment, or is a bug, and keeps its traceback.

    >>> issubclass(NotFinite, FloatingPointError)
    True
    """


WORDS: dict[type[BaseException], str] = {
    EOFError: 'it ends too early',
    MemoryError: 'it asks for more memory than there is',
    RecursionError: 'it is nested too deeply',
}


def reason(error: BaseException) -> str:
    """Say in one line why something failed; many errors have no text, or only a key.

    >>> reason(KeyError('replay'))
    "'replay' is missing"
    """
    if type(error) in WORDS:
        return WORDS[type(error)]
    if isinstance(error, KeyError) and len(error.args) == 1:
        return f'{error.args[0]!r} is missing'
    lines = str(error).strip().splitlines()
    return lines[0].rstrip('. ') or type(error).__name__ if lines else type(error).__name__
