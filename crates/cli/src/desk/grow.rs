//! Growth by further members: they are taken in as spares first, and then made data members all at once.

use super::{Desk, Whose, done, ended, is_meant, members_of};
use crate::units::Size;
use restripe_array::report::{GrowthPlan, MemberState, MemberStatus};
use restripe_array::{Command, Member, SECTOR_BYTES};
use restripe_io::control::{GrowthView, Refusal, Reply};
use restripe_io::member;

impl Desk {
    /// Nothing is taken in before it is known that the array may grow by so many.
    pub(super) fn grow(
        &self,
        members: &[String],
        force: bool,
        dry_run: bool,
    ) -> Result<Reply, Refusal> {
        let by = u16::try_from(members.len()).unwrap_or(u16::MAX);
        let plan = self.growth_plan(by)?;
        let (status, _) = self.look()?;
        let view = GrowthView::new(&plan, &status);
        if dry_run {
            for path in members {
                self.could_be_taken_in(path, &plan)?;
            }
            return Ok(Reply::Growth(view));
        }
        let mut taken = Vec::new();
        for path in members {
            let member = match self.spare_named(path)? {
                Some(spare) => spare,
                None => self.admit(path, force, Some(Whose::Array))?,
            };
            taken.push(member);
        }
        self.came_last(&taken)?;
        self.command(match plan.least_moves {
            true => Command::Grow { by },
            false => Command::Reshape { by },
        })?;
        Ok(done(&format!(
            "grows from {} to {} members; {} then",
            view.slots,
            view.slots_after,
            Size(view.size_bytes_after)
        )))
    }

    fn growth_plan(&self, by: u16) -> Result<GrowthPlan, Refusal> {
        let plan = self.remote.growth_plan(self.array, by).map_err(ended)?;
        plan.map_err(|error| self.refused(&error))
    }

    /// Opened as for taking it in, and let go again.
    fn could_be_taken_in(&self, path: &str, plan: &GrowthPlan) -> Result<(), Refusal> {
        if self.spare_named(path)?.is_some() {
            return Ok(());
        }
        self.held(path)?;
        let device = member::open(path, self.open)
            .map_err(|error| super::refusal_of(super::open_failure(error)))?;
        let bytes = device.info.sectors * SECTOR_BYTES;
        if bytes < plan.needs_bytes {
            return Err(Refusal::new(format!("the device has {bytes} bytes"))
                .at(path)
                .hint(format!("it needs {} bytes or more", plan.needs_bytes)));
        }
        self.checked(device, false, Some(Whose::Array)).map(|_| ())
    }

    fn spare_named(&self, text: &str) -> Result<Option<Member>, Refusal> {
        let (status, names) = self.look()?;
        let name_of = |member: &MemberStatus| {
            let found = names.get(usize::from(member.member.0));
            found.map_or("", |member| member.name.as_str())
        };
        let is_it = |member: &&MemberStatus| {
            member.state == MemberState::Spare && is_meant(text, member, name_of(member))
        };
        Ok(status.members.iter().find(is_it).map(|spare| spare.member))
    }

    /// An array grows by the spares that came last: these have to be the ones that are meant.
    fn came_last(&self, meant: &[Member]) -> Result<(), Refusal> {
        let (status, _) = self.look()?;
        let spares = members_of(&status).filter(|member| member.state == MemberState::Spare);
        let mut spares: Vec<Member> = spares.map(|spare| spare.member).collect();
        spares.sort_unstable();
        let last = spares.split_off(spares.len().saturating_sub(meant.len()));
        if meant.iter().all(|member| last.contains(member)) {
            return Ok(());
        }
        Err(
            Refusal::new("the array has spares that came later than these")
                .hint("name those, or all of them; restripe remove forgets a spare"),
        )
    }
}
