"""The list of decisions names each page once, with its title, below a subject, in order."""

from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "decisions"


def test_every_decision_is_in_the_list_under_its_title() -> None:
    pages = sorted(FOLDER.glob("0*.md"))
    assert pages
    lines = (FOLDER / "README.md").read_text().splitlines()
    listed = [line for line in lines if line.startswith("- [0")]
    assert sorted(listed) == [
        f"- [{page.name[:4]}]({page.name}) {page.read_text().splitlines()[0].removeprefix('# ')}"
        for page in pages
    ]


def test_each_subject_has_its_decisions_in_order() -> None:
    _, *subjects = (FOLDER / "README.md").read_text().split("\n## ")
    for subject in subjects:
        listed = [line for line in subject.splitlines() if "](0" in line]
        assert listed, f"{subject.splitlines()[0]} has a decision"
        assert listed == sorted(listed)
