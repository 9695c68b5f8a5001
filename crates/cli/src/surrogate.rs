//! `surrogate status`: the surrogate's members, what lies there, what it has done.

use crate::command::SurrogateStatus;
use crate::failure::{Failure, Outcome};
use crate::print::surrogate::{details, text};
use crate::print::terminal::{out, outln};
use crate::session::Session;

pub fn run(verb: &SurrogateStatus) -> Outcome {
    let session = Session::open_to_look(&verb.name, &verb.offline)?;
    let status = session.end_after(Session::status)?;
    let Some(surrogate) = status.surrogate else {
        let what = format!("{} is served without a surrogate", verb.name);
        let hint = "add one with `restripe surrogate add`; then name its members together with the array's";
        return Err(Failure::new(what).hint(hint));
    };
    if verb.json {
        let json = serde_json::to_string(&surrogate);
        outln!("{}", json.map_err(|error| Failure::new(error.to_string()))?);
        return Ok(());
    }
    out!("{}{}", text(&surrogate), details(&surrogate));
    Ok(())
}
