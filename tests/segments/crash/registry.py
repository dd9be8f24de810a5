"""The scenarios by name."""

from collections.abc import Callable

from .driver import Driver
from .explorer import Counts, Plan
from .library import LibraryDriver

SCENARIOS: dict[str, Callable[[Plan], Counts]] = {}


def scenario(**config: str) -> Callable[[Callable[[Driver], None]], Callable[[Driver], None]]:
    """A script for a broker; `config` begins with the settings of its first topic, if it names any:
    then topic "t" with one partition is there, and empty, when the script begins."""

    def register(script: Callable[[Driver], None]) -> Callable[[Driver], None]:
        name = script.__name__
        assert name not in SCENARIOS, f"{name} is there twice"

        def run(plan: Plan) -> Counts:
            driver = Driver(plan, name)
            driver.open()
            if config:
                driver.create("t", 1, **config)
            script(driver)
            return driver.explorer.finish()

        SCENARIOS[name] = run
        return script

    return register


def library_scenario(
    **config: str,
) -> Callable[[Callable[[LibraryDriver], None]], Callable[[LibraryDriver], None]]:
    """A script for the log as a library, which is open and empty when the script begins."""

    def register(script: Callable[[LibraryDriver], None]) -> Callable[[LibraryDriver], None]:
        name = script.__name__
        assert name not in SCENARIOS, f"{name} is there twice"

        def run(plan: Plan) -> Counts:
            driver = LibraryDriver(plan, name, **config)
            driver.open()
            script(driver)
            return driver.explorer.finish()

        SCENARIOS[name] = run
        return script

    return register
