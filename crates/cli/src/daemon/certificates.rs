//! The certificate of a daemon: read again when it is renewed, and warned of before it ends.

use crate::print::journal::{self, Level, utc};
use restripe_io::tls::ServerSide;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two warnings.
const WARN_EVERY: Duration = Duration::from_secs(24 * 3600);
/// With less time left there are warnings.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);

pub(crate) struct Certificates {
    tls: ServerSide,
    folder: PathBuf,
    looked: Option<Instant>,
    warned: Option<Instant>,
}

impl Certificates {
    pub fn new(tls: ServerSide, folder: PathBuf) -> Certificates {
        Certificates {
            tls,
            folder,
            looked: None,
            warned: None,
        }
    }

    /// Takes up files that were replaced, and logs what there is to say.
    pub fn look(&mut self) {
        let lately = |last: Option<Instant>, time| last.is_some_and(|last| last.elapsed() < time);
        if lately(self.looked, LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        let at = self.folder.display();
        match self.tls.look() {
            None => {}
            Some(Ok(())) => {
                self.warned = None;
                let line = format_args!("{at}: new certificates are used for new connections");
                journal::line(Level::Info, line);
            }
            Some(Err(error)) => {
                let line = format_args!("{error}; the certificates from before are still used");
                journal::line(Level::Error, line);
            }
        }
        let warning = warning(self.tls.valid(), SystemTime::now());
        if let Some(why) = warning.filter(|_| !lately(self.warned, WARN_EVERY)) {
            self.warned = Some(Instant::now());
            let line = format_args!("{at}: the server's certificate {why}");
            journal::line(Level::Warning, line);
        }
    }
}

/// What is wrong with a certificate that is valid within this time, or soon will be.
fn warning((from, until): (SystemTime, SystemTime), now: SystemTime) -> Option<String> {
    let date = |time: SystemTime| utc(time.duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs()));
    match until.duration_since(now) {
        _ if now < from => Some(format!(
            "is valid from {} on: clients refuse it until then",
            date(from)
        )),
        Err(_) => Some(format!("expired at {}: clients refuse it", date(until))),
        Ok(left) if left < SOON => Some(format!("expires at {}: renew it", date(until))),
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_valid_now_or_not_for_long_is_warned_of() {
        let at = |days: u64| UNIX_EPOCH + Duration::from_secs(days * 24 * 3600);
        let said = |from, until| warning((at(from), at(until)), at(1000)).unwrap_or_default();
        assert!(said(1001, 2000).contains("1972-09-28T00:00:00Z"));
        assert!(said(0, 999).contains("expired at 1972-09-26"));
        assert!(said(0, 1013).contains("expires at"));
        assert_eq!(said(1000, 1014), "");
    }
}
