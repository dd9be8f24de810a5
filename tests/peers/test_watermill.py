"""How the tests of watermill-kafka ended, whose parts have names that are drawn anew each time."""

from .verdicts import Outcome
from .watermill import without_ids


def test_a_part_that_skips_itself_inside_was_skipped() -> None:
    assert without_ids(
        {
            "TestCtxValues": Outcome.PASSED,
            "TestPublishSubscribe": Outcome.PASSED,
            "TestPublishSubscribe/TestTopic": Outcome.PASSED,
            "TestPublishSubscribe/TestTopic/a1bfeefa": Outcome.PASSED,
            "TestPublishSubscribe/TestNoAck/8aeb1741": Outcome.SKIPPED,
            "TestPublishSubscribe/TestNoAck": Outcome.PASSED,
        }
    ) == {
        "TestCtxValues": Outcome.PASSED,
        "TestPublishSubscribe": Outcome.PASSED,
        "TestPublishSubscribe/TestTopic": Outcome.PASSED,
        "TestPublishSubscribe/TestNoAck": Outcome.SKIPPED,
    }
