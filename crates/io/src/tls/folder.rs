//! Certificates, keys and revocation lists in a folder, under the names that nbdkit and libvirt give them.
//!
//! | file | server | client |
//! |---|---|---|
//! | `ca-cert.pem` | authorities of clients; needed to verify them | authorities of servers; needed to verify them |
//! | `ca-crl.pem` | revoked certificates of clients, if it is there | of servers, if it is there |
//! | `server-cert.pem`, `server-key.pem` | its certificate and key | |
//! | `client-cert.pem`, `client-key.pem` | | its certificate and key, if both are there |

use super::channel::Channel;
use super::der;
use super::event::CertificateError;
use crate::regular;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, UnbufferedClientConnection, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime,
};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, UnbufferedServerConnection, WebPkiClientVerifier};
use rustls::{
    CipherSuite, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    SignatureScheme, SupportedCipherSuite,
};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

const AUTHORITIES: &str = "ca-cert.pem";
const REVOKED: &str = "ca-crl.pem";
const SERVER_CERTIFICATE: &str = "server-cert.pem";
const SERVER_KEY: &str = "server-key.pem";
/// More than any chain or list of revocations in use has.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// What the owner's group may not do with a key, and others: write; and others may not read it either.
const KEY_MODE_FORBIDDEN: u32 = 0o027;

/// A server's certificate, and how it verifies clients. Clones are the same: what one of them reads again,
/// all use for new connections.
#[derive(Clone, Debug)]
pub struct ServerSide(Arc<Source>);

#[derive(Debug)]
struct Source {
    folder: PathBuf,
    verify_peer: bool,
    read: RwLock<Read>,
}

/// What was read of a folder.
#[derive(Debug)]
struct Read {
    config: Arc<ServerConfig>,
    /// Within which the server's certificate, and those that lead to it, are valid.
    valid: (SystemTime, SystemTime),
    /// Whether clients are looked up in a list of revocations.
    revokes: bool,
    /// The files then, also if a later reading failed,
    files: Files,
    /// and then why it did: what is not in the files may have changed since.
    failed: Option<CertificateError>,
    /// Other files that were there when they were looked at last.
    changed: Option<Files>,
}

/// What the files of a server say.
struct Taken {
    config: Arc<ServerConfig>,
    valid: (SystemTime, SystemTime),
    revokes: bool,
}

/// The files of a server as they are now.
type Files = [Option<Seen>; 4];

/// A file: its number, length and mode, and when its content and its mode were changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    number: u64,
    bytes: u64,
    mode: u32,
    content: (i64, i64),
    change: (i64, i64),
}

fn files(folder: &Path) -> Files {
    [AUTHORITIES, REVOKED, SERVER_CERTIFICATE, SERVER_KEY].map(|name| {
        let found = fs::metadata(folder.join(name)).ok()?;
        Some(Seen {
            number: found.ino(),
            bytes: found.size(),
            mode: found.mode(),
            content: (found.mtime(), found.mtime_nsec()),
            change: (found.ctime(), found.ctime_nsec()),
        })
    })
}

impl ServerSide {
    /// Reads a folder. `verify_peer`: a client without a certificate of the authorities is refused; otherwise
    /// none is asked for one.
    pub fn read(folder: &Path, verify_peer: bool) -> Result<ServerSide, CertificateError> {
        let files = files(folder);
        let Taken {
            config,
            valid,
            revokes,
        } = ServerSide::config(folder, verify_peer)?;
        Ok(ServerSide(Arc::new(Source {
            folder: folder.to_path_buf(),
            verify_peer,
            read: RwLock::new(Read {
                config,
                valid,
                revokes,
                files,
                failed: None,
                changed: None,
            }),
        })))
    }

