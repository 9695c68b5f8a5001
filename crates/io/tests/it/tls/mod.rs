//! TLS: other people's clients against our server, peers that mean harm, and streams that are broken.

mod certificates;
mod channel;
mod clients;
mod hostile;
mod members;
mod served;
