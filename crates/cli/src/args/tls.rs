//! TLS for clients: what is asked for on the command line and in the file, and what it comes to for each
//! export.

use crate::failure::{Failure, Outcome};
use clap::{Args, ValueEnum};
use restripe_io::front::Report;
use restripe_io::front::nbd::Guard;
use restripe_io::tls::names::NameRule;
use restripe_io::tls::{CertificateError, ServerSide};
use serde::Deserialize;
use std::path::PathBuf;

/// Whether clients use TLS.
#[derive(ValueEnum, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TlsUse {
    /// Refuse clients in clear text
    Require,
    /// Offer TLS, and serve clear text as well
    On,
    /// Clear text only
    Off,
}

#[derive(Args, Clone, Debug, Default, PartialEq)]
pub(crate) struct TlsOptions {
    /// Serve through TLS, with the certificates in this folder: server-cert.pem and server-key.pem; to verify
    /// clients also ca-cert.pem and, if it exists, ca-crl.pem
    #[arg(long, value_name = "DIR")]
    pub tls_certificates: Option<PathBuf>,
    /// Refuse clients without TLS (require), serve them as well (on), or serve clear text only (off). With
    /// on, an attacker between client and server can suppress TLS [default: require with
    /// --tls-certificates, else off]
    #[arg(long, value_name = "WHEN", value_enum, hide_possible_values = true)]
    pub tls: Option<TlsUse>,
    /// Refuse clients without a certificate from an authority in ca-cert.pem
    #[arg(long)]
    pub tls_verify_peer: bool,
    /// Serve only clients with this name in their certificate: cn:NAME, dns:NAME, uri:URI or dn:SUBJECT; may
    /// be given several times. Needs --tls-verify-peer
    #[arg(long, value_name = "NAME", value_parser = rule)]
    pub tls_client: Vec<NameRule>,
}

fn rule(text: &str) -> Result<NameRule, String> {
    text.parse()
}

/// The clients of each array, in the order of the arrays; `None`: those of the daemon.
pub(crate) type Lists = Vec<Option<Vec<NameRule>>>;

impl TlsOptions {
    /// The command line's options before those of the file.
    pub fn or(self, file: TlsOptions) -> TlsOptions {
        TlsOptions {
            tls_certificates: self.tls_certificates.or(file.tls_certificates),
            tls: self.tls.or(file.tls),
            tls_verify_peer: self.tls_verify_peer || file.tls_verify_peer,
            tls_client: match self.tls_client.is_empty() {
                true => file.tls_client,
                false => self.tls_client,
            },
        }
    }

    fn in_use(&self) -> TlsUse {
        self.tls.unwrap_or(match self.tls_certificates {
            Some(_) => TlsUse::Require,
            None => TlsUse::Off,
        })
    }

    /// Reads the certificates. `None`: clear text. Whatever would not hold is an error.
    pub fn prepare(&self, lists: Lists) -> Outcome<Option<Prepared>> {
        let listed = !self.tls_client.is_empty() || lists.iter().any(Option::is_some);
        let in_use = self.in_use();
        let refused = |what: &str, hint: &str| Err(Failure::usage(what).hint(hint));
        if listed && in_use != TlsUse::Require {
            return refused(
                "a list of clients holds only where TLS is required",
                "pass --tls-certificates DIR, with --tls require or without --tls",
            );
        }
        if listed && !self.tls_verify_peer {
            return refused(
                "a list of clients holds only if clients are verified",
                "pass --tls-verify-peer as well",
            );
        }
        if in_use == TlsUse::Off {
            return match self.tls_verify_peer {
                true => refused(
                    "--tls-verify-peer has no effect without TLS",
                    "pass --tls-certificates DIR as well",
                ),
                false => Ok(None),
            };
        }
        if self.tls_verify_peer && in_use == TlsUse::On {
            return refused(
                "with --tls on, clients in clear text are not verified",
                "use --tls require with --tls-verify-peer",
            );
        }
        let Some(folder) = &self.tls_certificates else {
            return refused(
                "--tls needs certificates",
                "pass --tls-certificates DIR as well",
            );
        };
        let tls = ServerSide::read(folder, self.tls_verify_peer).map_err(unusable)?;
        Ok(Some(Prepared {
            tls,
            folder: folder.clone(),
            required: in_use == TlsUse::Require,
            verifies: self.tls_verify_peer,
            everywhere: self.tls_client.clone(),
            lists,
        }))
    }
}

fn unusable(error: CertificateError) -> Failure {
    Failure::new(format!("TLS cannot be served: {}", error.why)).at(error.at.display())
}

/// TLS with certificates that were read, before the arrays have their names.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub tls: ServerSide,
    pub folder: PathBuf,
    pub required: bool,
    pub verifies: bool,
    everywhere: Vec<NameRule>,
    lists: Lists,
}

impl Prepared {
    /// For arrays of these names. An array's own list counts in place of that of the daemon.
    pub fn guard(self, names: &[&str], report: Report) -> Guard {
        let mut lists = self.lists.into_iter();
        let mut clients = Vec::new();
        for name in names {
            let own = lists.next().flatten();
            let rules = own.unwrap_or_else(|| self.everywhere.clone());
            if !rules.is_empty() {
                clients.push(((*name).to_owned(), rules));
            }
        }
        Guard {
            tls: self.tls,
            required: self.required,
            clients,
            report,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(
        when: Option<TlsUse>,
        certificates: bool,
        verify: bool,
        clients: &[&str],
    ) -> TlsOptions {
        TlsOptions {
            tls_certificates: certificates.then(|| PathBuf::from("/nowhere")),
            tls: when,
            tls_verify_peer: verify,
            tls_client: clients
                .iter()
                .map(|text| text.parse().expect("a rule"))
                .collect(),
        }
    }

    /// Certificates are read last, so that what could not hold is refused whatever is in the folder.
    #[test]
    fn promises_that_could_not_hold_are_refused() {
        let no_list = || vec![None, None];
        let list = || vec![None, Some(vec!["cn:a".parse().expect("a rule")])];
        let said = |options: TlsOptions, lists: Lists| {
            options
                .prepare(lists)
                .expect_err("no certificates are there")
                .to_string()
        };
        let on = Some(TlsUse::On);
        let (off, require) = (Some(TlsUse::Off), Some(TlsUse::Require));
        for (when, certificates, verify) in
            [(None, false, true), (on, true, true), (off, true, true)]
        {
            let why = "holds only where TLS is required";
            assert!(said(options(when, certificates, verify, &["cn:a"]), no_list()).contains(why));
            assert!(said(options(when, certificates, verify, &[]), list()).contains(why));
        }
        let why = "only if clients are verified";
        assert!(said(options(require, true, false, &["cn:a"]), no_list()).contains(why));
        assert!(said(options(None, true, false, &[]), list()).contains(why));
        assert!(said(options(None, false, true, &[]), no_list()).contains("no effect"));
        assert!(said(options(on, true, true, &[]), no_list()).contains("clear text"));
        assert!(said(options(require, false, false, &[]), no_list()).contains("certificates"));
        assert!(
            said(options(None, true, true, &["cn:a"]), list()).contains("TLS cannot be served")
        );
        let none = options(None, false, false, &[]).prepare(no_list());
        assert!(none.expect("clear text").is_none());
    }
}
