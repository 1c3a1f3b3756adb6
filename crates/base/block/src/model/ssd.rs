//! Solid-state disks and network volumes, where requests do not wait for a single arm.
//!
//! Each resource (controller, interface, flash unit, cache, token bucket) is represented by the
//! time until which it is taken. So a request's end is known when it arrives. Times are
//! nanoseconds.

use super::hdd::Service;
use super::queue::Ask;
use super::spec::{NetworkSpec, SsdSpec};

fn us(us: f64) -> u64 {
    (us * 1e3) as u64
}

/// The time for `bytes` bytes at a rate of `mb_s` times 10^6 bytes a second.
fn at_rate(bytes: u64, mb_s: f64) -> u64 {
    (bytes as f64 / mb_s * 1e3) as u64
}

/// Takes a resource for `time`, beginning at `from` or when it is free. Returns the end.
fn take(busy_until: &mut u64, from: u64, time: u64) -> u64 {
    *busy_until = from.max(*busy_until) + time;
    *busy_until
}

pub(super) struct Ssd {
    spec: SsdSpec,
    units: Vec<u64>,
    controller: u64,
    read_link: u64,
    write_link: u64,
    /// Bytes in the cache at the time `cached_at`; the cache drains from then on.
    cached: f64,
    cached_at: u64,
}

impl Ssd {
    pub(super) fn new(spec: SsdSpec) -> Ssd {
        Ssd {
            units: vec![0; spec.channels],
            spec,
            controller: 0,
            read_link: 0,
            write_link: 0,
            cached: 0.0,
            cached_at: 0,
        }
    }

    /// Takes in a request that comes at `arrival`.
    pub(super) fn admit(&mut self, arrival: u64, ask: Ask) -> Service {
        match ask {
            Ask::Read { first, count } => self.read(arrival, first * 512, count * 512),
            Ask::Write { count, through, .. } => self.write(arrival, count * 512, through),
            Ask::Flush => self.flush(arrival),
            Ask::Nothing => self.write(arrival, 0, false),
        }
    }

    fn read(&mut self, arrival: u64, offset: u64, len: u64) -> Service {
        let start = take(&mut self.controller, arrival, us(self.spec.command_us));
        let read = us(self.spec.read_us);
        let first = offset / self.spec.stripe_bytes;
        let last = (offset + len.max(1) - 1) / self.spec.stripe_bytes;
        let stripes = last - first + 1;
        let units = self.units.len() as u64;
        let mut flash = start;
        for i in 0..stripes.min(units) {
            // A unit reads all of its stripes of this request one after the other.
            let mine = (stripes - i).div_ceil(units);
            let unit = &mut self.units[((first + i) % units) as usize];
            flash = flash.max(take(unit, start, read * mine));
        }
        // Data leave as they come from flash, so the link adds its time only for the last stripe.
        let link = at_rate(len, self.spec.read_mb_s);
        let tail = at_rate(len.min(self.spec.stripe_bytes), self.spec.read_mb_s);
        let streamed = take(&mut self.read_link, start + read.min(flash - start), link);
        let finish = streamed.max(flash + tail);
        Service { start: arrival, finish, transfer: link, ..Service::default() }
    }

    /// Drains the cache up to the time `now`.
    fn drain(&mut self, now: u64) {
        if now > self.cached_at {
            let drained = (now - self.cached_at) as f64 * self.spec.drain_mb_s / 1e3;
            self.cached = (self.cached - drained).max(0.0);
            self.cached_at = now;
        }
    }

    /// The time that the cache takes to drain to `target` bytes.
    fn drain_time(&self, target: f64) -> u64 {
        ((self.cached - target).max(0.0) / self.spec.drain_mb_s * 1e3) as u64
    }

    fn write(&mut self, arrival: u64, len: u64, through: bool) -> Service {
        let start = take(&mut self.controller, arrival, us(self.spec.command_us));
        let link = at_rate(len, self.spec.write_mb_s);
        let sent = take(&mut self.write_link, start, link);
        self.drain(sent);
        let capacity = self.spec.cache_bytes.saturating_sub(len) as f64;
        let capacity_at = self.cached_at.max(sent) + self.drain_time(capacity);
        self.drain(capacity_at);
        self.cached += len as f64;
        let finish = if through {
            capacity_at + us(self.spec.program_us)
        } else {
            capacity_at + us(self.spec.cached_write_us)
        };
        Service { start: arrival, finish, transfer: link, ..Service::default() }
    }

    fn flush(&mut self, arrival: u64) -> Service {
        let start = take(&mut self.controller, arrival, us(self.spec.command_us));
        self.drain(start);
        let drain = self.drain_time(0.0);
        self.drain(start + drain);
        let finish = start + drain + us(self.spec.flush_us);
        Service { start: arrival, finish, ..Service::default() }
    }
}

pub(super) struct Network {
    spec: NetworkSpec,
    /// The time at which all admitted requests are paid for, at the rate of `iops`.
    requests_until: u64,
    bytes_until: u64,
}

impl Network {
    pub(super) fn new(spec: NetworkSpec) -> Network {
        Network { spec, requests_until: 0, bytes_until: 0 }
    }

    /// Takes in a request that comes at `arrival`.
    pub(super) fn admit(&mut self, arrival: u64, ask: Ask) -> Service {
        match ask {
            Ask::Read { count, .. } => self.transfer(arrival, count * 512, false),
            Ask::Write { count, .. } => self.transfer(arrival, count * 512, true),
            Ask::Flush | Ask::Nothing => self.flush(arrival),
        }
    }

    fn transfer(&mut self, arrival: u64, len: u64, write: bool) -> Service {
        let each = 1e9 / self.spec.iops;
        let units = len.div_ceil(self.spec.io_unit_bytes).max(1);
        let burst = (self.spec.burst * each) as u64;
        let admitted = arrival.max(self.requests_until.saturating_sub(burst));
        self.requests_until = self.requests_until.max(arrival) + (units as f64 * each) as u64;
        let transfer = at_rate(len, self.spec.mb_s);
        let moved = take(&mut self.bytes_until, admitted, transfer);
        let latency = us(if write { self.spec.write_us } else { self.spec.read_us });
        Service { start: admitted, finish: moved + latency, transfer, ..Service::default() }
    }

    /// Writes are stored when they are acknowledged, so a flush is only a round trip.
    fn flush(&mut self, arrival: u64) -> Service {
        let finish = arrival + us(self.spec.write_us);
        Service { start: arrival, finish, ..Service::default() }
    }
}
