//! What happens to an array while a slot's partitions lie apart, in spare partitions or on several spares, or are rebuilt there: there
//! hosts are lost, former ones come back, and power goes, more often than chance alone brings it about.

use super::life::{Life, Run};
use super::plan::Roughness;
use crate::invariant::{Invariant, Violation};
use restripe_array::layout::Layout;
use restripe_array::report::{MemberState, MemberStatus, Status};
use restripe_array::{Fact, Member, Row, Slot};
use std::collections::BTreeSet;

/// The stream that it is drawn from.
const HOSTS: u64 = 0x4057;
/// Steps until something happens to them.
const STEPS_MAX: u64 = 400;

impl Run {
    /// A partition was taken, or a task that fills one has ended.
    pub fn watch_hosts(&mut self, life: &mut Life) {
        let skewed = self.plan.spec.skew.is_some();
        if skewed && self.options.roughness == Roughness::Faults && life.vex_after.is_none() {
            let mut rng = life.stirring.rng.clone().fork(HOSTS);
            // Soon after, or much later.
            let most = *rng.pick(&[4, 40, 40, STEPS_MAX]);
            life.vex_after = Some(life.steps() + rng.below(most));
        }
    }

    /// If it is time for that.
    pub fn vex_hosts(&mut self, life: &mut Life) {
        if life.vex_after.is_none_or(|after| life.steps() < after) {
            return;
        }
        life.vex_after = None;
        match life.stirring.rng.below(8) {
            0..=1 => self.lose_host(life),
            2 => {
                self.lose_member(life, 1);
            }
            3 => self.take_back(life),
            4..=5 => self.arrive(life),
            6 => {
                self.latent_error(life);
            }
            _ => {
                let steps = life.stirring.rng.below(8);
                life.crash_within(steps);
                if life.stirring.rng.chance(1, 2) {
                    self.crash_again = true;
                    self.plan.lives += 1;
                }
            }
        }
        if life.stirring.rng.chance(7, 8) {
            self.watch_hosts(life);
        }
    }

    /// Whether every row is spread over as many members as it has cells.
    pub fn look_for_crowds(&mut self, life: &mut Life, fact: &Fact) {
        let places = matches!(
            fact,
            Fact::PartitionTaken { .. } | Fact::TaskStarted { .. } | Fact::Started { .. }
        );
        if !places || self.plan.spec.spare_partitions == 0 {
            return;
        }
        let status = life.session.world.status();
        if let Some(breach) = crowded(&self.layout, &status) {
            life.session.violation(breach.invariant, breach.detail);
        }
    }

    fn lose_host(&mut self, life: &mut Life) {
        let status = life.session.world.status();
        let active = |line: &&MemberStatus| line.state == MemberState::Active;
        let active: Vec<&MemberStatus> = status.members.iter().filter(active).collect();
        let shares = |line: &&MemberStatus| {
            let slot = active.iter().filter(|other| other.slot == line.slot);
            slot.count() > 1
        };
        let apart = active
            .iter()
            .filter(|line| !line.hosts.is_empty() || shares(line));
        let hosts: Vec<Member> = apart.map(|line| line.member).collect();
        if !hosts.is_empty() {
            let host = *life.stirring.rng.pick(&hosts);
            let way = life.stirring.rng.below(7);
            self.lose_spared(life, host, way);
        }
    }
}

/// A member with two cells of a row, or where two may come to lie: its own partitions may be elsewhere and come home.
pub fn crowded(layout: &Layout, status: &Status) -> Option<Violation> {
    let rows = || (0..layout.rows()).map(Row);
    let there = |line: &MemberStatus, row: Row| -> BTreeSet<u16> {
        let partition = layout.partition_of(row);
        let hosted = line.hosts.iter().filter(|(_, other)| *other == partition);
        let hosted = hosted.map(|(slot, _)| *slot);
        let slots: BTreeSet<u16> = hosted.chain(line.slot).collect();
        let cells = layout.row(row);
        let of_row = |slot: &u16| cells.cell_on(Slot(*slot)).is_some();
        slots.into_iter().filter(of_row).collect()
    };
    let hosts = || status.members.iter().filter(|line| !line.hosts.is_empty());
    let crowd = hosts().find_map(|line| {
        let row = rows().find(|row| there(line, *row).len() > 1)?;
        Some((line, row))
    });
    crowd.map(|(line, row)| {
        let slots = there(line, row);
        let detail = format!(
            "{:?} has the cells of slots {slots:?} in {row:?}",
            line.member
        );
        Violation::new(Invariant::RowOnOneMember, detail)
    })
}