    /// Reads the files again if they have changed, and stayed as they are since the call before: several may
    /// be replaced one after the other. `None`: there is nothing new. After an error the files that were read
    /// before are used on; each further call tries again, and gives the same error once. A list of
    /// revocations that is there no more is an error: it may be about to be replaced.
    pub fn look(&self) -> Option<Result<(), CertificateError>> {
        let source = &*self.0;
        let now = files(&source.folder);
        let mut read = source.read.write().unwrap_or_else(PoisonError::into_inner);
        if now == read.files {
            read.changed = None;
            read.failed.as_ref()?;
        } else if read.changed.replace(now) != Some(now) {
            return None;
        }
        // Before: what changes meanwhile is looked at again.
        (read.files, read.changed) = (now, None);
        drop(read);
        let again = ServerSide::config(&source.folder, source.verify_peer);
        let mut read = source.read.write().unwrap_or_else(PoisonError::into_inner);
        let again = again.and_then(|new| match read.revokes && !new.revokes {
            true => Err(CertificateError {
                at: source.folder.join(REVOKED),
                why: "the list of revocations is gone: put it back, or restart the daemon to do without"
                    .to_owned(),
            }),
            false => Ok(new),
        });
        match again {
            Ok(new) => {
                (read.config, read.valid, read.revokes) = (new.config, new.valid, new.revokes);
                read.failed = None;
                Some(Ok(()))
            }
            Err(error) if read.failed.as_ref() == Some(&error) => None,
            Err(error) => {
                read.failed = Some(error.clone());
                Some(Err(error))
            }
        }
    }

    /// Within which the server's certificate, and those that lead to it, are valid.
    pub fn valid(&self) -> (SystemTime, SystemTime) {
        self.0
            .read
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .valid
    }

    fn config(folder: &Path, verify_peer: bool) -> Result<Taken, CertificateError> {
        let folder = Folder::new(folder);
        let (verifier, revokes) = match verify_peer {
            true => folder.client_verifier()?,
            false => (WebPkiClientVerifier::no_client_auth(), false),
        };
        let (chain, key) = folder.own(SERVER_CERTIFICATE, SERVER_KEY)?;
        let valid = der::validity(&chain);
        let config = ServerConfig::builder_with_provider(folder.provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| folder.wrong("", error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key);
        let mut config = config.map_err(|error| folder.wrong(SERVER_CERTIFICATE, error))?;
        // Nothing is remembered: a client that connects again is verified again.
        config.send_tls13_tickets = 0;
        config.ignore_client_order = true;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Taken {
            config: Arc::new(config),
            valid,
            revokes,
        })
    }

    /// The server's end of a new connection.
    pub fn begin(&self) -> Channel {
        let read = self.0.read.read().unwrap_or_else(PoisonError::into_inner);
        let connection = UnbufferedServerConnection::new(Arc::clone(&read.config));
        Channel::of_server(connection.expect("the largest fragment is the default"))
    }
}

/// A client's certificate, and how it verifies servers.
#[derive(Clone, Debug)]
pub struct ClientSide(Arc<ClientConfig>);

impl ClientSide {
    /// Reads a folder. Without `verify_peer` any certificate is accepted of a server: then anybody who can
    /// answer in its place can read and change what is sent.
    pub fn read(folder: &Path, verify_peer: bool) -> Result<ClientSide, CertificateError> {
        let folder = Folder::new(folder);
        let verifier: Arc<dyn ServerCertVerifier> = match verify_peer {
            true => folder.server_verifier()?,
            false => Arc::new(AnyServer(folder.provider.clone())),
        };
        let builder = ClientConfig::builder_with_provider(folder.provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| folder.wrong("", error))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match folder.has("client-cert.pem") || folder.has("client-key.pem") {
            false => builder.with_no_client_auth(),
            true => {
                let (chain, key) = folder.own("client-cert.pem", "client-key.pem")?;
                let config = builder.with_client_auth_cert(chain, key);
                config.map_err(|error| folder.wrong("client-cert.pem", error))?
            }
        };
        config.resumption = Resumption::disabled();
        Ok(ClientSide(Arc::new(config)))
    }

    /// The client's end of a new connection to a server of this name, a DNS name or an address.
    pub fn begin(&self, host: &str) -> Result<Channel, String> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("{host:?} is neither a DNS name nor an address"))?;
        let connection = UnbufferedClientConnection::new(Arc::clone(&self.0), name);
        connection
            .map(Channel::of_client)
            .map_err(|error| error.to_string())
    }
}

/// The library's suites, those with AES of 128 bits first: they take the least time a byte.
fn provider() -> CryptoProvider {
    let mut provider = ring::default_provider();
    let is_first = |suite: &SupportedCipherSuite| {
        use CipherSuite::*;
        matches!(
            suite.suite(),
            TLS13_AES_128_GCM_SHA256
                | TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
                | TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
        )
    };
    provider.cipher_suites.sort_by_key(|suite| !is_first(suite));
    provider
}

