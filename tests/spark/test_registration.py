"""Spark finds the format by itself, and a broken installation breaks nobody else's."""

import subprocess
import sys

from pyspark.sql.datasource import DataSource

import pyspark_segbroker
from segbroker.spark import SegbrokerDataSource

WITHOUT_PYARROW = """
import sys
sys.modules["pyarrow"] = None
import pyspark_segbroker
print(hasattr(pyspark_segbroker, "DefaultSource"))
"""


def test_the_module_that_spark_looks_for_offers_the_source() -> None:
    assert pyspark_segbroker.DefaultSource is SegbrokerDataSource
    assert issubclass(SegbrokerDataSource, DataSource)
    assert SegbrokerDataSource.name() == "segbroker"


def test_the_module_never_raises_on_import() -> None:
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_PYARROW], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout.strip()) == (0, "False"), run.stderr
