//! The reactor on real threads, sockets and files.
