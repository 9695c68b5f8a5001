//! Names in a peer's certificate, and rules that admit some of them.

use std::fmt;
use std::str::FromStr;

/// The names by which a verified certificate calls its owner.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct PeerNames {
    /// The subject as a string of RFC 4514, as `openssl x509 -subject -nameopt RFC2253` prints it: the last
    /// part of the name first.
    pub distinguished: String,
    /// Common names of the subject. One is usual.
    pub common: Vec<String>,
    /// DNS names among the subject's alternative names (RFC 5280, section 4.2.1.6).
    pub dns: Vec<String>,
    /// URIs among them.
    pub uris: Vec<String>,
}

impl fmt::Display for PeerNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.distinguished)
    }
}

/// A client that an export is for, by one of its certificate's names. The whole name is compared; there are
/// no patterns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NameRule {
    /// `cn:NAME`: the subject's only common name.
    Common(String),
    /// `dn:NAME`: the whole subject, as [`PeerNames::distinguished`] has it.
    Distinguished(String),
    /// `dns:NAME`: a DNS name of the certificate, upper and lower case alike.
    Dns(String),
    /// `uri:NAME`: a URI of the certificate.
    Uri(String),
}

impl NameRule {
    pub(crate) fn admits(&self, peer: &PeerNames) -> bool {
        match self {
            NameRule::Common(name) => matches!(&peer.common[..], [only] if only == name),
            NameRule::Distinguished(name) => &peer.distinguished == name,
            NameRule::Dns(name) => peer.dns.iter().any(|dns| dns.eq_ignore_ascii_case(name)),
            NameRule::Uri(name) => peer.uris.contains(name),
        }
    }
}

impl FromStr for NameRule {
    type Err = String;

    fn from_str(text: &str) -> Result<NameRule, String> {
        let parsed = text.split_once(':').and_then(|(kind, name)| {
            let name = Some(name.to_owned()).filter(|name| !name.is_empty())?;
            match kind {
                "cn" => Some(NameRule::Common(name)),
                "dn" => Some(NameRule::Distinguished(name)),
                "dns" => Some(NameRule::Dns(name)),
                "uri" => Some(NameRule::Uri(name)),
                _ => None,
            }
        });
        let rule = parsed.ok_or_else(|| {
            format!("{text:?} is no name of a client: use cn:NAME, dns:NAME, uri:URI or dn:SUBJECT")
        })?;
        match &rule {
            NameRule::Distinguished(name) if !may_be_printed(name) => Err(format!(
                "{text:?} is no subject as certificates have it: take what `openssl x509 -noout -subject \
                 -nameopt RFC2253` prints behind `subject=`"
            )),
            _ => Ok(rule),
        }
    }
}

/// Whether a subject may be printed like this: `TYPE=VALUE` between commas, without blanks around them, in
/// printable ASCII. Anything else would never be equal to one.
fn may_be_printed(name: &str) -> bool {
    let mut escapes = false;
    let parts = name.split(|one| {
        let ends = one == ',' && !escapes;
        escapes = one == '\\' && !escapes;
        ends
    });
    let mut parts = parts.map(|part| part.split_once('='));
    let plain = name.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    plain
        && !name.starts_with("subject=")
        && parts.all(|part| {
            part.is_some_and(|(kind, _)| !kind.is_empty() && !kind.contains([' ', '/']))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> NameRule {
        text.parse().expect("a rule")
    }

    #[test]
    fn each_kind_of_name_admits_itself_alone() {
        let peer = PeerNames {
            distinguished: "CN=alice,O=Example".to_owned(),
            common: vec!["alice".to_owned()],
            dns: vec!["a.example".to_owned(), "b.example".to_owned()],
            uris: vec!["urn:x:alice".to_owned()],
        };
        for admitted in [
            "cn:alice",
            "dn:CN=alice,O=Example",
            "dns:A.example",
            "dns:b.example",
            "uri:urn:x:alice",
        ] {
            assert!(rule(admitted).admits(&peer), "{admitted}");
        }
        for refused in [
            "cn:a.example",
            "cn:ALICE",
            "cn:alic",
            "dn:CN=alice",
            "dns:alice",
            "dns:example",
            "dns:*.example",
            "uri:urn:x:ALICE",
        ] {
            assert!(!rule(refused).admits(&peer), "{refused}");
            assert!(!rule(refused).admits(&PeerNames::default()), "{refused}");
        }
    }

    #[test]
    fn a_subject_that_no_certificate_has_is_refused() {
        for good in [
            "CN=a",
            "CN=a+OU=b,O=x\\, y\\\\,C=NL",
            "CN=M\\C3\\BCller,1.2.3=#1300",
        ] {
            assert!(format!("dn:{good}").parse::<NameRule>().is_ok(), "{good}");
        }
        for bad in [
            "a",
            "CN=a, O=b",
            "CN=a,O",
            "C = NL",
            "CN=Müller",
            "subject=CN=a",
            "/CN=a/O=b",
        ] {
            let parsed = format!("dn:{bad}").parse::<NameRule>();
            assert!(parsed.is_err_and(|why| why.contains("RFC2253")), "{bad}");
        }
    }

    #[test]
    fn a_second_common_name_is_nobodys() {
        let peer = PeerNames {
            common: vec!["alice".to_owned(), "bob".to_owned()],
            ..PeerNames::default()
        };
        assert!(!rule("cn:alice").admits(&peer) && !rule("cn:bob").admits(&peer));
    }

    #[test]
    fn a_rule_says_which_kind_of_name_it_means() {
        for text in ["alice", "", "cn:", "CN:alice", "ip:::1", ":x"] {
            let parsed = text.parse::<NameRule>();
            assert!(
                parsed.is_err_and(|why| why.contains("dns:NAME")),
                "{text:?}"
            );
        }
    }
}
