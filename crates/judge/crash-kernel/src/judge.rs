//! The judgement of one state, which is mounted and checked.

use std::path::Path;
use std::process::Command;

use ordo_crash::{Question, Verdict};
use ordo_kernelfs::kernel::look_into;
use ordo_recorder::Folder;
use ordo_runtime::Executor;
use ordo_vfs::host::HostDir;

use crate::KernelSystem;

/// Judges an image. It is repaired first if there is no journal, then mounted, compared, unmounted
/// and checked. Some images are also used, and checked again.
pub(crate) fn judge(system: &KernelSystem, image: &[u8], question: &Question<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    let _turn = system.turn();
    if let Err(why) = judge_parts(system, image, question, &mut verdict) {
        verdict.cannot(question.promise().no_check, why);
    }
    verdict
}

fn judge_parts(
    system: &KernelSystem,
    image: &[u8],
    question: &Question<'_>,
    verdict: &mut Verdict,
) -> Result<(), String> {
    let folder = Folder::new("ordo-crash-").map_err(|e| format!("a folder for the image: {e}"))?;
    let file = folder.path().join("image");
    std::fs::write(&file, image).map_err(|e| format!("writing the image: {e}"))?;
    if !system.has_journal() {
        // Exit code 0: nothing wrong; 1: repaired completely; any other: not repaired.
        let code = exit_code(system.known().repair, &file)?.0;
        (verdict.unsound, verdict.needs_check) = (code != 0, code != 0);
        verdict.beyond_repair = !matches!(code, 0 | 1);
    }
    let executor = Executor::real(0);
    let look = |dir: &Path| {
        let fs = HostDir::open(dir).map_err(|e| e.to_string())?;
        executor.block_on(question.compare(&fs, verdict)).map_err(|e| e.to_string())?
    };
    look_into(system.kind, &file, look).map_err(|e| format!("mounting: {e}"))??;
    check(system, &file, "", question, verdict)?;
    if question.is_to_be_used() {
        let work = |dir: &Path| {
            let fs = HostDir::open(dir).map_err(|e| e.to_string())?;
            executor.block_on(question.work_with(&fs)).map_err(|e| e.to_string())?
        };
        look_into(system.kind, &file, work).map_err(|e| format!("mounting again: {e}"))??;
        check(system, &file, "after use: ", question, verdict)?;
    }
    Ok(())
}

/// Runs the file system's own check on an unmounted image.
fn check(
    system: &KernelSystem,
    image: &Path,
    when: &str,
    question: &Question<'_>,
    verdict: &mut Verdict,
) -> Result<(), String> {
    let (code, said) = exit_code(system.known().check, image)?;
    if code != 0 {
        verdict.unsound = true;
        verdict.needs_check = true;
        let what = format!("{when}{} finds: {said}", system.known().check.join(" "));
        verdict.cannot(question.promise().no_check, what);
    }
    Ok(())
}

/// Runs a program on an image. Returns its exit code and its output.
fn exit_code(words: &[&str], image: &Path) -> Result<(i32, String), String> {
    let out = Command::new(words[0]).args(&words[1..]).arg(image).output();
    let out = out.map_err(|e| format!("{}: {e}; is it installed?", words[0]))?;
    let said = [out.stdout, out.stderr].concat();
    Ok((out.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).trim().to_string()))
}
