"""The one exception that a user is meant to read."""


class UserError(Exception):
    """A mistake in the input or the arguments, as one sentence: what, where, what to do.

    The command line prints the sentence and exits with code 2; nobody sees a traceback.
    """


def refuse(*problems: tuple[object, str]) -> None:
    """Raise the sentence of the first problem whose condition holds."""
    for is_wrong, sentence in problems:
        if is_wrong:
            raise UserError(sentence)
