"""Exceptions, each also a built-in exception that Python programs expect. The message explains what to do."""


class Error(Exception):
    """Base class of all exceptions that vitrine raises."""


class InputError(Error, ValueError):
    """The input is wrong: a token, an option, a hook name."""


class FileError(InputError):
    """A file is unreadable, truncated or has impossible contents. The message begins with its path."""


class MissingFileError(FileError, FileNotFoundError):
    """A file or a model does not exist."""


class ShapeError(InputError):
    """Two sizes that must agree do not."""


class UsageError(InputError):
    """A call that is not allowed in this state, or an option out of its range."""


class RunError(Error, RuntimeError):
    """The input was valid but the run failed: NaN in the logits, memory, disk."""
