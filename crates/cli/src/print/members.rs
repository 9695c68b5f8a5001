//! The table of members, as `status` and `surrogate status` print it.

use restripe_array::shown;
use restripe_io::control::{HostedView, MemberView};

/// The partitions of other slots that a member has, as slot and partition.
fn hosts_text(hosts: &[HostedView]) -> String {
    if hosts.is_empty() {
        return String::new();
    }
    let parts = hosts
        .iter()
        .map(|one| format!(" {}/{}", one.slot, one.partition));
    parts.fold(" hosts".to_string(), |text, part| text + &part)
}

/// How many of a member's read errors are at what nothing recovers.
fn lost_text(errors: u32) -> String {
    match errors {
        0 => String::new(),
        1 => ", 1 read error at lost sectors".to_string(),
        many => format!(", {many} read errors at lost sectors"),
    }
}

/// Members and empty slots in the order of the slots: members' numbers only say in which order they were named. Who
/// stands in no slot comes last.
pub(crate) fn member_lines(members: &[MemberView], missing_slots: &[u16]) -> Vec<String> {
    let members = members.iter().map(|member| {
        let slot = member.slot.map_or("-".to_string(), |slot| slot.to_string());
        let MemberView {
            member: number,
            state,
            read_errors,
            path,
            ..
        } = member;
        let (path, hosts) = (shown(path), hosts_text(&member.hosts));
        let full = if member.full { ", no space" } else { "" };
        let lost = lost_text(member.lost_errors);
        let line = format!(
            "  {number:>6}  {slot:>4}  {state:<10}  {read_errors:>11}  {path}{hosts}{full}{lost}"
        );
        (member.slot, line)
    });
    let missing = missing_slots.iter().map(|slot| {
        let line = format!("  {:>6}  {slot:>4}  {:<10}  {:>11}  -", "-", "missing", "-");
        (Some(*slot), line)
    });
    let mut lines: Vec<_> = members.chain(missing).collect();
    lines.sort_by_key(|(slot, _)| slot.unwrap_or(u16::MAX));
    lines.into_iter().map(|(_, line)| line).collect()
}
