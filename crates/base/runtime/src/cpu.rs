//! The price of processor work in virtual time.
//!
//! Code charges its work while it does it ([`Cpu::operation`], [`Cpu::bytes`], [`Cpu::touch`],
//! [`Cpu::dependencies`]). A charge only adds to a debt;
//! [`Runtime::settle`](crate::Runtime::settle) pays the debt by sleeping on the model's single
//! processor. On a real clock the model is [`CpuModel::NONE`], and nothing is charged,
//! but for programs in a guest, whose real clock is virtual.

use std::cell::Cell;

/// Prices of processor work, in nanoseconds of virtual time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuModel {
    /// The name by which a user chooses it.
    pub name: &'static str,
    /// Entering and leaving one file-system operation: system call, locks, look-up of its objects.
    pub operation_ns: u64,
    /// The time to find one buffer and change something in it.
    pub touch_ns: u64,
    /// The whole life of one dependency of soft updates: creating it, or rolling it back in an
    /// image, and resolving it ([`DEPENDENCY_TOUCHES`]).
    pub dependency_ns: u64,
    /// Making one entry of a log, without the bytes copied into it ([`LOG_RECORD_TOUCHES`]).
    pub log_record_ns: u64,
    /// Copying 1,024 bytes between user and cache.
    pub copy_kib_ns: u64,
    /// Starting one disk request and handling its interrupt.
    pub request_ns: u64,
}

/// The price of a dependency on a processor of today, in units of finding a buffer: measured on
/// Ordo's own code in process, `make bench`, section `processor` of `docs/results/core.md`.
pub const DEPENDENCY_TOUCHES: u64 = 10;
/// The price of a log entry, in the same unit and measured in the same way.
pub const LOG_RECORD_TOUCHES: u64 = 4;

/// The price of a dependency on the papers' processors, in tenths of finding a buffer.
///
/// No publication has it as a number. Section 8.1 of "Journaling versus Soft Updates" (2000) says
/// that soft updates perform "nearly as well as" FFS without order where files of no length are
/// created and removed, and that processing makes the difference, since nothing is written there.
/// The price is fitted to that sentence alone: it gives 0.9 of FFS without order.
const DEPENDENCY_TENTHS: u64 = 15;

/// The price of a dependency on a processor of the papers that finds a buffer in `touch_ns`.
const fn papers_dependency_ns(touch_ns: u64) -> u64 {
    DEPENDENCY_TENTHS * touch_ns / 10
}

impl CpuModel {
    /// A model in which processor work is free.
    pub const NONE: CpuModel = CpuModel {
        name: "none",
        operation_ns: 0,
        touch_ns: 0,
        dependency_ns: 0,
        log_record_ns: 0,
        copy_kib_ns: 0,
        request_ns: 0,
    };
    /// The machine of "Soft Updates" (2000), section 4.1: about 80 MB/s of copying.
    pub const PENTIUM_II_300: CpuModel = CpuModel {
        name: "pentium2-300",
        operation_ns: 25_000,
        touch_ns: 2_500,
        dependency_ns: papers_dependency_ns(2_500),
        log_record_ns: LOG_RECORD_TOUCHES * 2_500,
        copy_kib_ns: 12_500,
        request_ns: 40_000,
    };
    /// The machine of "Journaling versus Soft Updates" (2000), Table 3: about 160 MB/s of copying.
    pub const PENTIUM_III_500: CpuModel = CpuModel {
        name: "pentium3-500",
        operation_ns: 14_000,
        touch_ns: 1_400,
        dependency_ns: papers_dependency_ns(1_400),
        log_record_ns: LOG_RECORD_TOUCHES * 1_400,
        copy_kib_ns: 6_200,
        request_ns: 22_000,
    };
    /// A core of the 2020s: about 10 GB/s of copying.
    pub const MODERN: CpuModel = CpuModel {
        name: "modern",
        operation_ns: 700,
        touch_ns: 60,
        dependency_ns: DEPENDENCY_TOUCHES * 60,
        log_record_ns: LOG_RECORD_TOUCHES * 60,
        copy_kib_ns: 100,
        request_ns: 2_000,
    };
    /// Every preset, in the order in which they are listed to a user.
    pub const ALL: [CpuModel; 4] =
        [CpuModel::PENTIUM_II_300, CpuModel::PENTIUM_III_500, CpuModel::MODERN, CpuModel::NONE];

    /// The preset called `name`.
    pub fn by_name(name: &str) -> Option<CpuModel> {
        CpuModel::ALL.into_iter().find(|m| m.name == name)
    }
}

/// The processor of one executor: a model, and the work that is charged but not yet paid.
#[derive(Debug)]
pub struct Cpu {
    model: Cell<CpuModel>,
    debt_ns: Cell<u64>,
    total_ns: Cell<u64>,
    /// The time until which the processor is busy with work already paid for, in nanoseconds.
    pub(crate) busy_until_ns: Cell<u64>,
}

impl Cpu {
    pub(crate) fn new() -> Cpu {
        Cpu {
            model: Cell::new(CpuModel::NONE),
            debt_ns: Cell::new(0),
            total_ns: Cell::new(0),
            busy_until_ns: Cell::new(0),
        }
    }

    /// Sets the model by which work is charged from now on.
    pub fn set_model(&self, model: CpuModel) {
        self.model.set(model);
    }

    /// The model by which work is charged.
    pub fn model(&self) -> CpuModel {
        self.model.get()
    }

    /// Charges one file-system operation.
    #[inline]
    pub fn operation(&self) {
        self.charge(self.model.get().operation_ns);
    }

    /// Charges finding and changing one buffer.
    #[inline]
    pub fn touch(&self) {
        self.charge(self.model.get().touch_ns);
    }

    /// Charges `n` dependencies.
    #[inline]
    pub fn dependencies(&self, n: u64) {
        self.charge(self.model.get().dependency_ns * n);
    }

    /// Charges one log entry of `bytes` bytes.
    #[inline]
    pub fn log_record(&self, bytes: usize) {
        self.charge(self.model.get().log_record_ns);
        self.bytes(bytes);
    }

    /// Charges copying `n` bytes.
    #[inline]
    pub fn bytes(&self, n: usize) {
        self.charge(self.model.get().copy_kib_ns * n as u64 / 1024);
    }

    /// Charges one disk request.
    #[inline]
    pub fn request(&self) {
        self.charge(self.model.get().request_ns);
    }

    /// Charges `ns` nanoseconds of a program's own computing.
    #[inline]
    pub fn compute(&self, ns: u64) {
        self.charge(ns);
    }

    #[inline]
    fn charge(&self, ns: u64) {
        self.debt_ns.set(self.debt_ns.get() + ns);
    }

    /// The processor time charged and paid so far, in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.total_ns.get()
    }

    /// Takes the debt: the work charged since the last call, in nanoseconds.
    pub(crate) fn take_debt(&self) -> u64 {
        let debt = self.debt_ns.replace(0);
        self.total_ns.set(self.total_ns.get() + debt);
        debt
    }
}
