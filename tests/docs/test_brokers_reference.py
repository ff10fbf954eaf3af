"""docs/reference/brokers.md: each line of its table and each surprise is backed by tests, named here, that exist."""

from __future__ import annotations

import re

from .conftest import ROOT

PAGE = (ROOT / "docs" / "reference" / "brokers.md").read_text(encoding="utf-8")
BACKED_BY = {
    "send, receive, every acknowledge mode but TRANSACTED": [
        "test_c04_every_kind_there_and_back",
        "test_if_39_what_a_receive_returned_is_accepted",
        "test_if_39_individual_covers_one_message_and_close_retries_the_rest",
        "test_r01_recover_is_seen_as_a_redelivery",
    ],
    "transactions": ["test_if_28_transactions", "test_s08_a_commit_whose_answer_is_swallowed_is_in_doubt"],
    "selectors": ["test_selectors"],
    "browsing": ["test_browsing", "test_ra_7_a_browser_loop_whose_link_is_lost_ends_with_an_error"],
    "topics": ["test_topics", "test_no_such_queue_or_exchange_on_broker_j"],
    "durable subscriptions": ["test_durable_subscriptions"],
    "shared subscriptions": ["test_shared_subscriptions"],
    "`unsubscribe` without a client id: of a shared durable subscription": [
        "test_a_shared_durable_subscription_lives_until_it_is_unsubscribed"
    ],
    "temporary destinations": ["test_temporary_queues"],
    "`no_local`": ["test_no_local_leaves_out_what_the_same_connection_published"],
    "delayed delivery": ["test_delayed_delivery"],
    "delivery count": ["test_r01_recover_is_seen_as_a_redelivery", "test_if_11_what_a_broken_connection_makes_of_the_count"],
    "unread messages go back uncounted": [
        "test_unread_messages_go_back_when_a_consumer_closes",
        "test_if_20_an_unread_window_goes_back_to_its_place",
    ],
    "a dead letter (`reject`)": ["test_s03_d_what_a_dead_letter_becomes", "a_dead_letter_does_what_reject_says"],
    "persistent and non-persistent messages keep their common order": [
        "test_the_common_order_of_both_kinds_is_kept_where_that_is_said"
    ],
    "read ahead from a queue declared `persistence=NON`": [
        "test_ra_18_deliver_all_hands_every_taken_message_to_the_listener",
        "test_if_25_what_is_all_taken_is_sent_settled",
        "test_if_25_a_broker_that_settles_more_than_arrives_never_settles_when_it_sends",
    ],
    "`at_most_once=True`: closing the consumer loses": ["test_s01_at_most_once_loses_a_window_at_most_and_says_how_many"],
    "a client id is of one connection at a time": ["test_a_client_id_is_of_one_connection_at_a_time"],
    "without the right to a destination": ["test_no_rights", "test_no_right_to_send", "test_no_such_queue_and_no_rights"],
    "`receive(0)`": ["test_if_18_receive_0_asks_the_broker_where_it_can_be_asked"],
    "**Artemis**": ["test_if_11_what_a_broken_connection_makes_of_the_count"],
    "**Qpid Broker-J**": ["test_if_11_what_a_broken_connection_makes_of_the_count", "test_delayed_delivery"],
    "**ActiveMQ Classic**": [
        "test_where_a_release_counts_what_is_unread_goes_back_with_its_link",
        "test_if_20_an_unread_window_goes_back_to_its_place",
    ],
    "**RabbitMQ 3.10**": [
        "test_a_failed_message_is_tried_again_by_the_word_that_the_broker_knows",
        "test_a_broker_without_modified_never_gets_it",
        "test_addresses_are_the_brokers_own",
        "test_a_queue_that_is_there_already_has_another_address_where_the_broker_wants_it",
        "test_r01_a_recover_is_seen_on_either_kind_of_queue",
        "test_r01_what_nobody_saw_comes_again_with_the_flag",
        "test_s03_the_limit_of_a_quorum_queue_is_reached_by_failed_attempts",
        "test_no_rights",
        "test_o06_each_broker_is_stopped_and_started_again",
        "close_while_messages_stream_in_loses_none",
        "test_o09_what_answers_is_named",
        "test_if_17_what_is_granted_and_buffered_fits_into_the_window",
        "test_if_17_a_broker_that_sends_more_than_it_was_asked_for_owes_nothing",
    ],
}
RULES = [f"IF-{number}" for number in (11, *range(17, 31), 39)]
CASES = ["R01", "S01", "S03", "S08", "C04", "C12", "O04", "O06", "O07", "O09"]
TESTS = [*sorted((ROOT / "tests" / "amqp").glob("test_*.py")), *sorted((ROOT / "jmsclient" / "testing").glob("*_checks.py"))]
DEFINED = {name for path in TESTS for name in re.findall(r"^def (\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)}


def lines() -> set[str]:
    """The first cell of each row of the table by broker, and the name of each surprise."""
    table = PAGE.partition("## By broker")[2].partition("## What is surprising")
    rows = {row.split("|")[1].strip() for row in table[0].splitlines() if row.startswith("|")} - {"", "---"}
    surprises = set(re.findall(r"^- (\*\*.+?\*\*)", table[2].partition("## ")[0], re.MULTILINE))
    return rows | surprises


def test_each_line_is_backed_by_tests() -> None:
    assert lines() == BACKED_BY.keys()


def test_the_tests_that_back_it_exist() -> None:
    assert {name for names in BACKED_BY.values() for name in names} - DEFINED == set()


def test_each_rule_and_case_of_the_backend_is_cited_by_a_test_of_it() -> None:
    texts = "\n".join(path.read_text(encoding="utf-8") for path in TESTS).upper().replace("_", "-")
    assert [number for number in (*RULES, *CASES) if not re.search(rf"\b{number}\b|-{number}-", texts)] == []
