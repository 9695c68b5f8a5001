//! An array behind TLS.

use crate::nbd_clients::array::Array;
use crate::nbd_clients::tools::Folder;
use crate::tls::certificates::{Authority, SERVER, text};
use restripe_array::layout::{Level, Rotation};
use restripe_io::front::Report;
use restripe_io::front::listen::Listener;
use restripe_io::front::nbd::{Connection, Guard};
use restripe_io::tls::ServerSide;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// An array that is served on a Unix socket and on loopback.
pub struct Served {
    pub array: Array,
    folder: Folder,
    address: SocketAddr,
    /// Reasons for which clients were refused.
    refused: Arc<Mutex<Vec<String>>>,
}

/// How the server guards its export.
pub struct Terms<'a> {
    pub verify_peer: bool,
    pub required: bool,
    pub clients: &'a [&'a str],
}

pub const FOR_ALL: Terms<'_> = Terms {
    verify_peer: false,
    required: true,
    clients: &[],
};

pub const FOR_CERTIFIED: Terms<'_> = Terms {
    verify_peer: true,
    ..FOR_ALL
};

/// An authority, and an array behind a certificate of it. `None`: the test is skipped.
pub fn served(terms: &Terms<'_>) -> Option<(Authority, Served)> {
    let authority = Authority::new()?;
    let certificates = authority.folder("server", &[("server", SERVER)]);
    let served = Served::new(&certificates, terms);
    Some((authority, served))
}

impl Served {
    pub fn new(certificates: &Path, terms: &Terms<'_>) -> Served {
        let array = Array::new(Level::Raid5(Rotation::LeftSymmetric), 4);
        let tls = ServerSide::read(certificates, terms.verify_peer).expect("certificates");
        let rules = terms
            .clients
            .iter()
            .map(|rule| rule.parse().expect("a rule"));
        let rules: Vec<_> = rules.collect();
        let clients = match rules.is_empty() {
            true => Vec::new(),
            false => vec![("disk".to_owned(), rules)],
        };
        let required = terms.required;
        let refused = Arc::new(Mutex::new(Vec::new()));
        let reasons = Arc::clone(&refused);
        let report = Report::new(move |why| {
            let mut reasons = reasons.lock().expect("no test thread panics with it");
            reasons.push(why.to_owned());
        });
        let guard = Arc::new(Guard {
            tls,
            required,
            clients,
            report,
        });
        let folder = Folder::new();
        let unix = Listener::unix(&folder.file("tls")).expect("a new socket");
        let tcp = Listener::tcp(([127, 0, 0, 1], 0).into()).expect("loopback");
        let address = tcp.address().expect("bound");
        for listener in [unix, tcp] {
            let guard = Arc::clone(&guard);
            let protocol = Arc::new(move || Box::new(Connection::guarded(guard.clone())) as Box<_>);
            array
                .remote()
                .listen(listener, protocol)
                .expect("a reactor that runs");
        }
        Served {
            array,
            folder,
            address,
            refused,
        }
    }

    /// The last client that was refused was so for a reason that has this in it.
    pub fn expect_refused(&self, why: &str) {
        let reasons = self.refused.lock().expect("no thread panics with it");
        let last = reasons.last().expect("one was refused");
        assert!(last.contains(why), "{last}");
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.file("tls")
    }

    pub fn port(&self) -> String {
        self.address.port().to_string()
    }

    /// As a client with these certificates names the export.
    pub fn uri(&self, certificates: &Path) -> String {
        let folder = text(certificates);
        format!(
            "nbds://localhost:{}/disk?tls-certificates={folder}",
            self.port()
        )
    }

    pub fn unix_uri(&self, certificates: &Path) -> String {
        let (socket, folder) = (text(&self.socket()), text(certificates));
        format!("nbds+unix:///disk?socket={socket}&tls-certificates={folder}")
    }

    pub fn clear_uri(&self) -> String {
        format!("nbd+unix:///disk?socket={}", text(&self.socket()))
    }

    pub fn size(&self) -> usize {
        self.array.target().size
    }
}
