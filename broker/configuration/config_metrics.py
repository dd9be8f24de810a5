"""The metrics page and the health pages.

Keys of the configuration; config.py puts them together.
"""

from dataclasses import dataclass

from .config_key import key


@dataclass(frozen=True)
class MetricsKeys:
    """See the module."""

    metrics_listen: str = key(
        "",
        "Address of the pages /metrics, /health/live and /health/ready, host:port, over HTTP "
        "without TLS or login. Port 0: any free port. Empty: none.",
    )
    metrics_rows_max: int = key(
        1_000,
        "Maximum number of topics that have rows of their own on the metrics page, and as many "
        "partitions, groups and partitions of groups; the first ones by name.",
        most=100_000,
        dynamic=True,
    )
