//! `lease`: parts of an array lent to others, as room for their surrogates; and how a lease is known by its URI.

use crate::command::WithoutDaemon;
use crate::failure::{Failure, Outcome};
use crate::print::leases::table;
use crate::print::terminal::{Lost, confirm, out, outln};
use crate::session::Session;
use crate::units::parse_size;
use clap::{Args, Subcommand};
use restripe_io::control::{LeaseView, Request, StatusView};
use restripe_io::member::MemberSource;
use restripe_io::shell::EXPORT_PREFIX;

#[derive(Subcommand, Debug)]
pub enum Lease {
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
pub struct LeaseAdd {
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
pub struct LeaseRemove {
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
pub struct LeaseList {
    /// Name of the array that lends
    pub name: String,
    /// Read these members directly, without a daemon; changes nothing
    #[arg(long, value_name = "MEMBER", num_args = 1..)]
    pub offline: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(verb: &Lease) -> Outcome {
    match verb {
        Lease::Add(verb) => add(verb),
        Lease::Remove(verb) => remove(verb),
        Lease::List(verb) => list(verb),
    }
}

/// Whether a member is a lease: no array is called so.
pub fn is_lease(member: &str) -> bool {
    match MemberSource::parse(member) {
        Ok(MemberSource::Nbd(uri)) => uri.export.starts_with(EXPORT_PREFIX),
        _ => false,
    }
}

/// Refuses leases as members of an array: they are room for surrogates. So chains of them have one link.
pub fn refuse_as_member<'a>(members: impl IntoIterator<Item = &'a String>) -> Outcome {
    match members.into_iter().find(|member| is_lease(member)) {
        Some(lease) => Err(Failure::usage("a lease can be a surrogate, not a member")
            .at(lease)
            .hint("pass it with --surrogate")),
        None => Ok(()),
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
    let losses = [Lost {
        at: lease.into(),
        what: format!("data of {whose}, perhaps the only copy"),
    }];
    confirm("This lease will be removed and wiped:", &losses, yes)
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
    use super::*;

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
