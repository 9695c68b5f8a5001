//! Leases: parts of the array that it lends to other arrays, changed while it serves.
//!
//! The table is part of the superblock (`meta/leases`). A change is durable on all serving members before it
//! is answered or reported. Otherwise a crash could undo a lease that a borrower has written to. The engine
//! treats a borrower's requests as any others; the shell checks which part a borrower may reach.

use super::Commands;
use crate::contract::CommandError;
use restripe_format::meta::leases::{self, LeaseCommand, LeaseError};

impl Commands {
    pub(super) fn command_lease(&mut self, command: LeaseCommand) -> Result<(), CommandError> {
        self.change_leases(command).map_err(CommandError::Lease)?;
        self.keeper.note_change();
        Ok(())
    }

    fn change_leases(&mut self, command: LeaseCommand) -> Result<(), LeaseError> {
        let row = self.layout.row_sectors();
        let parcels = &mut self.superblock.lent;
        match command {
            LeaseCommand::Add { name, sectors } => {
                // What cannot be rounded up is more than any array has.
                let rounded = sectors.max(1).checked_next_multiple_of(row);
                leases::lend(parcels, name, rounded.unwrap_or(u64::MAX))
            }
            LeaseCommand::Remove { name, force } => leases::take_back(parcels, name, force),
            LeaseCommand::Bind { name, borrower } => leases::bind(parcels, name, borrower),
        }
    }
}
