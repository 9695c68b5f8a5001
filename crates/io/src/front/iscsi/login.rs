//! The login phase: who the initiator is, which target it means, and how the session transfers (RFC 7143
//! section 6).
//!
//! | stage | keys | next |
//! |---|---|---|
//! | security (0) | names, `AuthMethod`, CHAP | operational, or full |
//! | operational (1) | digests, lengths | full |
//! | full (3) | | the session |
//!
//! A login has at most [`REQUESTS_MAX`] requests and [`TEXT_BYTES_MAX`] bytes of keys. Whatever is wrong ends
//! it with a status, and the connection with it. An answer to what may be a guess comes a second later.

use super::chap::{Algorithm, Challenge, Secrets, encode};
use super::hub::{Hub, Target};
use super::keys::{self, Negotiation, Parameters};
use super::pdu::{Header, opcode};
use crate::front::Link;
use crate::front::scsi::Initiator;

/// Most requests of one login.
pub(crate) const REQUESTS_MAX: u32 = 64;
/// Most bytes of keys of one login, over all its requests.
pub(crate) const TEXT_BYTES_MAX: usize = 32 * 1024;
/// Longest data segment of a login, in either direction.
pub(crate) const SEGMENT_BYTES_MAX: u32 = 8192;
/// Longest name of an initiator or target.
const NAME_BYTES_MAX: usize = 223;

const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL: u8 = 3;
const TRANSIT: u8 = 0x80;
const CONTINUE: u8 = 0x40;

/// Status class and detail of a login response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refusal(pub u8, pub u8);

const INITIATOR_ERROR: Refusal = Refusal(2, 0);
const NOT_AUTHENTIC: Refusal = Refusal(2, 1);
const NOT_ALLOWED: Refusal = Refusal(2, 2);
const NOT_FOUND: Refusal = Refusal(2, 3);
const WRONG_VERSION: Refusal = Refusal(2, 5);
const TOO_MANY_CONNECTIONS: Refusal = Refusal(2, 6);
const MISSING_PARAMETER: Refusal = Refusal(2, 7);
const NO_SUCH_TYPE: Refusal = Refusal(2, 9);
const NO_SUCH_SESSION: Refusal = Refusal(2, 10);
const OUT_OF_RESOURCES: Refusal = Refusal(3, 2);

impl Refusal {
    fn why(self) -> String {
        let why = match self {
            NOT_AUTHENTIC => "it has not proved who it is by CHAP",
            NOT_ALLOWED => "the target's list of initiators does not have it",
            NOT_FOUND => "there is no target of the name that it wants",
            OUT_OF_RESOURCES => "there are too many sessions",
            Refusal(class, detail) => return format!("its login was refused ({class}/{detail})"),
        };
        why.to_owned()
    }

    /// Whether it is an answer to what may be a guess.
    fn is_slow(self) -> bool {
        matches!(self, NOT_AUTHENTIC | NOT_ALLOWED | NOT_FOUND)
    }
}

/// What a login ended with.
pub(crate) struct Agreed {
    pub(crate) initiator: Initiator,
    /// `None`: a discovery session.
    pub(crate) target: Option<Target>,
    pub(crate) parameters: Parameters,
    pub(crate) handle: u16,
    /// The number of the next command, and of the next status.
    pub(crate) command: u32,
    pub(crate) status: u32,
    /// The initiator's number of the connection.
    pub(crate) cid: [u8; 2],
}

/// How far the initiator has proved who it is.
enum Proof {
    /// Nothing was said of it.
    Open,
    /// CHAP was agreed on.
    Agreed(Secrets),
    Asked(Secrets, Challenge),
    Done,
}

/// What a request came to.
pub(crate) enum Step {
    More,
    Done(Box<Agreed>),
    /// With this response, and later: one who guesses names or secrets is to wait for it.
    Refused(Box<Header>, bool),
}

pub(crate) struct Login {
    requests: u32,
    stage: Option<u8>,
    /// Keys that came so far of a text that continues.
    text: Vec<u8>,
    text_bytes: usize,
    status: u32,
    initiator: Option<Initiator>,
    discovery: bool,
    target: Option<Target>,
    named: bool,
    proof: Proof,
    negotiation: Negotiation,
}

