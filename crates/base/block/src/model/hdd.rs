//! The mechanics of a hard disk: the places of sectors, seek times, and the contents of the cache.
//!
//! No code here waits: a request comes with the time at which it may start, and returns the time at
//! which it is done. Times are nanoseconds since the executor started. The platter is at angle 0 at
//! time 0, and its position follows from the time alone.

use std::collections::{BTreeMap, VecDeque};

use super::spec::{HddSpec, Zones};

/// A tolerance in nanoseconds: a sector missed by less was not missed, since the difference is
/// rounding and not physics.
const ROUNDING_NS: f64 = 2_000.0;

#[derive(Clone, Copy, Debug)]
struct Zone {
    first_sector: u64,
    first_cylinder: u32,
    per_track: u64,
    per_cylinder: u64,
}

/// The place of a sector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MediaPlace {
    pub(super) cylinder: u32,
    head: u32,
    sector: u64,
    per_track: u64,
}

/// The seek time: `a + b * sqrt(d)` up to a third of the cylinders, linear beyond.
#[derive(Clone, Copy, Debug)]
struct SeekCurve {
    a: f64,
    b: f64,
    knee: f64,
    at_knee: f64,
    slope: f64,
}

impl SeekCurve {
    /// The curve through the single-track and the full-stroke time whose mean over all pairs of
    /// cylinders is `average`. Times are in nanoseconds.
    fn fit(cylinders: u32, single: f64, average: f64, full: f64) -> SeekCurve {
        let last = f64::from(cylinders - 1);
        let knee = (last / 3.0).max(1.0);
        let curve = |b: f64| {
            let at_knee = single - b + b * knee.sqrt();
            let slope = (full - at_knee) / (last - knee).max(1.0);
            SeekCurve { a: single - b, b, knee, at_knee, slope }
        };
        let (mut low, mut high) = (0.0, (full - single) / (knee.sqrt() - 1.0).max(1.0));
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if curve(middle).mean(last) < average { low = middle } else { high = middle }
        }
        curve((low + high) / 2.0)
    }

    /// The mean over pairs of different random cylinders.
    fn mean(&self, last: f64) -> f64 {
        const STEPS: u32 = 2000;
        let (mut sum, mut weight) = (0.0, 0.0);
        for i in 0..STEPS {
            let d = 1.0 + (f64::from(i) + 0.5) * (last - 1.0) / f64::from(STEPS);
            // The factor counts the pairs that are `d` cylinders apart.
            sum += self.time(d) * (last + 1.0 - d);
            weight += last + 1.0 - d;
        }
        sum / weight
    }

    fn time(&self, distance: f64) -> f64 {
        if distance <= self.knee {
            self.a + self.b * distance.sqrt()
        } else {
            self.at_knee + self.slope * (distance - self.knee)
        }
    }
}

/// A range of sectors in the read cache.
#[derive(Clone, Copy, Debug)]
struct Segment {
    start: u64,
    end: u64,
}

/// Read-ahead: the head is at `next` at the time `since` and continues to `limit`.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    start: u64,
    next: u64,
    since: u64,
    limit: u64,
}

/// The service of one request: its times, and the mechanics that it used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Service {
    /// The start of the service, in nanoseconds.
    pub(super) start: u64,
    /// The end of the service, in nanoseconds.
    pub(super) finish: u64,
    pub(super) seek: u64,
    pub(super) rotation: u64,
    pub(super) transfer: u64,
    pub(super) moved: bool,
    pub(super) cache_hit: bool,
}

/// A disk: the figures worked out from its spec, and the state of its arm and caches.
pub(super) struct Hdd {
    spec: HddSpec,
    zones: Vec<Zone>,
    sectors: u64,
    revolution: f64,
    seek: SeekCurve,
    overhead: u64,
    cylinder: u32,
    head: u32,
    /// The time at which the media are free.
    free_at: u64,
    ahead: Option<Ahead>,
    segments: VecDeque<Segment>,
    /// The writes in the cache, by first sector, each with its length and time of arrival.
    dirty: BTreeMap<u64, (u64, u64)>,
    dirty_bytes: u64,
    /// The sector at which the elevator stands.
    sweep: u64,
    /// The sector after the last use of the media, if that was a write.
    written_to: Option<u64>,
}

fn ms(ms: f64) -> f64 {
    ms * 1e6
}

