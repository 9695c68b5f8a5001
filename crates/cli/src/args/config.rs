//! The configuration file: arrays and how they are served, in TOML, in the words of the command line.
//!
//! ```toml
//! [[array]]
//! name = "tank"
//! level = "raid5"
//! chunk = "64K"
//! spares = 1
//! members = ["a.img", "b.img", "c.img", "d.img"]   # relative to this file
//!
//! [serve]
//! unix = "tank.nbd"
//! ```

use crate::args::renamed;
use crate::args::tls::{TlsOptions, TlsUse};
use crate::args::watts::parse_watts;
use crate::args::{InitName, LevelName, RotationName, SurrogateLevel, WriteHoleName};
use crate::failure::{Failure, Outcome, failed_at};
use crate::print::terminal::warn;
use crate::units::{
    PowerCommand, Rate, parse_destage_memory, parse_destage_order, parse_epoch, parse_memory,
    parse_order, parse_power, parse_rate, parse_redirect, parse_rule, parse_size, parse_throttle,
    parse_wait, parse_zone,
};
use clap::ValueEnum;
use restripe_array::cache::Rule;
use restripe_array::{Order, Throttle};
use restripe_io::control::NamedRating;
use restripe_io::front::iscsi::chap::Secrets;
use restripe_io::front::iscsi::hub::Target;
use restripe_io::member::MemberSource;
use restripe_io::regular;
use restripe_io::tls::names::NameRule;
use restripe_tier::{DestageOrder, Redirect};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Deserialize, Debug, Default, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Config {
    #[serde(default, rename = "array")]
    pub arrays: Vec<ArrayConfig>,
    #[serde(default)]
    pub serve: ServeConfig,
    #[serde(default)]
    pub iscsi: IscsiConfig,
}

#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ArrayConfig {
    pub name: String,
    pub members: Vec<String>,
    #[serde(default, deserialize_with = "choice")]
    pub level: Option<LevelName>,
    #[serde(default, deserialize_with = "size")]
    pub chunk: Option<u64>,
    #[serde(default, deserialize_with = "choice")]
    pub rotation: Option<RotationName>,
    pub copies: Option<u8>,
    pub groups: Option<u16>,
    pub partitions: Option<u16>,
    pub spare_partitions: Option<u16>,
    pub spares: Option<usize>,
    #[serde(default, deserialize_with = "choice")]
    pub init: Option<InitName>,
    #[serde(default, deserialize_with = "choice")]
    pub write_hole: Option<WriteHoleName>,
    #[serde(default, deserialize_with = "size")]
    pub size_per_member: Option<u64>,
    #[serde(default)]
    pub no_slack: bool,
    #[serde(default, deserialize_with = "size")]
    pub data_offset: Option<u64>,
    #[serde(default, deserialize_with = "size")]
    pub image_size: Option<u64>,
    /// What is set aside for leases.
    #[serde(default, deserialize_with = "size")]
    pub lend: Option<u64>,
    /// The members of a surrogate.
    #[serde(default)]
    pub surrogate: Vec<String>,
    #[serde(default, deserialize_with = "choice")]
    pub surrogate_level: Option<SurrogateLevel>,
    /// Members that make nothing durable are taken.
    #[serde(default)]
    pub volatile_members: bool,
    #[serde(default)]
    pub code_cache: bool,
    /// The members of the code cache's buffer.
    #[serde(default, alias = "buffer-file")]
    pub nvram: Vec<String>,
    /// The surrogate is a log disk.
    #[serde(default)]
    pub log_disk: bool,
    #[serde(default, deserialize_with = "size")]
    pub code_cache_chunk: Option<u64>,
    /// Clients that are served, by names in their certificates.
    #[serde(default, deserialize_with = "names")]
    pub tls_clients: Option<Vec<NameRule>>,
    /// The socket of its virtual machine, or the folder of that socket.
    pub vhost_user: Option<PathBuf>,
}

