"""Settings that change while the broker runs: who says what, in force or not, durable.

    this broker, while it ran  >  every broker, so  >  flags, variables, file  >  default

The first two are control events (segments/metadata/broker_settings.py), made by
IncrementalAlterConfigs and AlterConfigs on a broker (its id, or "" for every one).  They outlive a
restart, also one with other flags; unsetting them brings back what the nearest other place says.
`config` is the result.

| refused with INVALID_REQUEST | because |
|---|---|
| a key that there is not | a typing mistake must not look as if it had been done |
| a key that is read at the start | it would not hold before the next start |
| a value out of its bounds, or in conflict with others | as at the start |

Settings of Kafka that mean nothing here are kept and shown (kafka_settings.py).  What is stored and
cannot be any more, as an older version left it, is left out with one line at the start and a place
in the status, and can be unset, or set anew, whatever else is stored.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import structlog
import trio

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.broker_settings import SECTION, SET, settings_of

from ..recording import recorded
from .config import BrokerConfig, InvalidConfig
from .config_key import parse_value, text_of
from .kafka_settings import KAFKA_SETTINGS
from .listener_keys import begins_as_of_listener, why_unknown
from .unknown_keys import what_was_meant

log = structlog.get_logger()

EVERY_BROKER: Final = ""
VALUE_SIZE_MAX: Final = 10_000

Origin: TypeAlias = Literal["broker", "every broker", "start", "default"]
Values: TypeAlias = Mapping[str, str]
_Unusable: TypeAlias = dict[tuple[str, str, str], InvalidConfig]
"""Why a resource's name and value are left out."""


class Layer(NamedTuple):
    """What one place says of a key."""

    # Whose: of a key that a listener has of its own, it may be the plain one.
    key: str
    text: str
    origin: Origin


