"""What goes wrong, each also as the built-in exception that Python programs expect. The text says what to do."""


class Error(Exception):
    """Everything vitrine raises on purpose."""


class InputError(Error, ValueError):
    """The input is wrong: a token, an option, a hook name."""


class FileError(InputError):
    """A file is unreadable, truncated or says something impossible. The message begins with its path."""


class MissingFileError(FileError, FileNotFoundError):
    """A file or a model is not there."""


class ShapeError(InputError):
    """Two sizes that must agree do not."""


class UsageError(InputError):
    """A call that is not allowed in this state, or an option out of its range."""


class RunError(Error, RuntimeError):
    """The input was acceptable and the run failed all the same: NaN in the logits, memory, disk."""
