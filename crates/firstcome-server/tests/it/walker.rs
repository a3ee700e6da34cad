//! The scenarios, each a test of its own, and one test that walks through all of them and demands every code.

use crate::auction::{
    bids, bodies as auction_bodies, figures as auction_figures, keys as auction_keys, listings, points, purchases,
    restarts as auction_restarts, trouble as auction_trouble,
};
use crate::lock::{
    bodies as lock_bodies, figures as lock_figures, handles, holds, keys as lock_keys, sharing as lock_sharing,
    trouble as lock_trouble, waits,
};
use crate::promises::seen;
use crate::room::{
    abuse, admissions, appearance, claims as pass_claims, clocks, coupon_page, draw, entrances, first_poll, gate,
    handoffs, joins, keys, limits, page, passes, receipts, renewals, restarts, steering, streams, tickets,
    trouble as room_trouble, work,
};
use crate::{
    api_keys, bad_bodies, bad_names, claims, dashboard, deadlines, dev_gate, erasures, gate as site_gate, idempotency,
    in_time, panics, purges, redemptions, revisions, scopes, settings, trouble,
};
use firstcome_server::error::Code;

macro_rules! scenarios {
    ($($module:ident: $($name:ident)*;)*) => {
        $($(
            #[tokio::test]
            async fn $name() {
                in_time($module::$name()).await;
            }
        )*)*

        async fn walk() {
            $($(in_time($module::$name()).await;)*)*
        }
    };
}