impl Hdd {
    pub(super) fn new(spec: HddSpec) -> Hdd {
        let layout: Vec<(u32, u32)> = match spec.zones {
            Zones::Measured(zones) => zones.to_vec(),
            Zones::Even(outer, inner) => even_zones(&spec, outer, inner),
        };
        let (mut zones, mut sector, mut cylinder) = (Vec::new(), 0, 0);
        for (cylinders, per_track) in layout {
            let per_track = u64::from(per_track);
            let per_cylinder = per_track * u64::from(spec.heads);
            zones.push(Zone {
                first_sector: sector,
                first_cylinder: cylinder,
                per_track,
                per_cylinder,
            });
            sector += per_cylinder * u64::from(cylinders);
            cylinder += cylinders;
        }
        let seek = SeekCurve::fit(
            cylinder,
            ms(spec.seek_single_ms),
            ms(spec.seek_average_ms),
            ms(spec.seek_full_ms),
        );
        Hdd {
            spec,
            zones,
            sectors: sector,
            revolution: 60e9 / spec.rpm,
            seek,
            overhead: (spec.overhead_us * 1e3) as u64,
            cylinder: 0,
            head: 0,
            free_at: 0,
            ahead: None,
            segments: VecDeque::new(),
            dirty: BTreeMap::new(),
            dirty_bytes: 0,
            sweep: 0,
            written_to: None,
        }
    }

    pub(super) fn spec(&self) -> &HddSpec {
        &self.spec
    }

    /// The sector after the last one used, where the elevator stands.
    pub(super) fn sweep(&self) -> u64 {
        self.sweep
    }

    /// The place of a sector. A device that is larger than the disk continues at the outermost
    /// track.
    pub(super) fn place(&self, sector: u64) -> MediaPlace {
        let sector = sector % self.sectors;
        let i = self.zones.partition_point(|z| z.first_sector <= sector) - 1;
        let zone = &self.zones[i];
        let within = sector - zone.first_sector;
        let in_cylinder = within % zone.per_cylinder;
        MediaPlace {
            cylinder: zone.first_cylinder + (within / zone.per_cylinder) as u32,
            head: (in_cylinder / zone.per_track) as u32,
            sector: in_cylinder % zone.per_track,
            per_track: zone.per_track,
        }
    }

    /// The angle at which a sector begins, in revolutions.
    fn angle(&self, place: &MediaPlace) -> f64 {
        let (head, cylinder) = (ms(self.spec.head_switch_ms), ms(self.spec.cylinder_switch_ms));
        let per_cylinder = f64::from(self.spec.heads - 1) * head + cylinder;
        let skew = f64::from(place.cylinder) * per_cylinder + f64::from(place.head) * head;
        (skew / self.revolution + place.sector as f64 / place.per_track as f64).fract()
    }

    /// The time that the platter takes from its position at `now` to the sector.
    fn rotation(&self, now: f64, place: &MediaPlace) -> f64 {
        let at = (now / self.revolution).fract();
        let wait = (self.angle(place) - at).rem_euclid(1.0) * self.revolution;
        if wait > self.revolution - ROUNDING_NS { 0.0 } else { wait }
    }

    /// The seek time to the place of the sector `first`, and whether the arm moved. Where a write
    /// goes on behind another one, the next track is laid out for the switch, as within one
    /// request.
    fn arm(&self, first: u64, place: &MediaPlace, write: bool) -> (f64, bool) {
        if write && place.sector == 0 && self.written_to == Some(first) {
            return (self.switch_after(&self.place(first - 1)), false);
        }
        let distance = place.cylinder.abs_diff(self.cylinder);
        let settle = if write { ms(self.spec.write_settle_ms) } else { 0.0 };
        if distance > 0 {
            (self.seek.time(f64::from(distance)) + settle, true)
        } else if place.head != self.head {
            (ms(self.spec.head_switch_ms) + settle, false)
        } else {
            (0.0, false)
        }
    }

    /// The time that `count` sectors take to pass under the heads, switches included.
    fn transfer(&self, first: u64, count: u64) -> f64 {
        let (mut sector, mut left, mut time) = (first, count, 0.0);
        while left > 0 {
            let place = self.place(sector);
            let n = (place.per_track - place.sector).min(left);
            time += n as f64 / place.per_track as f64 * self.revolution;
            left -= n;
            sector += n;
            if left > 0 {
                time += self.switch_after(&place);
            }
        }
        time
    }

    fn switch_after(&self, place: &MediaPlace) -> f64 {
        if place.head + 1 == self.spec.heads {
            ms(self.spec.cylinder_switch_ms)
        } else {
            ms(self.spec.head_switch_ms)
        }
    }