impl Login {
    pub(crate) fn new() -> Login {
        Login {
            requests: 0,
            stage: None,
            text: Vec::new(),
            text_bytes: 0,
            status: 0,
            initiator: None,
            discovery: false,
            target: None,
            named: false,
            proof: Proof::Open,
            negotiation: Negotiation::default(),
        }
    }

    /// Takes a request up, and sends its response.
    pub(crate) fn step(
        &mut self,
        header: &Header,
        data: &[u8],
        hub: &Hub,
        link: &mut dyn Link,
    ) -> Step {
        if self.requests == 0 {
            self.status = header.number(28);
        }
        self.requests += 1;
        let mut answer = Vec::new();
        let outcome = self.request(header, data, &mut answer, hub, link);
        let outcome = outcome.and_then(|flags| {
            let ends = flags & TRANSIT != 0 && flags & 3 == FULL;
            let agreed = ends.then(|| self.agree(header, hub, link)).transpose()?;
            Ok((flags, agreed))
        });
        match outcome {
            Ok((flags, None)) => {
                self.respond(header, flags, 0, &answer, link);
                Step::More
            }
            Ok((flags, Some(mut agreed))) => {
                self.respond(header, flags, agreed.handle, &answer, link);
                agreed.status = self.status;
                Step::Done(Box::new(agreed))
            }
            Err(refusal) => {
                if let Some(report) = &hub.report {
                    let name = self.initiator.as_ref().map_or("", |one| &one.name);
                    let why = refusal.why();
                    report.refused(link, &format!("iSCSI initiator {name:?}: {why}"));
                }
                let mut response = self.response(header, 0, 0);
                (response.0[36], response.0[37]) = (refusal.0, refusal.1);
                Step::Refused(Box::new(response), refusal.is_slow())
            }
        }
    }

    /// The flags of the response.
    fn request(
        &mut self,
        header: &Header,
        data: &[u8],
        answer: &mut Vec<u8>,
        hub: &Hub,
        link: &mut dyn Link,
    ) -> Result<u8, Refusal> {
        let (flags, lowest_version) = (header.flags(), header.0[3]);
        let (current, next) = (flags >> 2 & 3, flags & 3);
        let (transit, continues) = (flags & TRANSIT != 0, flags & CONTINUE != 0);
        if lowest_version != 0 {
            return Err(WRONG_VERSION);
        }
        self.text_bytes += data.len();
        let expected = self.stage.unwrap_or(current);
        let known = matches!(current, SECURITY | OPERATIONAL) && current == expected;
        let forward = !transit || (next > current && matches!(next, OPERATIONAL | FULL));
        let bounded = self.requests <= REQUESTS_MAX && self.text_bytes <= TEXT_BYTES_MAX;
        if !known || !forward || !bounded || (transit && continues) {
            return Err(INITIATOR_ERROR);
        }
        self.check_handle(header, hub)?;
        self.stage = Some(current);
        self.text.extend_from_slice(data);
        if continues {
            return Ok(current << 2);
        }
        let text = std::mem::take(&mut self.text);
        let pairs = keys::parse(&text).ok_or(INITIATOR_ERROR)?;
        if !self.named {
            self.name(&pairs, header, hub, link)?;
            self.declare_group(answer);
        }
        let ready = self.answer_all(&pairs, current, answer, hub)?;
        if answer.len() > SEGMENT_BYTES_MAX as usize {
            return Err(INITIATOR_ERROR);
        }
        if !transit || !ready {
            return Ok(current << 2);
        }
        if current == SECURITY {
            self.check_proof()?;
        }
        self.stage = Some(next);
        Ok(TRANSIT | current << 2 | next)
    }

    /// A session has one connection: none can be added.
    fn check_handle(&self, header: &Header, hub: &Hub) -> Result<(), Refusal> {
        let handle = u16::from_be_bytes([header.0[14], header.0[15]]);
        match handle {
            0 => Ok(()),
            _ if hub.state().has_session(handle) => Err(TOO_MANY_CONNECTIONS),
            _ => Err(NO_SUCH_SESSION),
        }
    }

