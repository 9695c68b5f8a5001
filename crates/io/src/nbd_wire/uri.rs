//! NBD URIs: `nbd://HOST[:PORT]/EXPORT` and `nbd+unix:///EXPORT?socket=PATH`, and with TLS
//! `nbds://HOST[:PORT]/EXPORT?tls-certificates=DIR` and
//! `nbds+unix:///EXPORT?socket=PATH&tls-certificates=DIR`. The parameters are libnbd's.

use std::fmt;
use std::path::PathBuf;

/// The port that is meant when none is named.
pub const PORT_DEFAULT: u16 = 10809;

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Endpoint {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// An export of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NbdUri {
    pub endpoint: Endpoint,
    /// Empty: the server's default export.
    pub export: String,
    /// `None`: clear text.
    pub(crate) tls: Option<TlsTerms>,
}

/// How a client of TLS shows itself, and what it wants to see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TlsTerms {
    /// A folder, from the root.
    pub certificates: PathBuf,
    /// The server's certificate must be of one of the authorities, and for the server's name.
    pub verify_peer: bool,
    /// That name, if it is not the host.
    pub hostname: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UriError {
    /// Neither `nbd:` nor `nbd+unix:`, nor one of them with TLS.
    Scheme,
    /// A part that is missing or makes no sense, and what it should be.
    Malformed(&'static str),
}

impl fmt::Display for UriError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UriError::Scheme => f.write_str(
                "not an NBD URI: expected nbd://HOST/EXPORT or nbd+unix:///EXPORT?socket=PATH",
            ),
            UriError::Malformed(what) => write!(f, "malformed NBD URI: {what}"),
        }
    }
}

impl std::error::Error for UriError {}

impl NbdUri {
    /// Whether a member's name is meant as an NBD URI rather than as a path.
    pub fn looks_like(text: &str) -> bool {
        let schemes = ["nbd:", "nbds:", "nbd+unix:", "nbds+unix:"];
        schemes.iter().any(|scheme| text.starts_with(scheme))
    }

    /// Whether nothing may be sent in clear text.
    pub fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    pub fn parse(text: &str) -> Result<NbdUri, UriError> {
        let (scheme, rest) = text.split_once("://").ok_or(UriError::Scheme)?;
        match scheme {
            "nbd" => parse_tcp(rest, false),
            "nbd+unix" => parse_unix(rest, false),
            "nbds" => parse_tcp(rest, true),
            "nbds+unix" => parse_unix(rest, true),
            _ => Err(UriError::Scheme),
        }
    }
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = encode(self.export.as_bytes());
        let secure = if self.tls.is_some() { "s" } else { "" };
        let mut before = '?';
        match &self.endpoint {
            Endpoint::Tcp { host, port } => {
                let (open, close) = if host.contains(':') {
                    ("[", "]")
                } else {
                    ("", "")
                };
                write!(f, "nbd{secure}://{open}{host}{close}:{port}/{export}")?;
            }
            Endpoint::Unix(path) => {
                let path = encode(path.as_os_str().as_encoded_bytes());
                write!(f, "nbd{secure}+unix:///{export}?socket={path}")?;
                before = '&';
            }
        }
        let Some(tls) = &self.tls else {
            return Ok(());
        };
        let folder = encode(tls.certificates.as_os_str().as_encoded_bytes());
        write!(f, "{before}tls-certificates={folder}")?;
        if !tls.verify_peer {
            f.write_str("&tls-verify-peer=false")?;
        }
        match &tls.hostname {
            Some(name) => write!(f, "&tls-hostname={}", encode(name.as_bytes())),
            None => Ok(()),
        }
    }
}

