"""Makes Spark find `format("segbroker")` by itself.

Spark imports every top-level module whose name begins with `pyspark_` and takes its DefaultSource.
One such module that raises breaks the look-up of all others, so this one never does: where
segbroker.spark cannot be imported (pyarrow is missing, Spark is too old), there is no
DefaultSource, and Spark says that it does not know the format.
"""

import contextlib

with contextlib.suppress(Exception):
    from segbroker.spark.data_source import SegbrokerDataSource as DefaultSource

__all__ = ["DefaultSource"]