    // ------------------------------------------------------------------------------------------------- names

    /// The first request's keys say who logs in, and where.
    fn name(
        &mut self,
        pairs: &[(&str, &str)],
        header: &Header,
        hub: &Hub,
        link: &dyn Link,
    ) -> Result<(), Refusal> {
        let value = |key: &str| pairs.iter().find(|pair| pair.0 == key).map(|pair| pair.1);
        let name = value("InitiatorName").ok_or(MISSING_PARAMETER)?;
        let odd = |one: char| one.is_whitespace() || one.is_control();
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(odd) {
            return Err(INITIATOR_ERROR);
        }
        let mut isid = [0; 6];
        isid.copy_from_slice(&header.0[8..14]);
        self.initiator = Some(Initiator {
            name: name.to_ascii_lowercase(),
            isid,
        });
        match value("SessionType") {
            None | Some("Normal") => {}
            Some("Discovery") => self.discovery = true,
            Some(_) => return Err(NO_SUCH_TYPE),
        }
        if !self.discovery {
            let target = value("TargetName").ok_or(MISSING_PARAMETER)?;
            let target = hub.target(target, link).ok_or(NOT_FOUND)?;
            if !target.admits(name) {
                return Err(NOT_ALLOWED);
            }
            self.target = Some(target);
        }
        self.named = true;
        Ok(())
    }

    fn declare_group(&self, answer: &mut Vec<u8>) {
        if self.target.is_some() {
            keys::append(answer, "TargetPortalGroupTag", "1");
        }
    }

    // -------------------------------------------------------------------------------------------------- keys

    /// Answers the keys of one text. Whether the stage may end.
    fn answer_all(
        &mut self,
        pairs: &[(&str, &str)],
        current: u8,
        answer: &mut Vec<u8>,
        hub: &Hub,
    ) -> Result<bool, Refusal> {
        let mut proofs = Vec::new();
        // Its bound is MaxBurstLength, which may stand behind it.
        let mut ordered: Vec<&(&str, &str)> = pairs.iter().collect();
        ordered.sort_by_key(|(key, _)| *key == "FirstBurstLength");
        for (key, value) in ordered {
            match *key {
                "InitiatorName" | "InitiatorAlias" | "TargetName" | "SessionType" => {}
                "AuthMethod" | "CHAP_A" | "CHAP_N" | "CHAP_R" | "CHAP_I" | "CHAP_C" => {
                    proofs.push((*key, *value));
                }
                _ if !self.negotiation.first_time(key) => return Err(INITIATOR_ERROR),
                _ => {
                    let result = self.negotiation.negotiate(key, value, self.discovery);
                    if let Some(result) = result {
                        keys::append(answer, key, &result);
                    }
                }
            }
        }
        if current == OPERATIONAL {
            if !proofs.is_empty() {
                return Err(INITIATOR_ERROR);
            }
            self.check_proof()?;
            self.negotiation.declare(answer);
            return Ok(true);
        }
        self.prove(&proofs, answer, hub)
    }

    /// Nothing needs to be proved, or everything was.
    fn check_proof(&self) -> Result<(), Refusal> {
        let needed = self
            .target
            .as_ref()
            .is_some_and(|target| target.secrets.is_some());
        match (needed, &self.proof) {
            (false, Proof::Open) | (_, Proof::Done) => Ok(()),
            _ => Err(NOT_AUTHENTIC),
        }
    }

