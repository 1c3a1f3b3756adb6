//! The choice when writers wait for the device.

use std::rc::Rc;

use ordo_block::model::{Model, Modeled};
use ordo_block::ram::RamDisk;
use ordo_cache::{BufKey, BufferClass, Cache, CacheConfig, NoGate, WritersWait};
use ordo_runtime::Executor;

/// More small blocks than the Viking writes in 16 seconds, 100 MB apart, far below the limit of
/// dirty bytes. A machine whose writers wait only at the limit lets its writer go on at once, and
/// writes nothing before the blocks are due. One that keeps its promise in time makes the writer
/// wait for seconds. Would catch a limit by time on the machines of the papers, whose kernels had
/// none, so that systems without any order are slowed down too.
#[test]
fn writers_wait_for_a_slow_device_only_where_the_machine_says_so() {
    let seconds = |writers_wait| {
        let executor = Executor::simulated(1);
        let rt = executor.runtime();
        let disk = Modeled::new(&rt, Model::by_name("viking").unwrap(), RamDisk::new(4 << 30));
        let disk = Rc::new(disk);
        let config = CacheConfig { dirty_max: 1 << 30, writers_wait, ..CacheConfig::default() };
        let cache = Cache::new(&rt, disk.clone(), Rc::new(NoGate), config);
        let waited = executor.block_on(async {
            for n in 0..4000 {
                let at = (n * 7919 % 4000) * (1 << 20);
                let key = BufKey::file(9, n as i64);
                let buf = cache.get_new(key, Some(at), 4096, BufferClass::Data).await;
                cache.mark_dirty(&buf);
                cache.throttle().await.unwrap();
            }
            rt.now().as_secs_f64()
        });
        (waited.unwrap(), disk.stats().writes)
    };
    assert_eq!(seconds(WritersWait::AtLimit), (0.0, 0));
    let (waited, writes) = seconds(WritersWait::InTime);
    assert!(waited > 1.0 && writes > 100, "{waited} s, {writes} writes");
}
