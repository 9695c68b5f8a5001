//! `lease`: parts of an array lent to others, as room for their surrogates; and how a lease is known by its URI.

use crate::args::WithoutDaemon;
use crate::failure::{Failure, Outcome};
use crate::print::leases::table;
use crate::print::terminal::{confirm_one, out, outln};
use crate::units::parse_size;
use crate::verbs::session::Session;
use clap::{Args, Subcommand};
use restripe_io::control::{LeaseView, Request, StatusView};

#[derive(Subcommand, Debug)]
pub(crate) enum Lease {
    /// Lend a part of the array; it is served as a separate export
    Add(LeaseAdd),
    /// Remove a lease and wipe it
    Remove(LeaseRemove),
    /// List the leases, their borrowers, and the free space
    List(LeaseList),
}

#[derive(Args, Debug)]
#[command(
    after_help = "The lease is served over NBD as the export lease/NAME/LEASE, on every address of the daemon, to one client at a time.

Example: restripe lease add pool tank-log --size 1G
         restripe create tank --level raid5 --surrogate 'nbd+unix:///lease/pool/tank-log?socket=pool.nbd' a b c"
)]
pub(crate) struct LeaseAdd {
    /// Name of the array that lends
    pub name: String,
    /// Name of the lease: letters, digits, `-`, `_` and `.`
    pub lease: String,
    /// Size of the lease, rounded up to whole rows of the array
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: u64,
    #[command(flatten)]
    pub without_daemon: WithoutDaemon,
}

#[derive(Args, Debug)]
pub(crate) struct LeaseRemove {
    /// Name of the array that lends
    pub name: String,
    /// Name of the lease
    pub lease: String,
    /// Remove it even if another array records it as its surrogate or has it attached; lists what will be
    /// lost and asks
    #[arg(long)]
    pub force: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub without_daemon: WithoutDaemon,
}

#[derive(Args, Debug)]
pub(crate) struct LeaseList {
    /// Name of the array that lends
    pub name: String,
    /// Read these members directly, without a daemon; changes nothing
    #[arg(long, value_name = "MEMBER", num_args = 1..)]
    pub offline: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(verb: &Lease) -> Outcome {
    match verb {
        Lease::Add(verb) => add(verb),
        Lease::Remove(verb) => remove(verb),
        Lease::List(verb) => list(verb),
    }
}

fn add(verb: &LeaseAdd) -> Outcome {
    Session::open(&verb.name, &verb.without_daemon)?.end_after(|session| {
        session.order(&Request::Lend {
            lease: verb.lease.clone(),
            bytes: verb.size,
        })
    })
}

fn remove(verb: &LeaseRemove) -> Outcome {
    Session::open(&verb.name, &verb.without_daemon)?.end_after(|session| {
        if verb.force {
            confirm_taking(&session.status()?, &verb.lease, verb.yes)?;
        }
        session.order(&Request::TakeBack {
            lease: verb.lease.clone(),
            force: verb.force,
        })
    })
}

/// What lies in a lease may be the only copy of what its borrower's users wrote.
fn confirm_taking(status: &StatusView, lease: &str, yes: bool) -> Outcome {
    let lent = status.lends.iter().flat_map(|lends| &lends.leases);
    let found = lent.into_iter().find(|view| view.name == lease);
    let whose = match found {
        Some(view) if view.borrower_unknown => "the borrower".to_string(),
        Some(LeaseView {
            borrower: Some(borrower),
            ..
        }) => format!("the array {borrower}"),
        _ => return Ok(()),
    };
    let what = format!("data of {whose}, perhaps the only copy");
    confirm_one("This lease will be removed and wiped:", lease, what, yes)
}

fn list(verb: &LeaseList) -> Outcome {
    let session = Session::open_to_look(&verb.name, &verb.offline)?;
    let status = session.end_after(Session::status)?;
    let Some(lends) = status.lends else {
        let what = format!("{} has no space reserved for leases", verb.name);
        return Err(Failure::new(what)
            .hint("`restripe create --lend SIZE` creates an array with such space"));
    };
    if verb.json {
        let json = serde_json::to_string(&lends);
        outln!("{}", json.map_err(|error| Failure::new(error.to_string()))?);
    } else {
        out!("{}", table(&lends));
    }
    Ok(())
}

#[cfg(test)]
mod tests {

    use crate::arrays::member::is_lease;
    use crate::arrays::member::refuse_as_member;

    #[test]
    fn a_lease_is_known_by_its_uri() {
        for (member, lease) in [
            ("nbd+unix:///lease/pool/log?socket=pool.nbd", true),
            ("nbd://host/lease/pool/log", true),
            ("nbd://host/pool", false),
            ("lease/pool/log", false),
            ("nbd+unix:///?socket=lease/pool", false),
        ] {
            assert_eq!(is_lease(member), lease, "{member}");
        }
        let members = ["a.img".to_string(), "nbd://host/lease/pool/log".to_string()];
        assert!(refuse_as_member(&members[..1]).is_ok());
        assert!(refuse_as_member(&members).is_err());
    }
}
