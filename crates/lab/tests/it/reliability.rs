//! Chains against simulated disks, and against what the papers print.

use restripe_lab::reliability::model::{Parameters, named};
use restripe_lab::reliability::papers::Printed;
use restripe_lab::reliability::quantity::{Number, to_float, whole};
use restripe_lab::reliability::simulate::simulate;
use restripe_lab::reliability::{Conditions, Exact, Repair};

/// 99.9% of a normal distribution lies within so many deviations: of the 36 cases below, none is expected outside.
const NORMAL_999: f64 = 3.290_527;
const LIVES: u64 = 10_000;
const EVENTS_MAX: u64 = 20_000_000;

/// Disks that fail a hundred times as often as they are repaired slowly: losses are rare, but not too rare to simulate.
fn conditions(repair: Repair, delay: usize, lost_percent: usize) -> Conditions {
    Conditions {
        repair,
        spare_delay: whole(delay),
        sector_loss: Exact::new(lost_percent.into(), 100.into()),
        ..Conditions::new(whole(1000), whole(50))
    }
}

fn settings() -> Vec<Conditions> {
    let mut settings = Vec::new();
    for repair in [Repair::One, Repair::All] {
        settings.push(conditions(repair, 0, 0));
        settings.push(conditions(repair, 100, 0));
        settings.push(conditions(repair, 0, 10));
    }
    settings
}

const MODELS: [(&str, usize); 6] = [
    ("raid5", 6),
    ("raid6", 8),
    ("raid10", 8),
    ("s2-raid5", 9),
    ("s2-raid10", 8),
    ("reraid", 8),
];

fn asleep_half(disks: usize) -> Parameters {
    Parameters {
        asleep: Exact::new(1.into(), 2.into()),
        ..Parameters::new(disks)
    }
}

#[test]
fn simulated_disks_agree_with_the_chains() {
    for (name, disks) in MODELS {
        for conditions in settings() {
            let model = named(name, &asleep_half(disks)).expect("a model");
            let chain = model.chain(&conditions).expect("a chain");
            let expected = chain.expect::<f64>().expect("it ends");
            let lives = simulate(&model, &conditions, 1, LIVES, EVENTS_MAX).expect("not so long");
            let mean = lives.mean(NORMAL_999);
            let case = format!("{name} {conditions:?}: {} and {mean:?}", expected.hours);
            assert!(mean.contains(expected.hours), "{case}");
            assert!(mean.half_width < 0.05 * mean.mean, "{case}");
            let failures = lives.failures as f64 / LIVES as f64;
            assert!((failures / expected.failures - 1.0).abs() < 0.05, "{case}");
        }
    }
}

/// Mirrors that never fail, that fail while they are the source of a rebuild, and that always do; repaired in turn or all at
/// once. Three losses borne are too rare to simulate but with disks that are long under repair.
#[test]
fn sleepers_that_wake_for_a_rebuild_agree_with_the_chains() {
    let factors = [(0, false), (0, true), (1, true), (1, false)];
    let arrays = [
        ("reraid", 8, Some(1)),
        ("reraid", 8, None),
        ("reraid", 8, Some(3)),
        ("graid", 9, None),
        ("eraid", 8, None),
    ];
    for (name, disks, tolerates) in arrays {
        for repair in [Repair::One, Repair::All] {
            let mut conditions = conditions(repair, 0, 0);
            if tolerates == Some(3) {
                conditions.mttr = whole(200);
            }
            let expected = factors.map(|(asleep, wakes)| {
                let parameters = Parameters {
                    asleep: Exact::from_integer(asleep.into()),
                    wakes,
                    tolerates,
                    ..Parameters::new(disks)
                };
                let model = named(name, &parameters).expect("a model");
                let chain = model.chain(&conditions).expect("a chain");
                let hours = chain.expect::<f64>().expect("it ends").hours;
                let lives = simulate(&model, &conditions, 1, LIVES, EVENTS_MAX).expect("not long");
                let mean = lives.mean(NORMAL_999);
                let case = format!(
                    "{name} {tolerates:?} {repair:?} {asleep} {wakes}: {hours} and {mean:?}"
                );
                assert!(mean.contains(hours), "{case}");
                hours
            });
            let [never, source, awake, always] = expected;
            let at_least = |one: f64, other: f64| one >= other * (1.0 - 1e-9);
            let ordered = at_least(never, source) && at_least(source, always);
            assert!(ordered, "{name}: {expected:?}");
            assert!(
                (awake - always).abs() < 1e-9 * always,
                "{name}: {expected:?}"
            );
        }
    }
}

#[test]
fn the_share_of_early_losses_agrees_with_the_chains() {
    use restripe_lab::reliability::mission::mission;
    for (name, disks) in MODELS {
        let conditions = conditions(Repair::One, 0, 10);
        let model = named(name, &asleep_half(disks)).expect("a model");
        let chain = model.chain(&conditions).expect("a chain");
        let lives = simulate(&model, &conditions, 9, LIVES, EVENTS_MAX).expect("not so long");
        for hours in [100.0, 1000.0, 5000.0] {
            let share = lives.lost_within(hours, NORMAL_999);
            let right = mission(&chain, hours).expect("few states").probability;
            assert!(share.contains(right), "{name} {hours}: {share:?} {right}");
        }
    }
}

