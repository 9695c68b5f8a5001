//! Growth by further members: they are taken in as spares first, and then made data members all at once.

use crate::arrays::origin::Whose;
use crate::daemon::control::{Desk, done, ended, is_meant};
use crate::units::Size;
use restripe_array::report::{GrowthPlan, MemberState, MemberStatus};
use restripe_array::{Command, Member, SECTOR_BYTES};
use restripe_io::control::{GrowthView, Refusal, Reply};
use restripe_io::member;

/// What an array is to grow by.
struct Added<'a> {
    spares: Vec<Member>,
    devices: Vec<&'a String>,
}

impl Desk {
    /// Nothing is written to a device before all is known that speaks against the growth.
    pub(super) fn grow(
        &self,
        members: &[String],
        force: bool,
        dry_run: bool,
    ) -> Result<Reply, Refusal> {
        let Ok(_changing) = self.changing.try_lock() else {
            return Err(Refusal::new("another growth or another change has started"));
        };
        let by = u16::try_from(members.len()).unwrap_or(u16::MAX);
        let plan = self.growth_plan(by)?;
        let (status, _) = self.look()?;
        let view = GrowthView::new(&plan, &status);
        let added = self.to_be_added(members, &plan, force)?;
        if dry_run {
            return Ok(Reply::Growth(view));
        }
        let taken = self.take_all_in(&added, force)?;
        let grown = self.command(match plan.least_moves {
            true => Command::Grow { by },
            false => Command::Reshape { by },
        });
        grown.map_err(|refusal| self.let_all_go(&taken, refusal))?;
        Ok(done(&format!(
            "grows from {} to {} members, then {}; name all {1} members at the next start",
            view.slots,
            view.slots_after,
            Size(view.size_bytes_after),
        )))
    }

    fn to_be_added<'a>(
        &self,
        members: &'a [String],
        plan: &GrowthPlan,
        force: bool,
    ) -> Result<Added<'a>, Refusal> {
        let mut added = Added {
            spares: Vec::new(),
            devices: Vec::new(),
        };
        for path in members {
            match self.spare_named(path)? {
                Some(spare) => added.spares.push(spare),
                None => {
                    self.could_be_taken_in(path, plan, force)?;
                    added.devices.push(path);
                }
            }
        }
        self.came_last(&added.spares)?;
        Ok(added)
    }

    /// All devices, or none.
    fn take_all_in(&self, added: &Added, force: bool) -> Result<Vec<Member>, Refusal> {
        let mut taken = Vec::new();
        for path in &added.devices {
            match self.admit(path, force, Some(Whose::Array)) {
                Ok(member) => taken.push(member),
                Err(refusal) => return Err(self.let_all_go(&taken, refusal)),
            }
        }
        Ok(taken)
    }

    /// The growth is refused: what was taken in for it is no spare either.
    fn let_all_go(&self, taken: &[Member], refusal: Refusal) -> Refusal {
        let kept = taken
            .iter()
            .filter(|member| self.command(Command::Remove(**member)).is_err());
        match kept.count() {
            0 => refusal,
            some => refusal.hint(format!(
                "{some} of the devices are now spares of the array: remove them with `restripe remove`"
            )),
        }
    }

    fn growth_plan(&self, by: u16) -> Result<GrowthPlan, Refusal> {
        let plan = self.remote.growth_plan(self.array, by).map_err(ended)?;
        plan.map_err(|error| self.refused(&error))
    }

    /// Opened as for taking it in, and let go again.
    fn could_be_taken_in(&self, path: &str, plan: &GrowthPlan, force: bool) -> Result<(), Refusal> {
        self.held(path)?;
        let device = member::open(path, self.open)
            .map_err(|error| super::refusal_of(super::open_failure(error)))?;
        let bytes = device.info.sectors * SECTOR_BYTES;
        if bytes < plan.needs_bytes {
            return Err(Refusal::new(format!("the device has {bytes} bytes"))
                .at(path)
                .hint(format!("it needs at least {} bytes", plan.needs_bytes)));
        }
        self.checked(device, force, Some(Whose::Array)).map(|_| ())
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
        let spares = status
            .members
            .iter()
            .filter(|member| member.state == MemberState::Spare);
        let mut spares: Vec<Member> = spares.map(|spare| spare.member).collect();
        spares.sort_unstable();
        let last = spares.split_off(spares.len().saturating_sub(meant.len()));
        if meant.iter().all(|member| last.contains(member)) {
            return Ok(());
        }
        Err(
            Refusal::new("the array has spares that were added later than these")
                .hint("name the later spares, or all of them; `restripe remove` removes a spare"),
        )
    }
}
