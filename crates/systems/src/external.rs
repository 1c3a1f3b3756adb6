//! The kernel's file systems beside ours: entries of another kind, made, mounted and judged by programs of the machine.

use ordo_kernel::System as External;

use crate::system::System;

/// A system, whoever keeps it.
#[derive(Clone, Copy, Debug)]
pub enum AnySystem {
    /// Kept by this process.
    Ours(System),
    /// Kept by the kernel.
    External(External),
}

impl From<System> for AnySystem {
    fn from(system: System) -> AnySystem {
        AnySystem::Ours(system)
    }
}

impl AnySystem {
    /// All that can be crashed: ours that run, then the kernel's.
    pub fn all() -> impl Iterator<Item = AnySystem> {
        let external = External::ALL.into_iter().map(AnySystem::External);
        System::runnable().map(AnySystem::Ours).chain(external)
    }

    /// The one of this name, whatever can be done with it.
    pub fn by_name(name: &str) -> Option<AnySystem> {
        let external = || External::by_name(name).map(AnySystem::External);
        System::by_name(name).map(AnySystem::Ours).or_else(external)
    }

    /// The name that a user gives it.
    pub const fn name(&self) -> &'static str {
        match self {
            AnySystem::Ours(system) => system.name(),
            AnySystem::External(system) => system.name,
        }
    }

    /// Whether the kernel keeps it.
    pub const fn is_external(&self) -> bool {
        matches!(self, AnySystem::External(_))
    }
}