    /// The number of sectors from `first` on that pass under the heads in `time`, at most `most`.
    fn passed(&self, first: u64, time: f64, most: u64) -> u64 {
        let (mut sector, mut left) = (first, time);
        while sector - first < most {
            let place = self.place(sector);
            let n = place.per_track - place.sector;
            let whole = n as f64 / place.per_track as f64 * self.revolution;
            if left < whole {
                let part = (left / self.revolution * place.per_track as f64) as u64;
                return (sector - first + part).min(most);
            }
            sector += n;
            left -= whole + self.switch_after(&place);
            if left < 0.0 {
                break;
            }
        }
        (sector - first).min(most)
    }

    /// Serves a request on the media: moves the arm, waits for the sector, transfers.
    fn media(&mut self, start: u64, first: u64, count: u64, write: bool) -> Service {
        let place = self.place(first);
        let (seek, moved) = self.arm(first, &place, write);
        let rotation = self.rotation(start as f64 + seek, &place);
        let transfer = self.transfer(first, count);
        self.rest_at(first + count - 1);
        let finish = start + (seek + rotation + transfer) as u64;
        self.free_at = finish;
        self.sweep = first + count;
        self.written_to = write.then_some(first + count);
        Service {
            start,
            finish,
            seek: seek as u64,
            rotation: rotation as u64,
            transfer: transfer as u64,
            moved,
            cache_hit: false,
        }
    }

    fn rest_at(&mut self, sector: u64) {
        let end = self.place(sector);
        (self.cylinder, self.head) = (end.cylinder, end.head);
    }

    fn interface(&self, count: u64) -> u64 {
        (count as f64 * 512.0 / self.spec.interface_mb_s * 1e3) as u64
    }

    /// The time at which the disk has handled the command of a request that came at `arrival`, and
    /// the media are free for it.
    fn ready(&self, arrival: u64) -> u64 {
        if self.spec.overlaps_commands {
            self.free_at.max(arrival + self.overhead)
        } else {
            self.free_at.max(arrival) + self.overhead
        }
    }

    /// Serves a read of `count` sectors that came at `arrival`.
    pub(super) fn read(&mut self, arrival: u64, first: u64, count: u64) -> Service {
        self.destage_until(arrival);
        let start = self.free_at.max(arrival);
        self.advance_ahead(start);
        let end = first + count;
        let sent = self.ready(arrival) + self.interface(count);
        let hit = |finish| Service { start, finish, cache_hit: true, ..Service::default() };
        if let Some(ahead) = self.ahead
            && ahead.start <= first
            && first <= ahead.next
        {
            let finish = if end <= ahead.next { sent } else { sent.max(self.reach(ahead, end)) };
            self.free_at = finish;
            self.sweep = end;
            return hit(finish);
        }
        if self.segments.iter().any(|s| s.start <= first && end <= s.end)
            || self.dirty.get(&first).is_some_and(|(n, _)| *n >= count)
        {
            self.free_at = sent;
            return hit(sent);
        }
        self.stop_ahead();
        let service = self.media(self.ready(arrival), first, count, false);
        let limit = end + self.spec.segment_bytes / 512;
        self.ahead = (self.spec.segments > 0).then_some(Ahead {
            start: first,
            next: end,
            since: service.finish,
            limit: limit.min(self.sectors.max(end)),
        });
        Service { start, ..service }
    }

    /// The time at which read-ahead reaches `end`; it then continues from there.
    fn reach(&mut self, mut ahead: Ahead, end: u64) -> u64 {
        let finish = ahead.since + self.transfer(ahead.next, end - ahead.next) as u64;
        let capacity = self.spec.segment_bytes / 512;
        ahead.next = end;
        ahead.since = finish;
        ahead.limit = (end + capacity).min(self.sectors.max(end));
        ahead.start = ahead.start.max(end.saturating_sub(capacity));
        self.ahead = Some(ahead);
        self.rest_at(end - 1);
        finish
    }

    /// Advances read-ahead to the time `now`.
    fn advance_ahead(&mut self, now: u64) {
        let Some(mut ahead) = self.ahead else { return };
        if now <= ahead.since {
            return;
        }
        let passed = self.passed(ahead.next, (now - ahead.since) as f64, ahead.limit - ahead.next);
        if passed > 0 {
            let time = self.transfer(ahead.next, passed) as u64;
            ahead.next += passed;
            ahead.since += time;
            self.rest_at(ahead.next - 1);
        }
        if ahead.next == ahead.limit {
            // The segment is full: the head waits on its track, and a later read starts again.
            self.stop_ahead_with(ahead);
        } else {
            self.ahead = Some(ahead);
        }
    }

