//! Who an operation of the backend belongs to, as its token says it.

use crate::backend::Token;

/// The owner of an operation in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A device operation: host, flight.
    Device {
        host: u8,
        flight: u32,
    },
    /// Bytes from a remote member's server, or to it.
    Remote {
        host: u8,
        member: u32,
        sent: bool,
    },
    Accept {
        listener: u32,
    },
    Receive {
        connection: u32,
    },
    Send {
        connection: u32,
    },
    /// A command to the driver of a device that a connection serves.
    Command {
        connection: u32,
        slot: u16,
    },
    /// A descriptor that a connection watches.
    Watch {
        connection: u32,
        watch: u16,
    },
}

impl Owner {
    pub fn token(self) -> Token {
        let (kind, host, index) = match self {
            Owner::Device { host, flight } => (0, host, flight),
            Owner::Remote {
                host,
                member,
                sent: false,
            } => (1, host, member),
            Owner::Remote {
                host,
                member,
                sent: true,
            } => (2, host, member),
            Owner::Accept { listener } => (3, 0, listener),
            Owner::Receive { connection } => (4, 0, connection),
            Owner::Send { connection } => (5, 0, connection),
            Owner::Command { connection, slot } => {
                return Token(6 << 56 | u64::from(slot) << 32 | u64::from(connection));
            }
            Owner::Watch { connection, watch } => {
                let rest = u64::from(watch) << 32 | u64::from(connection);
                return Token(7 << 56 | rest);
            }
        };
        Token(kind << 56 | u64::from(host) << 48 | u64::from(index))
    }

    pub fn of(token: Token) -> Owner {
        let host = (token.0 >> 48) as u8;
        let index = token.0 as u32;
        match token.0 >> 56 {
            0 => Owner::Device {
                host,
                flight: index,
            },
            1 => Owner::Remote {
                host,
                member: index,
                sent: false,
            },
            2 => Owner::Remote {
                host,
                member: index,
                sent: true,
            },
            3 => Owner::Accept { listener: index },
            4 => Owner::Receive { connection: index },
            5 => Owner::Send { connection: index },
            6 => Owner::Command {
                connection: index,
                slot: (token.0 >> 32) as u16,
            },
            7 => Owner::Watch {
                connection: index,
                watch: (token.0 >> 32) as u16,
            },
            kind => unreachable!("no token of kind {kind} was made"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_tells_its_owner() {
        let owners = [
            Owner::Device {
                host: 255,
                flight: u32::MAX,
            },
            Owner::Remote {
                host: 1,
                member: 2,
                sent: false,
            },
            Owner::Remote {
                host: 1,
                member: 2,
                sent: true,
            },
            Owner::Accept { listener: 3 },
            Owner::Receive { connection: 4 },
            Owner::Send {
                connection: u32::MAX,
            },
            Owner::Command {
                connection: u32::MAX,
                slot: 1,
            },
            Owner::Command {
                connection: 1,
                slot: u16::MAX,
            },
            Owner::Watch {
                connection: u32::MAX,
                watch: 7,
            },
            Owner::Watch {
                connection: 0,
                watch: u16::MAX,
            },
        ];
        for owner in owners {
            assert_eq!(Owner::of(owner.token()), owner);
        }
    }
}
