"""What the runs of an export have in common, beside its checkpoint: what the first one decided.

    CHECKPOINT/segbroker-names, -names-2 ...   {column of a record: what the files call it}
    CHECKPOINT/segbroker-types-1, -2 ...       the types of the fields of `json` in parquet files
    PATH/date=..., PATH/record_date=...        what the folders are called
    PATH/_spark_metadata                       Spark's: which files are whole

Spark reads no path with folders of two names, and of a file with other columns it takes the values
by their places.  So later runs go by what stands there.  A note is written once, whole or not at
all, and never changed.

Limits: FIELDS_MAX fields are noted.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, DataType, StructType

from .checkpoints import exists, file_system
from .decoding import free_name
from .errors import OptionError, SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER_NAME = re.compile(r"((?:record_)*date)=")
# In the checkpoint of an export: what the record's columns are called beside fields of the values.
# Of columns that came later (of another version, or form) in `segbroker-names-2` and so on.
NAMES = "segbroker-names"
# And the types that the fields of `json` have in parquet files, in `segbroker-types-1` and so on;
# the last one counts.
TYPES = "segbroker-types"
# No more fields are noted, as of objects whose fields are keys that never come again.
FIELDS_MAX = 5_000
TYPES_NAME = re.compile(rf"{TYPES}-(\d+)")
# Where Spark notes which files of a path are whole.
WHOLE_FILES = "_spark_metadata"


def noted_names(spark: "SparkSession", place: str) -> tuple[dict[str, str], str]:
    """What the record's columns are called so far, and where what comes to it is to be noted."""
    path, count = f"{place}/{NAMES}", 1
    names: dict[str, str] = {}
    while found := _noted(spark, path):
        names |= found
        count += 1
        path = f"{place}/{NAMES}-{count}"
    return names, path


def refuse_second(spark: "SparkSession", path: str, checkpoint: str) -> None:
    """Refuse a path into which another query has written, which has its checkpoint elsewhere."""
    if exists(spark, f"{path}/{WHOLE_FILES}") and not exists(spark, f"{checkpoint}/metadata"):
        raise OptionError(
            f"{path} has the files of another export, of another topic or with another checkpoint:"
            " Spark would take the records of this one for written; give a path of its own"
        )


def noted_types(spark: "SparkSession", place: str) -> tuple[StructType | None, str]:
    """The types that the fields have so far, None: none, and where the next are to be noted."""
    numbers = [int(found[1]) for found in _matching(spark, place, TYPES_NAME.fullmatch)]
    number = max(numbers, default=0)
    following = f"{place}/{TYPES}-{number + 1}"
    if not number:
        return None, following
    return StructType.fromJson(_noted(spark, f"{place}/{TYPES}-{number}")), following


def may_stay(fields: StructType) -> bool:
    """Whether all later runs may have the fields: not too many, and each told from the others."""
    names = list(_names(fields))
    return len(names) <= FIELDS_MAX and len(names) == len(set(names))


def _names(kind: DataType, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where each field is, in lower case, also those of fields."""
    match kind:
        case ArrayType():
            yield from _names(kind.elementType, path)
        case StructType():
            for each in kind:
                at = (*path, each.name.lower())
                yield at
                yield from _names(each.dataType, at)


def _noted(spark: "SparkSession", path: str) -> dict[str, Any]:
    """What `note` has noted; nothing where that was never done."""
    if not exists(spark, path):
        return {}
    (row,) = spark.read.text(path, wholetext=True).collect()
    found: dict[str, Any] = json.loads(row.value)
    return found


def note(spark: "SparkSession", path: str, names: Mapping[str, Any]) -> None:
    """Note names or types in a file that is not there yet, whole or not at all."""
    file, files = file_system(spark, path)
    temporary, _ = file_system(spark, f"{path}.new")
    out = files.create(temporary, True)
    out.write(json.dumps(dict(names)).encode())
    out.close()
    if not files.rename(temporary, file):
        raise SourceError(f"{path} cannot be written")


def folder(spark: "SparkSession", path: str, taken: set[str]) -> str:
    """The name of an export's folders: that of earlier runs, else one that no column has.

    taken: the columns, in lower case.  Raises OptionError: a column has the name of earlier runs.
    """
    name = free_name("date", taken)
    earlier = _folders(spark, path)
    if not earlier or name in earlier:
        return name
    if free := sorted(earlier - taken):
        return free[0]
    used = min(earlier)
    raise OptionError(
        f"the files in {path} are in folders {used}=..., and the values have a field {used!r} now:"
        " Spark could not read both; choose fields without it (--values), or another path"
    )


def _folders(spark: "SparkSession", path: str) -> set[str]:
    """What earlier runs have called the folders in `path`: date, record_date and so on."""
    return {found[1] for found in _matching(spark, path, FOLDER_NAME.match)}


def _matching(
    spark: "SparkSession", path: str, match: Callable[[str], re.Match[str] | None]
) -> list[re.Match[str]]:
    """The names in a folder that are of this kind; none where there is no folder."""
    file, files = file_system(spark, path)
    if not files.exists(file):
        return []
    names = (str(status.getPath().getName()) for status in files.listStatus(file))
    return [found for name in names if (found := match(name))]
