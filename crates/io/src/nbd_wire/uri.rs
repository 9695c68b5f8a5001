//! NBD URIs: `nbd://HOST[:PORT]/EXPORT` and `nbd+unix:///EXPORT?socket=PATH`.

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
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UriError {
    /// Neither `nbd:` nor `nbd+unix:`.
    Scheme,
    /// `nbds:` or `nbds+unix:`.
    Tls,
    /// A part that is missing or makes no sense, and what it should be.
    Malformed(&'static str),
}

impl fmt::Display for UriError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UriError::Scheme => f.write_str(
                "not an NBD URI: expected nbd://HOST/EXPORT or nbd+unix:///EXPORT?socket=PATH",
            ),
            UriError::Tls => f.write_str("NBD over TLS is not supported"),
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

    pub fn parse(text: &str) -> Result<NbdUri, UriError> {
        let (scheme, rest) = text.split_once("://").ok_or(UriError::Scheme)?;
        match scheme {
            "nbd" => parse_tcp(rest),
            "nbd+unix" => parse_unix(rest),
            "nbds" | "nbds+unix" => Err(UriError::Tls),
            _ => Err(UriError::Scheme),
        }
    }
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = encode(self.export.as_bytes());
        match &self.endpoint {
            Endpoint::Tcp { host, port } => {
                let (open, close) = if host.contains(':') {
                    ("[", "]")
                } else {
                    ("", "")
                };
                write!(f, "nbd://{open}{host}{close}:{port}/{export}")
            }
            Endpoint::Unix(path) => {
                let path = encode(path.as_os_str().as_encoded_bytes());
                write!(f, "nbd+unix:///{export}?socket={path}")
            }
        }
    }
}

fn parse_tcp(rest: &str) -> Result<NbdUri, UriError> {
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if path.contains('?') {
        return Err(UriError::Malformed("nbd:// has no parameters"));
    }
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
    })
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

fn parse_unix(rest: &str) -> Result<NbdUri, UriError> {
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
            })
        );
    }

    #[test]
    fn what_is_no_uri_is_refused_with_a_reason() {
        assert_eq!(NbdUri::parse("/dev/sda"), Err(UriError::Scheme));
        assert_eq!(NbdUri::parse("nbds://h"), Err(UriError::Tls));
        for text in [
            "nbd://h:70000/",
            "nbd://[::1/",
            "nbd://u@h/",
            "nbd://h/%zz",
            "nbd://h/%ff",
            "nbd+unix://h/x?socket=/s",
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
        ] {
            let uri = NbdUri::parse(text).expect("well formed");
            assert_eq!(uri.to_string(), text);
            assert_eq!(NbdUri::parse(&uri.to_string()), Ok(uri));
        }
    }
}
