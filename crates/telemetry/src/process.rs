//! The process itself, read from the kernel when somebody asks.

use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustix::param::{clock_ticks_per_second, page_size};

/// The process's own metrics: name, kind and meaning.
pub(crate) const TABLE: [(&str, &str, &str); 4] = [
    (
        "process_cpu_seconds_total",
        "counter",
        "CPU time of the process, user and system, in seconds",
    ),
    ("process_resident_memory_bytes", "gauge", "Memory of the process that is in RAM, in bytes"),
    ("process_open_fds", "gauge", "Open file descriptors of the process"),
    ("process_start_time_seconds", "gauge", "Start of the process, in Unix seconds"),
];

#[derive(Debug)]
pub(crate) struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let [cpu, memory, fds, start] = TABLE;
        // A file that cannot be read leaves its metric out.
        if let Some(stat) = Stat::read() {
            let counter = ConstCounter::new(stat.cpu_seconds);
            let name = cpu.0.trim_end_matches("_total");
            let metric = encoder.encode_descriptor(name, cpu.2, None, counter.metric_type())?;
            counter.encode(metric)?;
            if let Some(seconds) = stat.start_seconds {
                gauge(&mut encoder, start, seconds)?;
            }
            gauge(&mut encoder, memory, stat.resident_bytes)?;
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            gauge(&mut encoder, fds, open.count() as f64)?;
        }
        Ok(())
    }
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    (name, _, help): (&str, &str, &str),
    value: f64,
) -> Result<(), std::fmt::Error> {
    let gauge = ConstGauge::new(value);
    let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
    gauge.encode(metric)
}

struct Stat {
    cpu_seconds: f64,
    resident_bytes: f64,
    start_seconds: Option<f64>,
}

impl Stat {
    fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // The name in parentheses may hold anything; the third field follows it.
        let fields: Vec<f64> = stat
            .rsplit_once(')')?
            .1
            .split_ascii_whitespace()
            .skip(1)
            .map(|field| field.parse().unwrap_or(0.))
            .collect();
        let ticks = clock_ticks_per_second() as f64;
        let of = |number: usize| fields.get(number - 4).copied();
        let booted = fs::read_to_string("/proc/stat").ok();
        let booted =
            booted.as_deref().and_then(|text| text.split_once("\nbtime ")?.1.lines().next());
        let booted = booted.and_then(|seconds| seconds.parse::<f64>().ok());
        Some(Self {
            cpu_seconds: (of(14)? + of(15)?) / ticks,
            resident_bytes: of(24)? * page_size() as f64,
            start_seconds: booted.zip(of(22)).map(|(booted, start)| booted + start / ticks),
        })
    }
}
