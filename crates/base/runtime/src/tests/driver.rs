use std::fs::File;
use std::sync::Arc;

use crate::{Backend, Executor, IoBuf};

fn executors() -> Vec<(Executor, Arc<File>)> {
    let file = || Arc::new(tempfile::tempfile().unwrap());
    vec![
        (Executor::simulated(1), file()),
        (Executor::real_on(Backend::Auto, 1), file()),
        (Executor::real_on(Backend::Threads, 1), file()),
        (Executor::real_on(Backend::Inline, 1), file()),
    ]
}

/// Every backend must give the same bytes: writes at offsets, durable or not, reads beyond the end,
/// and holes.
#[test]
fn every_backend_reads_what_was_written() {
    for (executor, file) in executors() {
        let rt = executor.runtime();
        executor
            .block_on(async {
                rt.write_at(&file, 8192, IoBuf::from_slice(&[1; 4096]), false).await.unwrap();
                rt.write_at(&file, 4096, IoBuf::from_slice(&[2; 4096]), true).await.unwrap();
                rt.sync_file(&file).await.unwrap();
                let back = rt.read_at(&file, 0, 16_384).await.unwrap();
                let expected = [[0; 4096], [2; 4096], [1; 4096], [0; 4096]].concat();
                assert!(back[..] == expected, "{}", rt.io_backend());
                if rt.punch_hole(&file, 4096, 4096).await.is_ok() {
                    let back = rt.read_at(&file, 4096, 4096).await.unwrap();
                    assert!(back.iter().all(|b| *b == 0), "{}", rt.io_backend());
                }
            })
            .unwrap();
    }
}

/// Bytes in pieces of different lengths, shared with the caller, are written one behind the other,
/// durable or not. A piece that the caller changes meanwhile is written with its earlier bytes.
#[test]
fn every_backend_writes_pieces_one_behind_the_other() {
    for (executor, file) in executors() {
        let rt = executor.runtime();
        executor
            .block_on(async {
                for durable in [false, true] {
                    let mut all = Vec::new();
                    let mut list = crate::IoList::default();
                    let mut shared = Vec::new();
                    for n in 0..100u8 {
                        let piece =
                            Arc::new(IoBuf::from_slice(&vec![n; 512 * (1 + n as usize % 9)]));
                        all.extend_from_slice(&piece);
                        shared.push(piece.clone());
                        list.push(piece);
                    }
                    assert_eq!(list.len(), all.len());
                    let write = rt.write_list_at(&file, 4096, list, durable);
                    shared.iter_mut().for_each(|piece| Arc::make_mut(piece).fill(0xff));
                    write.await.unwrap();
                    let back = rt.read_at(&file, 4096, all.len()).await.unwrap();
                    assert!(back[..] == all, "{}", rt.io_backend());
                }
            })
            .unwrap();
    }
}

/// More requests at once than any queue holds: all complete, each with its own bytes.
#[test]
fn thousands_of_requests_at_once() {
    for (executor, file) in executors() {
        let rt = executor.runtime();
        let mut tasks = Vec::new();
        for i in 0..3000u64 {
            let (rt2, file) = (rt.clone(), file.clone());
            tasks.push(rt.spawn("io", async move {
                let data = IoBuf::from_slice(&i.to_le_bytes().repeat(64));
                rt2.write_at(&file, i * 512, data, false).await.unwrap();
                let back = rt2.read_at(&file, i * 512, 512).await.unwrap();
                assert_eq!(back[..8], i.to_le_bytes());
            }));
        }
        executor
            .block_on(async {
                for task in tasks {
                    task.await;
                }
            })
            .unwrap();
    }
}

/// Errors come back as errors.
#[test]
fn a_failed_request_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, b"x").unwrap();
    for (executor, _) in executors() {
        let rt = executor.runtime();
        let read_only = Arc::new(File::open(&path).unwrap());
        let write = rt.write_at(&read_only, 0, IoBuf::zeroed(512), false);
        let error = executor.block_on(write).unwrap().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(9), "{}", rt.io_backend());
    }
}

/// A task is dropped in the middle of a request, and an executor with requests under way. The
/// buffers must stay until the kernel no longer uses them (a wrong free shows under a sanitizer). A
/// wait for a request that was never submitted would hang here.
#[test]
fn requests_may_be_abandoned() {
    for (executor, file) in executors() {
        let rt = executor.runtime();
        executor
            .block_on(async {
                for i in 0..50 {
                    let mut write =
                        Box::pin(rt.write_at(&file, i * 4096, IoBuf::zeroed(4096), false));
                    std::future::poll_fn(|cx| {
                        let _ = write.as_mut().poll(cx);
                        std::task::Poll::Ready(())
                    })
                    .await;
                }
                rt.sync_file(&file).await.unwrap();
            })
            .unwrap();
        for i in 0..50 {
            let (rt2, file) = (rt.clone(), file.clone());
            rt.spawn("crashes", async move {
                rt2.write_at(&file, i * 4096, IoBuf::zeroed(4096), true).await.unwrap();
                std::future::pending::<()>().await;
            });
        }
        executor.block_on(rt.yield_now()).unwrap();
        drop(executor);
    }
}

/// A task that waits for a pipe to be readable must be woken by a write to it, and not before, on
/// each backend that can wait. Catches a wait that never ends, and one that spins.
#[test]
fn a_pipe_becomes_readable() {
    use std::io::{Read, Write};
    for backend in [Backend::Auto, Backend::Threads] {
        let executor = Executor::real_on(backend, 1);
        let rt = executor.runtime();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let reader = Arc::new(File::from(std::os::fd::OwnedFd::from(reader)));
        let thread = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            writer.write_all(b"now").unwrap();
        });
        executor.block_on(async { rt.readable(&reader).await.unwrap() }).unwrap();
        let mut word = [0; 3];
        (&*reader).read_exact(&mut word).unwrap();
        assert_eq!(&word, b"now");
        assert!(rt.polls() < 1000, "{} polls", rt.polls());
        thread.join().unwrap();
    }
}

/// A task that waits for a pipe without a writer must not keep the executor from ending.
#[test]
fn an_endless_wait_ends_with_the_executor() {
    for backend in [Backend::Auto, Backend::Threads] {
        let executor = Executor::real_on(backend, 1);
        let rt = executor.runtime();
        let (reader, _writer) = std::io::pipe().unwrap();
        let reader = Arc::new(File::from(std::os::fd::OwnedFd::from(reader)));
        let rt2 = rt.clone();
        rt.spawn_daemon("waits for ever", async move {
            let _ = rt2.readable(&reader).await;
        });
        executor.block_on(rt.sleep(std::time::Duration::from_millis(5))).unwrap();
        drop(executor);
    }
}

/// A command that no driver knows must be refused by the system on every backend.
#[test]
#[allow(unsafe_code)]
fn commands_are_answered() {
    let command = crate::Command { op: 1, memory: (0, 0), args: [0; 3] };
    for (executor, file) in executors() {
        let rt = executor.runtime();
        // SAFETY: a regular file takes no commands, and so uses no memory.
        let refused = executor.block_on(async { unsafe { rt.command(&file, command).await } });
        let error = refused.unwrap().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "{}", rt.io_backend());
    }
}
