//! Spindles of real disks: spun down and up by the kernel's SCSI commands, or by a configured command.

use super::blocking::sync;
use super::hook::{Haste, PATIENCE, PowerHook};
use std::os::fd::RawFd;
use std::sync::Arc;

/// Where a spindle is told.
#[derive(Clone, Debug)]
pub struct Spindle {
    pub fd: RawFd,
    pub path: String,
    pub hook: Option<PowerHook>,
    pub haste: Arc<Haste>,
}

/// Tells a spindle to turn or to stand still, once all that was written is on stable media. 0, or an errno below it.
pub(super) fn tell(spindle: &Spindle, turns: bool) -> i32 {
    if !turns && sync(spindle.fd) < 0 {
        return -libc::EIO;
    }
    match spindle.hook {
        Some(hook) => hook.run(turns, &spindle.path, &spindle.haste),
        None => start_stop(spindle.fd, turns),
    }
}

// ------------------------------------------------------------------------------------------------------------ SCSI

/// `sg_io_hdr` of <scsi/sg.h>.
#[repr(C)]
struct SgIo {
    interface_id: i32,
    dxfer_direction: i32,
    cmd_len: u8,
    mx_sb_len: u8,
    iovec_count: u16,
    dxfer_len: u32,
    dxferp: *mut libc::c_void,
    cmdp: *const u8,
    sbp: *mut u8,
    timeout: u32,
    flags: u32,
    pack_id: i32,
    usr_ptr: *mut libc::c_void,
    status: u8,
    masked_status: u8,
    msg_status: u8,
    sb_len_wr: u8,
    host_status: u16,
    driver_status: u16,
    resid: i32,
    duration: u32,
    info: u32,
}

const SG_IO: libc::c_ulong = 0x2285;
const SG_DXFER_NONE: i32 = -1;
/// START STOP UNIT; the kernel makes ATA's STANDBY IMMEDIATE of it where the drive speaks that.
const START_STOP_UNIT: u8 = 0x1b;

/// A drive that does not know the command is [unsupported](libc::EOPNOTSUPP), as are devices that are no disks.
fn start_stop(fd: RawFd, turns: bool) -> i32 {
    let command = [START_STOP_UNIT, 0, 0, 0, u8::from(turns), 0];
    let mut sense = [0u8; 32];
    let mut io = SgIo {
        interface_id: i32::from(b'S'),
        dxfer_direction: SG_DXFER_NONE,
        cmd_len: command.len() as u8,
        mx_sb_len: sense.len() as u8,
        iovec_count: 0,
        dxfer_len: 0,
        dxferp: std::ptr::null_mut(),
        cmdp: command.as_ptr(),
        sbp: sense.as_mut_ptr(),
        timeout: PATIENCE.as_millis() as u32,
        flags: 0,
        pack_id: 0,
        usr_ptr: std::ptr::null_mut(),
        status: 0,
        masked_status: 0,
        msg_status: 0,
        sb_len_wr: 0,
        host_status: 0,
        driver_status: 0,
        resid: 0,
        duration: 0,
        info: 0,
    };
    // SAFETY: the header names the command and the room for sense data, which live through the call.
    let result = unsafe { libc::ioctl(fd, SG_IO as _, &raw mut io) };
    if result < 0 {
        return -libc::EOPNOTSUPP;
    }
    match (io.status, io.host_status, io.driver_status) {
        (0, 0, 0) => 0,
        _ => -libc::EOPNOTSUPP,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;

    fn spindle(file: &File, script: &str) -> Spindle {
        let words = ["sh", "-c", script].map(String::from).to_vec();
        Spindle {
            fd: file.as_raw_fd(),
            path: "/dev/disk".into(),
            hook: Some(PowerHook::new(words, |_| {})),
            haste: Arc::default(),
        }
    }

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("restripe-power-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_hook_is_told_what_and_of_whom() {
        let path = scratch("told");
        let file = File::create(&path).expect("a scratch file");
        let script = format!("echo \"$0 $1\" >> {}", path.display());
        let spindle = spindle(&file, &script);
        assert_eq!(tell(&spindle, false), 0);
        assert_eq!(tell(&spindle, true), 0);
        let told = fs::read_to_string(&path).expect("it was written");
        assert_eq!(told, "standby /dev/disk\nwake /dev/disk\n");
        fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn a_hook_that_fails_says_so() {
        let path = scratch("fails");
        let file = File::create(&path).expect("a scratch file");
        assert_eq!(tell(&spindle(&file, "exit 3"), true), -libc::ECANCELED);
        let mut none = spindle(&file, "");
        none.hook = Some(PowerHook::new(vec!["/nowhere/at/all".into()], |_| {}));
        assert_eq!(tell(&none, true), -libc::ENOENT);
        fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn a_file_has_no_spindle() {
        let path = scratch("file");
        let file = File::create(&path).expect("a scratch file");
        let spindle = Spindle {
            hook: None,
            ..spindle(&file, "")
        };
        assert_eq!(tell(&spindle, false), -libc::EOPNOTSUPP);
        fs::remove_file(&path).expect("ours");
    }
}