fn parse_tcp(rest: &str, secure: bool) -> Result<NbdUri, UriError> {
    let (rest, query) = match rest.split_once('?') {
        Some((_, query)) if query.split('&').any(|pair| pair.starts_with("socket=")) => {
            return Err(UriError::Malformed(
                "a socket is asked for with nbd+unix: or nbds+unix:",
            ));
        }
        Some(_) if !secure => return Err(UriError::Malformed("nbd:// has no parameters")),
        Some((rest, query)) => (rest, query),
        None => (rest, ""),
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = split_authority(authority)?;
    let port = match port {
        None | Some("") => PORT_DEFAULT,
        Some(port) => port
            .parse()
            .map_err(|_| UriError::Malformed("the port is not a number below 65536"))?,
    };
    let host = if host.is_empty() { "localhost" } else { host };
    Ok(NbdUri {
        endpoint: Endpoint::Tcp {
            host: host.to_owned(),
            port,
        },
        export: decode_text(path)?,
        tls: tls_terms(query, secure)?,
    })
}

/// The parameters of TLS in a query. None is left out that is not understood: it may be what a user relies
/// on.
fn tls_terms(query: &str, secure: bool) -> Result<Option<TlsTerms>, UriError> {
    let (mut certificates, mut verify_peer, mut hostname) = (None, true, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        match key {
            _ if !key.starts_with("tls-") && (key == "socket" || !secure) => {}
            _ if !secure => return Err(UriError::Malformed("TLS is asked for with nbds:")),
            "tls-certificates" => certificates = Some(PathBuf::from(decode_text(value)?)),
            "tls-verify-peer" => verify_peer = truth(value)?,
            "tls-hostname" => hostname = Some(decode_text(value)?).filter(|name| !name.is_empty()),
            "tls-psk-file" | "tls-username" => {
                return Err(UriError::Malformed(
                    "TLS is by certificates; PSK is not supported",
                ));
            }
            _ => return Err(UriError::Malformed("an unknown parameter")),
        }
    }
    if !secure {
        return Ok(None);
    }
    let certificates = certificates.ok_or(UriError::Malformed(
        "nbds: needs ?tls-certificates=DIR, a folder with ca-cert.pem",
    ))?;
    if !certificates.is_absolute() {
        return Err(UriError::Malformed(
            "tls-certificates is a path from the root",
        ));
    }
    Ok(Some(TlsTerms {
        certificates,
        verify_peer,
        hostname,
    }))
}

fn truth(text: &str) -> Result<bool, UriError> {
    match text {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(UriError::Malformed("tls-verify-peer is true or false")),
    }
}

/// Host and port; an IPv6 address stands in brackets.
fn split_authority(authority: &str) -> Result<(&str, Option<&str>), UriError> {
    if authority.contains('@') {
        return Err(UriError::Malformed("NBD has no user names"));
    }
    let Some(bracketed) = authority.strip_prefix('[') else {
        return Ok(match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        });
    };
    let (host, rest) = bracketed
        .split_once(']')
        .ok_or(UriError::Malformed("a bracket is not closed"))?;
    match rest.strip_prefix(':') {
        Some(port) => Ok((host, Some(port))),
        None if rest.is_empty() => Ok((host, None)),
        None => Err(UriError::Malformed("unexpected text after the bracket")),
    }
}

fn parse_unix(rest: &str, secure: bool) -> Result<NbdUri, UriError> {
    let path = rest.strip_prefix('/').ok_or(UriError::Malformed(
        "nbd+unix: needs three slashes: nbd+unix:///EXPORT?socket=PATH",
    ))?;
    let (export, query) = path
        .split_once('?')
        .ok_or(UriError::Malformed("nbd+unix: needs ?socket=PATH"))?;
    let socket = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("socket="))
        .filter(|socket| !socket.is_empty())
        .ok_or(UriError::Malformed("nbd+unix: needs ?socket=PATH"))?;
    Ok(NbdUri {
        endpoint: Endpoint::Unix(PathBuf::from(decode_text(socket)?)),
        export: decode_text(export)?,
        tls: tls_terms(query, secure)?,
    })
}

fn decode_text(text: &str) -> Result<String, UriError> {
    String::from_utf8(decode(text)?).map_err(|_| UriError::Malformed("text that is not UTF-8"))
}

/// Undoes percent-encoding.
fn decode(text: &str) -> Result<Vec<u8>, UriError> {
    const BROKEN: UriError = UriError::Malformed("a percent sign without two hexadecimal digits");
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let high = bytes.next().and_then(hex_value).ok_or(BROKEN)?;
            let low = bytes.next().and_then(hex_value).ok_or(BROKEN)?;
            decoded.push(high * 16 + low);
        } else {
            decoded.push(byte);
        }
    }
    Ok(decoded)
}