impl ArrayConfig {
    fn named(&mut self) -> impl Iterator<Item = &mut String> {
        let members = self.members.iter_mut();
        members.chain(&mut self.surrogate).chain(&mut self.nvram)
    }

    /// The array's members, then its surrogate's, then its buffer's.
    pub fn all_members(self) -> Vec<String> {
        let mut members = self.members;
        members.extend(self.surrogate);
        members.extend(self.nvram);
        members
    }
}

#[derive(Deserialize, Debug, Default, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ServeConfig {
    pub unix: Option<PathBuf>,
    pub tcp: Option<String>,
    pub vhost_user: Option<PathBuf>,
    pub tls_certificates: Option<PathBuf>,
    pub tls: Option<TlsUse>,
    pub tls_verify_peer: bool,
    #[serde(deserialize_with = "names")]
    pub tls_clients: Option<Vec<NameRule>>,
    #[serde(deserialize_with = "memory")]
    pub memory: Option<u64>,
    #[serde(deserialize_with = "size")]
    pub cache: Option<u64>,
    #[serde(deserialize_with = "rule")]
    pub cache_policy: Option<Rule>,
    #[serde(deserialize_with = "time")]
    pub io_timeout: Option<Duration>,
    #[serde(deserialize_with = "time")]
    pub probe: Option<Duration>,
    #[serde(deserialize_with = "rate")]
    pub rate: Option<Rate>,
    #[serde(deserialize_with = "throttle")]
    pub throttle: Option<Throttle>,
    #[serde(deserialize_with = "order")]
    pub order: Option<Order>,
    pub volatile_members: bool,
    pub on_demand: bool,
    pub copy_back: Option<bool>,
    #[serde(deserialize_with = "heat_zone", alias = "zone")]
    pub heat_zone: Option<u64>,
    #[serde(deserialize_with = "heat_epoch", alias = "epoch")]
    pub heat_epoch: Option<Duration>,
    #[serde(deserialize_with = "redirect")]
    pub redirect: Option<Redirect>,
    pub redirect_scrubs: bool,
    #[serde(deserialize_with = "time")]
    pub destage_idle: Option<Duration>,
    #[serde(deserialize_with = "time")]
    pub destage_every: Option<Duration>,
    #[serde(deserialize_with = "destage_order")]
    pub destage_order: Option<DestageOrder>,
    #[serde(deserialize_with = "destage_memory")]
    pub destage_memory: Option<u64>,
    #[serde(deserialize_with = "time", alias = "sleep")]
    pub standby_after: Option<Duration>,
    #[serde(alias = "starts-a-day")]
    pub spin_downs_per_day: Option<u32>,
    #[serde(alias = "clean-log")]
    pub log_cleaning: Option<bool>,
    #[serde(deserialize_with = "power")]
    pub power: Option<PowerCommand>,
    #[serde(deserialize_with = "power_rating", alias = "watts")]
    pub power_rating: Option<NamedRating>,
    pub degraded: bool,
}

/// The iSCSI portal, and the targets that replace those by default.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct IscsiConfig {
    #[serde(deserialize_with = "addresses")]
    pub listen: Vec<String>,
    /// Folder of the reservations that outlive the daemon.
    pub state: Option<PathBuf>,
    pub target: Vec<TargetConfig>,
}

#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct TargetConfig {
    pub name: String,
    /// Names of arrays; the place is the number of the logical unit.
    pub luns: Vec<String>,
    /// The initiators that may log in; without it, all.
    #[serde(default)]
    pub initiators: Option<Vec<String>>,
    /// Initiators can eject and load the medium.
    #[serde(default)]
    pub removable: bool,
    /// A file of secrets for CHAP.
    #[serde(default)]
    pub chap: Option<PathBuf>,
}

impl IscsiConfig {
    /// The targets with their secrets, which are read from files that only their owner can read.
    pub fn targets(&self) -> Outcome<Vec<Target>> {
        self.target.iter().map(TargetConfig::target).collect()
    }
}

