"""Makes jars/segbroker-spark.jar beside the package's modules, for `make jar`.

Only a JDK's javac (17 or later) and pyspark's own jars are needed.  Without javac nothing is made,
and Spark reads by Python.  The same sources and the same javac give the same bytes: the files
stand in order and carry no time.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
JAR = SOURCES.parent / "jars" / "segbroker-spark.jar"
RELEASE = "17"
# The first time that a zip file can tell.
NO_TIME = (1980, 1, 1, 0, 0, 0)


def main() -> int:
    javac = shutil.which("javac")
    pyspark = find_spec("pyspark")
    if javac is None or pyspark is None or pyspark.origin is None:
        missing = "javac" if javac is None else "pyspark"
        print(f"segbroker: there is no {missing}; Spark reads by Python, without the jar")
        return 0
    jars = Path(pyspark.origin).parent / "jars" / "*"
    with tempfile.TemporaryDirectory() as at:
        classes = Path(at)
        sources = sorted(map(str, SOURCES.rglob("*.java")))
        options = ["--release", RELEASE, "-proc:none", "-nowarn", "-cp", str(jars), "-d", at]
        subprocess.run([javac, *options, *sources], check=True)
        files = {str(path.relative_to(classes)): path for path in classes.rglob("*.class")}
        for path in (SOURCES / "META-INF").rglob("*"):
            if path.is_file():
                files[str(path.relative_to(SOURCES))] = path
        _pack(files, classes / "jar")
        JAR.parent.mkdir(exist_ok=True)
        # Renamed into place: a session that starts meanwhile sees the old one or the new one.
        beside = JAR.with_suffix(".new")
        shutil.copyfile(classes / "jar", beside)
        beside.replace(JAR)
    print(f"segbroker: made {JAR.name}, {JAR.stat().st_size:,} bytes")
    return 0


def _pack(files: dict[str, Path], target: Path) -> None:
    manifest = "META-INF/MANIFEST.MF"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as jar:
        jar.writestr(zipfile.ZipInfo(manifest, NO_TIME), "Manifest-Version: 1.0\r\n\r\n")
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, NO_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            jar.writestr(entry, files[name].read_bytes())


if __name__ == "__main__":
    sys.exit(main())
