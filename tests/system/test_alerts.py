"""docs/prometheus-alerts.yml: each rule fires by numbers as a broker has them, and is resolved when
they are well again; Prometheus' own program evaluates them.

    minutes 0 ... 30 well | 30 ... 60 ill | 60 ... 150 well

What a counter is ill by is how it grows.  Numbers of a broker that is well fire nothing.
"""

import json
import subprocess
from pathlib import Path
from typing import Final

import pytest

from ..support.tools import require

RULES: Final = Path(__file__).parents[2] / "docs" / "prometheus-alerts.yml"
RULE: Final = "      - alert: "
ILL: Final = 45
RESOLVED: Final = 149
"""Minutes at which it is looked at."""

# Series, what it is (or grows by, in half a minute) while all is well, and while it is ill.
WELL_AND_ILL: Final[dict[str, list[tuple[str, float, float]]]] = {
    "SegbrokerDown": [('up{job="segbroker"}', 1, 0)],
    "SegbrokerNotReady": [("segbroker_ready", 1, 0)],
    "SegbrokerPartitionsReadOnly": [("segbroker_partitions_read_only", 0, 1)],
    "SegbrokerVolumeNearlyFull": [
        ("segbroker_volume_free_bytes", 50e9, 9e9),
        ("segbroker_volume_size_bytes", 100e9, 100e9),
    ],
    "SegbrokerVolumeNearlyWithoutInodes": [("segbroker_volume_free_files", 1e6, 900)],
    "SegbrokerPartitionsNotServed": [("segbroker_partitions_not_served", 0, 1)],
    "SegbrokerMetadataUnsettled": [("segbroker_metadata_unsettled", 0, 1)],
    "SegbrokerWalFailed": [("segbroker_wal_shards_failed", 0, 1)],
    "SegbrokerWalStuck": [("segbroker_wal_stuck_seconds", 0, 75)],
    "SegbrokerWalWaits": [("segbroker_wal_file_waits_seconds_total", 0, 6)],
    "SegbrokerSlowSyncs": [
        ('segbroker_wal_sync_seconds_bucket{le="0.25"}', 30, 0),
        ('segbroker_wal_sync_seconds_bucket{le="1.0"}', 30, 30),
        ('segbroker_wal_sync_seconds_bucket{le="+Inf"}', 30, 30),
    ],
    "SegbrokerNotRemoved": [("segbroker_not_removed", 0, 3)],
    "SegbrokerClockAhead": [("segbroker_clock_ahead_seconds", 0, 90_000)],
    "SegbrokerReadsFailed": [("segbroker_failed_reads_total", 0, 0.1)],
    "SegbrokerDamageFound": [("segbroker_scrub_errors_total", 0, 0.1)],
    "SegbrokerCleaningFailed": [("segbroker_cleaner_failures_total", 0, 0.1)],
    "SegbrokerOffsetsLost": [("segbroker_recovery_offsets_lost_total", 0, 1)],
    "SegbrokerWalDamaged": [('segbroker_recovery_findings_total{what="wal_damaged"}', 0, 1)],
    "SegbrokerFewDescriptors": [
        ('process_open_fds{job="segbroker"}', 100, 950),
        ('process_max_fds{job="segbroker"}', 1024, 1024),
    ],
    "SegbrokerConnectionsRefused": [("segbroker_connections_refused_total", 0, 60)],
    "SegbrokerListenerNearlyFull": [
        ('segbroker_connections{listener="SSL"}', 10, 95),
        ('segbroker_connections_max{listener="SSL"}', 100, 100),
    ],
    "SegbrokerNearlyFull": [  # none of the listeners is, by itself
        ('segbroker_connections{listener="SSL"}', 10, 50),
        ('segbroker_connections{listener="PLAINTEXT"}', 10, 45),
        ("segbroker_all_connections_max", 100, 100),
    ],
    "SegbrokerConnectionsFailed": [("segbroker_connections_failed_total", 0, 0.1)],
    "SegbrokerLoopStoodStill": [("segbroker_loop_stood_still_total", 0, 0.1)],
    "SegbrokerCertificateExpires": [
        ('segbroker_certificate_expiry_timestamp_seconds{listener="SSL"}', 90 * 86400, 86400)
    ],
    "SegbrokerCertificateNotReloaded": [
        ('segbroker_certificate_reload_failed{listener="SSL"}', 0, 1)
    ],
    "SegbrokerSigningKeysNotRead": [("segbroker_signing_keys_read_failed", 0, 1)],
    "SegbrokerGroupBehind": [
        ('segbroker_group_lag_seconds{group="g",topic="t",partition="0"}', 3, 700)
    ],
    # By default none is open for longer than 15 minutes: then it is aborted.
    "SegbrokerTransactionOpen": [("segbroker_transactions_oldest_open_seconds", 0, 850)],
}
# What begins anew with the broker, and is well again only then.
SINCE_THE_START: Final = {
    "segbroker_recovery_offsets_lost_total",
    'segbroker_recovery_findings_total{what="wal_damaged"}',
}


def values(series: str, well: float, ill: float) -> str:
    """In promtool's words: a sample each half a minute."""
    is_counter = "_total" in series or "_bucket" in series
    if series in SINCE_THE_START or not is_counter:
        return f"{well}+0x59 {ill}+0x59 {well}+0x179"
    return f"0+{well}x59 {60 * well}+{ill}x59 {60 * (well + ill)}+{well}x179"


@pytest.fixture(scope="module")
def promtool() -> str:
    return require("promtool", "prometheus")


def test_the_table_has_every_alert() -> None:
    assert list(WELL_AND_ILL) == list(rules())


def test_promtool_takes_the_rules(promtool: str) -> None:
    said_by(promtool, "check", "rules", str(RULES))


def test_every_alert_fires_and_is_resolved(promtool: str, tmp_path: Path) -> None:
    """Each by a file with its rule alone: promtool evaluates all rules that it is given, every half
    minute."""
    cases = []
    for name, rule in rules().items():
        (tmp_path / f"{name}.rules.yml").write_text(rule)
        cases.append(tmp_path / f"{name}.yml")
        cases[-1].write_text(json.dumps(case_of(name)))  # which is YAML
    said_by(promtool, "test", "rules", *map(str, cases))


def said_by(*command: str) -> str:
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def rules() -> dict[str, str]:
    """The text of a file with one rule alone, by its name."""
    head, *each = RULES.read_text().split(RULE)
    return {rule.split()[0]: head + RULE + rule for rule in each}


def case_of(name: str) -> dict[str, object]:
    firing = f'count(ALERTS{{alertstate="firing",alertname="{name}"}})'
    looks: list[tuple[int, list[object]]] = [
        (20, []),
        (ILL, [{"labels": "{}", "value": 1}]),
        (RESOLVED, []),
    ]
    return {
        "rule_files": [f"{name}.rules.yml"],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": "30s",
                "input_series": [
                    {"series": series, "values": values(series, well, ill)}
                    for series, well, ill in WELL_AND_ILL[name]
                ],
                "promql_expr_test": [
                    {"expr": firing, "eval_time": f"{minute}m", "exp_samples": samples}
                    for minute, samples in looks
                ],
            }
        ],
    }
