//! `ordo trace attach`: the requests to devices or images are recorded and named while a command
//! uses them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use ordo_recorder::{DeviceSetup, Session, Transport};
use ordo_report::number::parse_bytes;

use super::record::{RecordOptions, name_of};
use super::running::Signals;
use super::volumes::{self, Recorder, report_all, together};
use crate::privileges::need_root;
use crate::text::put;

/// Record the requests to a device or an image while a command uses it.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Puts a pseudo-device over a device or an image, and runs the command with the pseudo-device's name
in $ORDO_DEVICE. The pseudo-device is removed when the command ends. Writes go to the device or
image itself. Needs root.

A disk with partitions (MBR with logical ones, GPT, BSD labels) is recorded by partition: each has
its own analysis, named p1, p2 and so on, and 'rest' has the tables and the space between. The
command finds the partitions' devices as ${ORDO_DEVICE}p1 and so on. In the directory of -o each has
a trace of its own. A file system that the command makes is recognised when it is mounted. A device
or an image in use (mounted, or by a loop device, swap or a virtual machine) is refused.

With several devices the others are in $ORDO_DEVICE_2 and so on. Each has its own analysis and, in
the directory of -o, its own trace. All traces have one clock. Blocks of a DualFS's data device
have the files that its metadata device names (not with --rotate or --sample).

Example:
  ordo trace attach disk.img -o use.trace -- \\
    sh -c 'mount $ORDO_DEVICE /mnt && make -C /mnt; umount /mnt'

A disk of a virtual machine:
  ordo trace attach vm.img -o vm -- \\
    sh -c 'mount ${ORDO_DEVICE}p2 /mnt && make -C /mnt; umount /mnt'
  ordo analyze vm; ordo trace show vm/p2

Two devices of one file system:
  ordo trace attach meta.img data.img -o both -- \\
    sh -c 'ordo mount $ORDO_DEVICE $ORDO_DEVICE_2 /mnt && make -C /mnt; umount /mnt'
  ordo analyze both/data.img

For days: parts of at most ten minutes, of which a killed recorder loses the last one or two.
  ordo trace attach /dev/sdb --rotate 10min --without-contents -o /var/ordo -- \\
    sh -c 'mount $ORDO_DEVICE /srv && serve; umount /srv'
  ordo analyze /var/ordo

For monitoring: counts of each kind of block, and nothing else.
  ordo trace attach /dev/sdb --counters /var/lib/node_exporter/ordo.prom -- \\
    sh -c 'mount $ORDO_DEVICE /srv && serve; umount /srv'")]
pub struct AttachTo {
    /// The device or image, which must not be in use; or several, for a file system that uses
    /// several.
    #[arg(value_name = "DEVICE", required = true)]
    devices: Vec<PathBuf>,
    /// The file system begins at this byte of the device, where no partition table leads to it. Its
    /// device is ${ORDO_DEVICE}p1.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    offset: Option<u64>,
    #[command(flatten)]
    how: RecordOptions,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// A device that is recorded.
struct Attached {
    /// Its name: unique among the devices of a recording; empty if it is the only one.
    name: String,
    recorders: Vec<Recorder>,
}

/// A name for each device: that of its file, with a number behind it if an earlier one has the
/// same.
fn names(devices: &[PathBuf]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for device in devices {
        let name = name_of(&Transport::Path(device.clone()));
        let again = (2..).map(|number| format!("{name}-{number}"));
        let mut all = std::iter::once(name.clone()).chain(again);
        names.extend(all.find(|name| !names.contains(name)));
    }
    names
}

/// Refuses a device that is given twice: two recorders of one device would each see a part of its
/// requests.
fn refuse_twice(devices: &[PathBuf]) -> Result<()> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    for (number, device) in devices.iter().enumerate() {
        if devices[..number].iter().any(|other| real(other) == real(device)) {
            bail!("{}: the device is given twice", device.display());
        }
    }
    Ok(())
}

impl AttachTo {
    /// The devices, and the configuration of each.
    fn each(&self) -> Result<(Vec<Attached>, Vec<DeviceSetup>)> {
        refuse_twice(&self.devices)?;
        let are_several = self.devices.len() > 1;
        if are_several && self.how.counters.is_some() {
            bail!("--counters has a file for one device; give one device");
        }
        if are_several && self.offset.is_some() {
            bail!("--offset is that of one device; give one device");
        }
        let (mut each, mut setups) = (Vec::new(), Vec::new());
        for (device, name) in self.devices.iter().zip(names(&self.devices)) {
            let volumes = volumes::find(device, self.offset)?;
            let how = if are_several { self.how.for_volume(&name) } else { self.how.clone() };
            let place = Transport::Path(device.clone());
            let (recorders, setup) = Recorder::of(&how, place, &name, &volumes)?;
            let name = if are_several { name } else { String::new() };
            each.push(Attached { name, recorders });
            setups.push(setup);
        }
        Ok((each, setups))
    }
}

/// Records the requests to devices.
///
/// # Errors
/// There is no device, or the files cannot be written.
pub fn attach(args: &AttachTo) -> Result<ExitCode> {
    need_root("ordo trace attach", "makes a device in front of the one that is recorded")?;
    let (each, setups) = args.each()?;
    let signals = Signals::catch()?;
    let session = Session::of_each(setups)?;
    session.start()?;
    let control = session.control().to_string_lossy().into_owned();
    let devices = session.devices().iter().map(|device| device.to_string_lossy().into_owned());
    let mut variables = vec![("ORDO_MARK".to_owned(), control)];
    variables.extend(devices.enumerate().map(|(number, device)| match number {
        0 => ("ORDO_DEVICE".to_owned(), device),
        _ => (format!("ORDO_DEVICE_{}", number + 1), device),
    }));
    let variables: Vec<(&str, &str)> = variables.iter().map(|(k, v)| (&**k, &**v)).collect();
    let status = signals.carry_out(&args.command, None, &variables);
    let recordings = session.finish_each()?;
    let mut texts = Vec::new();
    for (Attached { name, recorders }, recording) in each.iter().zip(&recordings) {
        texts.push((&**name, report_all(recorders, recording, args.how.json)?));
    }
    put(None, &together(&texts, args.how.json)?)?;
    status
}
