//! Files of WML that are not what they should be: each is refused with a place and a reason, and
//! none makes the reader panic, loop, or take memory out of proportion.

use rand::RngExt;

use super::*;

fn refused(script: &str) -> String {
    let model = syntax::read(script, &[]).and_then(|script| resolve::model(&script, None));
    model.map(|_| ()).unwrap_err().in_file("f").to_string()
}

/// A script with one flowop in line 3.
fn with(flowop: &str) -> String {
    format!(
        "define fileset name=a,entries=9\ndefine process name=p {{ thread name=t {{\n{flowop} }} }}"
    )
}

/// Files, each with its error.
const OF_FILES: &[(&str, &str)] = &[
    ("run 60\n ?", "f:2:2: the character '?' means nothing here"),
    ("echo \"x", "f:1:6: this text has no closing quotation mark"),
    ("set $a=99999999999999999999", "f:1:8: 99999999999999999999 is too large"),
    ("sett $a=1", "f:1:1: 'sett' stands where a command (set, "),
    ("set a=1", "f:1:5: 'a' stands where a variable"),
    ("set $a 1", "f:1:8: 1 stands where '=' should"),
    ("set $a=$b", "f:1:5: $b has no value"),
    ("set $a=", "f:1:8: the end of the file stands where a value should"),
    ("set mode quit never", "f:1:15: 'never' stands where timeout, firstdone or alldone"),
    ("define disk name=x", "f:1:8: 'disk' stands where file, fileset, process"),
    ("define fileset name=a,color=1", "f:1:23: a fileset has no attribute 'color' here; it has"),
    ("define fileset entries=1", "f:1:1: this fileset needs the attribute 'name'"),
    ("define fileset name=a/b", "f:1:16: name is 'a/b', but must be a file's name"),
    ("define fileset name=a,entries=x", "f:1:23: entries is 'x', but must be a number from"),
    ("define fileset name=a,entries=11m", "f:1:23: entries is 11534336, but must be"),
    ("define fileset name=a,dirwidth=1", "f:1:23: dirwidth is 1, but must be a number from 2"),
    ("define fileset name=a,prealloc=101", "f:1:23: prealloc is 101, but must be"),
    ("define fileset name=a,size=$x", "f:1:23: $x has no value"),
    ("define file name=a\ndefine file name=a", "f:2:13: a file or fileset called 'a' is there"),
    (
        "define process name=p { thread name=t {",
        "f:1:40: the end of the file stands where a flowop",
    ),
    ("define process name=p,\n{", "f:2:1: '{' stands where the name of an attribute"),
    ("run 1", "f:1:1: the file defines no process"),
    ("system \"rm\"", "f:1:1: the command `system` is not in the part of WML that Ordo reads"),
    ("define flowop name=x, $y {", "f:1:1: a flowop made of others is not in the part"),
    ("set $a=cvar(type=cvar-weibull)\ndefine file name=x,size=$a", "f:1:13: the custom variable"),
    (
        "set $a=cvar(type=cvar-gamma,parameters=mean:x)\ndefine file name=x,size=$a",
        "as in mean:1638",
    ),
    ("set $a=cvar(type=cvar-gamma,parameters=gamma:0)\ndefine file name=x,size=$a", "above 0"),
    ("set $a=cvar(type=cvar-gamma,parameters=mu:1)\ndefine file name=x,size=$a", "'mu'"),
    ("set $a=randvar(type=tabular,randtable={{99,1,2}})\ndefine file name=x,size=$a", "99 percent"),
    ("set $a=randvar(min=cvar(type=x))", "f:1:16: a random variable inside of another"),
];

/// Flowops in line 3, each with its error.
const OF_FLOWOPS: &[(&str, &str)] = &[
    ("flowop open name=x", "f:3:8: the flowop 'open' is not in the part of WML that Ordo reads"),
    ("flowop openfile fd=1", "f:3:8: this flowop openfile needs the attribute 'filesetname'"),
    ("flowop openfile filesetname=b", "f:3:17: no file or fileset is called 'b'"),
    (
        "flowop openfile filesetname=a,fd=128",
        "f:3:31: fd is 128, but must be a number from 0 to 127",
    ),
    ("flowop read filesetname=a", "f:3:8: this flowop read needs the attribute 'iosize'"),
    ("flowop read filesetname=a,iosize=65m", "f:3:27: iosize is 68157440, but must be"),
    ("flowop read filesetname=a,iosize=4k,directio", "f:3:37: directio is not in the part"),
    (
        "flowop read filesetname=a,iosize=4k,indexed=1",
        "f:3:37: a flowop read has no attribute 'inde",
    ),
    ("flowop aiowrite filesetname=a,iosize=4k", "f:3:8: aiowrite without `random` is not in"),
    ("flowop sempost target=x", "f:3:8: no semblock is called 'x'"),
    ("flowop finishoncount value=1,target=x", "f:3:8: no flowop of this thread is called 'x'"),
    ("flowop delay value=true", "f:3:14: value is true, but must be a number"),
];

