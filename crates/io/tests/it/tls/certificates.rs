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

    /// An authority between this one and those that it certifies, with a list of what each of the two has
    /// revoked. `revoked`: this one has revoked the other.
    pub fn intermediate(&self, folder: &Path, kind: &str, revoked: bool) {
        let at = |name: &str| text(&folder.join(name));
        let own = |name: &str| text(&self.folder.file(name));
        let openssl = |line: String| {
            succeed("openssl", &line.split(' ').collect::<Vec<_>>());
        };
        let configuration = "[ca]\ndefault_ca=it\n[it]\ndatabase=DIR/index\nserial=DIR/serial\n\
            new_certs_dir=DIR\ndefault_md=sha256\npolicy=any\ncrlnumber=DIR/number\ncrl_extensions=list\n[any]\ncommonName=supplied\n\
            [list]\nauthorityKeyIdentifier=keyid\n\
            [ca_too]\nsubjectKeyIdentifier=hash\nbasicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign,cRLSign\n\
            [end]\nextendedKeyUsage=KINDAuth\nsubjectAltName=DNS:localhost\n";
        let dir = at("authorities");
        fs::create_dir(&dir).expect("a new folder");
        let configuration = configuration.replace("DIR", &dir).replace("KIND", kind);
        let file = |name: &str| format!("{dir}/{name}");
        fs::write(file("conf"), configuration).expect("ours");
        fs::write(file("index"), "").expect("ours");
        fs::write(file("serial"), "1000").expect("ours");
        fs::write(file("number"), "01").expect("ours");
        let conf = file("conf");
        let request = |name: &str, key: &str, out: &str| {
            openssl(format!(
                "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} -keyout {key} -out {out}"
            ));
        };
        let sign = |by: [&str; 2], what: &str, request: &str, out: &str| {
            let [certificate, key] = by;
            openssl(format!(
                "ca -batch -notext -config {conf} -extensions {what} -days 30 -cert {certificate} \
                 -keyfile {key} -in {request} -out {out}"
            ));
        };
        let (root, between) = (
            [own("ca-cert.pem"), own("ca-key.pem")],
            [file("between.pem"), file("between-key.pem")],
        );
        let (root, between) = (root.each_ref(), between.each_ref());
        let (root, between) = (root.map(String::as_str), between.map(String::as_str));
        request("between", between[1], &file("between-req"));
        sign(root, "ca_too", &file("between-req"), between[0]);
        let (key, certificate) = (
            at(&format!("{kind}-key.pem")),
            at(&format!("{kind}-cert.pem")),
        );
        request("end", &key, &file("end-req"));
        sign(between, "end", &file("end-req"), &certificate);
        if revoked {
            let ([own, key], between) = (root, between[0]);
            openssl(format!(
                "ca -config {conf} -cert {own} -keyfile {key} -revoke {between}"
            ));
        }
        let mut lists = String::new();
        for [certificate, key] in [root, between] {
            let out = file("crl");
            openssl(format!(
                "ca -config {conf} -gencrl -crldays 30 -cert {certificate} -keyfile {key} -out {out}"
            ));
            lists += &fs::read_to_string(&out).expect("it is there");
        }
        let chain = [&certificate, between[0]].map(|path| fs::read_to_string(path).expect("made"));
        fs::write(&certificate, chain.concat()).expect("ours");
        fs::write(at("revoked.pem"), lists).expect("ours");
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
        let rest = [
            "-utf8",
            "-subj",
            says.subject,
            "-keyout",
            &key,
            "-out",
            &request,
        ];
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