fn hex_value(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(byte) {
            text.push(char::from(*byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, export: &str) -> Result<NbdUri, UriError> {
        Ok(NbdUri {
            endpoint: Endpoint::Tcp {
                host: host.to_owned(),
                port,
            },
            export: export.to_owned(),
            tls: None,
        })
    }

    #[test]
    fn the_usual_forms() {
        assert_eq!(NbdUri::parse("nbd://h"), tcp("h", 10809, ""));
        assert_eq!(NbdUri::parse("nbd://h:7/a/b"), tcp("h", 7, "a/b"));
        assert_eq!(NbdUri::parse("nbd://[::1]:7/x%20y"), tcp("::1", 7, "x y"));
        assert_eq!(
            NbdUri::parse("nbd+unix:///disk?socket=/run/a%20b"),
            Ok(NbdUri {
                endpoint: Endpoint::Unix(PathBuf::from("/run/a b")),
                export: "disk".to_owned(),
                tls: None,
            })
        );
    }

    #[test]
    fn tls_is_asked_for_as_libnbd_does() {
        let query = "tls-certificates=/etc/a%20b&tls-verify-peer=0&tls-hostname=x.example";
        let terms = TlsTerms {
            certificates: PathBuf::from("/etc/a b"),
            verify_peer: false,
            hostname: Some("x.example".to_owned()),
        };
        for text in [
            format!("nbds://h/?{query}"),
            format!("nbds+unix:///?socket=/s&{query}"),
        ] {
            let uri = NbdUri::parse(&text).expect("well formed");
            assert_eq!(uri.tls, Some(terms.clone()), "{text}");
        }
        let plain = NbdUri::parse("nbds://h?tls-certificates=/c").expect("well formed");
        let tls = plain.tls.expect("asked for");
        assert!(tls.verify_peer && tls.hostname.is_none());
        for text in [
            "nbds://h/",
            "nbds://h/?tls-certificates=",
            "nbds://h/?tls-certificates=here",
            "nbds://h/?tls-certificates=/c&tls-verify-peer=maybe",
            "nbds://h/?tls-certificates=/c&tls-verify-pear=1",
            "nbds://h/?tls-psk-file=/k",
            "nbds+unix:///?socket=/s",
            "nbd+unix:///?socket=/s&tls-certificates=/c",
            "nbd://h/?tls-certificates=/c",
        ] {
            let parsed = NbdUri::parse(text);
            assert!(matches!(parsed, Err(UriError::Malformed(_))), "{text}");
        }
    }

    #[test]
    fn what_is_no_uri_is_refused_with_a_reason() {
        assert_eq!(NbdUri::parse("/dev/sda"), Err(UriError::Scheme));
        for text in [
            "nbd://h:70000/",
            "nbd://[::1/",
            "nbd://u@h/",
            "nbd://h/%zz",
            "nbd://h/%ff",
            "nbd+unix://h/x?socket=/s",
            "nbd://h/x?socket=/s",
            "nbds://h/?tls-certificates=/c&socket=/s",
            "nbd+unix:///x",
            "nbd+unix:///x?socket=",
        ] {
            let parsed = NbdUri::parse(text);
            assert!(matches!(parsed, Err(UriError::Malformed(_))), "{text}");
        }
    }

    #[test]
    fn a_printed_uri_parses_to_itself() {
        for text in [
            "nbd://localhost:10809/",
            "nbd://[fe80::1]:99/a%3Fb",
            "nbd+unix:///e%25x?socket=/tmp/s%26t",
            "nbds://h:1/x?tls-certificates=/c%26&tls-hostname=n",
            "nbds+unix:///?socket=/s&tls-certificates=/c&tls-verify-peer=false",
        ] {
            let uri = NbdUri::parse(text).expect("well formed");
            assert_eq!(uri.to_string(), text);
            assert_eq!(NbdUri::parse(&uri.to_string()), Ok(uri));
        }
    }
}
