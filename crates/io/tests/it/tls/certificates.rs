//! Folders of certificates as nbdkit and libvirt lay them out, made by the openssl command for one test.

use crate::nbd_clients::tools::{Folder, installed, succeed};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// An authority with a folder for each of those that it certifies.
pub struct Authority {
    folder: Folder,
}

/// What a certificate says.
#[derive(Clone, Copy)]
pub struct Says<'a> {
    pub subject: &'a str,
    /// As openssl writes alternative names.
    pub names: &'a str,
    pub expired: bool,
}

pub const SERVER: Says<'_> = Says {
    subject: "/CN=server",
    names: "DNS:localhost,IP:127.0.0.1",
    expired: false,
};

pub const ALICE: Says<'_> = Says {
    subject: "/O=Example/CN=alice",
    names: "DNS:alice.example,URI:urn:example:alice",
    expired: false,
};

impl Authority {
    /// `None`: openssl is not installed, and the test is skipped.
    pub fn new() -> Option<Authority> {
        if !installed(&["openssl"]) {
            return None;
        }
        let folder = Folder::new();
        // A certificate names its authority, so each authority has a name of its own.
        let subject = format!("/CN=authority of {}", text(folder.path()).replace('/', " "));
        let key = [
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
        ];
        let (at, certificate) = (
            text(&folder.file("ca-key.pem")),
            text(&folder.file("ca-cert.pem")),
        );
        let rest = [
            "-days",
            "30",
            "-subj",
            &subject,
            "-keyout",
            &at,
            "-out",
            &certificate,
        ];
        succeed("openssl", &[&key[..], &rest].concat());
        Some(Authority { folder })
    }

    pub fn certificate(&self) -> PathBuf {
        self.folder.file("ca-cert.pem")
    }

    /// A folder with the authority's certificate and one of each kind (`server`, `client`) that is asked for.
    pub fn folder(&self, name: &str, holders: &[(&str, Says<'_>)]) -> PathBuf {
        let folder = self.folder.file(name);
        fs::create_dir(&folder).expect("a new folder");
        fs::copy(self.certificate(), folder.join("ca-cert.pem")).expect("it is there");
        for (kind, says) in holders {
            self.certify(&folder, kind, *says);
        }
        folder
    }

    fn certify(&self, folder: &Path, kind: &str, says: Says<'_>) {
        let file = |ending: &str| text(&folder.join(format!("{kind}-{ending}.pem")));
        let (key, request, certificate) = (file("key"), file("request"), file("cert"));
        let new = [
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
        ];
        let rest = ["-subj", says.subject, "-keyout", &key, "-out", &request];
        succeed("openssl", &[&new[..], &rest].concat());
        let extensions = file("extensions");
        let usage = format!(
            "subjectAltName={}\nextendedKeyUsage={kind}Auth\n",
            says.names
        );
        fs::write(&extensions, usage).expect("room for a file");
        let days = if says.expired { "0" } else { "30" };
        let (ca, ca_key) = (
            text(&self.certificate()),
            text(&self.folder.file("ca-key.pem")),
        );
        let sign = [
            "x509",
            "-req",
            "-days",
            days,
            "-CAcreateserial",
            "-in",
            &request,
        ];
        let rest = [
            "-CA",
            &ca,
            "-CAkey",
            &ca_key,
            "-extfile",
            &extensions,
            "-out",
            &certificate,
        ];
        succeed("openssl", &[&sign[..], &rest].concat());
        if says.expired {
            // It ends with the second in which it was made.
            sleep(Duration::from_secs(2));
        }
    }
}

pub fn text(path: &Path) -> String {
    path.display().to_string()
}
