"""Jars of Maven Central, with all that they need, by Maven itself."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .places import need, run

_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>peers</groupId><artifactId>peers</artifactId><version>1</version><dependencies>{}
</dependencies></project>
"""
_DEPENDENCY: Final = """
<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}{}</dependency>"""
_EXCLUSION: Final = """
<exclusion><groupId>{}</groupId><artifactId>{}</artifactId></exclusion>"""


@dataclass(frozen=True)
class Artifact:
    """A jar of Maven Central.

    Attributes:
        group, name, version: as Maven has them.
        is_tests: the jar with the tests of it, instead of itself.
        without: what it needs, of its own group, that is not fetched.
    """

    group: str
    name: str
    version: str
    is_tests: bool = False
    without: tuple[str, ...] = ()


def pom(artifacts: Iterable[Artifact]) -> str:
    """A project that depends on these."""
    return _POM.format("".join(map(_dependency, artifacts)))


def _dependency(artifact: Artifact) -> str:
    kind = "<classifier>test</classifier>" if artifact.is_tests else ""
    left_out = "".join(_EXCLUSION.format(artifact.group, name) for name in artifact.without)
    if left_out:
        left_out = f"<exclusions>{left_out}</exclusions>"
    return _DEPENDENCY.format(artifact.group, artifact.name, artifact.version, kind, left_out)


def copy_jars(wanted: str, work: Path) -> None:
    """Copy what a project depends on into `work`/libs.

    Args:
        wanted: of `pom`.

    Raises:
        Missing: without mvn or the registry.
    """
    need("mvn")
    (work / "pom.xml").write_text(wanted)
    run(["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs"], work)