impl TargetConfig {
    fn target(&self) -> Outcome<Target> {
        Ok(Target {
            name: self.name.clone(),
            luns: self.luns.clone(),
            initiators: self.initiators.clone().unwrap_or_default(),
            removable: self.removable,
            secrets: self.chap.as_deref().map(read_secrets).transpose()?,
        })
    }
}

/// Reads a file of secrets. One that others can read is refused.
fn read_secrets(path: &Path) -> Outcome<Secrets> {
    let unreadable = |error| failed_at("the secrets cannot be read", path)(error);
    // What is checked is the file that is read, whatever its name means by then.
    let mut file = regular::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(Failure::new("other users can read this file of secrets")
            .at(path.display())
            .hint(format!("run `chmod 600 {}`", path.display())));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(unreadable)?;
    Secrets::parse(&text)
        .map_err(|why| Failure::new(format!("the secrets are wrong: {why}")).at(path.display()))
}

/// Whether this is a name of RFC 7143, in the form in which names are compared.
fn is_iscsi_name(name: &str) -> bool {
    const LONGEST: usize = 223;
    let kind = ["iqn.", "eui.", "naa."]
        .iter()
        .any(|kind| name.starts_with(kind));
    let plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.:".contains(&byte);
    let dated = name
        .strip_prefix("iqn.")
        .is_none_or(|rest| has_date(rest.as_bytes()));
    kind && dated && name.len() <= LONGEST && name.bytes().all(plain)
}

/// Whether it begins with a year, a month and a point, and goes on.
fn has_date(rest: &[u8]) -> bool {
    let digits = |part: &[u8]| part.iter().all(u8::is_ascii_digit);
    match rest {
        [y1, y2, y3, y4, b'-', m1, m2, b'.', _, ..] => digits(&[*y1, *y2, *y3, *y4, *m1, *m2]),
        _ => false,
    }
}

impl ServeConfig {
    pub fn tls(&self) -> TlsOptions {
        TlsOptions {
            tls_certificates: self.tls_certificates.clone(),
            tls: self.tls,
            tls_verify_peer: self.tls_verify_peer,
            tls_client: self.tls_clients.clone().unwrap_or_default(),
        }
    }
}

impl Config {
    /// Reads a file. Its relative paths become relative to its folder.
    pub fn read(path: &Path) -> Outcome<Config> {
        let text = regular::read_to_string(path)
            .map_err(failed_at("the configuration cannot be read", path))?;
        let mut config = Config::parse(&text).map_err(|failure| failure.at(path.display()))?;
        config.place_in(path.parent().unwrap_or(Path::new("")));
        Ok(config)
    }

    fn parse(text: &str) -> Outcome<Config> {
        // Before the file is read as one: a key that it has by both names is an error there.
        let keys = text.parse().map(|table| renamed::keys(&table));
        keys.unwrap_or_default().iter().for_each(warn);
        let config: Config = toml::from_str(text).map_err(|error| {
            let why = error.to_string();
            Failure::new(format!("the configuration is wrong: {}", why.trim_end()))
        })?;
        if config.arrays.is_empty() {
            return Err(Failure::new("the configuration names no array")
                .hint("it needs an [[array]] with members"));
        }
        config.check_lists()?;
        Ok(config)
    }

