//! The page of `examples/browser` in a browser, through the end of its windows and the death of its server.

use crate::script::{Place, Replacing};
use crate::support::server::ServerOptions;
use crate::support::tools;

/// Steps of the script: a step that is lost must not go unnoticed.
const STEPS: usize = 20;

#[test]
fn the_page_in_a_browser_follows_its_stream_through_everything() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut script = tools::node();
    script
        .current_dir(tools::browser_driver())
        .arg("page.mjs")
        .env("LEAT_PAGE", tools::browser_page())
        .env("LEAT_CHROMIUM", tools::chromium());
    Place::start(&ServerOptions::on_folder(folder.path()), Replacing::Draining).run(script, STEPS);
}
