"""One short life of the soak of access rules and quotas."""

from ..soak.access import play


async def test_random_rules_and_quotas_are_those_of_the_model_at_every_step() -> None:
    await play(7, lambda lives: lives > 0, print)
