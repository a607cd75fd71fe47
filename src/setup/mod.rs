//! `leat setup`: makes a bucket fit for Leat, or says what is in the way.
//!
//! `plan.rs` decides, `bucket.rs` asks AWS, `report.rs` tells. The probe is not done here: every role opens its store
//! alike.

mod bucket;
mod plan;
mod report;

use std::error::Error;
use std::io::{self, Write};

use self::bucket::Bucket;
use self::plan::Place;
use self::report::{Outcome, Report};
use crate::config::SetupConfig;
use crate::storage::opening::Opened;
use crate::store::{StoreUrl, sdk_config};
use crate::types::error::describe;

/// One run of the command.
#[derive(Debug)]
pub struct Setup {
    /// Where the store is, for people.
    url: String,
    /// The bucket, if it is in one.
    place: Option<Place>,
    dry_run: bool,
    report: Report,
}

impl Setup {
    /// Reports to `out`.
    pub async fn new(url: &StoreUrl, config: SetupConfig, out: Box<dyn Write + Send>) -> Self {
        let place = match url.bucket() {
            Some((bucket, root)) => {
                let region = sdk_config().await.region().map(ToString::to_string).unwrap_or_default();
                Some(Place { bucket: bucket.to_owned(), root, region })
            }
            None => None,
        };
        let report = Report::new(out, config.format);
        Self { url: url.to_string(), place, dry_run: config.dry_run, report }
    }

    /// Sets up what lies around the objects: the bucket, who may see it, what expires.
    ///
    /// # Errors
    ///
    /// Of the report only: what goes wrong with a step is reported.
    pub async fn bucket(&mut self) -> io::Result<()> {
        let Some(place) = self.place.clone() else {
            let what = "none; no public access to block, no lifecycle rules to install";
            return self.report.step("bucket", Outcome::Skipped, what);
        };
        if place.is_directory() {
            let what = format!(
                "`{}` is a directory bucket, which this command does not set up: create it in the zone of its name, \
                 let objects below {}inbox/ expire after a day, then start leat",
                place.bucket, place.root,
            );
            return self.report.step("bucket", Outcome::Failed, &what);
        }
        Bucket::new(place, self.dry_run).await.set_up(&mut self.report).await
    }

    /// Whether the probe is next; says so if it is not.
    pub fn wants_probe(&mut self) -> io::Result<bool> {
        if !self.report.is_good() {
            self.report.step("probe", Outcome::Skipped, "put right first what failed above")?;
        } else if self.dry_run {
            let what = format!("write, read and remove an object in {}, and record the result", self.url);
            self.report.step("probe", Outcome::WouldDo, &what)?;
        } else {
            return Ok(true);
        }
        Ok(false)
    }

    /// Tells what came of the probe.
    pub fn probed(&mut self, opened: Result<Opened, Box<dyn Error + Send + Sync>>) -> io::Result<()> {
        let (outcome, what) = match opened {
            Ok(Opened { is_news: true, record, .. }) => {
                (Outcome::Done, format!("passed and recorded; the store's id is {}", record.id))
            }
            Ok(Opened { record, .. }) => {
                (Outcome::Fine, format!("passed, as recorded; the store's id is {}", record.id))
            }
            Err(error) => {
                let needs =
                    self.place.as_ref().map(|place| format!("; it needs {}", place.objects_privilege()));
                (Outcome::Failed, format!("{}{}", describe(&*error), needs.unwrap_or_default()))
            }
        };
        self.report.step("probe", outcome, &what)
    }

    /// Sums up; whether all is well.
    pub fn end(self) -> io::Result<bool> {
        self.report.end()
    }
}
