"""UpdateFeatures: levels of features are told and looked at, and not changed by a request.

| asked                                  | answer                                              |
|----------------------------------------|-----------------------------------------------------|
| the level that there is                | done, as it is                                      |
| group., share., streams.version other  | 95 INVALID_UPDATE_VERSION: `group_protocols` says   |
|                                        | at the start which protocols there are              |
| a level that no broker of ours has     | 95, with those that it has                          |
| a feature that there is not            | 95                                                  |
| higher by a downgrade, lower without   | 95, as in Kafka                                     |

One error is that of all, told once; nothing is changed in any case, so trying (`validate_only`) is
the same as asking.  See docs/decisions/0196.
"""

from typing import Final

from segbroker.protocol.api_keys import FEATURES
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_placement import (
    UpdateFeaturesRequest,
    UpdateFeaturesRequestFeature,
    UpdateFeaturesResponse,
    UpdateFeaturesResponseFeature,
)

from ..call import Call
from ..configuration.logs import NAME_TOLD_MAX
from ..core import Core
from ..loop.pace import Pace

_UPGRADE: Final = 1
_UPGRADE_TYPES: Final = range(1, 4)
_TYPES_SINCE: Final = 1


async def update_features(core: Core, call: Call[UpdateFeaturesRequest]) -> UpdateFeaturesResponse:
    """Done where all is so already, else why not."""
    levels = core.config.feature_levels
    pace = Pace()
    for asked in call.request.feature_updates:
        await pace.step()
        upgrade_type = asked.upgrade_type
        if call.version < _TYPES_SINCE and asked.allow_downgrade:
            upgrade_type = _UPGRADE + 1
        if why := _why_not(asked, upgrade_type, levels.get(asked.feature, 0)):
            level = f"{asked.feature[:NAME_TOLD_MAX]} cannot have level {asked.max_version_level}"
            return UpdateFeaturesResponse(
                error_code=ErrorCode.INVALID_UPDATE_VERSION,
                error_message=f"no feature was changed: {level}: {why}",
            )
    return UpdateFeaturesResponse(
        results=[
            UpdateFeaturesResponseFeature(feature=asked.feature)
            for asked in call.request.feature_updates
        ]
    )


def _why_not(asked: UpdateFeaturesRequestFeature, upgrade_type: int, level: int) -> str | None:
    wanted = asked.max_version_level
    if upgrade_type not in _UPGRADE_TYPES:
        return f"{upgrade_type} is no type of upgrade"
    if wanted < 0:
        return "levels begin with 0"
    if (served := FEATURES.get(asked.feature)) is None:
        return f"there is no such feature; the features are {', '.join(FEATURES)}"
    if wanted not in served:
        return f"this broker has levels {served.min} to {served.max}"
    if wanted > level and upgrade_type != _UPGRADE:
        return f"it is at level {level}, and a downgrade was asked for"
    if wanted < level and upgrade_type == _UPGRADE:
        return f"it is at level {level}, and no downgrade was asked for"
    if wanted != level:
        return f"it is at level {level}: group_protocols says so, a setting of the broker's start"
    return None
