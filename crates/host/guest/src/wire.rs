//! Messages over sockets that block, some of which carry files.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The most files that come with a message.
const FILES: usize = 8;

/// Reads `len` bytes, and the files that come with the first of them. No bytes: the other end is
/// closed.
pub(crate) fn receive(from: &UnixStream, len: usize) -> io::Result<(Vec<u8>, Vec<File>)> {
    let mut bytes = vec![0; len];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = loop {
        match recvmsg(from, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CONNRESET) => break 0,
            other => break other?.bytes,
        }
    };
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files.map(File::from)),
        _ => None,
    });
    let files: Vec<File> = files.flatten().collect();
    if got == 0 {
        return Ok((Vec::new(), files));
    }
    let mut from = from;
    from.read_exact(&mut bytes[got..])?;
    Ok((bytes, files))
}

/// Reads the `len` bytes that follow a header.
pub(crate) fn receive_rest(mut from: &UnixStream, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Sends bytes.
pub(crate) fn send(mut to: &UnixStream, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)
}

/// Sends bytes with files.
pub(crate) fn send_files(to: &UnixStream, bytes: &[u8], files: &[OwnedFd]) -> io::Result<()> {
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = sendmsg(to, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}
