"""Errors that a user can act on."""


class ConfigError(ValueError):
    """What was asked for cannot be honoured.

    The message is one line: what was given, what is accepted, what to do next. The launcher prints
    it without a traceback and exits with code 2.
    """
