//! Keeps docs/recordings.md honest: each promise names the test that checks it. A promise that is
//! reworded, or a test that is renamed, fails here.

use std::path::Path;

const WIRE: &str = "cli/tests/cli/wire.rs";
const FORWARD: &str = "cli/tests/cli/forward.rs";
const SPOOL: &str = "cli/tests/cli/spool.rs";
const CONVERT: &str = "cli/tests/cli/convert.rs";
const OUTPUTS: &str = "cli/tests/cli/outputs.rs";
const RECEIVE: &str = "receiver/tests/all/receive.rs";
const FOREIGN: &str = "recording/tests/it/foreign.rs";

/// A part of a promise, and the file and name of its test.
const PROMISES: &[(&str, &str, &str)] = &[
    ("the output equals the input", WIRE, "a_recording_sent_is_received_whole"),
    (
        "everything that a format cannot represent is counted",
        CONVERT,
        "what_the_format_can_not_hold_is_counted",
    ),
    (
        "Both ports accept gRPC and HTTP, protobuf and JSON, uncompressed or compressed",
        RECEIVE,
        "every_protocol_and_compression_is_taken_on_one_port",
    ),
    ("which `astracer compare` reads", WIRE, "logs_outlive_a_receiver_that_is_killed_and_tell_good_from_bad"),
    ("Metrics are refused", RECEIVE, "what_can_not_be_taken_is_refused_by_the_book"),
    (
        "Ctrl-C, SIGTERM or closing the terminal stops it",
        WIRE,
        "the_end_of_the_terminal_ends_a_recording_in_order",
    ),
    ("Start it with `nohup`", WIRE, "nohup_lets_a_recording_outlive_the_terminal"),
    (
        "every acknowledged span or log record is in a file",
        WIRE,
        "logs_outlive_a_receiver_that_is_killed_and_tell_good_from_bad",
    ),
    (
        "With `--forward`, spans are also in the spool then",
        WIRE,
        "a_receiver_passes_spans_on_through_its_spool",
    ),
    ("somebody removed or shortened a file", FORWARD, "a_recording_that_somebody_shortens_is_noticed"),
    (
        "one that was only renamed keeps its spans",
        "exporters/src/file/tests.rs",
        "a_file_that_somebody_renamed_keeps_its_spans",
    ),
    (
        "exits with 1 if acknowledged spans are lost or were not passed on",
        FORWARD,
        "a_receiver_says_what_was_not_passed_on_and_ends_with_1",
    ),
    ("(`ulimit -f`) begins a new file", FORWARD, "a_limit_on_the_size_of_files_costs_nothing"),
    (
        "A new connection replaces the one that has been idle longest",
        RECEIVE,
        "idle_connections_make_room_for_new_ones",
    ),
    ("take at most `--client-share` of that", RECEIVE, "what_one_address_sends_leaves_room_for_another"),
    (
        "one sender with many slow requests cannot keep others out",
        RECEIVE,
        "connections_of_one_address_leave_room_for_another",
    ),
    (
        "delays others by one body at most",
        "receiver/tests/all/turns.rs",
        "costly_bodies_of_one_address_do_not_delay_another",
    ),
    ("is refused as incomplete", RECEIVE, "half_a_request_is_counted_at_the_end"),
    ("shifts all times by the same amount", WIRE, "times_can_move_to_now"),
    ("the same command continues from there", WIRE, "a_sending_that_broke_off_goes_on"),
    ("that is shorter than what was already sent", SPOOL, "a_note_that_does_not_fit_is_refused"),
    (
        "A second process with the same `--resume` file is refused",
        "cli/src/command/send/resume.rs",
        "one_process_at_a_time_sends_by_a_note",
    ),
    ("A success that is not OTLP", SPOOL, "a_drain_to_a_login_page_keeps_everything"),
    ("what waits, and what was refused for which reason", SPOOL, "a_spool_is_looked_at_checked_and_drained"),
    (
        "exits with 1 if anything acknowledged was not passed on, dead",
        FORWARD,
        "dead_letters_are_sent_again_by_reason_or_all",
    ),
    (
        "it prints how many spans still wait, and the same command continues",
        SPOOL,
        "a_signal_ends_a_drain_and_it_says_what_is_left",
    ),
    ("change nothing about the exit code", WIRE, "a_receiver_passes_spans_on_through_its_spool"),
    ("listed and left as they are", "spool/tests/all/fuzz.rs", "foreign_files_are_named_and_left_alone"),
    (
        "`drain` also reports all damage that `verify` finds",
        "spool/tests/all/fuzz.rs",
        "what_is_delivered_and_what_is_told_is_all_that_was_acknowledged",
    ),
    (
        "in constant memory, with two exceptions",
        "recording/src/convert/tests.rs",
        "a_trace_in_pieces_becomes_one_in_jaeger",
    ),
    (
        "A span with any other id is left out and counted as a problem",
        "formats/src/otlp_json/tests.rs",
        "bad_spans_are_named_with_their_place",
    ),
    (
        "remote endpoint and tags stay as they are",
        "formats/src/zipkin_json/tests/round_trip.rs",
        "tags_of_zipkin_come_out_as_they_came_in",
    ),
    (
        "the attributes that describe a peer become the remote endpoint",
        "formats/src/zipkin_json/tests/round_trip.rs",
        "the_remote_endpoint_follows_the_ranks",
    ),
    ("selects that compression", CONVERT, "outputs_are_compressed_by_their_names"),
    ("are always refused, since the content", CONVERT, "names_of_other_compressions_are_refused"),
    ("can be the target of one output", OUTPUTS, "a_pipe_takes_one_output_and_is_no_input"),
    (
        "also writes to `/dev/stdout` when that is a file",
        CONVERT,
        "standard_output_may_be_a_file_by_its_name",
    ),
    ("A file gets its name when it is complete", CONVERT, "a_conversion_that_fails_leaves_the_file_alone"),
    (
        "one Ctrl-C or SIGTERM ends it at once",
        OUTPUTS,
        "an_interruption_ends_a_command_that_waits_for_its_input",
    ),
    ("`send` stops at the first signal", SPOOL, "ctrl_c_ends_a_send_to_a_server_that_hangs"),
    ("cut its middle if it is longer", "cli/src/layout.rs", "a_name_of_megabytes_loses_its_middle"),
    ("success, with the number of rejected spans", RECEIVE, "spans_without_ids_are_rejected_with_a_count"),
    ("400, or gRPC's 3; nothing is stored", RECEIVE, "a_broken_body_is_refused_as_a_whole"),
    ("413, or 8", RECEIVE, "refusals_over_grpc_have_their_codes"),
    ("415, or 12", RECEIVE, "what_can_not_be_taken_is_refused_by_the_book"),
    ("403, or 7", RECEIVE, "a_request_for_another_host_is_refused_on_loopback"),
    ("408, or 4", RECEIVE, "slow_bodies_keep_nobody_out"),
    ("401, or 16", RECEIVE, "only_senders_with_the_token_are_heard"),
    ("before it reads their bodies", RECEIVE, "only_senders_with_the_token_are_heard"),
    (
        "lost, rejected or unaccounted for",
        "cli/src/command/drill.rs",
        "spans_that_nobody_reports_are_an_error",
    ),
    (
        "only senders with a certificate of that authority",
        "receiver/tests/all/tls.rs",
        "senders_need_the_certificate_that_is_asked_for",
    ),
    ("Figures while it runs", "receiver/tests/all/metrics.rs", "the_figures_are_those_of_the_end"),
    (
        "a request that could not be written",
        "receiver/tests/all/metrics.rs",
        "health_says_why_requests_are_refused",
    ),
    (
        "A FIFO, a device, a folder or a link to nothing",
        "cli/tests/cli/special_files.rs",
        "special_files_are_no_settings",
    ),
    ("503 with `Retry-After`, or 14", RECEIVE, "full_files_make_senders_wait"),
    (
        "while the batch is young enough",
        "exporters/tests/all/finality.rs",
        "every_row_of_the_table_of_answers_holds",
    ),
    (
        "is sent again like 503, and so is a response that is not HTTP",
        "exporters/tests/all/fault_table.rs",
        "each_fault_protocol_and_storage_loses_nothing_or_tells_it",
    ),
    (
        "is sent again until it is `Retry::with_max_age` old",
        "exporters/tests/all/fault_table.rs",
        "each_fault_protocol_and_storage_loses_nothing_or_tells_it",
    ),
    (
        "in halves. A single span is lost",
        "exporters/tests/all/fault_table.rs",
        "each_limit_of_a_server_costs_no_span",
    ),
    (
        "once more without compression",
        "exporters/tests/all/otlp_http.rs",
        "a_server_without_compression_gets_plain_requests",
    ),
    (
        "is shown as the server's text",
        "exporters/tests/all/errors.rs",
        "the_message_of_a_protobuf_status_is_shown",
    ),
    (
        "If it is accepted, that size is forgotten",
        "exporters/tests/all/otlp_http.rs",
        "a_limit_that_a_server_no_longer_has_is_forgotten",
    ),
    (
        "the last half second tries once",
        "exporters/src/availability/tests.rs",
        "the_last_half_second_tries_once_whatever_the_server_asked_for",
    ),
    (
        "treat a full or failing disk in the same way",
        "exporters/tests/all/killed.rs",
        "files_wait_while_their_disk_is_full",
    ),
    (
        "the service's console reports it",
        "sdk/src/reports.rs",
        "what_a_spool_did_not_pass_on_is_reported_once_a_minute",
    ),
    (
        "its record then goes to the dead letters",
        "exporters/tests/all/fault_table.rs",
        "each_fault_protocol_and_storage_loses_nothing_or_tells_it",
    ),
    (
        "gets more than 20,000 spans a second",
        "exporters/tests/all/fault_table.rs",
        "a_distant_server_keeps_up",
    ),
    (
        "sent again in halves, until only the refused request is a dead letter",
        "exporters/src/spooled/tests.rs",
        "one_bad_record_spoils_no_other",
    ),
    ("so they survive `kill -9`", "spool/tests/all/audit.rs", "each_acknowledged_span_has_one_end"),
    (
        "All four exit with 1 if spans were lost for good",
        FORWARD,
        "dead_letters_that_were_thrown_away_stay_counted",
    ),
    (
        "the oldest dead letters are thrown away, and stay counted",
        "spool/tests/all/limits.rs",
        "dead_letters_use_the_room_that_waiting_records_leave",
    ),
    (
        "print a line when spans begin to wait, with the reason",
        "cli/src/command/spool/outage.rs",
        "an_outage_has_a_first_line_one_a_minute_and_a_last_one",
    ),
    ("in the place of a segment is named and left alone", FORWARD, "special_files_in_a_spool_are_named"),
    (
        "observed up to `Retry::with_max_server_delay`",
        "exporters/src/retry.rs",
        "the_server_is_waited_for_up_to_an_hour",
    ),
    (
        "gives up at the first failure if the server has never answered",
        WIRE,
        "servers_that_are_not_there_are_named_with_what_to_do",
    ),
    (
        "each server is a child of the client",
        FOREIGN,
        "servers_of_one_client_are_its_children_and_have_their_own",
    ),
    ("the start of one piece, the duration and tags of the other", FOREIGN, "a_span_in_pieces_is_one"),
    ("one span in two spellings", FOREIGN, "a_span_in_two_spellings_is_written_twice"),
    ("one trace, with the longer id", FOREIGN, "both_forms_of_a_trace_id_in_one_list_are_one_trace"),
    (
        "an orphan whose parent is in the other one is counted",
        FOREIGN,
        "an_orphan_of_a_shortened_trace_id_names_its_reason",
    ),
    ("U+FFFD in its place", FOREIGN, "text_that_is_not_unicode_costs_no_span"),
    ("an integer beyond 64 bits", FOREIGN, "numbers_beyond_a_format_stay_numbers"),
    ("exact to the nanosecond", FOREIGN, "a_time_with_an_exponent_is_exact"),
    ("unset (`unknown_word`)", FOREIGN, "words_and_counts_without_meaning_are_unset"),
    ("the duration, from the parent's start", FOREIGN, "a_duration_without_a_start_counts"),
    ("reading continues with the next span", FOREIGN, "one_bad_value_costs_nothing_that_follows"),
    (
        "an empty answer is a recording without traces",
        "formats/src/detect/tests.rs",
        "empty_answers_are_empty_recordings_and_errors_are_told",
    ),
    (
        "the longest represents the trace",
        FOREIGN,
        "the_longest_of_roots_that_start_together_stands_for_the_trace",
    ),
    ("behind any prefix of a logger", FOREIGN, "lines_of_javas_logging_exporter_are_read_behind_any_prefix"),
    (
        "the message names the format and what to do",
        "formats/src/detect/tests.rs",
        "formats_that_are_not_read_are_named",
    ),
    (
        "The format follows from the first lines",
        "formats/tests/it/log_lines.rs",
        "forms_are_known_by_their_content",
    ),
    (
        "most of the first 200 lines follow",
        "formats/src/moments/logs/layout.rs",
        "layouts_are_recognised_by_most_of_their_lines",
    ),
    (
        "belongs to the record above it",
        "formats/tests/it/log_lines.rs",
        "lines_that_begin_no_record_belong_to_the_one_before",
    ),
    ("whose ids it states", "recording/tests/it/logs.rs", "records_are_joined_to_their_traces_and_spans"),
    (
        "from members of these or similar names",
        "formats/tests/it/log_shapes.rs",
        "the_writer_of_a_line_is_its_resource",
    ),
    (
        "also in a form that is not known otherwise",
        "cli/tests/cli/order.rs",
        "a_layout_reads_times_that_are_not_known",
    ),
    ("describe each file", "cli/tests/cli/order.rs", "each_file_of_logs_is_described"),
    (
        "Times without a year or a date",
        "formats/src/moments/logs/clock.rs",
        "a_missing_year_or_date_is_that_of_the_file",
    ),
    (
        "Times without a zone are UTC",
        "formats/src/moments/logs/time.rs",
        "times_are_read_as_loggers_write_them",
    ),
    ("A file that shrinks while it is read", "recording/src/source/whole.rs", "an_early_end_is_an_error"),
    (
        "(`bad_record`) with its line",
        "formats/tests/it/log_lines.rs",
        "a_record_that_is_too_long_is_reported_and_the_next_is_read",
    ),
    (
        "by kind, with the number of affected spans",
        "formats/src/losses/tests.rs",
        "each_loss_is_named_where_it_happens",
    ),
];

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Text on one line.
fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn each_promise_of_the_recordings_page_has_its_test() {
    let page = read("docs/recordings.md");
    let text = joined(&page);
    for (promise, file, test) in PROMISES {
        assert!(text.contains(promise), "docs/recordings.md no longer says: {promise}");
        assert!(read(file).contains(&format!("fn {test}(")), "{file} has no test {test}: {promise}");
    }
    // A paragraph that begins in bold, or an item of a list, is a promise.
    let mut untested = Vec::new();
    for block in page.replace("\n- ", "\n\n- ").split("\n\n").map(joined) {
        let is_promise = (block.starts_with("**") || block.starts_with("- "))
            && !PROMISES.iter().any(|(promise, ..)| block.contains(promise));
        untested.extend(is_promise.then_some(block));
    }
    assert_eq!(untested, [""; 0], "add the test to PROMISES");
}
