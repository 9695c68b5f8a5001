//! Servers and members over real sockets and files: one program of tests, a module for each subject.

mod conformance;
mod iscsi_clients;
mod iscsi_protocol;
mod nbd_clients;
mod nbd_protocol;
mod reed_solomon;
mod tls;
mod vhost_user;