    /// Takes the next step of the security stage. Whether it may end.
    fn prove(
        &mut self,
        pairs: &[(&str, &str)],
        answer: &mut Vec<u8>,
        hub: &Hub,
    ) -> Result<bool, Refusal> {
        let value = |key: &str| pairs.iter().find(|pair| pair.0 == key).map(|pair| pair.1);
        let secrets = self
            .target
            .as_ref()
            .and_then(|target| target.secrets.clone());
        match std::mem::replace(&mut self.proof, Proof::Open) {
            Proof::Open => match (value("AuthMethod"), secrets) {
                (None, Some(_)) => Err(NOT_AUTHENTIC),
                (None, None) => Ok(true),
                (Some(list), Some(secrets)) => {
                    if !list.split(',').any(|method| method == "CHAP") {
                        return Err(NOT_AUTHENTIC);
                    }
                    keys::append(answer, "AuthMethod", "CHAP");
                    self.proof = Proof::Agreed(secrets);
                    Ok(false)
                }
                (Some(list), None) => {
                    if !list.split(',').any(|method| method == "None") {
                        return Err(NOT_AUTHENTIC);
                    }
                    keys::append(answer, "AuthMethod", "None");
                    self.proof = Proof::Done;
                    Ok(true)
                }
            },
            Proof::Agreed(secrets) => {
                let list = value("CHAP_A").ok_or(NOT_AUTHENTIC)?;
                let algorithm = Algorithm::choose(list).ok_or(NOT_AUTHENTIC)?;
                let challenge = Challenge::new(algorithm, hub.random);
                keys::append(answer, "CHAP_A", algorithm.number());
                keys::append(answer, "CHAP_I", &challenge.identifier.to_string());
                keys::append(answer, "CHAP_C", &encode(&challenge.bytes));
                self.proof = Proof::Asked(secrets, challenge);
                Ok(false)
            }
            Proof::Asked(secrets, challenge) => {
                let name = value("CHAP_N").ok_or(NOT_AUTHENTIC)?;
                let response = value("CHAP_R").ok_or(NOT_AUTHENTIC)?;
                let initiator = self.initiator.as_ref().ok_or(MISSING_PARAMETER)?;
                if !challenge.is_met(&secrets, &initiator.name, name, response) {
                    return Err(NOT_AUTHENTIC);
                }
                if let Some(identifier) = value("CHAP_I") {
                    let target = secrets.target.as_ref().ok_or(NOT_AUTHENTIC)?;
                    let theirs = value("CHAP_C").ok_or(NOT_AUTHENTIC)?;
                    let ours = challenge.answer(target, identifier, theirs);
                    keys::append(answer, "CHAP_N", &target.name);
                    keys::append(answer, "CHAP_R", &ours.ok_or(NOT_AUTHENTIC)?);
                }
                self.proof = Proof::Done;
                Ok(true)
            }
            Proof::Done => {
                self.proof = Proof::Done;
                Ok(true)
            }
        }
    }

    // -------------------------------------------------------------------------------------------- the answer

    fn agree(
        &mut self,
        header: &Header,
        hub: &Hub,
        link: &mut dyn Link,
    ) -> Result<Agreed, Refusal> {
        let initiator = self.initiator.clone().ok_or(MISSING_PARAMETER)?;
        let target = self.target.as_ref().map(|target| target.name.as_str());
        let handle = hub.state().register(&initiator, target, link);
        Ok(Agreed {
            initiator,
            target: self.target.take(),
            parameters: self.negotiation.end(),
            handle: handle.ok_or(OUT_OF_RESOURCES)?,
            command: header.number(24),
            status: self.status,
            cid: [header.0[20], header.0[21]],
        })
    }

    fn response(&mut self, header: &Header, flags: u8, handle: u16) -> Header {
        let mut response = Header::new(opcode::LOGIN_RESPONSE, flags);
        response.0[8..14].copy_from_slice(&header.0[8..14]);
        response.0[14..16].copy_from_slice(&handle.to_be_bytes());
        let command = header.number(24);
        let response = response
            .with(16, header.task_tag())
            .with(24, self.status)
            .with(28, command)
            .with(32, command);
        self.status = self.status.wrapping_add(1);
        response
    }

    fn respond(
        &mut self,
        header: &Header,
        flags: u8,
        handle: u16,
        answer: &[u8],
        link: &mut dyn Link,
    ) {
        let mut response = self.response(header, flags, handle);
        response.set_data_bytes(answer.len());
        link.send(&response.0);
        link.send(answer);
        link.send(&[0; 3][..super::pdu::padding(answer.len() as u32)]);
    }
}
