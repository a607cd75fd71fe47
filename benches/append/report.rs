//! What was measured, as a table and as JSON.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use leat::store::Counts;
use serde_json::json;

use crate::RECORD_BYTES;

/// What an append of one small record may cost, in raw conditional PUTs.
const RATIO_AIM: f64 = 1.3;

/// Everything measured on one store.
pub(crate) struct Report {
    pub(crate) store: &'static str,
    pub(crate) raw: Latencies,
    pub(crate) append: Latencies,
    pub(crate) loads: Vec<Load>,
    /// The same of a raw PUT of about a manifest's size: what of an append is bytes.
    pub(crate) raw_large: Latencies,
    /// By name of what was read.
    pub(crate) reads: Vec<(&'static str, Flow)>,
    pub(crate) memory: Memory,
}

/// How long calls took.
#[derive(Default)]
pub(crate) struct Latencies(pub(crate) Vec<Duration>);

impl Latencies {
    /// The `percent`-th percentile, in milliseconds.
    fn ms(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
        sorted.get(at).map_or(f64::NAN, |took| took.as_secs_f64() * 1e3)
    }

    fn json(&self) -> serde_json::Value {
        json!({ "calls": self.0.len(), "p50_ms": self.ms(50), "p99_ms": self.ms(99), "max_ms": self.ms(100) })
    }
}

/// Records that went through, and what that took.
pub(crate) struct Flow {
    pub(crate) records: usize,
    pub(crate) took: Duration,
    /// Of all threads.
    pub(crate) cpu: Duration,
}

impl Flow {
    fn records_per_s(&self) -> f64 {
        self.records as f64 / self.took.as_secs_f64()
    }

    fn mib_per_s(&self) -> f64 {
        self.records_per_s() * RECORD_BYTES as f64 / 1_048_576.0
    }

    fn cpu_us_per_record(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.records as f64
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "records": self.records, "records_per_s": self.records_per_s(), "mib_per_s": self.mib_per_s(),
            "cpu_us_per_record": self.cpu_us_per_record(),
        })
    }
}

/// Clients that append to one stream.
pub(crate) struct Load {
    pub(crate) clients: usize,
    pub(crate) batch_records: usize,
    pub(crate) flow: Flow,
    pub(crate) latencies: Latencies,
    pub(crate) requests: Counts,
}

impl Load {
    fn requests_per_append(&self) -> f64 {
        self.requests.total() as f64 / self.latencies.0.len() as f64
    }

    fn batches_per_commit(&self) -> f64 {
        self.latencies.0.len() as f64 / self.requests.replace as f64
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "clients": self.clients, "batch_records": self.batch_records, "flow": self.flow.json(),
            "latency": self.latencies.json(), "requests_per_append": self.requests_per_append(),
            "batches_per_commit": self.batches_per_commit(),
        })
    }
}

/// Resident memory of this process in MiB; 0 where there is no `/proc`.
pub(crate) struct Memory {
    pub(crate) now: f64,
    pub(crate) peak: f64,
}

impl Memory {
    pub(crate) fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mib = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
            line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or_default() / 1_024.0
        };
        Self { now: mib("VmRSS:"), peak: mib("VmHWM:") }
    }
}

/// Processor time of this process so far; 0 where there is no `/proc`.
pub(crate) fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // User and system time are fields 14 and 15, in hundredths of a second; the name before may hold anything.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
    Duration::from_millis(10 * ticks.sum::<u64>())
}

impl Report {
    fn ratio(&self) -> f64 {
        self.append.ms(50) / self.raw.ms(50)
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        json!({
            "store": self.store,
            "raw_put": self.raw.json(),
            "append": self.append.json(),
            "raw_put_of_manifest_size": self.raw_large.json(),
            "append_to_raw_p50": self.ratio(),
            "loads": self.loads.iter().map(Load::json).collect::<Vec<_>>(),
            "catch_up_reads": self.reads.iter().map(|(name, flow)| (*name, flow.json())).collect::<HashMap<_, _>>(),
            "resident_mib": self.memory.now,
            "resident_peak_mib": self.memory.peak,
        })
    }

    pub(crate) fn table(&self) -> String {
        let mut out = format!("{}\n", self.store);
        let mut line =
            |text: std::fmt::Arguments<'_>| writeln!(out, "  {text}").expect("text takes anything");
        let pair = |name, l: &Latencies| {
            format!(
                "{name:<22}p50 {:>7.2} ms   p99 {:>7.2} ms   max {:>7.1} ms   {} calls",
                l.ms(50),
                l.ms(99),
                l.ms(100),
                l.0.len()
            )
        };
        line(format_args!("{}", pair("raw PUT, 1 KiB", &self.raw)));
        line(format_args!("{}", pair("raw PUT, 14 KiB", &self.raw_large)));
        line(format_args!("{}", pair("append, 1 KiB", &self.append)));
        line(format_args!(
            "{:<22}{:.2} at the median; the aim is {RATIO_AIM}",
            "append to raw PUT",
            self.ratio()
        ));
        line(format_args!(
            "{:<22}{:>9} {:>7} {:>8} {:>8} {:>13} {:>15} {:>10}",
            "append, clients",
            "records/s",
            "MiB/s",
            "p50 ms",
            "p99 ms",
            "batch/commit",
            "request/append",
            "µs CPU"
        ));
        for load in &self.loads {
            let name = format!("{:>5} of {} KiB", load.clients, load.batch_records);
            line(format_args!(
                "{name:<22}{:>9.0} {:>7.1} {:>8.2} {:>8.2} {:>13.1} {:>15.2} {:>10.1}",
                load.flow.records_per_s(),
                load.flow.mib_per_s(),
                load.latencies.ms(50),
                load.latencies.ms(99),
                load.batches_per_commit(),
                load.requests_per_append(),
                load.flow.cpu_us_per_record()
            ));
        }
        for (name, flow) in &self.reads {
            line(format_args!(
                "{name:<22}{:>9.0} {:>7.1} {:>57.1}",
                flow.records_per_s(),
                flow.mib_per_s(),
                flow.cpu_us_per_record()
            ));
        }
        let Memory { now, peak } = self.memory;
        line(format_args!("{:<22}{now:.0} MiB, at most {peak:.0} MiB", "resident memory"));
        out
    }
}
