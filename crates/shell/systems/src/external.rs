//! The kernel's file systems, beside Ordo's own. Programs of the machine make, mount and judge
//! them.

use ordo_crash_kernel::KernelSystem as External;

use crate::system::System;

/// A system, of this process or of the kernel.
#[derive(Clone, Copy, Debug)]
pub enum AnySystem {
    /// A system of this process.
    Ours(System),
    /// A system of the kernel.
    External(External),
}

impl From<System> for AnySystem {
    fn from(system: System) -> AnySystem {
        AnySystem::Ours(system)
    }
}

impl AnySystem {
    /// All systems that can be crashed: those of this process that can be mounted for writing, then
    /// the kernel's.
    pub fn all() -> impl Iterator<Item = AnySystem> {
        let external = External::ALL.into_iter().map(AnySystem::External);
        System::runnable().map(AnySystem::Ours).chain(external)
    }

    /// Finds the system of this name, whatever its abilities.
    pub fn by_name(name: &str) -> Option<AnySystem> {
        let external = || External::by_name(name).map(AnySystem::External);
        System::by_name(name).map(AnySystem::Ours).or_else(external)
    }

    /// The system's name on the command line.
    pub const fn name(&self) -> &'static str {
        match self {
            AnySystem::Ours(system) => system.name(),
            AnySystem::External(system) => system.name,
        }
    }
}
