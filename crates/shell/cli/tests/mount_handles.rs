//! File handles of a mount: `name_to_handle_at` and `open_by_handle_at`, which NFS servers use.

mod mounting;

use std::fs;

use mounting::{Disk, all, can_mount, run, shell};

/// Takes file handles of a file, a directory and a link, and a handle of a file that it removes;
/// then, after the kernel has forgotten them or the image was mounted anew, opens them: each handle
/// must lead to its own inode or be stale. Arguments: `take` or `open`. `name_to_handle_at` and
/// `open_by_handle_at` are called through ctypes.
const HANDLES: &str = r#"
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("kind", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]
def take(path):
    handle, mount = Handle(bytes=128), ctypes.c_int()
    got = libc.name_to_handle_at(-100, path.encode(), ctypes.byref(handle), ctypes.byref(mount), 0)
    assert got == 0, os.strerror(ctypes.get_errno())
    return bytes(handle)
def opened(raw):
    where = os.open(".", os.O_RDONLY)
    handle = Handle.from_buffer_copy(raw)
    fd = libc.open_by_handle_at(where, ctypes.byref(handle), 0o10000000 if raw in paths else os.O_RDONLY)
    os.close(where)
    if fd < 0:
        return errno.errorcode[ctypes.get_errno()]
    found = os.fstat(fd).st_ino
    os.close(fd)
    return found
paths = set()
store = "../handles"
names = ["sub/file", "sub", "sub/link", "sub/deep/x"]
if sys.argv[1] == "take":
    kept = [(n, os.lstat(n).st_ino, take(n).hex()) for n in names]
    removed = take("removed").hex()
    number = os.lstat("removed").st_ino
    os.unlink("removed")
    here = os.open(".", os.O_RDONLY)
    def made(n):
        # An ordering may free the number when the removal is on disk, in the background.
        os.fsync(here)
        open("new%d" % n, "w").write("new")
        return os.lstat("new%d" % n).st_ino
    assert any(made(n) == number for n in range(500)), "the number is not used again"
    open(store, "w").write(repr((kept, removed)))
else:
    kept, removed = eval(open(store).read())
    for name, number, raw in kept:
        raw = bytes.fromhex(raw)
        if name == "sub/link":
            paths.add(raw)
        got = opened(raw)
        assert got == number, (name, got, number)
    assert opened(bytes.fromhex(removed)) == "ESTALE", opened(bytes.fromhex(removed))
    # The number of no inode: the node stands behind the two heads of the handle.
    wild = bytearray(bytes.fromhex(removed))
    wild[8:16] = b"\xff\xff\xff\x7f\0\0\0\0"
    assert opened(bytes(wild)) == "ESTALE", opened(bytes(wild))
"#;

/// A program that keeps file handles, as an NFS server does, opens them when the kernel has
/// forgotten the inodes: after its caches were dropped, and after another mount. The handle of a
/// removed file must be stale, although a new file has its number, and a handle of no inode must be
/// no error of the disk. Would catch handles that end with the kernel's memory of the inode, and an
/// old handle that opens another's file.
#[test]
fn file_handles_outlive_the_kernels_memory() {
    if !can_mount() {
        return;
    }
    if run("python3", &["--version"]).status.code() != Some(0) {
        return ordo_testkit::skip("python3 takes and opens the handles");
    }
    for ordering in all() {
        let disk = Disk::new(ordering, 64);
        disk.mount();
        let dir = disk.dir();
        fs::write(disk.folder.path().join("handles.py"), HANDLES).unwrap();
        shell(
            &dir,
            "mkdir -p sub/deep; echo 1 > sub/file; ln -s file sub/link; echo 2 > sub/deep/x; echo 3 > removed",
        );
        shell(&dir, "python3 ../handles.py take; sync -f .");
        // All that nobody has open is forgotten.
        shell(
            &dir,
            "echo 2 > /proc/sys/vm/drop_caches; python3 ../handles.py open; ls -lR > /dev/null",
        );
        disk.umount();
        disk.mount();
        shell(&dir, "python3 ../handles.py open");
        // A stale directory's file: the path to it is found upwards, by look-ups of "..".
        shell(
            &dir,
            "rm -r sub; echo 2 > /proc/sys/vm/drop_caches; ! python3 ../handles.py open 2> ../said; grep -q ESTALE ../said",
        );
        disk.umount();
        disk.assert_clean();
    }
}
