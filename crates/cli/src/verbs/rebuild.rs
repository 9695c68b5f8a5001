//! `rebuild`: watches the rebuild of an array, and gives it its pace and order.

use crate::args::{Pace, Target, WithoutDaemon};
use crate::arrays::origin::Whose;
use crate::failure::{Failure, Outcome};
use crate::print::terminal::print;
use crate::units::{order_parser, whether_parser};
use crate::verbs::session::Session;
use crate::verbs::watch::{begun_at, check_moves, is_rebuild, pace, watch};
use clap::Args;
use restripe_array::Order;
use restripe_io::control::{Request, StatusView};

#[derive(Args, Debug)]
pub(crate) struct Rebuild {
    #[command(flatten)]
    pub target: Target,
    /// Watch the running rebuild (the default without other options)
    #[arg(long, conflicts_with = "Pace")]
    pub watch: bool,
    /// Order of rebuilds and resyncs: by address (pr), most read by users from now on (pro), most read so far
    /// (ido), or by address with one row in flight (sor) or as many rows as buffers hold (dor)
    #[arg(long, value_name = "NAME", value_parser = order_parser(), conflicts_with_all = ["watch", "Pace"])]
    pub order: Option<Order>,
    /// Rebuild next what users read, whatever the order; off: follow only the order
    #[arg(long, value_name = "WHETHER", value_parser = whether_parser(), num_args = 0..=1, require_equals = true,
        default_missing_value = "on", conflicts_with_all = ["watch", "order", "Pace"])]
    pub on_demand: Option<bool>,
    /// Collect what was rebuilt in spare partitions or on several spares onto one spare as soon as possible;
    /// off: leave it distributed evenly
    #[arg(long, value_name = "WHETHER", value_parser = whether_parser(), num_args = 0..=1, require_equals = true,
        default_missing_value = "on", conflicts_with_all = ["watch", "order", "on_demand", "Pace"])]
    pub copy_back: Option<bool>,
    #[command(flatten)]
    pub pace: Pace,
}

pub(crate) fn run(verb: &Rebuild) -> Outcome {
    let session = Session::open(&verb.target.name, &verb.target.without_daemon)?;
    let Some(status) = session.end_after(|session| pace_or_watch(session, verb))? else {
        return Ok(());
    };
    let (name, without_daemon) = (&verb.target.name, &verb.target.without_daemon);
    if status.own_state != "healthy" {
        let state = &status.own_state;
        let said = format!("the array is {state} and no rebuild is running");
        let hint = match &status.refuses_writes {
            Some(refusal) => refusal.hint.clone(),
            None => format!("add a spare: restripe add {name} DEVICE{without_daemon}"),
        };
        return Err(Failure::new(said).hint(hint));
    }
    match status.state == status.own_state {
        true => print(format_args!("{name} is healthy")),
        // The surrogate's members are no rebuild of the array's.
        false => print(format_args!(
            "the array's own members are healthy; {name} is {}: `restripe status {name}` shows the cause",
            status.state
        )),
    }
    Ok(())
}

/// Gives a rebuild its orders, or waits for its end: how the array is then. Offline it waits also with orders, except
/// with one that the members keep: a pace would end with this command.
fn pace_or_watch(session: &Session, verb: &Rebuild) -> Outcome<Option<StatusView>> {
    let order = verb.order.map(|order| Request::Order {
        name: order.name().into(),
    });
    let on_demand = verb.on_demand.map(|on| Request::OnDemand { on });
    let copy_back = verb.copy_back.map(|on| Request::CopyBack { on });
    let asked = pace(&verb.pace).or(order).or(on_demand).or(copy_back);
    if let Some(request) = asked {
        session.order(&request)?;
        if session.is_served() || verb.pace.is_kept() {
            return Ok(None);
        }
    }
    watch_rebuild(session, &verb.target.without_daemon).map(Some)
}

/// Waits for the rebuild that runs, if one does, and says how the array is then.
fn watch_rebuild(session: &Session, members: &WithoutDaemon) -> Outcome<StatusView> {
    let status = session.status()?;
    let mut rebuilds = status
        .tasks
        .iter()
        .filter(|task| is_rebuild(&task.kind))
        .peekable();
    if rebuilds.peek().is_none() {
        return Ok(status);
    }
    check_moves(&status)?;
    if rebuilds.all(|task| task.paused) {
        let hint = format!("restripe rebuild {} --resume{members}", status.name);
        return Err(Failure::new("the rebuild is paused").hint(hint));
    }
    let since = begun_at(session, is_rebuild)?;
    watch(session, since, Whose::Array, is_rebuild)?.succeed("the rebuild")?;
    session.status()
}
