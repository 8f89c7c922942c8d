"""The one exception that a user is meant to read."""


class UserError(Exception):
    """A mistake in the input or the arguments, as one sentence: what, where, what to do.

    The command line prints the sentence and exits with code 2; nobody sees a traceback.
    """
