//! What may go wrong between Leat and its bucket, over real HTTP: several server processes on one S3-compatible
//! server, with a fault proxy before it.
//!
//! The engine's own tests do the same in one process and in greater numbers (`tests/engine`). Here each case is a
//! few seconds long, and is run on MiniStack and on LocalStack. Beside them: servers that ignore conditions are
//! refused, and the function runs in MiniStack's Lambda.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::too_many_lines,
    unreachable_pub,
    reason = "a test may fail loudly, waits on the real clock, and may be one long story"
)]

#[path = "../support/mod.rs"]
mod support;
#[path = "../it/world.rs"]
#[allow(dead_code, reason = "the other binary uses the rest")]
mod world;

mod appends;
mod bucket;
mod crashes;
mod function;
mod lives;
mod refused;
mod upkeep;

/// Runs cases on a server.
macro_rules! cases {
    ($name:ident on $server:ident: $($module:ident :: $case:ident),+ $(,)?) => {
        mod $name {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    crate::$module::$case(crate::bucket::Bucket::on(crate::bucket::On::$server).await).await;
                }
            )+
        }
    };
}

cases!(ministack on MiniStack:
    appends::a_lost_answer_of_a_commit_is_found_again,
    appends::a_lost_answer_is_found_although_others_commit_meanwhile,
    appends::an_own_append_that_landed_is_no_conflict,
    appends::a_put_that_lands_late_is_never_called_failed,
    appends::parallel_appends_through_four_processes_are_dense_and_disjoint,
    appends::an_error_that_promises_no_effect_has_none,
    crashes::a_kill_between_two_writes_shows_no_gap_and_loses_nothing,
    lives::a_recreated_stream_is_new_to_a_process_that_knew_the_old_one,
    lives::a_late_put_of_a_former_life_stays_out_of_the_next,
    lives::racing_first_appends_never_miss_the_stream,
    lives::appends_beside_a_slow_deletion_land_or_are_refused_and_never_hang,
    lives::a_fork_is_copied_by_the_bucket_and_outlives_its_source,
);

cases!(localstack on LocalStack:
    appends::a_lost_answer_of_a_commit_is_found_again,
    appends::a_lost_answer_is_found_although_others_commit_meanwhile,
    appends::parallel_appends_through_four_processes_are_dense_and_disjoint,
    lives::a_recreated_stream_is_new_to_a_process_that_knew_the_old_one,
    lives::a_late_put_of_a_former_life_stays_out_of_the_next,
    lives::racing_first_appends_never_miss_the_stream,
    lives::a_fork_is_copied_by_the_bucket_and_outlives_its_source,
);
