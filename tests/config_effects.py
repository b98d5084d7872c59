"""Which tests see the effect of each config that docs/configs.md says works.

A config works only if it is named here; ``tests/tidy/test_configs_that_work.py`` holds this against
the tables of ``odradek.core.config`` and against the tests. Some tests see a config get to the part
that goes by it (``reach``), others what that part does; both are named then.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from odradek.core.config import TOPIC_SYNONYMS

Tests = tuple[str, ...]

_REACH: Final = "unit/broker/test_config_reach.py::test_"
_EFFECT: Final = "unit/broker/test_config_effects.py::test_"
_STORE: Final = "unit/broker/test_store_configs.py::test_"
_APPEND: Final = "unit/storage/test_log_append.py::test_"
_SEGMENTS: Final = "unit/storage/test_log_segments.py::test_"
_CLEANER: Final = "unit/storage/cleaner/test_cleaner_"
_METADATA_LOG: Final = "unit/quorum/test_metadata_log_snapshots.py::test_"
_JOIN: Final = "unit/coordinator/test_classic_join.py::test_"
_CONSUMER: Final = "unit/coordinator/consumer/test_consumer_"
_SHARD: Final = "unit/coordinator/test_group_shard.py::test_"
_LISTENERS: Final = "unit/broker/test_listeners.py::test_"
_CERTIFICATES: Final = "unit/broker/test_listener_certificates.py::test_"
_TLS: Final = "unit/net/test_net_tls.py::test_"
_EXCHANGE: Final = "unit/net/sasl/test_net_sasl_exchange.py::test_"
_BETWEEN_NODES: Final = (
    "cluster/test_sasl_between_nodes.py::test_nodes_and_clients_prove_who_they_are_and_a_node_dies",
)
_SASL_CONFIGS: Final = (
    "unit/broker/test_listener_authentication.py::"
    "test_mechanisms_users_and_limits_come_from_the_listeners_configs",
)
_PERIODIC: Final = "unit/control/test_periodic.py::test_"
_ELR: Final = "unit/controller/test_elr.py::test_"
_LIFE: Final = "unit/broker/test_lifecycle.py::test_"
_EARLY: Final = "unit/broker/test_transaction_begins_early.py::test_"
_LIFE_SETTINGS: Final = (
    "unit/broker/test_lifecycle_driver.py::test_the_settings_are_those_of_the_configs"
)
_LOADING: Final = "unit/core/config/test_config_loading.py::test_"

_REPLICA: Final = "simulation/replicas/test_replica_configs.py::test_"

_THROTTLES: Final = "simulation/replicas/test_throttles.py::test_"
_WINDOWS: Final = "unit/broker/test_throttles_config.py::test_"

_TOPICS: Final[Mapping[str, str]] = {
    "cleanup.policy": "unit/broker/test_compaction.py::"
    "test_a_compacted_topic_keeps_only_the_newest_values",
    "compression.type": f"{_APPEND}the_topics_codec_wins_over_the_producers",
    "compression.gzip.level": f"{_EFFECT}a_broker_compresses_with_the_level_of_the_topic",
    "compression.lz4.level": f"{_EFFECT}a_broker_compresses_with_the_level_of_the_topic",
    "compression.zstd.level": f"{_EFFECT}a_broker_compresses_with_the_level_of_the_topic",
    "delete.retention.ms": f"{_CLEANER}rules.py::"
    "test_a_tombstone_stays_until_its_horizon_and_then_goes",
    "file.delete.delay.ms": f"{_SEGMENTS}deleted_files_stay_for_the_delay",
    "flush.messages": "unit/broker/test_produce_flush.py::test_what_is_acknowledged_was_synced",
    "flush.ms": "unit/storage/test_log_store_upkeep.py::test_flush_ms_is_kept_to",
    "index.interval.bytes": f"{_SEGMENTS}rolls_on_a_full_index",
    "max.compaction.lag.ms": f"{_CLEANER}selection.py::"
    "test_a_log_that_waited_for_too_long_is_due_whatever_its_ratio",
    "max.message.bytes": f"{_APPEND}too_large_for_the_topic_or_for_a_segment",
    "message.timestamp.after.max.ms": f"{_EFFECT}a_time_too_far_in_the_future_is_refused",
    "message.timestamp.before.max.ms": f"{_APPEND}timestamps_too_far_off_are_refused",
    "message.timestamp.type": f"{_APPEND}log_append_time_replaces_the_producers_time",
    "min.cleanable.dirty.ratio": f"{_CLEANER}selection.py::test_a_log_is_due_above_its_ratio",
    "min.compaction.lag.ms": f"{_CLEANER}selection.py::test_records_younger_than_the_lag_wait",
    "min.insync.replicas": f"{_REPLICA}acks_all_needs_as_many_in_sync_as_the_topic_says_now",
    "preallocate": f"{_SEGMENTS}preallocated_segments_are_trimmed_when_they_roll",
    "retention.bytes": f"{_SEGMENTS}retention_by_size_keeps_at_least_what_is_asked",
    "retention.ms": f"{_STORE}retention_is_checked_as_often_as_the_config_says",
    "segment.bytes": f"{_SEGMENTS}rolls_on_size",
    "segment.index.bytes": f"{_SEGMENTS}rolls_on_a_full_index",
    "segment.jitter.ms": f"{_SEGMENTS}jitter_makes_logs_roll_at_different_times",
    "segment.ms": f"{_SEGMENTS}rolls_on_time_of_the_records",
}

TOPIC_EFFECTS: Final[Mapping[str, Tests]] = {
    **{name: (f"{_REACH}a_topics_configs_reach_its_log", test) for name, test in _TOPICS.items()},
    "leader.replication.throttled.replicas": (
        f"{_THROTTLES}a_late_follower_gets_as_many_bytes_a_second_as_it_may",
    ),
    "follower.replication.throttled.replicas": (
        f"{_THROTTLES}a_late_follower_gets_as_many_bytes_a_second_as_it_may",
    ),
    "unclean.leader.election.enable": (
        f"{_ELR}unclean_elections_of_a_topic_are_held_when_it_allows_them",
    ),
    "internal.segment.bytes": (f"{_REACH}a_segment_size_for_tests_reaches_the_log",),
}


def _defaults_of_topics() -> Iterator[tuple[str, Tests]]:
    """What a broker says for its topics gets to the same place, and has the same effect there."""
    for topic_config, test in _TOPICS.items():
        for synonym in TOPIC_SYNONYMS[topic_config]:
            yield synonym.name, (f"{_REACH}a_brokers_defaults_reach_the_logs_of_its_topics", test)


_KEYS: Final = (
    f"{_LISTENERS}certificates_may_stand_in_the_config_itself",
    f"{_TLS}certificates_may_be_given_as_text",
)
_FILES: Final = ("interop/test_node_tls.py::test_clients_write_and_read_through_every_listener",)
_GROUPS: Final = f"{_REACH}configs_reach_the_groups"
_BOUNDS: Final = (f"{_EFFECT}a_groups_config_counts_within_the_brokers_bounds",)
_METADATA: Final = f"{_REACH}configs_reach_the_metadata_log"
_QUORUM: Final = "unit/quorum/test_quorum_settings.py::test_"
_QUORUM_TIMES: Final = f"{_QUORUM}times_and_limits"
_QUORUM_EFFECT: Final = "unit/quorum/test_quorum_config_effects.py::test_"
_QUORUM_MEMBERS: Final = "unit/quorum/test_metadata_quorum.py::test_"
_INTERNAL: Final = (f"{_EFFECT}an_internal_topic_is_made_as_the_config_says",)
_REPLICAS: Final = (f"{_EFFECT}an_internal_topic_needs_brokers_for_its_replicas",)
_LIMITS: Final = f"{_LISTENERS}limits_come_from_the_config"
_NAMES_OF_A_BROKER: Final = (
    f"{_EFFECT}a_broker_has_the_id_the_rack_and_the_address_of_its_config",
)

BROKER_EFFECTS: Final[Mapping[str, Tests]] = {
    **dict(_defaults_of_topics()),
    # A node and its listeners.
    "process.roles": (f"{_LOADING}a_controller_alone_opens_only_its_own_listeners",),
    "node.id": _NAMES_OF_A_BROKER,
    "broker.id": (f"{_LOADING}broker_id_stands_for_node_id",),
    "broker.heartbeat.interval.ms": (
        _LIFE_SETTINGS,
        f"{_LIFE}a_start_without_trouble_takes_no_time",
    ),
    "broker.session.timeout.ms": (f"{_PERIODIC}a_session_lasts_as_long_as_the_config_says",),
    "metadata.max.idle.interval.ms": (f"{_PERIODIC}no_ops_can_be_switched_off",),
    "broker.rack": _NAMES_OF_A_BROKER,
    "controlled.shutdown.enable": (
        _LIFE_SETTINGS,
        f"{_LIFE}controlled_shutdown_can_be_switched_off",
    ),
    "initial.broker.registration.timeout.ms": (
        _LIFE_SETTINGS,
        f"{_LIFE}a_broker_that_no_controller_registers_gives_up_in_time",
    ),
    "log.dir.failure.timeout.ms": (
        _LIFE_SETTINGS,
        f"{_LIFE}a_broker_that_cannot_report_an_offline_directory_stops",
    ),
    "listeners": (f"{_LISTENERS}each_listener_speaks_what_the_map_says",),
    "advertised.listeners": _NAMES_OF_A_BROKER,
    "listener.security.protocol.map": (f"{_LISTENERS}each_listener_speaks_what_the_map_says",),
    "controller.listener.names": (f"{_LOADING}a_controller_alone_opens_only_its_own_listeners",),
    "socket.request.max.bytes": (f"{_EFFECT}a_request_over_the_limit_is_not_read",),
    "socket.listen.backlog.size": (_LIMITS,),
    "max.connections": (f"{_EFFECT}connections_over_the_limit_are_closed",),
    "max.connections.per.ip": (f"{_EFFECT}connections_over_the_limit_are_closed",),
    "max.connections.per.ip.overrides": (f"{_EFFECT}an_address_may_have_a_limit_of_its_own",),
    "connections.max.idle.ms": (f"{_EFFECT}a_silent_connection_is_closed",),
    # Requests.
    "fetch.max.bytes": (f"{_EFFECT}a_fetch_gives_no_more_than_the_brokers_limit",),
    "max.incremental.fetch.session.cache.slots": (
        f"{_EFFECT}fetch_sessions_are_kept_where_there_are_slots",
    ),
    "max.request.partition.size.limit": (
        "unit/broker/test_handlers_topics.py::test_the_brokers_limit_is_the_last_word",
    ),
    "telemetry.max.bytes": (
        "unit/broker/test_handlers_cluster.py::test_telemetry_is_taken_up_to_a_size",
    ),
    "unstable.api.versions.enable": (
        "unit/broker/test_handlers_transactions_two_phase.py::"
        "test_the_version_for_two_phase_commit_is_spoken_where_that_is_enabled",
    ),
    "num.partitions": (f"{_EFFECT}a_topic_that_is_asked_for_has_the_default_number_of_partitions",),
    "default.replication.factor": (f"{_EFFECT}a_default_replication_factor_needs_as_many_brokers",),
    "auto.create.topics.enable": (
        f"{_EFFECT}topics_are_not_created_by_asking_if_the_config_says_so",
    ),
    "delete.topic.enable": (f"{_EFFECT}topics_stay_where_deletion_is_off",),
    # All logs together.
    "log.dirs": (
        "unit/broker/test_produce_flush.py::test_a_directory_that_failed_leaves_the_others_at_work",
    ),
    "log.dir": (f"{_EFFECT}logs_are_in_log_dir_if_log_dirs_is_not_set",),
    "log.initial.task.delay.ms": (
        f"{_STORE}the_first_check_of_the_logs_comes_when_the_config_says",
    ),
    "log.retention.check.interval.ms": (
        f"{_STORE}retention_is_checked_as_often_as_the_config_says",
    ),
    "log.flush.offset.checkpoint.interval.ms": (
        f"{_STORE}recovery_points_are_written_as_often_as_the_config_says",
    ),
    "log.flush.start.offset.checkpoint.interval.ms": (
        f"{_STORE}log_starts_are_written_as_often_as_the_config_says",
    ),
    # Replication.
    "min.insync.replicas": (f"{_REPLICA}acks_all_needs_as_many_in_sync_as_the_cluster_says",),
    "unclean.leader.election.enable": (
        f"{_PERIODIC}unclean_leaders_are_looked_for_where_they_are_allowed",
        f"{_ELR}unclean_elections_of_the_cluster_leave_out_topics_that_forbid_them",
    ),
    "unclean.leader.election.interval.ms": (
        f"{_PERIODIC}unclean_leaders_are_looked_for_where_they_are_allowed",
    ),
    "auto.leader.rebalance.enable": (f"{_PERIODIC}leaders_stay_where_they_are_if_that_is_wanted",),
    "leader.imbalance.check.interval.seconds": (
        f"{_PERIODIC}leaders_go_back_to_preferred_replicas",
    ),
    "num.replica.fetchers": (
        f"{_REPLICA}a_follower_has_as_many_fetchers_for_a_leader_as_the_config_says",
    ),
    "replica.fetch.max.bytes": (
        f"{_REPLICA}a_follower_takes_as_many_bytes_at_a_time_as_the_config_says",
    ),
    "leader.replication.throttled.rate": (
        f"{_THROTTLES}a_late_follower_gets_as_many_bytes_a_second_as_it_may",
    ),
    "follower.replication.throttled.rate": (
        f"{_THROTTLES}a_late_follower_gets_as_many_bytes_a_second_as_it_may",
    ),
    "replica.alter.log.dirs.io.max.bytes.per.second": (
        "simulation/nodes/test_log_dir_moves.py::test_a_move_takes_as_long_as_its_rate_says",
    ),
    "replication.quota.window.num": (f"{_WINDOWS}a_window_has_as_many_samples_as_the_config_says",),
    "replication.quota.window.size.seconds": (f"{_WINDOWS}a_sample_is_as_long_as_the_config_says",),
    "alter.log.dirs.replication.quota.window.num": (
        f"{_WINDOWS}a_window_has_as_many_samples_as_the_config_says",
    ),
    "alter.log.dirs.replication.quota.window.size.seconds": (
        f"{_WINDOWS}a_sample_is_as_long_as_the_config_says",
    ),
    "cordoned.log.dirs": (
        "simulation/replicas/test_directories.py::"
        "test_new_replicas_go_to_directories_that_are_not_cordoned",
    ),
    "replica.selector.class": (
        "simulation/replicas/test_near_replicas.py::"
        "test_a_consumer_reads_every_byte_from_the_follower_in_its_rack",
    ),
    "replica.fetch.response.max.bytes": (
        f"{_REPLICA}a_follower_takes_as_many_bytes_at_a_time_as_the_config_says",
    ),
    "replica.fetch.min.bytes": (
        f"{_REPLICA}a_follower_waits_for_as_many_bytes_as_the_config_says",
    ),
    "replica.fetch.wait.max.ms": (f"{_REPLICA}an_idle_follower_asks_again_after_the_longest_wait",),
    "replica.fetch.backoff.ms": (
        f"{_REPLICA}a_leader_that_cannot_be_reached_is_tried_again_after_the_backoff",
    ),
    "replica.lag.time.max.ms": (
        f"{_REPLICA}a_follower_leaves_the_isr_when_it_lags_for_too_long_and_returns",
    ),
    "replica.socket.timeout.ms": (
        f"{_REPLICA}a_silent_leader_is_given_up_after_the_socket_timeout",
    ),
    "replica.high.watermark.checkpoint.interval.ms": (
        f"{_STORE}high_watermarks_are_written_as_often_as_the_config_says",
    ),
    "producer.id.expiration.ms": (
        f"{_STORE}idle_producers_are_looked_for_as_often_as_the_config_says",
    ),
    "producer.id.expiration.check.interval.ms": (
        f"{_STORE}idle_producers_are_looked_for_as_often_as_the_config_says",
    ),
    "log.cleaner.enable": (f"{_REACH}without_a_cleaner_there_is_no_compaction",),
    "log.cleaner.backoff.ms": (
        f"{_REACH}configs_reach_the_cleaner",
        "unit/broker/test_compaction.py::test_a_compacted_topic_keeps_only_the_newest_values",
    ),
    "log.cleaner.dedupe.buffer.size": (
        f"{_REACH}configs_reach_the_cleaner",
        f"{_CLEANER}rules.py::test_when_the_map_is_full_what_comes_later_stays_as_it_is",
    ),
    "log.cleaner.io.buffer.load.factor": (
        f"{_REACH}configs_reach_the_cleaner",
        f"{_CLEANER}rules.py::test_when_the_map_is_full_what_comes_later_stays_as_it_is",
    ),
    # The metadata log.
    # The quorum.
    "controller.quorum.voters": (
        f"{_QUORUM}voters_and_listeners",
        f"{_QUORUM_MEMBERS}three_voters_elect_one_leader_and_agree_on_what_it_appends",
    ),
    "controller.quorum.bootstrap.servers": (
        f"{_QUORUM_MEMBERS}an_observer_finds_the_quorum_through_bootstrap_servers",
    ),
    "controller.quorum.election.timeout.ms": (
        _QUORUM_TIMES,
        f"{_QUORUM_EFFECT}a_leader_that_resigned_waits_for_the_election_timeout",
    ),
    "controller.quorum.election.backoff.max.ms": (
        _QUORUM_TIMES,
        f"{_QUORUM_EFFECT}successors_hold_back_by_the_election_backoff",
    ),
    "controller.quorum.fetch.timeout.ms": (
        _QUORUM_TIMES,
        f"{_QUORUM_EFFECT}a_dead_leader_is_noticed_after_the_fetch_timeout",
    ),
    "controller.quorum.request.timeout.ms": (
        _QUORUM_TIMES,
        f"{_QUORUM_EFFECT}a_silent_peer_is_given_up_after_the_request_timeout",
    ),
    "controller.quorum.retry.backoff.ms": (
        _QUORUM_TIMES,
        f"{_QUORUM_EFFECT}a_peer_that_refuses_is_asked_again_after_the_retry_backoff",
    ),
    "controller.quorum.fetch.max.bytes": (
        _QUORUM_TIMES,
        f"{_QUORUM_EFFECT}a_fetch_gets_as_many_bytes_as_the_limit",
    ),
    "controller.quorum.fetch.snapshot.max.bytes": (
        _QUORUM_TIMES,
        f"{_QUORUM_EFFECT}a_snapshot_comes_in_pieces_of_the_limit",
    ),
    "metadata.log.dir": (
        "unit/broker/test_produce_flush.py::test_a_directory_that_failed_leaves_the_others_at_work",
    ),
    "metadata.log.segment.bytes": (
        _METADATA,
        f"{_METADATA_LOG}old_snapshots_and_segments_go_when_there_is_too_much",
    ),
    "metadata.log.segment.ms": (_METADATA, f"{_METADATA_LOG}segments_roll_by_time"),
    "metadata.log.max.record.bytes.between.snapshots": (
        _METADATA,
        f"{_METADATA_LOG}a_snapshot_is_written_when_enough_of_the_log_is_new",
    ),
    "metadata.log.max.snapshot.interval.ms": (
        _METADATA,
        f"{_METADATA_LOG}a_snapshot_is_written_after_an_hour_if_there_is_anything_new",
    ),
    "metadata.max.retention.bytes": (
        _METADATA,
        f"{_METADATA_LOG}old_snapshots_and_segments_go_when_there_is_too_much",
    ),
    "metadata.max.retention.ms": (
        _METADATA,
        f"{_METADATA_LOG}old_snapshots_go_by_the_time_of_what_they_hold",
    ),
    # Groups.
    "group.coordinator.rebalance.protocols": (
        "unit/broker/test_group_protocols.py::"
        "test_protocols_without_consumer_switch_consumer_groups_off",
    ),
    "group.initial.rebalance.delay.ms": (
        _GROUPS,
        f"{_JOIN}first_generation_waits_for_the_initial_delay",
    ),
    "group.max.size": (_GROUPS, f"{_JOIN}full_group_refuses_newcomers_but_not_members"),
    "group.min.session.timeout.ms": (_GROUPS, f"{_JOIN}settings_are_read_when_they_are_used"),
    "group.max.session.timeout.ms": (_GROUPS, f"{_JOIN}settings_are_read_when_they_are_used"),
    "group.consumer.assignors": (
        "unit/broker/test_group_protocols.py::"
        "test_the_first_assignor_is_the_default_and_may_be_named_by_its_class",
    ),
    "group.consumer.migration.policy": (
        _GROUPS,
        f"{_CONSUMER}conversion.py::test_without_the_policy_the_group_stays_what_it_is",
    ),
    "group.consumer.regex.refresh.interval.ms": (
        _GROUPS,
        f"{_CONSUMER}regex.py::"
        "test_expressions_are_resolved_again_after_the_interval_even_if_no_topic_came",
    ),
    "group.consumer.session.timeout.ms": (
        _GROUPS,
        f"{_CONSUMER}timers.py::test_the_session_timeout_of_the_group_counts",
    ),
    "group.consumer.heartbeat.interval.ms": (_GROUPS,),
    "group.consumer.assignment.interval.ms": (
        _GROUPS,
        f"{_CONSUMER}heartbeat.py::test_the_assignment_interval_puts_off_the_next_target",
    ),
    "group.consumer.max.size": (
        _GROUPS,
        f"{_CONSUMER}refusals.py::test_a_full_group_takes_no_new_member_but_keeps_those_it_has",
    ),
    **{
        f"group.consumer.{bound}.{what}": _BOUNDS
        for bound in ("min", "max")
        for what in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
    },
    "offset.metadata.max.bytes": (
        _GROUPS,
        f"{_SHARD}metadata_that_is_too_long_is_refused_for_its_partition",
    ),
    "offsets.commit.timeout.ms": (
        "unit/broker/test_held_commits_groups.py::"
        "test_a_write_that_is_not_committed_in_time_is_answered",
    ),
    "offsets.retention.minutes": (
        _GROUPS,
        f"{_SHARD}offsets_expire_a_while_after_the_group_is_empty_and_the_group_with_them",
    ),
    "offsets.retention.check.interval.ms": (
        _GROUPS,
        f"{_SHARD}offsets_expire_a_while_after_the_group_is_empty_and_the_group_with_them",
    ),
    "offsets.topic.compression.codec": (
        f"{_EFFECT}records_of_groups_are_compressed_as_the_config_says",
    ),
    "offsets.topic.num.partitions": _INTERNAL,
    "offsets.topic.replication.factor": _REPLICAS,
    "offsets.topic.segment.bytes": _INTERNAL,
    # Transactions.
    "add.partitions.to.txn.retry.backoff.ms": (
        f"{_EARLY}it_is_asked_for_as_often_as_the_configs_say",
    ),
    "add.partitions.to.txn.retry.backoff.max.ms": (
        f"{_EARLY}it_is_asked_for_as_often_as_the_configs_say",
    ),
    "transaction.state.log.num.partitions": _INTERNAL,
    "transaction.state.log.replication.factor": _REPLICAS,
    "transaction.state.log.segment.bytes": _INTERNAL,
    "transaction.state.log.min.isr": _INTERNAL,
    "transaction.max.timeout.ms": (
        f"{_EFFECT}a_transaction_may_not_take_longer_than_the_brokers_limit",
    ),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": (
        f"{_EFFECT}transactions_that_ran_out_are_looked_for_as_often_as_the_config_says",
    ),
    "transaction.remove.expired.transaction.cleanup.interval.ms": (
        f"{_EFFECT}unused_transactional_ids_go_as_soon_and_as_often_as_the_configs_say",
    ),
    "transactional.id.expiration.ms": (
        f"{_EFFECT}unused_transactional_ids_go_as_soon_and_as_often_as_the_configs_say",
    ),
    "transaction.partition.verification.enable": (
        "unit/broker/test_handlers_transactions.py::"
        "test_without_verification_producers_are_trusted",
    ),
    "transaction.two.phase.commit.enable": (
        "unit/broker/test_handlers_transactions_two_phase.py::"
        "test_the_version_for_two_phase_commit_is_spoken_where_that_is_enabled",
    ),
    # TLS.
    "ssl.enabled.protocols": (
        f"{_LISTENERS}what_cannot_work_is_refused_with_the_name_to_change",
        f"{_TLS}versions_and_suites_that_were_not_named_are_not_spoken",
    ),
    "ssl.cipher.suites": (
        f"{_LISTENERS}what_cannot_work_is_refused_with_the_name_to_change",
        f"{_TLS}versions_and_suites_that_were_not_named_are_not_spoken",
    ),
    "sasl.enabled.mechanisms": _SASL_CONFIGS,
    "sasl.jaas.config": _SASL_CONFIGS,
    "sasl.server.max.receive.size": (
        *_SASL_CONFIGS,
        "unit/net/test_net_gate.py::test_frames_are_small_until_the_gate_opens",
    ),
    "connection.failed.authentication.delay.ms": (
        *_SASL_CONFIGS,
        f"{_EXCHANGE}a_wrong_password_is_answered_late_and_ends_the_connection",
    ),
    "inter.broker.listener.name": _BETWEEN_NODES,
    "sasl.mechanism.inter.broker.protocol": _BETWEEN_NODES,
    "sasl.mechanism.controller.protocol": _BETWEEN_NODES,
    "connections.max.reauth.ms": (
        *_SASL_CONFIGS,
        f"{_EXCHANGE}a_session_ends_unless_the_client_authenticates_again",
    ),
    "ssl.principal.mapping.rules": (
        "unit/net/test_principal_mapping.py::test_the_first_rule_that_matches_counts",
        f"{_LISTENERS}rules_make_the_user_of_a_client_certificate",
    ),
    "ssl.client.auth": (*_KEYS, f"{_TLS}client_auth"),
    "ssl.keystore.type": _KEYS,
    "ssl.keystore.location": _FILES,
    "ssl.keystore.key": _KEYS,
    "ssl.keystore.certificate.chain": _KEYS,
    "ssl.key.password": _KEYS,
    "ssl.truststore.type": _KEYS,
    "ssl.truststore.location": _FILES,
    "ssl.truststore.certificates": _KEYS,
    "ssl.allow.dn.changes": (f"{_CERTIFICATES}other_names_are_allowed_if_the_configs_say_so",),
    "ssl.allow.san.changes": (f"{_CERTIFICATES}other_names_are_allowed_if_the_configs_say_so",),
}

GROUP_EFFECTS: Final[Mapping[str, Tests]] = {
    f"consumer.{what}": _BOUNDS
    for what in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
}

_CLIENT_METRICS: Final = "unit/broker/test_client_metrics.py::test_"

CLIENT_METRICS_EFFECTS: Final[Mapping[str, Tests]] = {
    "interval.ms": (f"{_CLIENT_METRICS}a_client_gets_the_union_of_what_matches_it",),
    "match": (f"{_CLIENT_METRICS}clients_match_by_what_they_say_about_themselves",),
    "metrics": (f"{_CLIENT_METRICS}a_client_gets_the_union_of_what_matches_it",),
}
