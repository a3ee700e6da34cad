//! The scenarios, each a test of its own, and one test that walks through all of them and demands every code.

use crate::promises::seen;
use crate::{
    bad_bodies, bad_names, claims, deadlines, dev_gate, idempotency, in_time, redemptions, scopes, settings, trouble,
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
    claims: claims_are_issued_in_order_with_codes_of_their_own a_second_claim_of_a_user_is_told_the_first
        before_the_opening_a_claim_is_told_how_long_to_wait from_the_end_on_a_claim_is_told_that_it_is_over
        a_coupon_with_a_room_needs_a_pass_or_a_service_key attributes_stay_with_the_claim
        attributes_come_back_digit_by_digit_and_in_one_spelling
        who_has_no_claim_is_not_found pages_of_claims_are_whole_and_in_order a_page_that_does_not_exist_is_refused
        a_summary_is_public_and_claims_are_not;
    redemptions: a_code_is_used_up_once case_blanks_and_dashes_of_a_code_do_not_matter
        a_code_that_is_not_of_this_coupon_is_unknown a_code_is_redeemed_for_its_holder_only
        redeeming_ends_at_its_own_instant;
    idempotency: a_repeated_claim_is_answered_again_as_it_was a_key_with_another_body_is_refused
        a_key_belongs_to_its_credential_and_its_path a_refusal_is_judged_afresh
        a_repeated_redemption_is_answered_again_as_it_was a_code_spelt_otherwise_is_the_same_redemption
        a_key_that_is_none_is_refused_and_has_no_effect;
    bad_bodies: what_is_not_json_is_refused a_claim_that_is_not_json_to_its_end_has_no_effect
        what_is_not_an_object_is_refused
        fields_that_do_not_exist_or_come_twice_are_refused a_refused_field_is_told_in_words_for_people
        values_at_their_limits_are_taken attributes_are_an_object_of_at_most_one_kibibyte
        a_mistake_is_told_by_its_own_field_whatever_comes_beside_it a_body_has_at_most_64_kibibytes
        a_body_is_announced_as_json a_body_that_does_not_come_is_not_waited_for a_body_that_breaks_off_has_no_effect;
    bad_names: a_path_with_a_wrong_name_is_refused a_path_that_is_not_utf8_is_refused
        a_body_with_a_wrong_name_is_refused names_at_their_limits_are_taken;
    scopes: a_caller_without_the_scope_is_told_which_kind_of_no_it_is;
    dev_gate: a_call_from_elsewhere_is_refused_and_has_no_effect;
    deadlines: a_connection_over_the_limit_is_told_so;
    trouble: a_store_that_does_not_answer_leaves_the_outcome_unknown who_finds_the_queue_full_is_told_at_once
        a_store_that_has_failed_takes_no_writes_and_goes_on_reading rows_that_cannot_be_read_are_unavailable
        a_service_that_drains_is_not_ready_and_still_answers;
}

#[tokio::test]
async fn every_code_is_produced_over_http() {
    walk().await;
    let seen = seen();
    let missing: Vec<&str> = Code::ALL.iter().filter(|code| !seen.contains(code)).map(|code| code.as_str()).collect();
    assert!(missing.is_empty(), "no scenario was answered {missing:?}");
}
