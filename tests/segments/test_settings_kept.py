"""Settings of brokers and groups, as they are kept."""

from segbroker.segments.metadata.broker_settings import changed, settings_of

ONE = {"resource": "one", "values": {"consumer.session.timeout.ms": "50000"}}
OTHER = {"resource": "other", "values": {"consumer.session.timeout.ms": "60000"}}


def test_a_change_of_one_group_copies_nothing_that_is_set_on_others() -> None:
    """Ten thousand groups may have settings, and one request may change all of them."""
    before = changed(None, [ONE])
    after = changed(before, [OTHER])
    assert settings_of(after)["one"] is settings_of(before)["one"]
    assert settings_of(before).keys() == {"one"}, "what it was given stays as it is"


def test_a_group_with_nothing_set_is_forgotten() -> None:
    both = changed(None, [ONE, OTHER])
    after = changed(both, [{"resource": "one", "values": {}}])
    assert settings_of(after) == {"other": OTHER["values"]}
    assert settings_of(both).keys() == {"one", "other"}
