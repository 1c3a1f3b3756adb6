//! Prints what each request of a trace means: `trace START-IMAGE TRACE`, a log of dm-log-writes.

use std::rc::Rc;

use ordo_watcher::Watch;
use ordo_watcher::decoder::DiskImage;

fn main() {
    let mut args = std::env::args().skip(1);
    let (Some(image), Some(log)) = (args.next(), args.next()) else {
        eprintln!("usage: trace START-IMAGE TRACE");
        return;
    };
    let image = std::fs::read(image).expect("a start image that can be read");
    let log = std::fs::read(log).expect("a trace that can be read");
    let imported = ordo_trace::dm_log_writes::import(log).expect("a log of dm-log-writes");
    let image: &[u8] = &image;
    let watch = Watch::over(&image as &dyn DiskImage).expect("a file system that is known");
    watch.listen(|told| {
        println!("{:4} {:?} {}", told.named.id, told.named.op, told.named);
        if !told.inodes.is_empty() {
            println!("       changes inodes {:?}", told.inodes);
        }
        for (block, id) in told.checkpoints {
            println!("       checkpoints block {block} of transaction {id}");
        }
    });
    ordo_trace::replay(&imported.trace, &Rc::clone(&watch));
    println!("{}", watch.system());
    println!("{}", serde_json::to_string_pretty(&watch.finish()).expect("numbers"));
    watch.transactions(|all| {
        all.iter().for_each(|t| println!("{}", serde_json::to_string(t).expect("numbers")));
    });
}
