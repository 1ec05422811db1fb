//! CPU time and memory of this process, as the system counts them.

use std::time::Duration;

/// What all threads of this process have computed, ended ones included.
#[cfg(unix)]
pub(crate) fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().expect("a time"), time.tv_nsec.try_into().expect("nanoseconds"))
}

/// The time that has passed, where the system reports no CPU time.
#[cfg(not(unix))]
pub(crate) fn cpu() -> Duration {
    static BEGAN: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    BEGAN.elapsed()
}

/// A line of `/proc/self/status`, in MiB: `VmRSS` is what is resident now, `VmHWM` the most that ever was.
pub(crate) fn memory(line: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    let kib = kib.and_then(|text| text.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}
