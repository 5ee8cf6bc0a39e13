"""How many files and connections may be open at once?"""

import resource
from contextlib import suppress


def allow_all_handles() -> None:
    """Raise the soft limit of file handles to the hard one: shells and container runtimes often set it to 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems name a hard limit that they do not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
