//! The image that FreeBSD made, where there is one.

use std::path::PathBuf;
use std::process::Command;

/// The bytes of FreeBSD's image, or nothing, said aloud, where this machine does not have it.
pub fn freebsd_image() -> Option<Vec<u8>> {
    let shared = std::env::var_os("ORDO_SHARED")
        .map(PathBuf::from)
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"));
    let packed = shared.join("images/freebsd-ufs2-little-endian.img.zst");
    if !packed.exists() {
        eprintln!("SKIPPED: {} is absent (set ORDO_SHARED)", packed.display());
        return None;
    }
    let out = Command::new("zstd").args(["-d", "-c", "-q"]).arg(&packed).output();
    match out {
        Ok(out) if out.status.success() => Some(out.stdout),
        _ => {
            eprintln!("SKIPPED: zstd cannot unpack {}", packed.display());
            None
        }
    }
}
