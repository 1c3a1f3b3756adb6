//! The requests to a kernel that no safe function makes.
#![expect(unsafe_code, reason = "ioctl, personality")]

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Brings the interface `lo` up, so that programs of the guest reach each other.
pub(crate) fn bring_up() -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: all zeros is a valid value of a structure of integers and arrays of them.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l'.cast_signed();
    request.ifr_name[1] = b'o'.cast_signed();
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    // SAFETY: the request is initialised, and the kernel only reads it.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives a program the same addresses in each run. A guest kernel's memory depends on them.
pub(crate) fn without_random_addresses(command: &mut Command) {
    let set = || {
        // SAFETY: the call takes a number.
        match unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: the function makes one system call, and no memory is allocated.
    unsafe { command.pre_exec(set) };
}
