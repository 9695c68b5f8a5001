//! The clock of the measurements: time on a processor, which others' work on the machine does not lengthen.

/// This thread's, so far; not a number where the kernel does not tell.
pub fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text
        .split_whitespace()
        .next()
        .and_then(|word| word.parse::<f64>().ok());
    nanos.unwrap_or(f64::NAN) / 1e9
}
