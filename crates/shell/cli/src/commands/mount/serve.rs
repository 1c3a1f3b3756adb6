//! Handing a mounted file system to the kernel, and taking it back.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, Result};
use ordo_fuse::dev::{self, ShutdownReply, Stop};
use ordo_fuse::kernel::{Attach, Attached, Detach, attach};
use ordo_fuse::{Handler, HandlerOptions, uring};
use ordo_runtime::Runtime;
use ordo_systems::Mounted;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::pressure;
use super::recover::Plan;

/// Serves a file system until it is unmounted, and unmounts it.
pub async fn serve(plan: &Plan<'_>, mounted: Mounted) -> Result<()> {
    let unmount = async || mounted.unmount().await.context("unmounting; check it (ordo fsck)");
    let attached = match attach(&how(plan), &plan.args.dir) {
        Ok(attached) => attached,
        Err(error) => {
            unmount().await?;
            return Err(error.into());
        }
    };
    let served = requests(plan, &mounted, &attached).await;
    let unmounted = unmount().await;
    if let Err(error) = &unmounted {
        plan.tell.error(&format!("{error:#}"));
    }
    // A process that waits for the end of the mount continues now: the disk is clean, or cannot
    // become clean any more, and is free for the next mount.
    plan.unlock();
    served?.send(plan.runtime).await;
    unmounted
}

fn how(plan: &Plan<'_>) -> Attach {
    let root = rustix::process::geteuid().is_root();
    Attach {
        source: plan.args.image.clone(),
        device: plan.give_device(),
        read_only: plan.is_read_only(),
        allow_other: plan.wanted.allow_other.unwrap_or(root),
        flags: plan.wanted.flags.clone(),
    }
}

/// Whether to ask the kernel for requests over io_uring. If the option was given but cannot be
/// used, a notice says why.
fn over_ring(plan: &Plan<'_>) -> bool {
    if !plan.wanted.io_uring {
        return false;
    }
    let why = match () {
        () if !uring::is_enabled() => {
            "the kernel does not offer it (as root: echo Y >/sys/module/fuse/parameters/enable_uring)"
        }
        () if !plan.runtime.takes_commands() => "io_uring is not available here",
        () => return true,
    };
    plan.tell.notice(&format!("requests come through /dev/fuse, not io_uring: {why}"));
    false
}

async fn requests(
    plan: &Plan<'_>,
    mounted: &Mounted,
    attached: &Attached,
) -> Result<ShutdownReply> {
    let io_uring = over_ring(plan);
    let options = HandlerOptions {
        write_back: plan.wanted.write_back,
        names_only: plan.wanted.names_only,
        acl: plan.acl(),
        synchronous: plan.wanted.synchronous,
        bsd_groups: plan.wanted.bsd_groups,
        ids: plan.wanted.ids.clone(),
        big_endian: plan.big_endian(),
        io_uring,
        timeout: plan.wanted.timeout,
        writer: None,
    };
    let tell = plan.tell.clone();
    let handler =
        Handler::new(mounted.fs().clone(), options, Rc::new(move |text: &str| tell.error(text)));
    let stop = Rc::new(Stop::default());
    on_signal(plan.runtime, attached.detach(), &stop).context("cannot watch for signals")?;
    plan.tell.notice(&format!(
        "mounted on {}, {}{}{}",
        attached.dir.display(),
        plan.ordering(),
        if io_uring { ", over io_uring" } else { "" },
        if attached.umount_waits { "" } else { "; ordo umount waits until the disk is clean" }
    ));
    plan.tell.mounted();
    attached.widen_read_ahead();
    pressure::watch(plan.runtime, mounted, plan.tell);
    let device = Arc::new(attached.device.try_clone()?);
    Ok(dev::serve(plan.runtime, &device, &Rc::new(handler), &stop).await?)
}

/// Unmounts on a signal: as `umount` does, or by force if the mount is in use.
fn on_signal(runtime: &Runtime, detach: Detach, stop: &Rc<Stop>) -> Result<()> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::low_level::pipe::register(signal, theirs.try_clone()?)?;
    }
    let watched = Arc::new(File::from(OwnedFd::from(ours)));
    let (rt, stop) = (runtime.clone(), stop.clone());
    runtime.spawn_daemon("signals", async move {
        let mut asked = false;
        loop {
            if rt.readable(&watched).await.is_err() {
                return;
            }
            let mut byte = [0; 16];
            let Ok(n) = (&*watched).read(&mut byte) else { continue };
            if n == 0 || byte[..n].contains(&b'!') {
                return stop.set();
            }
            if !std::mem::replace(&mut asked, true) {
                let (detach, done) = (detach.clone(), theirs.try_clone());
                // The call waits for work of this thread, so it needs another thread.
                std::thread::spawn(move || {
                    if detach.unmount(false).is_err() {
                        let _ = detach.unmount(true);
                        let _ = done.and_then(|mut done| done.write_all(b"!"));
                    }
                });
            }
        }
    });
    Ok(())
}