    /// An empty list would admit everyone in one place and no one in another: it is an error in all. The name
    /// of a target is one of RFC 7143 (section 4.2.7).
    fn check_lists(&self) -> Outcome {
        let empty = |list: &Option<Vec<NameRule>>| list.as_ref().is_some_and(Vec::is_empty);
        if empty(&self.serve.tls_clients) {
            return Err(Failure::new(
                "tls-clients of [serve] is empty: no client could attach",
            ));
        }
        if let Some(array) = self.arrays.iter().find(|array| empty(&array.tls_clients)) {
            let name = array.name.escape_debug();
            let what = format!("tls-clients of array {name} is empty: no client could attach");
            return Err(Failure::new(what));
        }
        for target in &self.iscsi.target {
            let name = target.name.escape_debug();
            if target.initiators.as_ref().is_some_and(Vec::is_empty) {
                let what = format!("initiators of target {name} is empty: none could log in");
                return Err(Failure::new(what).hint("leave the key out to let all initiators in"));
            }
            let initiators = target.initiators.iter().flatten();
            let is_wrong = |name: &&String| !is_iscsi_name(&name.to_ascii_lowercase());
            if let Some(wrong) = initiators.into_iter().find(is_wrong) {
                let wrong = wrong.escape_debug();
                let what = format!("initiators of target {name}: {wrong} is not the name of one");
                return Err(Failure::new(what)
                    .hint("a name begins with iqn., eui. or naa.; open-iscsi keeps it in initiatorname.iscsi"));
            }
            if !is_iscsi_name(&target.name) {
                return Err(Failure::new(format!("{name} is not the name of a target")).hint(
                    "a name is like iqn.2026-11.org.example:tank: lower-case letters, digits, `-`, `.` and `:`",
                ));
            }
        }
        Ok(())
    }

    fn place_in(&mut self, folder: &Path) {
        for member in self.arrays.iter_mut().flat_map(ArrayConfig::named) {
            if let Ok(MemberSource::Path(path)) = MemberSource::parse(member) {
                *member = folder.join(path).to_string_lossy().into_owned();
            }
        }
        let serve = &mut self.serve;
        let paths = [
            &mut serve.unix,
            &mut serve.vhost_user,
            &mut serve.tls_certificates,
        ];
        let disks = self.arrays.iter_mut().map(|array| &mut array.vhost_user);
        for path in paths.into_iter().chain(disks).flatten() {
            *path = folder.join(&path);
        }
        if let Some(state) = &mut self.iscsi.state {
            *state = folder.join(&state);
        }
        for chap in self
            .iscsi
            .target
            .iter_mut()
            .filter_map(|it| it.chap.as_mut())
        {
            *chap = folder.join(&chap);
        }
    }

    /// The array of this name, or the only one.
    pub fn array(&mut self, name: Option<&str>) -> Outcome<ArrayConfig> {
        let position = match name {
            Some(name) => self.arrays.iter().position(|array| array.name == name),
            None if self.arrays.len() == 1 => Some(0),
            None => {
                return Err(Failure::usage("the configuration has several arrays")
                    .hint("pass the name of one of them"));
            }
        };
        let position = position.ok_or_else(|| {
            let names = self.arrays.iter().map(|array| array.name.as_str());
            let names: Vec<&str> = names.collect();
            Failure::usage("the configuration has no such array")
                .hint(format!("it has {}", names.join(", ")))
        })?;
        Ok(self.arrays.swap_remove(position))
    }
}

/// The members given on the command line, or those of the file.
pub(crate) fn members_from(members: Vec<String>, config: Option<&Path>) -> Outcome<Vec<String>> {
    let Some(path) = config else {
        return Ok(members);
    };
    let arrays = Config::read(path)?.arrays.into_iter();
    Ok(arrays.flat_map(ArrayConfig::all_members).collect())
}

fn text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).map(Some).map_err(D::Error::custom)
}

/// Deserializers of optional values that the command line's parsers read.
macro_rules! parsed {
    ($($name:ident: $value:ty = $parse:ident;)*) => {
        $(pub(crate) fn $name<'de, D: Deserializer<'de>>(text: D) -> Result<Option<$value>, D::Error> {
            self::text(text, $parse)
        })*
    };
}

parsed! {
    size: u64 = parse_size;
    memory: u64 = parse_memory;
    time: Duration = parse_wait;
    throttle: Throttle = parse_throttle;
    heat_zone: u64 = parse_zone;
    heat_epoch: Duration = parse_epoch;
    order: Order = parse_order;
    destage_order: DestageOrder = parse_destage_order;
    destage_memory: u64 = parse_destage_memory;
    power: PowerCommand = parse_power;
    power_rating: NamedRating = parse_watts;
    redirect: Redirect = parse_redirect;
    rule: Rule = parse_rule;
    rate: Rate = parse_rate;
}

