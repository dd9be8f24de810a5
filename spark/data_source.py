"""The data source `segbroker`: which reader or writer Spark gets, with its options checked.

Spark makes it in short-lived workers, often: constructors only parse options.
"""

from dataclasses import replace

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from .columns import Shape, check_fixed
from .errors import OptionError, plain
from .jvm import MARK, mark, reads_in_jvm
from .options import SourceOptions, parse_options, wants_gaps, wants_headers
from .rows import check_columns
from .sink import BatchWriter, StreamWriter
from .sink_options import SinkOptions, parse_sink_options
from .source import BatchReader, RefusedStream, StreamReader

FORMAT = "segbroker"


class SegbrokerDataSource(DataSource):
    """`format("segbroker")` of read, readStream, write and writeStream."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    @plain
    def schema(self) -> str:
        return self._shape.spark + mark(self.options)

    @plain
    def reader(self, schema: StructType) -> BatchReader:
        options = self._source(streaming=False)
        self._check_fixed(schema)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        try:
            options = self._source(streaming=True)
            self._check_fixed(schema)
        except OptionError as exc:
            return RefusedStream(exc)
        return StreamReader(options)

    @plain
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        if overwrite:
            raise OptionError("a topic cannot be overwritten: write with mode('append')")
        return BatchWriter(self._sink(schema, streaming=False))

    @plain
    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> StreamWriter:
        # Output mode complete says overwrite: as with Kafka's sink, every result is appended.
        return StreamWriter(self._sink(schema, streaming=True))

    @property
    def _shape(self) -> Shape:
        return Shape(wants_headers(self.options), wants_gaps(self.options))

    def _check_fixed(self, schema: StructType) -> None:
        asked = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        check_fixed([column for column in asked if column[0] != MARK], self._shape)

    def _source(self, *, streaming: bool) -> SourceOptions:
        options = parse_options(self.options, streaming=streaming)
        return replace(options, in_jvm=reads_in_jvm(self.options))

    def _sink(self, schema: StructType, *, streaming: bool) -> SinkOptions:
        options = parse_sink_options(self.options, streaming=streaming)
        check_columns(schema, options.topic)
        return options