class BrokerSettings:
    """The settings of one broker in force."""

    def __init__(self, at_start: BrokerConfig, manager: DiskManager) -> None:
        """at_start: as flags, variables and file say. manager: open, with what was changed."""
        self._at_start = at_start
        self._manager = manager
        # Held from reading what is set to storing what is set afterwards.
        self.changing = trio.Lock()
        self.keys = at_start.all_keys
        """All that there are here, by our names."""
        self.kafka_names: dict[str, str] = {
            name: kafka for name, key in self.keys.items() if (kafka := key.metadata["kafka"])
        }
        self.own_names = {name: name for name in self.keys} | {
            kafka: name for name, kafka in self.kafka_names.items()
        }
        """Our name of each key, by every name that it has."""
        self.on_change: Callable[[BrokerConfig, BrokerConfig], None] | None = None
        """Told the settings before and after; has them take effect."""
        self._rows = settings_of(manager.section(SECTION))
        self.config, self._unusable = self._in_force()

    @property
    def own(self) -> str:
        """The resource that is this broker."""
        return str(self._at_start.broker_id)

    @property
    def left_out(self) -> Iterator[tuple[str, str, str]]:
        """Of what is set the names and values that are not in force, and why."""
        return ((name, text, str(why)) for (_, name, text), why in self._unusable.items())

    def set_on(self, resource: str) -> Values:
        """What is set on this broker (`own`) or on every one, by our names."""
        return self._rows.get(resource, {})

    def dynamic(self, name: str) -> Field[Any] | None:
        """The key of this name that can be changed; None: there is none."""
        key = self.keys.get(name)
        return key if key is not None and key.metadata["dynamic"] else None

    def layers(self, name: str) -> Iterator[Layer]:
        """What each place says of a key, the one in force first."""
        for resource, origin in _places(self.own):
            text = self.set_on(resource).get(name)
            if text is not None and (resource, name, text) not in self._unusable:
                yield Layer(name, self._spelled(name, text), origin)
        if name in KAFKA_SETTINGS:
            yield Layer(name, KAFKA_SETTINGS[name].default, "default")
            return
        key, at_start = self.keys[name], self._at_start.value(name)
        of, is_limit = key.metadata["of"], key.metadata["unless"] is not None
        if self._at_start.source(name) != "default" or at_start != key.default:
            yield Layer(name, text_of(at_start), "start")
        if of and not is_limit:
            yield from self.layers(of)
        else:
            yield Layer(name, text_of(key.default), "default")

    def check(self, resource: str, values: Values) -> None:
        """Raises InvalidConfig if `values` cannot be all that is set on `resource`.

        What is stored and was unusable before is in nobody's way: it may go, or stay.
        """
        _, after = self._applied({**self._rows, resource: dict(values)})
        for place, why in after.items():
            if place not in self._unusable:
                raise why

    async def set(self, resource: str, values: Values, asker: Mapping[str, str]) -> None:
        """Set exactly these on `resource`: durable and in force when it returns.

        asker: who asked for it, for the line about it; one that raises the level of the log is the
        last that is told.

        Raises:
            InvalidConfig: they cannot be.
            OSError: they are not durable.
        """
        self.check(resource, values)
        values = {name: self._spelled(name, text) for name, text in values.items()}
        event = {"resource": resource, "values": dict(values)}
        failure = await recorded(lambda done: self._manager.record_soon(done, SET, **event))
        if failure is None:
            named = resource or "every broker"
            log.info("settings_changed", broker=named, values=dict(values), **asker)
        self._reload()
        if failure is not None:
            raise failure

    def _reload(self) -> None:
        before = self.config
        self._rows = settings_of(self._manager.section(SECTION))
        self.config, self._unusable = self._in_force()
        if self.on_change is not None:
            self.on_change(before, self.config)

    def _in_force(self) -> tuple[BrokerConfig, _Unusable]:
        config, unusable = self._applied(self._rows)
        for (_, name, text), why in unusable.items():
            log.warning("setting_ignored", key=name, value=text, error=str(why))
        return config, unusable

    def _applied(self, rows: Mapping[str, Values]) -> tuple[BrokerConfig, _Unusable]:
        """What is in force when these are set, and what of them is left out."""
        config = self._at_start
        unusable: _Unusable = {}
        for resource in (EVERY_BROKER, self.own):
            values = dict(rows.get(resource, {}))
            for name, text in tuple(values.items()):
                try:
                    self._checked({name: text})
                except InvalidConfig as exc:
                    unusable[resource, name, text] = exc
                    del values[name]
            try:
                config = config.changed(self._checked(values))
            except InvalidConfig:  # in conflict: as many as go together
                for name, text in values.items():
                    try:
                        config = config.changed(self._checked({name: text}))
                    except InvalidConfig as exc:
                        unusable[resource, name, text] = exc
        return config, unusable

    def _checked(self, values: Values) -> dict[str, Any]:
        """What was set, by our names, as values of their keys; kafka_settings are left out.

        Raises:
            InvalidConfig: naming the key, and why it cannot be set so.
        """
        found: dict[str, Any] = {}  # by key, each of its own type
        for name, text in values.items():
            if len(text) > VALUE_SIZE_MAX:
                raise InvalidConfig(f"{name}: {len(text)} characters, at most {VALUE_SIZE_MAX}")
            if key := self.dynamic(name):
                found[name] = parse_value(key, text)
            elif name in self.keys:
                raise InvalidConfig(
                    f"{name} is read at the start: change it in the broker's configuration, and "
                    "restart the broker"
                )
            elif name in KAFKA_SETTINGS:
                KAFKA_SETTINGS[name].check(name, text)
            elif begins_as_of_listener(name):
                raise why_unknown(name, self._at_start.listener_specs, self.keys.values())
            else:
                meant = what_was_meant(name, text, dict.fromkeys(self.keys) | self.kafka_names)
                raise InvalidConfig(f"there is no broker setting {name!r}{meant}")
        return found

    def _spelled(self, name: str, text: str) -> str:
        """A value as it is told: 67108864 for 64 MiB, true for yes; what is none stays as it is."""
        try:
            return text_of(parse_value(key, text)) if (key := self.dynamic(name)) else text
        except InvalidConfig:
            return text


def _places(own: str) -> tuple[tuple[str, Origin], ...]:
    return (own, "broker"), (EVERY_BROKER, "every broker")
