//! Text requests: which targets there are (RFC 7143 appendix C), and how much the initiator receives at once.

use super::hub::{Hub, Target};
use super::keys::{self, Parameters};
use super::pdu::{FINAL, Header, NO_TAG, opcode};
use crate::front::Link;

const CONTINUE: u8 = 0x40;
/// The target's tag while an answer goes on.
const MORE_TAG: u32 = 1;

/// What is left of an answer that did not fit into one PDU.
#[derive(Default)]
pub(super) struct TextAnswer {
    rest: Vec<u8>,
}

impl TextAnswer {
    /// The answer to a request, as much of it as the initiator receives at once. `known`: the initiator's
    /// name, and the target of a normal session. `None`: the request is malformed.
    pub(super) fn answer(
        &mut self,
        header: &Header,
        data: &[u8],
        parameters: &mut Parameters,
        known: (&str, Option<&str>),
        hub: &Hub,
        link: &dyn Link,
    ) -> Option<(Header, Vec<u8>)> {
        let most = parameters.peer_segment;
        let goes_on = header.number(20) == MORE_TAG && data.is_empty();
        if !goes_on {
            // Requests of several PDUs have no use here.
            if header.flags() & CONTINUE != 0 || header.number(20) != NO_TAG {
                return None;
            }
            self.rest = answer_all(&keys::parse(data)?, parameters, known, hub, link);
        }
        let most = most.min(parameters.peer_segment) as usize;
        let after = self.rest.split_off(self.rest.len().min(most));
        let part = std::mem::replace(&mut self.rest, after);
        let (flags, tag) = match self.rest.is_empty() {
            true => (FINAL, NO_TAG),
            false => (CONTINUE, MORE_TAG),
        };
        let mut answer = Header::new(opcode::TEXT_RESPONSE, flags)
            .with(16, header.task_tag())
            .with(20, tag);
        answer.0[8..16].copy_from_slice(&header.0[8..16]);
        Some((answer, part))
    }
}

fn answer_all(
    pairs: &[(&str, &str)],
    parameters: &mut Parameters,
    known: (&str, Option<&str>),
    hub: &Hub,
    link: &dyn Link,
) -> Vec<u8> {
    let mut answer = Vec::new();
    for (key, value) in pairs {
        match *key {
            "SendTargets" => send_targets(value, known, hub, link, &mut answer),
            "InitiatorAlias" => {}
            "MaxRecvDataSegmentLength" => match keys::segment_bytes(value) {
                Some(bytes) => parameters.peer_segment = bytes,
                None => keys::append(&mut answer, key, keys::REJECT),
            },
            _ => keys::append(&mut answer, key, keys::NOT_UNDERSTOOD),
        }
    }
    answer
}

/// `All` is for discovery sessions, and answered in others as well; the empty name means the session's own
/// target. Targets that the initiator may not use are not shown to it, and a name that is none of the others
/// is refused.
fn send_targets(
    which: &str,
    (initiator, own): (&str, Option<&str>),
    hub: &Hub,
    link: &dyn Link,
    answer: &mut Vec<u8>,
) {
    let name = match (which, own) {
        ("All", _) => None,
        ("", own) => own,
        (name, _) => Some(name),
    };
    let meant = |target: &Target| {
        let same = |name: &str| target.name.eq_ignore_ascii_case(name);
        target.admits(initiator) && name.is_none_or(same)
    };
    let mut targets = hub.targets(link);
    targets.retain(meant);
    let nameless = which.is_empty() && own.is_none();
    if nameless || (targets.is_empty() && which != "All") {
        return keys::append(answer, "SendTargets", keys::REJECT);
    }
    let portals = hub.portals(link);
    for target in targets {
        keys::append(answer, "TargetName", &target.name);
        for address in &portals {
            keys::append(answer, "TargetAddress", &format!("{address},1"));
        }
    }
}