/// One case for each kind of fault. Would catch a fault that is taken for something else, or
/// passes.
#[test]
fn each_fault_has_its_place_and_its_reason() {
    for (script, said) in OF_FILES {
        assert!(refused(script).contains(said), "{script}\n{}\n{said}", refused(script));
    }
    for (flowop, said) in OF_FLOWOPS {
        let script = with(flowop);
        assert!(refused(&script).contains(said), "{script}\n{}", refused(&script));
    }
    let many = with("flowop delay value=1").replace("name=t", "name=t,instances=9999");
    let many = many.replace("name=p", "name=p,instances=9");
    assert!(refused(&many).contains("the number of clients is 89991, but must be 10000 at most"));
}

#[test]
fn variables_of_the_command_line_come_before_those_of_the_file() {
    let of = |text: &str| Filebench::parse(text).unwrap();
    assert_eq!(of("varmail").clients(), 16);
    assert_eq!(of("varmail,nthreads=3,run=5").model.seconds, 5);
    assert_eq!(of("varmail,$nthreads=3").clients(), 3);
    assert_eq!(of("oltp").clients(), 211);
    assert_eq!(of("varmail,nfiles=2k").model.filesets[0].entries, 2048);
    let said = |text: &str| Filebench::parse(text).unwrap_err().to_string();
    assert!(
        said("varmail,threads=3")
            .contains("the file sets no variable $threads; it sets $filesize,")
    );
    assert!(said("varmail,3").contains("not a value for 3: VARIABLE=VALUE"));
    assert!(
        said("mailserver").contains("no personality is called 'mailserver'; there are varmail")
    );
    assert!(said("/no/such.f").starts_with("/no/such.f: "));
    // A variable that is set from another one follows it, wherever the other one comes from.
    let script = "set $a=1\nset $b=$a\ndefine file name=x,size=$b\n".to_owned();
    let script = script + "define process name=p {thread name=t {flowop statfile filename=x}}";
    let read = syntax::read(&script, &[("a".into(), Value::Number(7))]).unwrap();
    assert_eq!(resolve::model(&read, None).unwrap().filesets[0].size, Amount::Fixed(7));
}

/// Twenty thousand damaged personalities: characters lost, doubled, exchanged, put in. Each is read
/// or refused at a place that is in the file.
#[test]
fn damaged_personalities_are_read_or_refused() {
    let mut random = Pcg64Mcg::seed_from_u64(26);
    let (mut read, mut refused) = (0, 0);
    for round in 0..20_000 {
        let mut text: Vec<char> = PERSONALITIES[round % 4].1.chars().collect();
        for _ in 0..random.random_range(1..6) {
            let at = random.random_range(0..text.len());
            let other = text[random.random_range(0..text.len())];
            match random.random_range(0..5) {
                0 if text.len() > 1 => drop(text.remove(at)),
                1 => text.insert(at, other),
                2 => text[at] = other,
                3 => text.truncate(at.max(1)),
                _ => text[at] = ['$', '{', '}', '(', '"', '=', '9', '\u{e9}'][at % 8],
            }
        }
        let text: String = text.into_iter().collect();
        match syntax::read(&text, &[]).and_then(|script| resolve::model(&script, Some(1))) {
            Ok(model) => {
                let clients: u64 = model.threads.iter().map(|thread| thread.clients).sum();
                assert!((1..=10_000).contains(&clients));
                read += 1;
            }
            Err(fault) => {
                let lines = text.lines().count() as u32 + 1;
                assert!((1..=lines).contains(&fault.place.line), "{fault:?}");
                refused += 1;
            }
        }
    }
    assert!(read > 1000 && refused > 5000, "{read} read, {refused} refused");
}
