//! Mounts an empty file system that is kept in memory: `model DIR [io_uring]`. It ends with the
//! unmount.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use ordo_fuse::kernel::{Attach, attach};
use ordo_fuse::{Handler, HandlerOptions, dev, uring};
use ordo_runtime::Executor;
use ordo_vfs::Timestamp;
use ordo_vfs::model::{ModelConfig, ModelFs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let dir = args.first().ok_or("model DIR [io_uring]")?;
    let io_uring = args.iter().any(|arg| arg == "io_uring");
    if io_uring && !uring::is_enabled() {
        return Err("as root: echo Y >/sys/module/fuse/parameters/enable_uring".into());
    }
    let fs = Rc::new(ModelFs::new(ModelConfig::default(), Timestamp::default));
    let how = Attach {
        source: "model".into(),
        device: false,
        read_only: false,
        allow_other: false,
        flags: Vec::new(),
    };
    let attached = attach(&how, Path::new(dir))?;
    let executor = Executor::real(1);
    let runtime = executor.runtime();
    let options = HandlerOptions { io_uring, ..HandlerOptions::default() };
    let handler = Handler::new(fs, options, Rc::new(|text| eprintln!("{text}")));
    let device = Arc::new(attached.device);
    let shutdown_reply = executor.block_on(async {
        let stop = Rc::default();
        let shutdown_reply = dev::serve(&runtime, &device, &Rc::new(handler), &stop).await?;
        shutdown_reply.send(&runtime).await;
        Ok::<_, std::io::Error>(())
    })?;
    Ok(shutdown_reply?)
}
