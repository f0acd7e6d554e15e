//! Memory and processor time of the process, from Linux.

use std::fs;

/// Memory and processor time of this process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Process {
    pub(crate) resident_bytes: u64,
    pub(crate) cpu_seconds: f64,
}

/// Linux reports processor time in this unit on every architecture that Walferry is built for, whatever the kernel's own tick is.
const TICKS_PER_SECOND: f64 = 100.0;

impl Process {
    /// The figures of this process. `None` without `/proc`.
    pub(crate) fn own() -> Option<Self> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        Some(Self {
            resident_bytes: resident_bytes(&status)?,
            cpu_seconds: cpu_seconds(&stat)?,
        })
    }
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    // The name in parentheses may itself contain spaces and parentheses. `utime` and `stime` are fields 14 and 15 of proc(5).
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) as f64 / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_read_whatever_the_name_of_the_process() {
        let stat = "4711 (a) b (c) S 1 4711 4711 0 -1 4194304 900 0 3 0 250 50 0 0 20 0 7 0 88 1000 500 1844";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("4711 (a"), None);
        assert_eq!(
            resident_bytes("Name:\twalferry\nVmRSS:\t   20480 kB\nThreads:\t7\n"),
            Some(20_971_520)
        );
        assert_eq!(resident_bytes("Name:\twalferry\n"), None);
        assert!(Process::own().is_some_and(|process| process.resident_bytes > 0));
    }
}