struct Folder {
    path: PathBuf,
    provider: Arc<CryptoProvider>,
}

impl Folder {
    fn new(path: &Path) -> Folder {
        Folder {
            path: path.to_path_buf(),
            provider: Arc::new(provider()),
        }
    }

    fn wrong(&self, name: &str, why: impl fmt::Display) -> CertificateError {
        CertificateError {
            at: self.path.join(name),
            why: why.to_string(),
        }
    }

    /// Also if it cannot be opened, as a link that leads nowhere: that is an error then.
    fn has(&self, name: &str) -> bool {
        let found = fs::symlink_metadata(self.path.join(name));
        !found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    }

    fn open(&self, name: &str) -> Result<File, CertificateError> {
        regular::open(&self.path.join(name)).map_err(|error| self.wrong(name, error))
    }

    fn read(&self, name: &str, file: File) -> Result<Vec<u8>, CertificateError> {
        let mut bytes = Vec::new();
        let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
        let fits = read.and_then(|_| match bytes.len() as u64 <= FILE_BYTES_MAX {
            true => Ok(()),
            false => Err(io::Error::new(ErrorKind::FileTooLarge, "it is too long")),
        });
        fits.map_err(|error| self.wrong(name, error))?;
        Ok(bytes)
    }

    /// All objects of one kind in a file; one at least.
    fn objects<T: PemObject>(&self, name: &str, what: &str) -> Result<Vec<T>, CertificateError> {
        let bytes = self.read(name, self.open(name)?)?;
        let objects: Result<Vec<T>, _> = T::pem_slice_iter(&bytes).collect();
        let objects = objects.map_err(|error| self.wrong(name, error))?;
        match objects.is_empty() {
            true => Err(self.wrong(name, format!("there is no {what} in it"))),
            false => Ok(objects),
        }
    }

    fn authorities(&self) -> Result<Arc<RootCertStore>, CertificateError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.objects::<CertificateDer<'_>>(AUTHORITIES, "certificate")? {
            let added = roots.add(certificate);
            added.map_err(|error| self.wrong(AUTHORITIES, error))?;
        }
        Ok(Arc::new(roots))
    }

    fn revoked(&self) -> Result<Vec<CertificateRevocationListDer<'static>>, CertificateError> {
        match self.has(REVOKED) {
            true => self.objects(REVOKED, "revocation list"),
            false => Ok(Vec::new()),
        }
    }

    /// With a list of revocations, a certificate is refused if the authority of one of those that lead to it
    /// has none in it, or one that is too old. Gives whether there is such a list.
    fn client_verifier(&self) -> Result<(Arc<dyn ClientCertVerifier>, bool), CertificateError> {
        let (roots, provider) = (self.authorities()?, self.provider.clone());
        let revoked = self.revoked()?;
        let revokes = !revoked.is_empty();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
            .with_crls(revoked)
            .enforce_revocation_expiration()
            .build();
        let verifier = verifier.map_err(|error| self.wrong(REVOKED, error))?;
        Ok((verifier, revokes))
    }

    fn server_verifier(&self) -> Result<Arc<WebPkiServerVerifier>, CertificateError> {
        let (roots, provider) = (self.authorities()?, self.provider.clone());
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider)
            .with_crls(self.revoked()?)
            .enforce_revocation_expiration()
            .build();
        verifier.map_err(|error| self.wrong(REVOKED, error))
    }

    /// A certificate with those that lead to its authority, and its key.
    fn own(
        &self,
        certificate: &str,
        key: &str,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), CertificateError> {
        let chain = self.objects(certificate, "certificate")?;
        let file = self.open(key)?;
        let mode = file.metadata().map_err(|error| self.wrong(key, error))?;
        let mode = mode.permissions().mode() & 0o777;
        if mode & KEY_MODE_FORBIDDEN != 0 {
            let why = format!(
                "its mode {mode:04o} lets others read the key, or its group write it: chmod 0600 (or 0640)"
            );
            return Err(self.wrong(key, why));
        }
        let bytes = self.read(key, file)?;
        let key = PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
            rustls::pki_types::pem::Error::NoItemsFound => {
                self.wrong(key, "there is no private key in it that is not encrypted")
            }
            error => self.wrong(key, error),
        })?;
        Ok((chain, key))
    }
}

/// Takes every server that has the key of the certificate that it shows.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
