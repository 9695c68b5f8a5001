//! A PostgreSQL server of our own on the mounted file system: its processes run as the user `postgres` (else `nobody`),
//! within the limit of memory, and it listens on a socket of the run's folder only.

use super::limit::Limit;
use super::plan::{Scale, Workload};
use super::tools::{Outcome, pause, run, text_error};
use super::undo::{Process, Undo};
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Everything that the scripts name is in one database of this name, which `initdb` makes.
const DATABASE: &str = "postgres";

pub struct Postgres {
    programs: PathBuf,
    user: String,
    data: PathBuf,
    socket: PathBuf,
}

impl Postgres {
    /// On a file system mounted at the place.
    pub fn new(undo: &Undo, programs: &Path, place: &Path) -> Outcome<Postgres> {
        let known = |name: &&str| run("id -u", &[name]).is_ok();
        let user = ["postgres", "nobody"].into_iter().find(known);
        let user = user
            .ok_or("neither a user postgres nor nobody")?
            .to_string();
        let socket = undo.folder().join("pg");
        let postgres = Postgres {
            programs: programs.to_path_buf(),
            data: place.join("data"),
            socket,
            user,
        };
        for folder in [&postgres.socket, &postgres.data] {
            fs::create_dir_all(folder).map_err(text_error(folder))?;
            let id = |of: &str| -> Outcome<u32> {
                let id = run(&format!("id {of}"), &[&postgres.user])?;
                id.parse().map_err(|_| format!("id {of} says {id}"))
            };
            chown(folder, Some(id("-u")?), Some(id("-g")?)).map_err(text_error(folder))?;
        }
        Ok(postgres)
    }

    pub fn program(&self, name: &str) -> String {
        self.programs.join(name).display().to_string()
    }

    /// Options that reach this server.
    pub fn address(&self) -> Vec<String> {
        let socket = self.socket.display().to_string();
        vec!["-h".into(), socket, "-U".into(), "postgres".into()]
    }

    pub fn make(&self) -> Outcome<()> {
        let (initdb, data) = (self.program("initdb"), self.data.display().to_string());
        let user = &self.user;
        run(
            &format!("setpriv --reuid={user} --regid={user} --clear-groups"),
            &[
                "env",
                "-C",
                "/",
                &initdb,
                "--auth=trust",
                "--username=postgres",
                "--no-locale",
                "--encoding=UTF8",
                "--wal-segsize=4",
                "--no-sync",
                "-D",
                &data,
            ],
        )
        .map(|_| ())
    }

    /// Starts the server, within the limit if there is one. `fsync` is off only while tables are filled.
    pub fn start(
        &self,
        undo: &Undo,
        scale: &Scale,
        limit: Option<&Limit>,
        fsync: bool,
    ) -> Outcome<Process> {
        let enter = limit.map_or(String::new(), |limit| {
            format!("echo $$ > '{}' && ", limit.members().display())
        });
        let script = format!("{enter}exec setpriv \"$@\"");
        let buffers = match fsync {
            true => scale.shared_buffers_mib,
            false => 128,
        };
        let mut command = Command::new("sh");
        command
            .args(["-c", &script, "restripe-apps"])
            .args([format!("--reuid={}", self.user)])
            .args([format!("--regid={}", self.user)])
            .arg("--clear-groups")
            .arg(self.program("postgres"))
            .arg("-D")
            .arg(&self.data)
            .arg("-k")
            .arg(&self.socket)
            .current_dir("/");
        let settings = [
            "listen_addresses=".to_string(),
            format!("shared_buffers={buffers}MB"),
            format!("fsync={}", if fsync { "on" } else { "off" }),
            format!("checkpoint_timeout={}s", scale.checkpoint_s),
            "max_wal_size=32MB".into(),
            "min_wal_size=16MB".into(),
            "max_connections=40".into(),
            "jit=off".into(),
            "dynamic_shared_memory_type=mmap".into(),
        ];
        for setting in settings {
            command.args(["-c", &setting]);
        }
        if !fsync {
            // Tables that are made and filled in one transaction need no log then.
            command.args(["-c", "wal_level=minimal", "-c", "max_wal_senders=0"]);
        }
        let mut server = Process::start(undo, command, "INT")?;
        for _ in 0..1500 {
            if self.ask("SELECT 1").is_ok() {
                return Ok(server);
            }
            server.check()?;
            pause(40);
        }
        Err("PostgreSQL does not answer within a minute".into())
    }

    pub fn ask(&self, sql: &str) -> Outcome<String> {
        self.psql(&["-c", sql])
    }

    fn psql(&self, arguments: &[&str]) -> Outcome<String> {
        let address = self.address();
        let mut all: Vec<&str> = address.iter().map(String::as_str).collect();
        all.extend([
            "-d",
            DATABASE,
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
        ]);
        all.extend(arguments);
        run(&self.program("psql"), &all)
    }

    /// Makes and fills a workload's tables.
    pub fn fill(&self, workload: Workload, scale: &Scale, scripts: &Path) -> Outcome<()> {
        let schema = scripts.join(workload.name()).join("schema.sql");
        let schema = schema.display().to_string();
        match workload {
            Workload::TpcB => {
                let address = self.address();
                let scale = scale.pgbench_scale.to_string();
                let mut all: Vec<&str> = address.iter().map(String::as_str).collect();
                all.extend(["-i", "-q", "-s", &scale, DATABASE]);
                run(&self.program("pgbench"), &all)?;
            }
            Workload::TpcC => {
                let warehouses = format!("warehouses={}", scale.warehouses);
                self.psql(&["-1", "-v", &warehouses, "-f", &schema])?;
            }
            Workload::TpcW => {
                let items = format!("items={}", scale.tpcw_items);
                let customers = format!("customers={}", scale.tpcw_customers);
                self.psql(&["-1", "-v", &items, "-v", &customers, "-f", &schema])?;
            }
            Workload::PostMark => return Err("PostMark has no tables".into()),
        }
        self.ask("VACUUM ANALYZE")?;
        self.ask("CHECKPOINT").map(|_| ())
    }

    /// Whether what every transaction keeps is still so: an error says what is not.
    pub fn verify(&self, workload: Workload) -> Outcome<()> {
        let law = match workload {
            Workload::TpcB => {
                "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = \
                 (SELECT coalesce(sum(delta), 0) FROM pgbench_history)"
            }
            // Consistency conditions 1 and 2 of TPC-C 3.3.2.
            Workload::TpcC => {
                "SELECT bool_and(w_ytd = (SELECT sum(d_ytd) FROM district WHERE d_w_id = w_id)) \
                 AND (SELECT bool_and(d_next_o_id - 1 = (SELECT max(o_id) FROM orders \
                 WHERE o_w_id = d_w_id AND o_d_id = d_id)) FROM district) FROM warehouse"
            }
            Workload::TpcW => {
                "SELECT count(*) = 0 FROM orders o WHERE NOT EXISTS \
                 (SELECT 1 FROM order_line WHERE ol_o_id = o_id)"
            }
            Workload::PostMark => return Ok(()),
        };
        match self.ask(law)?.as_str() {
            "t" => Ok(()),
            answer => Err(format!(
                "{}: the tables contradict one another ({answer})",
                workload.name()
            )),
        }
    }
}
