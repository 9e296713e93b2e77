"""The tests with Spark and servers that `make test` runs: those of the main paths of a user.

``make test-all`` runs the others. A test is here because a path or a writer of tables needs one: what
it checks would have shown most defects that releases had. A name without brackets has all of its
parameters.
"""

from collections.abc import Iterable

MAIN_PATHS = {
    "the README and the demo": (
        "e2e/docs/test_pasted_readme.py::test_the_readme_runs_as_pasted_and_prints_its_table",
        "e2e/demo/test_demo.py::test_each_result_of_the_demo_is_the_expected_one",
    ),
    "the keyed stage": (
        "e2e/normalize/test_from_kafka_changelog.py::test_stream_and_bounded_read_give_the_rows_of_the_fold",
        "e2e/normalize/test_from_kafka_changelog.py::test_restarts_give_new_rows_only_and_other_columns_read_the_old_state",
        "e2e/normalize/test_from_kafka_changelog.py::test_upserts_in_rocksdb_are_the_same_changelog_without_update_before",
        "e2e/normalize/test_from_kafka_changelog.py::test_upsert_kafka_deletes_by_key_are_completed_from_state",
        "e2e/normalize/test_from_kafka_changelog.py::test_every_type_arrives_typed",
        "e2e/normalize/test_from_kafka_changelog.py::test_failfast_reports_the_error_and_the_record",
        "e2e/normalize/test_from_kafka_changelog.py::test_records_of_an_aborted_transaction_are_not_read",
        "e2e/normalize/test_stage_options.py::test_redeliveries_a_restart_a_new_snapshot_and_a_reset_log_leave_no_trace",
        "e2e/normalize/test_query_guard.py::test_a_recreated_topic_is_not_read_from_the_old_offsets",
        "spark/normalize/test_decode_changelog.py::test_a_shuffled_bronze_table_gives_the_rows_of_the_fold",
        "spark/normalize/test_changelog_normalize.py::test_any_changelog_stream_is_normalised",
        "spark/checkpoint/test_checkpoints_of_versions.py::test_a_query_continues[4.0-rocksdb-source]",
        "spark/checkpoint/test_checkpoints_of_versions.py::test_a_query_continues[4.0-hdfs-arrival]",
    ),
    "the native engine": (
        "spark/normalize/test_native_engine.py::test_any_cut_into_micro_batches_gives_the_rows_of_the_fold",
        "spark/normalize/test_native_engine.py::test_a_key_of_two_tasks_is_an_error_and_never_a_wrong_row",
    ),
    "records that cannot be decoded": (
        "e2e/normalize/test_dead_letter.py::test_a_dead_letter_is_the_exact_record_with_its_offset_and_error",
    ),
    "back to Kafka": (
        "e2e/normalize/test_to_kafka_changelog.py::test_demo_orders_rewritten_in_another_format_read_back",
        "servers/registry/test_real_registry.py::test_written_records_are_read_back",
    ),
    "sync_table": (
        "e2e/tables/test_topic_to_table.py::test_table_equals_its_source_after_each_run_and_repetition",
        "spark/tables/test_sync_positions.py::test_events_that_are_delivered_again_set_no_row_back",
        "spark/tables/test_sync_table.py::test_delete_and_rebirth_in_one_micro_batch_and_a_repeated_one",
        "spark/tables/test_sync_masks.py::test_computed_columns[delta]",
    ),
    "sync_database": (
        "e2e/tables/test_sync_database.py::test_tables_of_one_topic_with_new_columns_new_tables_and_one_that_fails",
        "e2e/tables/test_sync_database.py::test_topic_for_each_table_of_debezium",
        "spark/tables/test_sync_errors.py::test_errors_of_tables_and_their_remedies",
    ),
    "apply_changes": (
        "e2e/tables/test_sink_topics.py::test_a_history_from_kafka",
        "e2e/tables/test_sink_topics.py::test_a_topic_that_has_every_row_is_read_again_with_a_new_checkpoint",
        "e2e/normalize/test_native_kafka.py::test_the_sum_by_name_equals_the_databases_after_every_retraction",
    ),
    "each writer": (
        "e2e/tables/test_merge_vectors.py::test_a_merge_ends_in_the_rows_of_the_vectors[delta]",
        "e2e/tables/test_merge_vectors.py::test_a_merge_ends_in_the_rows_of_the_vectors[delta-rs]",
        "e2e/tables/test_merge_vectors.py::test_a_merge_ends_in_the_rows_of_the_vectors[postgresql]",
        "e2e/tables/test_sink_tables.py::test_values_of_every_type_are_read_back_unchanged[delta]",
        "e2e/tables/test_sink_tables.py::test_values_of_every_type_are_copied_into_postgresql_unchanged",
        "spark/tables/test_sink_delta_rs.py::test_rows_of_both_writers_in_turn[mapped, feed]",
        "spark/tables/test_sink_delta_rs.py::test_a_commit_of_spark_while_delta_rs_merges[OPTIMIZE {}]",
        "spark/tables/test_delta_rs_values.py::test_rows_and_answers_to_filters",
    ),
    "what must not be lost": (
        "e2e/tables/test_sync_guards.py::test_topic_that_is_created_again_ends_the_running_query",
        "e2e/tables/test_sync_drivers.py::test_table_that_is_restored_alone_and_then_with_its_checkpoint[delta-rs]",
        "spark/tables/test_restarts.py::test_page_has_each_change",
        "spark/tables/test_restarts.py::test_cell[While the query is stopped-the target is missing-error: `TARGET_MISSING`]",
        "spark/tables/test_restarts_of_targets.py::test_cell[While the query is stopped-the checkpoint was set back-error: `BATCH_ORDER`]",
        (
            "spark/tables/test_restarts_of_databases.py::test_cell[While the query is stopped-a column of the "
            "target was renamed-error: `no longer has the column`]"
        ),
        "spark/tables/test_restarts.py::test_cell[While the query runs-the topic was created again-error: `TOPIC_REPLACED`]",
    ),
    "verify and resync": (
        "e2e/verify/test_repair_table.py::test_rows_that_differ_are_found_and_repair_merges_them[postgresql]",
        "e2e/tables/test_resync_kinds.py::test_all_kinds_of_tables_are_read_again[delta-rs]",
    ),
    "a job file": (
        "e2e/run/test_run_job.py::test_a_failed_query_starts_again_and_fails_at_the_limit",
        "servers/cli/test_cli_init.py::test_a_job_file_from_topics",
        "servers/cli/test_cli_status.py::test_status_says_how_far_each_partition_is_behind",
        "servers/cli/test_cli_tail.py::test_recorded_topic_shows_the_same_rows_as_the_library",
        "spark/monitoring/test_metrics_of_queries.py::test_lag_and_counts_of_a_query",
    ),
    "capture": (
        "e2e/capture/test_capture_kafka.py::test_orders_written_twice_are_read_once",
        "servers/capture/test_capture_startup.py::test_each_mode_starts_at_its_position",
        "servers/capture/test_capture_types.py::test_values_of_every_type_are_the_same_from_query_and_log",
        "servers/capture/test_capture_writers.py::test_replayed_first_batch_loses_nothing_after_a_crash",
    ),
}


def is_main(test: str) -> bool:
    """Return whether a test, by its name below ``tests``, is of a main path."""
    return test in _NAMES or test.partition("[")[0] in _NAMES


def unknown_names(tests: Iterable[str]) -> list[str]:
    """Return the names above that are none of these tests, although their files have tests here."""
    known = {name for test in tests for name in (test, test.partition("[")[0])}
    files = {name.partition("::")[0] for name in known}
    return sorted(each for each in _NAMES - known if each.partition("::")[0] in files)


_NAMES = frozenset(name for names in MAIN_PATHS.values() for name in names)
