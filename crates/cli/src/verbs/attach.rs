//! `attach` and `detach`: an array as a block device of this machine's kernel.

use crate::failure::{Failure, Outcome};
use crate::print::terminal::print_note;
use crate::units::{parse_size, parse_wait};
use crate::verbs::session::Session;
use clap::Args;
use restripe_io::attach;
use restripe_io::control::{
    AttachOptions, CONNECTIONS_MAX, ClientError, Driver, Reply, Request, ask,
};
use std::time::Duration;

/// Defaults of NBD's options.
const CONNECTIONS: u16 = 2;
const TIMEOUT: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(300);

#[derive(Args, Debug)]
#[command(
    after_help = "Requires root, a daemon that runs as root, and a module of the kernel: nbd (modprobe nbd), or with --ublk
ublk_drv (Linux 6.5 or later).
The device has the stable name /dev/restripe/NAME. It outlives the daemon: requests wait until the array is
served again, at most for the grace, and the daemon reconnects the device by itself. Attaching an array that
is attached already does nothing.

Example: restripe attach tank && mkfs.ext4 /dev/restripe/tank && mount /dev/restripe/tank /mnt"
)]
pub(crate) struct Attach {
    /// Name of the array
    pub name: String,
    /// Device, as /dev/nbd0 or /dev/ublkb0 [default: the first that is free]
    #[arg(value_name = "DEVICE")]
    pub device: Option<String>,
    /// Use the kernel's driver ublk, without sockets, and not its NBD client. So does a DEVICE as /dev/ublkb0
    #[arg(long, conflicts_with_all = ["connections", "timeout", "grace"])]
    pub ublk: bool,
    /// Number of connections between kernel and daemon, each with its own queue of requests [default: 2]
    #[arg(long, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(CONNECTIONS_MAX)))]
    pub connections: Option<u16>,
    /// Send a request again that has no reply after TIME. After a kill of the daemon, the requests that it
    /// had in flight are sent again when TIME has passed [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = parse_wait)]
    pub timeout: Option<Duration>,
    /// Let requests wait for TIME while the array is not served; then they fail with an I/O error. With ublk
    /// they wait for as long as that takes [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = parse_wait)]
    pub grace: Option<Duration>,
    /// Refuse writes through the device
    #[arg(long)]
    pub read_only: bool,
    /// Logical block size of the device, 512 to 4096. Partition tables and some file systems depend on it
    #[arg(long, value_name = "SIZE", default_value = "4096", value_parser = parse_size)]
    pub block_size: u64,
}

#[derive(Args, Debug)]
#[command(
    after_help = "A device that is mounted, or used by another block device or as swap space, is not detached.
The device of an array that is not served is detached without its daemon."
)]
pub(crate) struct Detach {
    /// Name of the array, or its device
    #[arg(value_name = "NAME|DEVICE")]
    pub which: String,
}

pub(crate) fn attach(verb: &Attach) -> Outcome {
    let request = Request::Attach {
        device: verb.device.clone(),
        options: AttachOptions {
            driver: driver(verb)?,
            connections: verb.connections.unwrap_or(CONNECTIONS),
            timeout_seconds: whole_seconds("--timeout", verb.timeout.unwrap_or(TIMEOUT))?,
            grace_seconds: whole_seconds("--grace", verb.grace.unwrap_or(GRACE))?,
            read_only: verb.read_only,
            block_bytes: u32::try_from(verb.block_size).unwrap_or(u32::MAX),
        },
    };
    let session = Session::open_to_look(&verb.name, &[])?;
    session.order(&request).map_err(|failure| {
        match failure.is_not_running() {
            // Working on members without a daemon makes no device.
            true => failure.hint("only a served array can be attached: restripe serve"),
            false => failure,
        }
    })
}

pub(crate) fn detach(verb: &Detach) -> Outcome {
    let name = match verb.which.contains('/') {
        true => attach::name_of_device(&verb.which)?.ok_or_else(|| {
            Failure::new("no array is attached there")
                .at(&verb.which)
                .hint("`restripe status` shows the devices; nbd-client -d ends those of other programs")
        })?,
        false => verb.which.clone(),
    };
    match ask(&name, &Request::Detach) {
        Ok(Reply::Done { note }) => print_note(&note),
        Ok(Reply::Refused(refusal)) => return Err(refusal.into()),
        Ok(_) => return Err(Failure::unexpected("detach")),
        Err(ClientError::NotRunning { .. }) => {
            let device = attach::detach_unserved(&name)?;
            let device =
                device.ok_or_else(|| Failure::new("the array is not attached").at(&name))?;
            print_note(&format!("detached {device}"));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// The one that the device names, else the one that the option does.
fn driver(verb: &Attach) -> Outcome<Driver> {
    let option = if verb.ublk { Driver::Ublk } else { Driver::Nbd };
    let Some(device) = &verb.device else {
        return Ok(option);
    };
    let named = attach::driver_of(device)?;
    let for_nbd = verb.connections.is_some() || verb.timeout.is_some() || verb.grace.is_some();
    match named {
        Driver::Nbd if verb.ublk => {
            Err(Failure::usage("--ublk takes no device of NBD").hint("name /dev/ublkbN, or none"))
        }
        Driver::Ublk if for_nbd => {
            let what = "--connections, --timeout and --grace are options of NBD";
            Err(Failure::usage(what).hint("leave them out: ublk needs none of them"))
        }
        driver => Ok(driver),
    }
}

/// The kernel counts whole seconds.
fn whole_seconds(option: &str, time: Duration) -> Outcome<u64> {
    match time.subsec_nanos() {
        0 => Ok(time.as_secs()),
        _ => Err(Failure::usage(format!("{option} takes whole seconds")).hint("use 1s, 30s or 5m")),
    }
}
