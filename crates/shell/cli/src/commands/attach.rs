//! `ordo trace attach`: the requests to devices or images are recorded and named while a command uses them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::Args;
use ordo_live::watching::{Into, take, watching};
use ordo_pseudo::{DeviceSetup, Session, Transport};

use super::instead::Instead;
use super::record::{How, name_of};
use super::running::Signals;
use crate::text::put;

/// Record the requests to a device or an image while a command uses it.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Puts a pseudo-device over a device or an image, and runs the command with the pseudo-device's name
in $ORDO_DEVICE. The pseudo-device is removed when the command ends. Writes go to the device or
image itself. Needs root.

With several devices the others are in $ORDO_DEVICE_2 and so on. Each has its own analysis and, in
the directory of -o, its own trace. All traces have one clock. Blocks of a DualFS's data device
have the files that its metadata device names (not with --rotate or --sample).

Example:
  ordo trace attach disk.img -o use.trace -- \\
    sh -c 'mount $ORDO_DEVICE /mnt && make -C /mnt; umount /mnt'

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
    /// The device or image, which must not be in use; or several, for a file system that uses several.
    #[arg(value_name = "DEVICE", required = true)]
    devices: Vec<PathBuf>,
    #[command(flatten)]
    how: How,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// A device that is recorded.
struct Attached {
    /// Its name: unique among the devices of a recording.
    name: String,
    how: How,
    seen: Into,
    instead: Option<Instead>,
}

/// A name for each device: that of its file, with a number behind it if an earlier one has the same.
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

/// Refuses a device that is given twice: two recorders of one device would each see a part of its requests.
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
        let (mut each, mut setups) = (Vec::new(), Vec::new());
        for (device, name) in self.devices.iter().zip(names(&self.devices)) {
            let mut how = self.how.clone();
            if are_several && !how.is_in_parts() {
                how.output = how.output.map(|dir| dir.join(&name));
            }
            how.open()?;
            let seen = Into::default();
            let mut setup = how.setup(Transport::Path(device.clone()));
            setup.observer = Some(watching(how.wanted(), Arc::clone(&seen)));
            let instead = how.instead(&name, &mut setup)?;
            each.push(Attached { name, how, seen, instead });
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
    for (attached, recording) in each.iter().zip(&recordings) {
        let text = match &attached.instead {
            Some(instead) => instead.reported(args.how.json)?,
            None => {
                let mut seen = take(&attached.seen);
                seen.iter_mut().for_each(|seen| seen.renumber(recording));
                attached.how.reported(recording, seen.as_ref(), &[])?.unwrap_or_default()
            }
        };
        texts.push((&*attached.name, text));
    }
    put(None, &together(&texts, args.how.json)?)?;
    status
}

/// The analyses of all devices as one text; as JSON, an object with one member for each device. That of a single device is
/// itself.
fn together(texts: &[(&str, String)], as_json: bool) -> Result<String> {
    if let [(_, text)] = texts {
        return Ok(text.clone());
    }
    if !as_json {
        let each = texts.iter().map(|(name, text)| format!("{name}\n\n{text}\n"));
        return Ok(each.collect());
    }
    let mut all = serde_json::Map::new();
    for (name, text) in texts {
        let value =
            if text.is_empty() { serde_json::Value::Null } else { serde_json::from_str(text)? };
        all.insert((*name).to_owned(), value);
    }
    Ok(ordo_report::json(&all)?)
}
