"""All scenarios, by name."""

from . import (
    scenarios_classes,
    scenarios_cleaning,
    scenarios_damage,
    scenarios_faults,
    scenarios_library,
    scenarios_records,
    scenarios_resending,
    scenarios_retention,
    scenarios_shares,
    scenarios_topics,
    scenarios_transactions,
    scenarios_vouching,
    scenarios_wal,
)
from .registry import SCENARIOS

__all__ = [
    "SCENARIOS",
    "scenarios_classes",
    "scenarios_cleaning",
    "scenarios_damage",
    "scenarios_faults",
    "scenarios_library",
    "scenarios_records",
    "scenarios_resending",
    "scenarios_retention",
    "scenarios_shares",
    "scenarios_topics",
    "scenarios_transactions",
    "scenarios_vouching",
    "scenarios_wal",
]
