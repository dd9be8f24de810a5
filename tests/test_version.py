"""The version stands in setup.cfg; the places that repeat it say the same."""

import re
from configparser import ConfigParser
from pathlib import Path

from segbroker.client.connection import SOFTWARE_VERSION

ROOT = Path(__file__).parent.parent


def version() -> str:
    recipe = ConfigParser()
    recipe.read(ROOT / "setup.cfg")
    return recipe["metadata"]["version"]


def test_the_client_tells_brokers_the_version_of_the_package() -> None:
    assert version() == SOFTWARE_VERSION


def test_the_reader_in_java_tells_brokers_the_version_of_the_package() -> None:
    source = (ROOT / "spark" / "java" / "segbroker" / "spark" / "Link.java").read_text()
    assert re.findall(r'SOFTWARE_VERSION = "(.*)"', source) == [version()]


def test_the_newest_section_of_the_changes_is_that_of_the_version() -> None:
    sections = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sections[0] == version()