    fn stop_ahead(&mut self) {
        if let Some(ahead) = self.ahead {
            self.stop_ahead_with(ahead);
        }
    }

    fn stop_ahead_with(&mut self, ahead: Ahead) {
        self.ahead = None;
        self.segments.push_back(Segment { start: ahead.start, end: ahead.next });
        while self.segments.len() > self.spec.segments {
            self.segments.pop_front();
        }
    }

    /// Serves a write of `count` sectors that came at `arrival`. With `through`, the write bypasses
    /// the cache, since it must be durable.
    pub(super) fn write(&mut self, arrival: u64, first: u64, count: u64, through: bool) -> Service {
        self.destage_until(arrival);
        self.advance_ahead(self.free_at.max(arrival));
        self.forget(first, count);
        if self.spec.write_cache_bytes == 0 || through {
            self.stop_ahead();
            if self.dirty.get(&first).is_some_and(|(n, _)| *n <= count)
                && let Some((n, _)) = self.dirty.remove(&first)
            {
                self.dirty_bytes -= n * 512;
            }
            let start = self.free_at.max(arrival);
            let service = self.media(self.ready(arrival), first, count, true);
            return Service { start, ..service };
        }
        let mut capacity_at = arrival;
        while !self.dirty.is_empty() && self.dirty_bytes + count * 512 > self.spec.write_cache_bytes
        {
            self.destage_one();
            capacity_at = capacity_at.max(self.free_at);
        }
        if let Some((old, _)) = self.dirty.insert(first, (count, capacity_at)) {
            self.dirty_bytes -= old * 512;
        }
        self.dirty_bytes += count * 512;
        let finish = capacity_at + self.overhead + self.interface(count);
        Service { start: arrival, finish, cache_hit: true, ..Service::default() }
    }

    /// Serves a flush that came at `arrival`.
    pub(super) fn flush(&mut self, arrival: u64) -> Service {
        let start = self.free_at.max(arrival);
        if !self.dirty.is_empty() {
            self.stop_ahead();
        }
        while !self.dirty.is_empty() {
            self.destage_one();
        }
        let finish = self.ready(arrival);
        Service { start, finish, ..Service::default() }
    }

    /// Serves a command that came at `arrival` and needs no media.
    pub(super) fn command(&self, arrival: u64) -> Service {
        Service { start: arrival, finish: arrival + self.overhead, ..Service::default() }
    }

    /// Destages the writes in the cache that the disk could write while the media were idle before
    /// `now`.
    fn destage_until(&mut self, now: u64) {
        if self.free_at < now && !self.dirty.is_empty() {
            self.advance_ahead(now);
            self.stop_ahead();
        }
        while self.free_at < now && !self.dirty.is_empty() {
            self.destage_one();
        }
    }

    fn destage_one(&mut self) {
        let next = self.dirty.range(self.sweep..).next().or_else(|| self.dirty.iter().next());
        let Some((&first, &(count, since))) = next else { return };
        self.dirty.remove(&first);
        self.dirty_bytes -= count * 512;
        self.media(self.free_at.max(since), first, count, true);
    }

    /// Drops written sectors from the read cache.
    fn forget(&mut self, first: u64, count: u64) {
        let overlaps = |start, end| first < end && start < first + count;
        self.segments.retain(|s| !overlaps(s.start, s.end));
        if self.ahead.is_some_and(|a| overlaps(a.start, a.next)) {
            self.ahead = None;
        }
    }
}

/// Sixteen zones of equal cylinders that hold at least the capacity.
fn even_zones(spec: &HddSpec, outer: u32, inner: u32) -> Vec<(u32, u32)> {
    const ZONES: u32 = 16;
    let per_track: Vec<u32> =
        (0..ZONES).map(|i| outer - (outer - inner) * i / (ZONES - 1)).collect();
    let track_count: u64 = per_track.iter().map(|n| u64::from(*n) * u64::from(spec.heads)).sum();
    let cylinders = spec.sectors.div_ceil(track_count) as u32;
    per_track.into_iter().map(|n| (cylinders, n)).collect()
}

#[cfg(test)]
impl Hdd {
    pub(super) fn cylinders(&self) -> u32 {
        self.place(self.sectors - 1).cylinder + 1
    }

    pub(super) fn seek_ns(&self, distance: u32) -> f64 {
        self.seek.time(f64::from(distance))
    }
}
