//! The explorer of crash states, on the orderings of FFS and on DualFS. One program, so that the
//! file systems are compiled into it once.

/// Functions of [`Scheme`](ordo_crash::Scheme) that a wrapper passes on to the system in one of its
/// fields: `pass_on! { scheme; name, promise, format, devices, make, mount }`.
macro_rules! pass_on {
    ($field:tt; $($function:ident),+ $(,)?) => { $(pass_on! { @ $function $field })+ };
    (@ name $field:tt) => {
        fn name(&self) -> &str {
            self.$field.name()
        }
    };
    (@ promise $field:tt) => {
        fn promise(&self) -> ordo_crash::Promise {
            self.$field.promise()
        }
    };
    (@ format $field:tt) => {
        fn format(&self) -> Option<&dyn ordo_crash::DiskFormat> {
            self.$field.format()
        }
    };
    (@ devices $field:tt) => {
        fn devices(&self) -> Vec<u64> {
            self.$field.devices()
        }
    };
    (@ make $field:tt) => {
        async fn make(
            &self,
            rt: &ordo_runtime::Runtime,
            disks: &[ordo_block::Device],
        ) -> Result<(), String> {
            self.$field.make(rt, disks).await
        }
    };
    (@ mount $field:tt) => {
        async fn mount(
            &self,
            rt: &ordo_runtime::Runtime,
            disks: &[ordo_block::Device],
            cache: &ordo_cache::CacheConfig,
        ) -> Result<ordo_crash::Volume, String> {
            self.$field.mount(rt, disks, cache).await
        }
    };
    (@ recover $field:tt) => {
        async fn recover(
            &self,
            rt: &ordo_runtime::Runtime,
            disks: &[ordo_block::Device],
        ) -> Result<(), String> {
            self.$field.recover(rt, disks).await
        }
    };
    (@ recovers $field:tt) => {
        fn recovers(&self) -> bool {
            self.$field.recovers()
        }
    };
}

mod appends;
mod background;
mod common_files;
mod crash_cycles;
mod datasync;
mod deep_files;
mod directories;
mod dirsync;
mod dualfs;
mod explore;
mod forgetful;
mod forms;
mod freebsd;
mod holes;
mod inodes;
mod journal;
mod journal_modes;
mod mutants;
mod netbsd;
mod open_files;
mod removed;
mod reuse;
mod reused_inodes;
mod small_caches;
mod soft_updates;
mod ufs1;
