"""The list of decisions names each page, with its title."""

from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "decisions"


def test_every_decision_is_in_the_list_under_its_title() -> None:
    pages = sorted(FOLDER.glob("0*.md"))
    assert pages
    listed = [line for line in (FOLDER / "README.md").read_text().splitlines() if "](0" in line]
    assert listed == [
        f"- [{page.name[:4]}]({page.name}) {page.read_text().splitlines()[0].removeprefix('# ')}"
        for page in pages
    ]