/// An address, or a list of them.
fn addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "an address, or a list of addresses")]
    enum Either {
        One(String),
        Several(Vec<String>),
    }
    Ok(match Either::deserialize(deserializer)? {
        Either::One(address) => vec![address],
        Either::Several(addresses) => addresses,
    })
}

fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<NameRule>>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    let rules = texts.iter().map(|text| text.parse());
    let rules: Result<Vec<NameRule>, String> = rules.collect();
    rules.map(Some).map_err(D::Error::custom)
}

fn choice<'de, D: Deserializer<'de>, T: ValueEnum>(deserializer: D) -> Result<Option<T>, D::Error> {
    text(deserializer, |text| {
        let names = || {
            let values = T::value_variants().iter();
            let values: Vec<_> = values.filter_map(T::to_possible_value).collect();
            let names: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
            names.join(", ")
        };
        T::from_str(text, false).map_err(|_| format!("{text:?} is invalid: use one of {}", names()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const WHOLE: &str = r#"
        [[array]]
        name = "tank"
        level = "raid5"
        chunk = "64K"
        spares = 1
        write-hole = "bitmap"
        members = ["a.img", "/dev/sdb", "nbd://host/x"]
        surrogate = ["s.img", "/dev/sdc"]
        surrogate-level = "raid1"
        tls-clients = ["cn:alice", "dn:CN=bob,O=x"]
        vhost-user = "tank.vhost"

        [serve]
        unix = "tank.nbd"
        tls-certificates = "pki"
        tls = "require"
        tls-verify-peer = true
        tls-clients = ["dns:a.example"]
        io-timeout = "30s"
        rate = "10M..200M"
        throttle = "md-6.1"
        order = "ido"
        on-demand = true
        redirect = "workout"
        redirect-scrubs = true
        log-cleaning = false
    "#;

    #[test]
    fn a_file_reads_as_the_command_line_does() {
        let mut config = Config::parse(WHOLE).expect("it is right");
        config.place_in(Path::new("/etc/restripe"));
        let (unix, min, max) = ("/etc/restripe/tank.nbd", 10 << 20, 200 << 20);
        assert_eq!(config.serve.unix, Some(unix.into()));
        let tls = config.serve.tls();
        assert_eq!(tls.tls_certificates, Some("/etc/restripe/pki".into()));
        assert_eq!(
            (tls.tls, tls.tls_verify_peer),
            (Some(TlsUse::Require), true)
        );
        assert_eq!(tls.tls_client, [NameRule::Dns("a.example".to_owned())]);
        assert_eq!(config.serve.rate, Some(Rate { min, max }));
        assert_eq!(config.serve.throttle, Some(Throttle::Md61));
        assert_eq!(config.serve.order, Some(Order::Ido));
        assert!(config.serve.on_demand);
        assert_eq!(config.serve.redirect, Some(Redirect::WorkOut));
        assert!(config.serve.redirect_scrubs);
        assert_eq!(config.serve.log_cleaning, Some(false));
        let array = config.array(Some("tank")).expect("it is there");
        assert_eq!(array.level, Some(LevelName::Raid5));
        assert_eq!(array.chunk, Some(65536));
        assert_eq!(array.tls_clients.as_ref().map(Vec::len), Some(2));
        assert_eq!(array.vhost_user, Some("/etc/restripe/tank.vhost".into()));
        assert_eq!(array.write_hole, Some(WriteHoleName::Bitmap));
        assert_eq!(array.surrogate_level, Some(SurrogateLevel::Raid1));
        let all = array.all_members();
        assert_eq!(
            all[..3],
            ["/etc/restripe/a.img", "/dev/sdb", "nbd://host/x"]
        );
        assert_eq!(all[3..], ["/etc/restripe/s.img", "/dev/sdc"]);
    }

    #[test]
    fn targets_are_read_with_their_secrets() {
        let folder = std::env::temp_dir().join(format!("restripe-iscsi-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let text = "[[array]]\nname='a'\nmembers=['x']\n[iscsi]\nlisten='3260'\n[[iscsi.target]]
            name='iqn.2026-11.org.example:a'\nluns=['a']\ninitiators=['iqn.2026-11.x:y']\nchap='secrets'";
        let mut config = Config::parse(text).expect("it is right");
        config.place_in(&folder);
        let secrets = folder.join("secrets");
        fs::write(&secrets, "initiator alice wonderland-1865\n").expect("a file");
        let mode = |mode| fs::set_permissions(&secrets, fs::Permissions::from_mode(mode));
        mode(0o644).expect("ours");
        let refused = config.iscsi.targets().expect_err("others can read it");
        assert!(
            refused.to_string().contains("other users can read"),
            "{refused}"
        );
        mode(0o600).expect("ours");
        let targets = config.iscsi.targets().expect("only its owner can read it");
        let [target] = &targets[..] else {
            panic!("one target")
        };
        assert_eq!(
            (&target.luns[..], &target.initiators[..]),
            (&["a".to_owned()][..], &["iqn.2026-11.x:y".to_owned()][..])
        );
        assert!(target.secrets.is_some());
        assert_eq!(config.iscsi.listen, ["3260"]);
        let text = "[[array]]\nname='a'\nmembers=[]\n[iscsi]\nlisten=['3260','[::1]:3260']";
        let two = Config::parse(text).expect("it is right");
        assert_eq!(two.iscsi.listen, ["3260", "[::1]:3260"]);
        fs::write(&secrets, "initiator alice short\n").expect("a file");
        let wrong = config.iscsi.targets().expect_err("too short").to_string();
        assert!(
            wrong.contains("line 1") && !wrong.contains("short\n"),
            "{wrong}"
        );
        fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn mistakes_are_named() {
        let wrong = |text: &str| Config::parse(text).expect_err("it is wrong").to_string();
        assert!(wrong("").contains("names no array"));
        assert!(wrong("[[array]]\nname='a'\nmembers=[]\nlevle='raid5'").contains("levle"));
        let text = wrong("[[array]]\nname='a'\nmembers=[]\nlevel='raid7'");
        assert!(text.contains("raid0") && text.contains("raid10"), "{text}");
        assert!(wrong("[[array]]\nname='a'\nmembers=[]\nchunk='64Q'").contains("not a size"));
        let text = wrong("[[array]]\nname='a'\nmembers=[]\ntls-clients=['alice']");
        assert!(text.contains("cn:NAME"), "{text}");
        let text = wrong("[[array]]\nname='a'\nmembers=[]\ntls-clients=[]");
        assert!(text.contains("array a is empty"), "{text}");
        let array = "[[array]]\nname='a'\nmembers=[]\n";
        assert!(wrong(&format!("{array}[iscsi]\nlisten=3260")).contains("list of addresses"));
        let text = wrong(&format!("{array}[serve]\ntls-clients=[]"));
        assert!(text.contains("no client could attach"), "{text}");
        let target = |name: &str, more: &str| {
            wrong(&format!(
                "{array}[[iscsi.target]]\nname={name:?}\nluns=['a']\n{more}"
            ))
        };
        let text = target("iqn.2026-11.org.example:a", "initiators=[]");
        assert!(text.contains("none could log in"), "{text}");
        let long = format!("iqn.{}", "a".repeat(220));
        for name in [
            "x",
            "iqn.a b",
            "iqn.a\nTargetAddress=1",
            "iqn.A",
            "iqn.\u{e4}",
            &long,
        ] {
            assert!(
                target(name, "").contains("not the name of a target"),
                "{name}"
            );
        }
    }

    #[test]
    fn an_array_is_chosen_by_name() {
        let two = "[[array]]\nname='a'\nmembers=['x']\n[[array]]\nname='b'\nmembers=['y']";
        let config = || Config::parse(two).expect("it is right");
        let b = config().array(Some("b")).expect("it is there");
        assert_eq!(b.members, ["y"]);
        assert!(config().array(None).is_err() && config().array(Some("c")).is_err());
    }
}