/// The comparison can fail: a chain under another discipline lies outside the interval.
#[test]
fn another_discipline_is_told_apart() {
    let model = named("raid6", &Parameters::new(8)).expect("a model");
    let all = conditions(Repair::All, 0, 0);
    let one = conditions(Repair::One, 0, 0);
    let lives = simulate(&model, &all, 1, LIVES, EVENTS_MAX).expect("not so long");
    let chain = model.chain(&one).expect("a chain");
    let wrong = chain.expect::<f64>().expect("it ends").hours;
    assert!(!lives.mean(NORMAL_999).contains(wrong));
}

#[test]
fn a_seed_is_a_life() {
    let model = named("raid5", &Parameters::new(5)).expect("a model");
    let conditions = conditions(Repair::One, 100, 10);
    let lives = |seed, runs| simulate(&model, &conditions, seed, runs, EVENTS_MAX).expect("short");
    let (all, one) = (lives(3, 5), lives(5, 1));
    assert_eq!(all, lives(3, 5));
    assert_eq!(all.hours[2], one.hours[0]);
    assert_eq!(simulate(&model, &conditions, 3, 5, 10), None);
}

fn solved<N: Number>(name: &str, disks: usize, mttf: &Exact, mttr: &Exact) -> N {
    let model = named(name, &Parameters::new(disks)).expect("a model");
    let conditions = Conditions::new(mttf.clone(), mttr.clone());
    let chain = model.chain(&conditions).expect("a chain");
    chain.expect().expect("it ends").hours
}

/// The failure rate of figure 8, one in 100,000 hours, and repairs of one to seven days.
fn figure_8() -> impl Iterator<Item = (Exact, Exact)> {
    (1..=7).map(|days| (whole(100_000), whole(24 * days)))
}

/// What the chain of RERAID's section 5 gives, worked out by hand: (13 l^2 + 5 l m + m^2) / (12 l^3).
#[test]
fn the_text_of_reraid_gives_its_numerator_but_not_its_formula() {
    for (mttf, mttr) in figure_8() {
        let (l, m) = (mttf.recip(), mttr.recip());
        let right =
            (whole(13) * &l * &l + whole(5) * &l * &m + &m * &m) / (whole(12) * &l * &l * &l);
        assert_eq!(solved::<Exact>("reraid-text", 8, &mttf, &mttr), right);
        // Printed: 4 m^2 for m^2, and l^2 (l + m) for l^3. That is smaller by about m / (4 l).
        let ratio = to_float(&(right / Printed::Reraid.hours(&l, &m)));
        let scale = to_float(&(&m / (whole(4) * &l)));
        assert!((ratio / scale - 1.0).abs() < 0.01, "{ratio} {scale}");
    }
}

/// Four pairs give m / (8 l^2) to first order; with l^2 for the printed m^2, formula (1) is twice that.
#[test]
fn the_printed_raid_10_is_twice_what_four_pairs_give() {
    for (mttf, mttr) in figure_8() {
        let printed = Printed::Raid10.hours(&mttf.recip(), &mttr.recip());
        let ratio = to_float(&(printed / solved::<Exact>("raid10", 8, &mttf, &mttr)));
        assert!((ratio - 2.0).abs() < 0.03, "{ratio}");
    }
}

/// Figure 8 shows RERAID slightly above both others. So do the printed formulas.
#[test]
fn printed_formulas_have_the_order_of_figure_8() {
    for (mttf, mttr) in figure_8() {
        let hours = |printed: Printed| to_float(&printed.hours(&mttf.recip(), &mttr.recip()));
        let reraid = hours(Printed::Reraid);
        let (raid10, graid) = (hours(Printed::Raid10), hours(Printed::Graid));
        assert!(reraid > raid10 && raid10 > graid && reraid < 1.4 * raid10);
    }
}

/// With mirrors that fail too, old data decides: RERAID is no better than RAID-10, and by a little worse.
#[test]
fn old_data_undoes_the_gain_of_the_coded_log() {
    for (mttf, mttr) in figure_8() {
        let hours = |name: &str, disks| solved::<f64>(name, disks, &mttf, &mttr);
        let (reraid, raid10) = (hours("reraid", 8), hours("raid10", 8));
        assert!(
            reraid <= raid10 && reraid > 0.99 * raid10,
            "{reraid} {raid10}"
        );
        assert!(hours("reraid-text", 8) > 30.0 * raid10);
        // GRAID's log disk pairs up with each primary, twice the pairs in all; ERAID loses with any primary.
        let graid = hours("graid", 9) / raid10;
        assert!((graid - 0.5).abs() < 0.02, "{graid}");
        assert!((hours("eraid", 8) / to_float(&mttf) - 0.25).abs() < 0.01);
    }
}

/// S2-RAID is exposed to more second failures: 6 of 8 and 4 of 7 others. Equal repair times show that alone.
#[test]
fn skewed_layouts_pay_for_their_rebuilds_by_exposure() {
    let (mttf, mttr) = (whole(1_000_000), whole(10));
    let ratio = |a: &str, b: &str, disks| {
        let hours = |name| solved::<f64>(name, disks, &mttf, &mttr);
        hours(a) / hours(b)
    };
    assert!((ratio("s2-raid5", "raid5", 9) - 8.0 / 6.0).abs() < 0.001);
    assert!((ratio("s2-raid10", "raid10", 8) - 1.0 / 4.0).abs() < 0.001);
}
