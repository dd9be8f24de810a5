"""How large a file of this process may become: `ulimit -f`, LimitFSIZE of a service."""

import resource
from typing import Final

_UNLIMITED: Final = (1 << 63) - 1


def file_size_max() -> int:
    """Bytes; a write beyond them fails (EFBIG)."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return _UNLIMITED if limit == resource.RLIM_INFINITY else limit
