"""How each test of a crate ended, from what cargo prints."""

from . import crate_suite
from .verdicts import Outcome

OUTPUT = """   Compiling samsa v0.1.8
     Running tests/group.rs (target/debug/deps/group-c3cc87af51c63369)

running 2 tests
test it_can_join ... ok
test it_can_leave ... skipping what nobody waits for
ok

test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out

     Running tests/metadata.rs (target/debug/deps/metadata-cac4990db48d260d)

running 3 tests
test it_can_join ... FAILED
test it_wants_tls ... ignored
test it_never_ends ... a panic that takes all down
"""


def test_tests_of_one_name_are_told_apart_by_their_files() -> None:
    assert crate_suite.ends(OUTPUT) == {
        "group/it_can_join": Outcome.PASSED,
        "group/it_can_leave": Outcome.PASSED,
        "metadata/it_can_join": Outcome.FAILED,
        "metadata/it_wants_tls": Outcome.SKIPPED,
        "metadata/it_never_ends": Outcome.FAILED,
    }
