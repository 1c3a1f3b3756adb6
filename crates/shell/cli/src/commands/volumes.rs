//! Recorders of a device's volumes: of the device as a whole, or of each partition.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use ordo_annotate::calls::StoredCall;
use ordo_annotate::store::is_trace;
use ordo_annotate::volumes::{DiskVolume, REST, Volumes};
use ordo_kernelfs::WatchOptions;
use ordo_kernelfs::volumes::{of_each, recording_of};
use ordo_kernelfs::watching::{TrafficSlot, WatchedTraffic, take, watching};
use ordo_recorder::{DeviceSetup, Recording, Transport};
use ordo_trace::RequestOp;
use ordo_watcher::disk;

use super::in_use;
use super::record::RecordOptions;
use super::streaming::StreamingRecorder;

/// The recorder of a volume.
pub(super) struct Recorder {
    /// Its name; empty if the device is one volume.
    pub(super) name: String,
    how: RecordOptions,
    volume: Option<DiskVolume>,
    seen: TrafficSlot,
    streaming: Option<StreamingRecorder>,
}

/// The volumes of a device or an image that nothing else uses. Faults of its partition tables are
/// told.
///
/// # Errors
/// The path is in use, or cannot be read, or has no volume at the offset.
pub(super) fn find(path: &Path, offset: Option<u64>) -> Result<Vec<DiskVolume>> {
    in_use::refuse(path)?;
    let shown = || path.display().to_string();
    let disk = File::open(path).with_context(shown)?;
    let found = match offset {
        Some(offset) => Volumes::from(&disk, offset).with_context(shown)?,
        None => Volumes::find(&disk).with_context(shown)?,
    };
    found.problems.iter().for_each(|problem| eprintln!("ordo: {}: {problem}", path.display()));
    Ok(found.all)
}

/// The volume to mount: the one that is asked for, or the only one with a file system that has a
/// device; `None` if the device is one volume.
///
/// # Errors
/// There is no such partition, or there are several with a file system.
pub(super) fn choose<'v>(
    path: &Path,
    volumes: &'v [DiskVolume],
    asked: Option<&str>,
) -> Result<Option<&'v DiskVolume>> {
    let shown = path.display();
    if volumes.is_empty() && asked.is_none() {
        return Ok(None);
    }
    let disk = File::open(path).with_context(|| shown.to_string())?;
    let can_mount = |volume: &&DiskVolume| {
        volume.number.is_some() && disk::is_file_system(&volume.image(&disk))
    };
    let all: Vec<&DiskVolume> = volumes.iter().filter(|v| v.number.is_some()).collect();
    let names: Vec<&str> = all.iter().map(|volume| &*volume.name).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    if let Some(asked) = asked {
        let found = all.iter().find(|volume| volume.is_called(asked));
        return match found {
            Some(volume) => Ok(Some(volume)),
            None => bail!("{shown}: there is no partition {asked}; there are: {names}"),
        };
    }
    let with_systems: Vec<&DiskVolume> = volumes.iter().filter(can_mount).collect();
    match with_systems[..] {
        [only] => Ok(Some(only)),
        [] => bail!("{shown}: no partition has a known file system; there are: {names}"),
        _ => {
            let names: Vec<&str> = with_systems.iter().map(|volume| &*volume.name).collect();
            bail!(
                "{shown}: several partitions have a file system ({}); choose one with --partition",
                names.join(", ")
            )
        }
    }
}

impl Recorder {
    /// Recorders of all volumes of a device with this name, and the configuration of the device.
    /// The directories of the traces are made.
    ///
    /// # Errors
    /// A directory or a file cannot be written.
    pub(super) fn of(
        how: &RecordOptions,
        place: Transport,
        name: &str,
        volumes: &[DiskVolume],
    ) -> Result<(Vec<Recorder>, DeviceSetup)> {
        let mut setup = how.setup(place);
        if volumes.is_empty() {
            how.open()?;
            let one = Recorder::one(how.clone(), name, String::new(), None, &mut setup)?;
            return Ok((vec![one], setup));
        }
        if let Some(dir) = how.output.as_ref().filter(|dir| is_trace(dir)) {
            bail!(
                "{}: a trace of a device without partitions; use another directory for this disk",
                dir.display()
            );
        }
        let numbered = volumes.iter().filter_map(|v| Some((v.number?, v.origin, v.bytes)));
        setup.partitions = numbered.collect();
        let (mut recorders, mut makers) = (Vec::new(), Vec::new());
        for volume in volumes {
            let how = how.for_volume(&volume.name);
            how.open()?;
            let mut own = how.setup(Transport::Memory(0));
            let of_volume = format!("{name}-{}", volume.name);
            let name = volume.name.clone();
            let recorder = Recorder::one(how, &of_volume, name, Some(volume), &mut own)?;
            makers.extend(own.observer.take().map(|maker| (volume.clone(), maker)));
            recorders.push(recorder);
        }
        setup.observer = Some(of_each(makers));
        Ok((recorders, setup))
    }

    fn one(
        how: RecordOptions,
        device: &str,
        name: String,
        volume: Option<&DiskVolume>,
        setup: &mut DeviceSetup,
    ) -> Result<Recorder> {
        let seen = TrafficSlot::default();
        let tables = volume.filter(|volume| volume.name == REST).cloned();
        let wanted = WatchOptions { tables, ..how.wanted() };
        setup.observer = Some(watching(wanted, Arc::clone(&seen)));
        let streaming = how.streaming(device, setup)?;
        Ok(Recorder { name, how, volume: volume.cloned(), seen, streaming })
    }

    /// The analysis of the volume as text or as JSON, of the device's recording; empty if there is
    /// none. Keeps the trace, if that was asked for. `calls` finds the system calls about the
    /// volume.
    ///
    /// # Errors
    /// The files cannot be written.
    pub(super) fn reported(
        &self,
        recording: &Recording,
        calls: impl FnOnce(&Recording, Option<&WatchedTraffic>) -> Result<Vec<StoredCall>>,
    ) -> Result<String> {
        if let Some(streaming) = &self.streaming {
            return streaming.reported(self.how.json);
        }
        let own = self.volume.as_ref().map(|volume| recording_of(volume, recording));
        let recording = own.as_ref().unwrap_or(recording);
        let mut seen = take(&self.seen);
        seen.iter_mut().for_each(|seen| seen.renumber(recording));
        let calls = calls(recording, seen.as_ref())?;
        let text = self.how.reported(recording, seen.as_ref(), &calls)?.unwrap_or_default();
        // Most partitions of a disk have no requests: a line says more than empty tables.
        let is_used = recording
            .trace
            .requests()
            .iter()
            .any(|r| !matches!(r.op, RequestOp::Flush | RequestOp::Mark));
        let is_short = self.volume.is_some() && !is_used && !self.how.json;
        Ok(if is_short { "no requests\n".to_owned() } else { text })
    }
}

/// The analyses of all volumes as one text, as [`together`].
///
/// # Errors
/// The files cannot be written.
pub(super) fn report_all(
    recorders: &[Recorder],
    recording: &Recording,
    as_json: bool,
) -> Result<String> {
    let mut texts = Vec::new();
    for recorder in recorders {
        texts.push((&*recorder.name, recorder.reported(recording, |_, _| Ok(Vec::new()))?));
    }
    together(&texts, as_json)
}

/// Named analyses as one text; as JSON, an object with one member for each. A single one without a
/// name is itself.
///
/// # Errors
/// A text is not JSON.
pub(super) fn together(texts: &[(&str, String)], as_json: bool) -> Result<String> {
    if let [("", text)] = texts {
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
