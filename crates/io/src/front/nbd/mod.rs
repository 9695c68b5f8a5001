//! The NBD server: one connection as a state machine without I/O of its own.