scenarios! {
    settings: a_coupon_is_created_shown_and_replaced the_states_of_a_coupon_follow_its_window_and_its_claims
        a_limit_falls_no_lower_than_what_is_issued a_room_is_fixed_by_the_first_claim
        a_deleted_coupon_is_gone_for_good_and_its_claims_stay every_call_about_a_coupon_that_does_not_exist_says_so
        a_path_that_does_not_exist_is_a_problem_too;
    revisions: settings_are_shown_to_those_who_may_change_them a_patch_changes_what_it_names_and_leaves_the_rest
        no_change_of_another_operator_is_lost patches_that_come_together_are_merged_one_after_the_other
        a_room_is_paused_and_resumed_without_its_settings a_coupon_is_behind_no_room_that_is_not_there;
    claims: claims_are_issued_in_order_with_codes_of_their_own a_second_claim_of_a_user_is_told_the_first
        before_the_opening_a_claim_is_told_how_long_to_wait from_the_end_on_a_claim_is_told_that_it_is_over
        a_coupon_with_a_room_needs_a_pass_or_a_service_key attributes_stay_with_the_claim
        attributes_come_back_digit_by_digit_and_in_one_spelling
        who_has_no_claim_is_not_found pages_of_claims_are_whole_and_in_order a_page_that_does_not_exist_is_refused
        a_summary_is_public_and_claims_are_not;
    redemptions: a_code_is_used_up_once case_blanks_and_dashes_of_a_code_do_not_matter
        a_code_that_is_not_of_this_coupon_is_unknown a_code_is_redeemed_for_its_holder_only
        redeeming_ends_at_its_own_instant;
    idempotency: a_back_end_may_name_what_a_request_means a_repeated_claim_is_answered_again_as_it_was a_key_with_another_body_is_refused
        a_key_belongs_to_its_credential_and_its_path a_refusal_is_judged_afresh
        a_repeated_redemption_is_answered_again_as_it_was a_code_spelt_otherwise_is_the_same_redemption
        a_key_that_is_none_is_refused_and_has_no_effect;
    bad_bodies: what_is_not_json_is_refused a_claim_that_is_not_json_to_its_end_has_no_effect
        what_is_not_an_object_is_refused
        fields_that_do_not_exist_or_come_twice_are_refused a_refused_field_is_told_in_words_for_people
        values_at_their_limits_are_taken attributes_are_an_object_of_at_most_one_kibibyte
        a_mistake_is_told_by_its_own_field_everything_that_comes_beside_it a_body_has_at_most_64_kibibytes
        a_body_is_announced_as_json a_body_that_does_not_come_is_not_waited_for a_body_that_breaks_off_has_no_effect;
    bad_names: a_path_with_a_wrong_name_is_refused a_path_that_is_not_utf8_is_refused
        a_body_with_a_wrong_name_is_refused names_at_their_limits_are_taken;
    api_keys: a_key_is_created_used_and_shown_once a_key_ends_at_its_instant a_rotated_key_counts_until_the_overlap_ends
        a_revoked_key_is_refused_at_once the_last_admin_key_is_not_revoked keys_survive_a_restart
        calls_about_keys_are_checked a_repeated_creation_is_answered_without_the_key there_are_only_so_many_names
        keys_of_the_first_start_count_unless_others_are_given a_service_without_a_store_of_keys_says_so;
    erasures: an_erased_person_leaves_a_pseudonym_and_may_come_again a_member_with_something_to_settle_is_not_erased
        erasures_are_checked a_service_of_listings_alone_erases_members;
    purges: keys_of_old_requests_are_purged_and_counted a_purge_with_a_wrong_clock_is_refused_unless_an_operator_trusts_it
        a_service_of_listings_alone_purges_keys_of_bids removed_records_are_told_from_records_that_never_were;
    scopes: a_caller_without_the_scope_is_told_which_kind_of_no_it_is;
    dev_gate: a_call_from_elsewhere_is_refused_and_has_no_effect;
    deadlines: a_connection_over_the_limit_is_told_so;
    trouble: a_store_that_does_not_answer_leaves_the_outcome_unknown who_finds_the_queue_full_is_told_at_once
        a_store_that_has_failed_takes_no_writes_and_goes_on_reading rows_that_cannot_be_read_are_unavailable
        a_service_that_drains_is_not_ready_and_still_answers;
    entrances: a_room_is_created_shown_and_replaced a_room_counts_those_in_line_and_in_slots
        the_state_of_a_room_follows_its_settings a_closed_room_voids_its_tickets_and_opens_again_with_its_numbers
        settings_of_a_room_are_taken_at_their_limits_and_refused_beyond texts_times_and_targets_of_a_room_are_checked
        a_room_has_a_rate_or_a_number_of_slots_and_no_unknown_field settings_change_while_people_wait;
    joins: numbers_are_drawn_in_the_order_of_arrival a_user_has_one_living_place
        a_repeated_join_leads_to_the_same_place_while_its_ticket_lives a_join_key_with_another_user_is_refused
        a_key_that_a_stranger_could_guess_is_refused_on_public_joins only_a_back_end_joins_for_a_user
        a_crowd_that_comes_together_gets_each_number_once a_full_line_says_when_to_come_back_and_draws_no_number;
    limits: an_address_that_joins_too_often_is_told_when_to_come_again
        a_flood_from_one_address_draws_no_more_than_its_limit neither_keys_nor_users_nor_polls_are_limited
        an_address_that_a_client_invents_counts_only_from_a_trusted_proxy
        a_connection_counts_with_the_address_that_it_comes_from a_wall_clock_that_stands_still_limits_no_visitor_longer
        a_network_that_joins_too_often_is_refused_and_its_neighbours_are_not
        a_room_and_the_service_take_no_more_anonymous_joins_than_their_limits
        a_network_may_join_ten_times_as_often_as_an_address_unless_an_operator_says_otherwise;
    tickets: no_altered_ticket_is_one a_ticket_is_good_in_its_room_and_its_service_only
        who_leaves_frees_the_place_and_stays_gone a_poll_is_answered_alike_with_and_without_the_router;
    admissions: the_first_poll_after_the_admission_brings_the_pass_and_later_ones_the_same
        an_admission_that_no_visitor_takes_lapses_at_the_end_of_its_window a_lapsed_admission_frees_its_slot_for_the_next
        a_slot_ends_at_its_end a_slot_without_contact_ends_after_its_idle_time
        who_is_silent_is_passed_over_and_next_on_coming_back who_is_silent_for_the_whole_time_loses_the_place
        a_rate_is_never_exceeded_and_is_kept slots_never_exceed_their_number_and_positions_never_rise;
    renewals: a_ticket_is_renewed_once_and_the_old_one_is_void a_renewal_needs_a_key_that_is_repeated
        a_link_works_once_and_moves_the_place a_look_at_a_link_spends_nothing_and_keeps_its_offer_in_each_language
        a_link_is_not_spent_by_another_site_or_without_cookies
        a_link_into_a_closed_room_offers_no_place a_link_to_a_coupon_that_is_gone_offers_no_place;
    handoffs: a_code_is_redeemed_once_and_moves_the_place
        a_code_is_refused_to_strangers_after_a_minute_and_elsewhere
        the_page_leads_to_another_host_with_a_code_that_leaves_no_trace the_page_makes_no_code_for_its_own_host;
    gate: a_visitor_without_a_valid_pass_is_turned_away_by_the_status_alone the_visitors_own_authorization_is_for_the_shop
        the_gate_is_shut_when_the_slot_is_given_back;
    draw: a_draw_is_committed_to_before_and_revealed_at_the_opening
        the_order_of_a_room_changes_only_while_it_has_no_tickets a_draw_without_entrants_keeps_its_seed
        any_browser_checks_the_draw;
    receipts: a_receipt_is_there_with_the_next_head_and_anyone_can_check_it
        the_receipt_of_a_claim_is_for_back_ends_and_its_heads_for_all a_receipt_that_was_changed_and_a_second_chain_are_told
        a_visitor_saves_the_receipt_of_the_place_and_a_page_checks_it
        heads_that_a_purge_removed_are_told_from_heads_that_never_were
        a_claim_whose_heads_a_purge_removed_has_no_receipt_any_more;
    page: a_visitor_waits_is_admitted_and_goes_where_the_visit_began a_look_draws_no_number
        a_place_survives_a_reload_and_moves_to_another_browser a_link_takes_no_better_place_away
        behind_tls_cookies_and_links_are_for_tls_alone
        the_page_says_what_has_become_of_the_room a_visitor_without_cookies_is_told_so_and_joins_no_more
        a_page_is_read_in_the_language_of_its_visitor a_page_leads_to_no_other_site
        the_first_view_is_small_and_runs_nothing_inline pages_that_update_themselves_do_so_when_asked
        joins_by_the_page_are_limited_by_address a_join_by_another_site_draws_no_number;
    appearance: an_appearance_is_put_shown_and_taken_back an_appearance_that_visitors_could_not_use_is_refused
        the_page_has_the_texts_the_colors_and_the_logo_of_its_room;
    coupon_page: a_drop_needs_no_front_end those_in_line_are_told_when_nothing_is_left
        a_coupon_without_a_room_has_a_page_only_if_an_operator_says_so a_coupon_that_opens_later_counts_down;
    dashboard: a_second_operator_confirms_what_is_dangerous changes_through_the_api_stand_in_the_same_record
        each_page_needs_a_session_and_loads_nothing_from_elsewhere
        lists_have_pages
        only_keys_of_operators_log_in_and_attempts_are_bounded
        a_session_is_good_at_each_node_and_ends_with_its_key
        a_key_to_view_changes_nothing_anywhere
        an_operator_changes_a_room_after_a_confirmation
        a_form_counts_in_its_session_and_for_its_action_alone
        an_operator_ends_and_opens_a_coupon
        a_look_finds_places_claims_and_bids_and_changes_nothing
        the_search_leads_to_the_proof_of_what_it_finds
        a_session_that_has_logged_out_is_refused_and_others_are_not
        claims_are_exported_whole_and_without_codes
        the_feed_has_what_happened_each_second
        in_development_mode_the_dashboard_is_open_to_this_machine_alone
        a_service_of_listings_alone_shows_no_rooms;
    site_gate: only_a_visitor_with_a_pass_reaches_the_site a_visitor_joins_at_the_gate_and_comes_back_to_the_wanted_page
        paths_that_need_no_pass_reach_the_site bodies_stream_both_ways a_connection_changes_its_protocol
        a_site_that_is_away_is_told_apart_from_one_that_is_silent what_is_under_way_ends_before_the_gate_stops
        the_gate_limits_those_whom_it_does_not_let_in an_address_holds_no_more_connections_than_it_may
        a_visitor_who_takes_nothing_of_an_answer_loses_the_connection
        an_upload_that_the_gate_refuses_is_told_whether_the_connection_goes_on
        a_site_that_fails_at_the_gate_gets_fewer_visitors;
    streams: a_stream_tells_a_place_near_the_front_until_the_turn a_stream_is_for_a_ticket_in_line_near_the_front
        streams_are_counted_and_those_that_are_too_many_poll one_ticket_has_few_streams
        one_task_feeds_all_streams_of_a_room_and_wakes_none_without_news
        an_open_stream_keeps_its_visitor_present_and_a_closed_one_does_not a_stop_ends_streams_at_once
        operators_hear_the_figures_of_rooms_every_second a_page_hears_of_its_place_in_its_language
        a_client_that_takes_nothing_is_cut_off a_stream_ends_when_the_place_moves;
    steering: a_site_in_trouble_gets_fewer_visitors_and_more_again reports_are_checked each_reason_is_shown_when_it_decides;
    passes: a_valid_pass_tells_whose_it_is_and_until_when no_altered_pass_is_one
        a_pass_of_another_room_or_another_service_is_none_here a_pass_counts_only_for_the_slot_that_it_was_made_for
        a_pass_ends_with_its_slot_however_that_ends a_released_slot_goes_to_the_next_and_not_back
        bodies_about_passes_are_checked a_service_that_reads_passes_by_itself_learns_which_are_void a_slot_is_checked_and_given_back_by_its_numbers before_the_first_room_there_is_no_pass;
    work: a_join_without_work_is_told_a_challenge_and_its_solution_draws_a_number
        one_challenge_is_one_place_however_often_it_is_shown
        work_that_was_not_done_for_this_room_draws_no_number work_counts_at_each_node_with_the_same_key
        who_waits_needs_no_work_and_few_of_a_network_may
        a_browser_without_scripts_waits_and_joins_by_the_button a_page_with_work_loads_one_more_script;
    abuse: a_ticket_that_is_resold_is_one_place_and_one_slot a_seller_who_leaves_takes_the_place_from_the_buyer
        a_pass_on_two_devices_is_one_slot_that_ends_for_both
        a_sold_ticket_of_a_user_names_that_user_wherever_it_is_shown a_ticket_is_no_pass_and_a_pass_is_no_ticket;
    first_poll: tickets_that_never_poll_free_the_line_within_minutes a_stream_counts_as_a_poll
        a_restart_gives_the_time_for_the_first_poll_afresh the_time_for_the_first_poll_is_switched_by_a_patch;
    pass_claims: a_pass_of_a_user_claims_for_that_user_alone a_pass_without_a_user_claims_once_as_its_number
        a_pass_that_is_sent_is_judged_a_visitor_that_sends_it a_repeated_claim_by_a_pass_is_answered_again
        a_coupon_takes_no_pass_of_another_room;
    keys: anybody_verifies_a_pass_with_the_keys_that_are_shown
        passes_stay_valid_when_the_key_changes_and_new_ones_name_the_new_key a_pass_of_a_forgotten_key_is_refused
        passes_of_a_revoked_key_are_void_and_visitors_get_new_ones
        a_pass_is_bound_to_the_key_that_it_names;
    clocks: a_wall_clock_set_forward_ends_nothing a_wall_clock_set_back_prolongs_nothing
        a_step_of_the_wall_clock_gives_no_admissions_away an_opening_is_judged_by_the_wall_clock;
    restarts: tickets_slots_and_passes_survive_a_restart rotated_keys_and_what_they_signed_survive_a_restart
        an_admission_that_was_not_taken_is_there_after_a_restart;
    room_trouble: a_failed_store_lets_no_visitor_in_and_goes_on_telling_the_line
        a_pass_is_shown_to_no_visitor_before_its_slot_is_durable
        a_visitor_that_goes_away_while_joining_has_joined_or_not_and_never_twice
        a_join_that_is_not_durable_is_told_to_no_visitor a_first_room_whose_answer_came_too_late_has_its_passes
        a_change_of_keys_whose_answer_came_too_late_is_seen the_words_of_a_fault_stay_out_of_answers_about_rooms;
    holds: a_free_lock_is_had_at_once_and_shown_as_held a_held_lock_is_refused_with_what_is_known_of_it
        a_lock_is_handed_over_by_its_release_and_fences_grow a_renewal_sets_the_end_anew
        the_end_of_a_lease_hands_over_to_the_next a_lock_is_given_back_once
        a_handle_outlives_the_process_that_made_it a_process_that_gives_up_waiting_leaves_nothing_behind;
    handles: no_altered_handle_is_one what_cannot_be_a_handle_is_a_mistake_of_its_sender
        a_handle_is_good_for_its_lock_and_its_service_only handles_stand_nowhere_but_in_answers_to_their_holders;
    lock_bodies: waits_and_leases_are_taken_at_their_limits_and_refused_beyond
        fields_of_locks_are_all_there_and_no_others locks_are_for_service_keys;
    waits: fifty_connections_are_served_in_the_order_of_arrival who_hangs_up_gives_the_place_up_at_once
        who_hangs_up_behind_a_further_request_gives_the_place_up_too
        who_hangs_up_at_the_moment_of_the_grant_has_nothing a_wait_is_not_cut_by_the_deadline_of_answers
        no_more_wait_than_may a_waiter_is_sent_away_when_the_service_stops;
    lock_keys: a_repeated_acquire_leads_to_the_same_hold an_acquire_key_belongs_to_its_credential_and_its_lock
        a_key_is_free_again_when_its_hold_is_over a_refused_acquire_is_judged_afresh a_repeat_joins_the_wait
        a_wait_ends_with_the_last_who_joined_it one_of_two_connections_is_enough_to_be_told
        the_store_has_the_last_word_on_a_repeat a_repeat_shows_no_later_end_than_the_store
        no_more_keys_are_remembered_than_may_be;
    lock_sharing: permits_are_counted_and_each_hold_is_renewed_and_released_by_its_handle
        a_repeat_of_a_shared_acquire_is_the_same_hold permits_are_taken_at_their_limits_and_refused_beyond;
    lock_figures: figures_count_what_happened_to_locks;
    lock_trouble: a_store_of_locks_that_refuses_is_unavailable
        a_store_of_locks_that_does_not_answer_leaves_the_outcome_unknown a_repeat_that_cannot_be_checked_is_told_so
        a_key_outlasts_a_renewal_that_no_process_knows_of a_wait_outlasts_a_store_that_fails_for_a_while what_no_process_was_told_of_is_given_back_again_and_again;
    panics: a_panic_of_a_handler_is_a_500_with_the_id_of_the_request_and_the_process_goes_on;
    points: points_are_charged_refunded_and_shown anybody_can_compute_the_hashes_of_records_again
        records_come_in_pages a_balance_has_a_largest;
    listings: a_listing_is_created_shown_and_replaced while_it_runs_only_the_end_may_change_to_a_later_one
        an_auction_does_not_end_before_it_starts every_call_about_a_listing_that_does_not_exist_says_so
        time_decides_the_state_of_a_listing an_auction_is_closed_without_a_caller
        who_has_bought_and_who_has_bid_is_shown_to_service_keys;
    bids: a_bid_holds_its_points_and_frees_those_of_the_bid_before bids_are_refused_in_a_fixed_order
        points_that_back_a_bid_back_no_other_one both_ends_of_the_period_count
        an_accepted_late_bid_puts_the_end_off_and_a_refused_one_does_not bids_come_in_pages
        a_crowd_that_bids_at_once_leaves_one_highest_bid_and_all_points;
    purchases: the_winner_pays_the_owner_what_was_held who_does_not_settle_in_time_has_the_points_again
        an_auction_without_bids_has_no_winner a_fixed_price_goes_to_the_member_that_comes_first of_a_crowd_one_buys;
    auction_keys: a_repeated_charge_is_answered_again_as_it_was a_refused_refund_is_judged_afresh
        a_key_of_points_is_remembered_for_thirty_days a_repeated_bid_is_answered_again_as_it_was
        a_repeated_purchase_is_answered_again_as_it_was a_key_of_auctions_that_is_none_is_refused_and_has_no_effect;
    auction_bodies: amounts_are_whole_numbers_within_their_limits settings_of_a_listing_fit_its_kind
        times_of_a_listing_are_taken_at_their_limits_and_refused_beyond
        fields_of_auctions_are_all_there_and_no_others;
    auction_figures: figures_count_what_happened_in_auctions;
    auction_restarts: what_auctions_told_survives_a_restart
        what_became_due_while_no_member_ran_is_done_after_the_start;
    auction_trouble: a_failed_store_sells_nothing_and_goes_on_showing no_member_is_told_of_a_bid_that_is_not_durable
        an_auction_store_that_does_not_answer_leaves_the_outcome_unknown
        a_store_that_all_nodes_share_takes_no_node_away_while_it_gives_no_answer
        an_erasure_goes_on_when_its_caller_has_left what_was_put_is_not_denied_when_it_cannot_be_shown
        many_who_ask_whether_it_is_ready_are_one_question_to_the_store
        a_service_of_members_and_listings_alone_serves_no_other_rows;
}

#[tokio::test]
async fn every_code_is_produced_over_http() {
    Box::pin(walk()).await;
    let seen = seen();
    // A claim waits for the database only at a node, for a moment. A unit test of `error` has the answer. Claims are purged from a
    // cluster: a test of the program has the answers.
    let elsewhere = |code: &&Code| matches!(**code, Code::NotStoredYet | Code::Purged);
    let missing = Code::ALL.iter().filter(|code| !seen.contains(code) && !elsewhere(code));
    let missing: Vec<&str> = missing.map(|code| code.as_str()).collect();
    assert!(missing.is_empty(), "no scenario was answered {missing:?}");
}
