//! The tables in `docs/formats` are the codecs' field lists, and the lists cover each structure
//! without overlap. Catches an offset that was changed in one place only, and overlapping fields.

use std::fmt::Write as _;

use ordo_format::Field;
use ordo_format::blktrace::BlkEvent;
use ordo_format::dm_log_writes::{LogWritesEntry, LogWritesSuper};
use ordo_format::ufs1::Inode1;
use ordo_format::ufs2::csum::CsTotal;
use ordo_format::ufs2::{
    Csum, Dinode, Group, Superblock,
    superblock::{Recovery, SuperblockError},
};
use ordo_format::wafs::{SectorHead, WafsSuper};
use ordo_format::{
    btrfs, dualfs, ext4, f2fs, fuse, jbd2, jfs, lfs, nilfs2, ntfs, reiserfs, vhost_user, xfs,
};

type Structure = (&'static str, usize, &'static [Field]);

const UFS2: [Structure; 6] = [
    ("Superblock", Superblock::SIZE, Superblock::FIELDS),
    ("CsTotal", CsTotal::SIZE, CsTotal::FIELDS),
    ("Recovery", Recovery::SIZE, Recovery::FIELDS),
    ("Csum", Csum::SIZE, Csum::FIELDS),
    ("Group", Group::SIZE, Group::FIELDS),
    ("Dinode", Dinode::SIZE, Dinode::FIELDS),
];

const UFS1: [Structure; 1] = [("Inode1", Inode1::SIZE, Inode1::FIELDS)];

const WAFS: [Structure; 2] = [
    ("WafsSuper", WafsSuper::SIZE, WafsSuper::FIELDS),
    ("SectorHead", SectorHead::SIZE, SectorHead::FIELDS),
];

const DM_LOG_WRITES: [Structure; 2] = [
    ("LogWritesSuper", LogWritesSuper::SIZE, LogWritesSuper::FIELDS),
    ("LogWritesEntry", LogWritesEntry::SIZE, LogWritesEntry::FIELDS),
];

const BLKTRACE: [Structure; 1] = [("BlkEvent", BlkEvent::SIZE, BlkEvent::FIELDS)];

const FUSE: [Structure; 39] = [
    ("InHeader", fuse::InHeader::SIZE, fuse::InHeader::FIELDS),
    ("OutHeader", fuse::OutHeader::SIZE, fuse::OutHeader::FIELDS),
    ("ForgetIn", fuse::ForgetIn::SIZE, fuse::ForgetIn::FIELDS),
    ("ForgetOne", fuse::ForgetOne::SIZE, fuse::ForgetOne::FIELDS),
    ("BatchForgetIn", fuse::BatchForgetIn::SIZE, fuse::BatchForgetIn::FIELDS),
    ("SetattrIn", fuse::SetattrIn::SIZE, fuse::SetattrIn::FIELDS),
    ("MknodIn", fuse::MknodIn::SIZE, fuse::MknodIn::FIELDS),
    ("MkdirIn", fuse::MkdirIn::SIZE, fuse::MkdirIn::FIELDS),
    ("RenameIn", fuse::RenameIn::SIZE, fuse::RenameIn::FIELDS),
    ("Rename2In", fuse::Rename2In::SIZE, fuse::Rename2In::FIELDS),
    ("LinkIn", fuse::LinkIn::SIZE, fuse::LinkIn::FIELDS),
    ("CreateIn", fuse::CreateIn::SIZE, fuse::CreateIn::FIELDS),
    ("OpenOut", fuse::OpenOut::SIZE, fuse::OpenOut::FIELDS),
    ("ReadIn", fuse::ReadIn::SIZE, fuse::ReadIn::FIELDS),
    ("WriteIn", fuse::WriteIn::SIZE, fuse::WriteIn::FIELDS),
    ("WriteOut", fuse::WriteOut::SIZE, fuse::WriteOut::FIELDS),
    ("SetxattrIn", fuse::SetxattrIn::SIZE, fuse::SetxattrIn::FIELDS),
    ("GetxattrIn", fuse::GetxattrIn::SIZE, fuse::GetxattrIn::FIELDS),
    ("InitIn", fuse::InitIn::SIZE, fuse::InitIn::FIELDS),
    ("InitInExt", fuse::InitInExt::SIZE, fuse::InitInExt::FIELDS),
    ("InitOut", fuse::InitOut::SIZE, fuse::InitOut::FIELDS),
    ("FsyncIn", fuse::FsyncIn::SIZE, fuse::FsyncIn::FIELDS),
    ("FallocateIn", fuse::FallocateIn::SIZE, fuse::FallocateIn::FIELDS),
    ("LseekIn", fuse::LseekIn::SIZE, fuse::LseekIn::FIELDS),
    ("BmapIn", fuse::BmapIn::SIZE, fuse::BmapIn::FIELDS),
    ("IoctlIn", fuse::IoctlIn::SIZE, fuse::IoctlIn::FIELDS),
    ("IoctlOut", fuse::IoctlOut::SIZE, fuse::IoctlOut::FIELDS),
    ("CopyFileRangeIn", fuse::CopyFileRangeIn::SIZE, fuse::CopyFileRangeIn::FIELDS),
    ("FuseAttr", fuse::FuseAttr::SIZE, fuse::FuseAttr::FIELDS),
    ("AttrOut", fuse::AttrOut::SIZE, fuse::AttrOut::FIELDS),
    ("EntryOut", fuse::EntryOut::SIZE, fuse::EntryOut::FIELDS),
    ("FuseDirent", fuse::FuseDirent::SIZE, fuse::FuseDirent::FIELDS),
    ("Kstatfs", fuse::Kstatfs::SIZE, fuse::Kstatfs::FIELDS),
    ("SxTime", fuse::SxTime::SIZE, fuse::SxTime::FIELDS),
    ("FuseStatx", fuse::FuseStatx::SIZE, fuse::FuseStatx::FIELDS),
    ("StatxOut", fuse::StatxOut::SIZE, fuse::StatxOut::FIELDS),
    ("NotifyInvalInodeOut", fuse::NotifyInvalInodeOut::SIZE, fuse::NotifyInvalInodeOut::FIELDS),
    ("Fsxattr", fuse::Fsxattr::SIZE, fuse::Fsxattr::FIELDS),
    ("UringEntInOut", fuse::UringEntInOut::SIZE, fuse::UringEntInOut::FIELDS),
];

const VHOST_USER: [Structure; 11] = [
    ("VhostHeader", vhost_user::VhostHeader::SIZE, vhost_user::VhostHeader::FIELDS),
    ("VringState", vhost_user::VringState::SIZE, vhost_user::VringState::FIELDS),
    ("VringAddr", vhost_user::VringAddr::SIZE, vhost_user::VringAddr::FIELDS),
    ("MemRegion", vhost_user::MemRegion::SIZE, vhost_user::MemRegion::FIELDS),
    ("VhostConfig", vhost_user::VhostConfig::SIZE, vhost_user::VhostConfig::FIELDS),
    ("VirtioBlkConfig", vhost_user::VirtioBlkConfig::SIZE, vhost_user::VirtioBlkConfig::FIELDS),
    ("VirtioBlkOuthdr", vhost_user::VirtioBlkOuthdr::SIZE, vhost_user::VirtioBlkOuthdr::FIELDS),
    ("VirtioBlkDiscard", vhost_user::VirtioBlkDiscard::SIZE, vhost_user::VirtioBlkDiscard::FIELDS),
    ("TimetravelMsg", vhost_user::TimetravelMsg::SIZE, vhost_user::TimetravelMsg::FIELDS),
    ("Schedshm", vhost_user::Schedshm::SIZE, vhost_user::Schedshm::FIELDS),
    ("SchedshmClient", vhost_user::SchedshmClient::SIZE, vhost_user::SchedshmClient::FIELDS),
];

const EXT4: [Structure; 6] = [
    ("Ext4Superblock", ext4::Superblock::SIZE, ext4::Superblock::FIELDS),
    ("Ext4GroupDesc", ext4::GroupDesc::SIZE, ext4::GroupDesc::FIELDS),
    ("Ext4Inode", ext4::Inode::SIZE, ext4::Inode::FIELDS),
    ("Ext4ExtentHeader", ext4::ExtentHeader::SIZE, ext4::ExtentHeader::FIELDS),
    ("Ext4Extent", ext4::Extent::SIZE, ext4::Extent::FIELDS),
    ("Ext4ExtentIndex", ext4::ExtentIndex::SIZE, ext4::ExtentIndex::FIELDS),
];

const JBD2: [Structure; 4] = [
    ("Jbd2JournalSuper", jbd2::JournalSuper::SIZE, jbd2::JournalSuper::FIELDS),
    ("Jbd2Header", jbd2::Header::SIZE, jbd2::Header::FIELDS),
    ("Jbd2Revoke", jbd2::Revoke::SIZE, jbd2::Revoke::FIELDS),
    ("Jbd2Commit", jbd2::Commit::SIZE, jbd2::Commit::FIELDS),
];

const REISERFS: [Structure; 7] = [
    ("ReiserSuperblock", reiserfs::Superblock::SIZE, reiserfs::Superblock::FIELDS),
    ("ReiserBlockHead", reiserfs::BlockHead::SIZE, reiserfs::BlockHead::FIELDS),
    ("ReiserChild", reiserfs::Child::SIZE, reiserfs::Child::FIELDS),
    ("ReiserEntryHead", reiserfs::EntryHead::SIZE, reiserfs::EntryHead::FIELDS),
    ("ReiserItemHead", reiserfs::ItemHead::SIZE, reiserfs::ItemHead::FIELDS),
    ("ReiserTransactionHead", reiserfs::TransactionHead::SIZE, reiserfs::TransactionHead::FIELDS),
    ("ReiserJournalHeader", reiserfs::JournalHeader::SIZE, reiserfs::JournalHeader::FIELDS),
];

const XFS: [Structure; 9] = [
    ("XfsSuperblock", xfs::Superblock::SIZE, xfs::Superblock::FIELDS),
    ("XfsAgf", xfs::Agf::SIZE, xfs::Agf::FIELDS),
    ("XfsAgi", xfs::Agi::SIZE, xfs::Agi::FIELDS),
    ("XfsDinode", xfs::Dinode::SIZE, xfs::Dinode::FIELDS),
    ("XfsDirHead", xfs::dir::DirHead::SIZE, xfs::dir::DirHead::FIELDS),
    ("XfsRecordHead", xfs::log::RecordHead::SIZE, xfs::log::RecordHead::FIELDS),
    ("XfsOpHead", xfs::log::OpHead::SIZE, xfs::log::OpHead::FIELDS),
    ("XfsInodeItem", xfs::log::InodeItem::SIZE, xfs::log::InodeItem::FIELDS),
    ("XfsBufferItem", xfs::log::BufferItem::SIZE, xfs::log::BufferItem::FIELDS),
];

const JFS: [Structure; 11] = [
    ("JfsSuperblock", jfs::Superblock::SIZE, jfs::Superblock::FIELDS),
    ("JfsPxd", jfs::Pxd::SIZE, jfs::Pxd::FIELDS),
    ("JfsDinode", jfs::Dinode::SIZE, jfs::Dinode::FIELDS),
    ("JfsExtentNode", jfs::ExtentNode::SIZE, jfs::ExtentNode::FIELDS),
    ("JfsExtent", jfs::Extent::SIZE, jfs::Extent::FIELDS),
    ("JfsNamePage", jfs::NamePage::SIZE, jfs::NamePage::FIELDS),
    ("JfsMapPage", jfs::MapPage::SIZE, jfs::MapPage::FIELDS),
    ("JfsNameSlot", jfs::NameSlot::SIZE, jfs::NameSlot::FIELDS),
    ("JfsLogSuper", jfs::LogSuper::SIZE, jfs::LogSuper::FIELDS),
    ("JfsLogPage", jfs::LogPage::SIZE, jfs::LogPage::FIELDS),
    ("JfsLogRecord", jfs::LogRecord::SIZE, jfs::LogRecord::FIELDS),
];

const NTFS: [Structure; 11] = [
    ("NtfsBoot", ntfs::Boot::SIZE, ntfs::Boot::FIELDS),
    ("NtfsProtected", ntfs::Protected::SIZE, ntfs::Protected::FIELDS),
    ("NtfsFileRecord", ntfs::FileRecord::SIZE, ntfs::FileRecord::FIELDS),
    ("NtfsAttributeHead", ntfs::AttributeHead::SIZE, ntfs::AttributeHead::FIELDS),
    ("NtfsOutside", ntfs::Outside::SIZE, ntfs::Outside::FIELDS),
    ("NtfsFileName", ntfs::FileName::SIZE, ntfs::FileName::FIELDS),
    ("NtfsRestartPage", ntfs::RestartPage::SIZE, ntfs::RestartPage::FIELDS),
    ("NtfsRestartArea", ntfs::RestartArea::SIZE, ntfs::RestartArea::FIELDS),
    ("NtfsRecordPage", ntfs::RecordPage::SIZE, ntfs::RecordPage::FIELDS),
    ("NtfsLogRecord", ntfs::LogRecord::SIZE, ntfs::LogRecord::FIELDS),
    ("NtfsAction", ntfs::Action::SIZE, ntfs::Action::FIELDS),
];

const NILFS2: [Structure; 10] = [
    ("NilfsSuperblock", nilfs2::Superblock::SIZE, nilfs2::Superblock::FIELDS),
    ("NilfsSegmentSummary", nilfs2::SegmentSummary::SIZE, nilfs2::SegmentSummary::FIELDS),
    ("NilfsFileInfo", nilfs2::FileInfo::SIZE, nilfs2::FileInfo::FIELDS),
    ("NilfsBlockInfo", nilfs2::BlockInfo::SIZE, nilfs2::BlockInfo::FIELDS),
    ("NilfsDatNodeInfo", nilfs2::DatNodeInfo::SIZE, nilfs2::DatNodeInfo::FIELDS),
    ("NilfsSuperRoot", nilfs2::SuperRoot::SIZE, nilfs2::SuperRoot::FIELDS),
    ("NilfsInode", nilfs2::Inode::SIZE, nilfs2::Inode::FIELDS),
    ("NilfsTreeNode", nilfs2::TreeNode::SIZE, nilfs2::TreeNode::FIELDS),
    ("NilfsDatEntry", nilfs2::DatEntry::SIZE, nilfs2::DatEntry::FIELDS),
    ("NilfsDirEntry", nilfs2::DirEntry::SIZE, nilfs2::DirEntry::FIELDS),
];

const F2FS: [Structure; 11] = [
    ("F2fsSuperblock", f2fs::Superblock::SIZE, f2fs::Superblock::FIELDS),
    ("F2fsCheckpoint", f2fs::Checkpoint::SIZE, f2fs::Checkpoint::FIELDS),
    ("F2fsOrphansEnd", f2fs::checkpoint::OrphansEnd::SIZE, f2fs::checkpoint::OrphansEnd::FIELDS),
    ("F2fsSitEntry", f2fs::maps::SitEntry::SIZE, f2fs::maps::SitEntry::FIELDS),
    ("F2fsNatEntry", f2fs::maps::NatEntry::SIZE, f2fs::maps::NatEntry::FIELDS),
    ("F2fsSummary", f2fs::maps::Summary::SIZE, f2fs::maps::Summary::FIELDS),
    ("F2fsSummaryEnd", f2fs::maps::SummaryEnd::SIZE, f2fs::maps::SummaryEnd::FIELDS),
    ("F2fsInode", f2fs::node::Inode::SIZE, f2fs::node::Inode::FIELDS),
    ("F2fsInodeExtra", f2fs::node::InodeExtra::SIZE, f2fs::node::InodeExtra::FIELDS),
    ("F2fsFooter", f2fs::node::Footer::SIZE, f2fs::node::Footer::FIELDS),
    ("F2fsDirEntry", f2fs::node::DirEntry::SIZE, f2fs::node::DirEntry::FIELDS),
];

const BTRFS: [Structure; 18] = [
    ("BtrfsSuperblock", btrfs::Superblock::SIZE, btrfs::Superblock::FIELDS),
    ("BtrfsDevItem", btrfs::DevItem::SIZE, btrfs::DevItem::FIELDS),
    ("BtrfsHeader", btrfs::Header::SIZE, btrfs::Header::FIELDS),
    ("BtrfsKey", btrfs::Key::SIZE, btrfs::Key::FIELDS),
    ("BtrfsKeyPointer", btrfs::KeyPointer::SIZE, btrfs::KeyPointer::FIELDS),
    ("BtrfsItem", btrfs::Item::SIZE, btrfs::Item::FIELDS),
    ("BtrfsChunkHead", btrfs::ChunkHead::SIZE, btrfs::ChunkHead::FIELDS),
    ("BtrfsStripe", btrfs::Stripe::SIZE, btrfs::Stripe::FIELDS),
    ("BtrfsRootItem", btrfs::RootItem::SIZE, btrfs::RootItem::FIELDS),
    ("BtrfsInodeItem", btrfs::InodeItem::SIZE, btrfs::InodeItem::FIELDS),
    ("BtrfsInodeRef", btrfs::InodeRef::SIZE, btrfs::InodeRef::FIELDS),
    ("BtrfsDirItem", btrfs::DirItem::SIZE, btrfs::DirItem::FIELDS),
    ("BtrfsFileExtent", btrfs::FileExtent::SIZE, btrfs::FileExtent::FIELDS),
    ("BtrfsExtentItem", btrfs::ExtentItem::SIZE, btrfs::ExtentItem::FIELDS),
    ("BtrfsBlockGroupItem", btrfs::BlockGroupItem::SIZE, btrfs::BlockGroupItem::FIELDS),
    ("BtrfsFreeSpaceInfo", btrfs::FreeSpaceInfo::SIZE, btrfs::FreeSpaceInfo::FIELDS),
    ("BtrfsFreeSpaceHeader", btrfs::FreeSpaceHeader::SIZE, btrfs::FreeSpaceHeader::FIELDS),
    ("BtrfsFreeSpaceEntry", btrfs::FreeSpaceEntry::SIZE, btrfs::FreeSpaceEntry::FIELDS),
];

const LFS: [Structure; 16] = [
    ("Dlfs64", lfs::superblock::Dlfs64::SIZE, lfs::superblock::Dlfs64::FIELDS),
    ("Dlfs32", lfs::superblock::Dlfs32::SIZE, lfs::superblock::Dlfs32::FIELDS),
    ("Segsum", lfs::Segsum::SIZE, lfs::Segsum::FIELDS),
    ("Segsum32", lfs::summary::Segsum32::SIZE, lfs::summary::Segsum32::FIELDS),
    ("Finfo", lfs::summary::Finfo::SIZE, lfs::summary::Finfo::FIELDS),
    ("Finfo32", lfs::summary::Finfo32::SIZE, lfs::summary::Finfo32::FIELDS),
    ("Seal", lfs::summary::Seal::SIZE, lfs::summary::Seal::FIELDS),
    ("CleanerInfo", lfs::CleanerInfo::SIZE, lfs::CleanerInfo::FIELDS),
    ("CleanerInfo32", lfs::ifile::CleanerInfo32::SIZE, lfs::ifile::CleanerInfo32::FIELDS),
    ("SegUse", lfs::SegUse::SIZE, lfs::SegUse::FIELDS),
    ("IfileEntry", lfs::IfileEntry::SIZE, lfs::IfileEntry::FIELDS),
    ("IfileEntry32", lfs::ifile::IfileEntry32::SIZE, lfs::ifile::IfileEntry32::FIELDS),
    ("LfsInode", lfs::LfsInode::SIZE, lfs::LfsInode::FIELDS),
    ("LfsInode32", lfs::inode::LfsInode32::SIZE, lfs::inode::LfsInode32::FIELDS),
    ("DirHeader", lfs::dir::DirHeader::SIZE, lfs::dir::DirHeader::FIELDS),
    ("DirHeader32", lfs::dir::DirHeader32::SIZE, lfs::dir::DirHeader32::FIELDS),
];

const DUALFS: [Structure; 4] = [
    ("Identity", dualfs::Identity::SIZE, dualfs::Identity::FIELDS),
    ("CopyHead", dualfs::CopyHead::SIZE, dualfs::CopyHead::FIELDS),
    ("CopyEntry", dualfs::CopyEntry::SIZE, dualfs::CopyEntry::FIELDS),
    ("GroupDescriptor", dualfs::GroupDescriptor::SIZE, dualfs::GroupDescriptor::FIELDS),
];

/// Every page with its structures.
const PAGES: [(&str, &[Structure]); 18] = [
    ("ufs1", &UFS1),
    ("ufs2", &UFS2),
    ("wafs", &WAFS),
    ("dm-log-writes", &DM_LOG_WRITES),
    ("blktrace", &BLKTRACE),
    ("fuse", &FUSE),
    ("vhost-user", &VHOST_USER),
    ("ext4", &EXT4),
    ("jbd2", &JBD2),
    ("reiserfs", &REISERFS),
    ("xfs", &XFS),
    ("jfs", &JFS),
    ("ntfs", &NTFS),
    ("nilfs2", &NILFS2),
    ("f2fs", &F2FS),
    ("btrfs", &BTRFS),
    ("lfs", &LFS),
    ("dualfs", &DUALFS),
];

fn table(fields: &[Field]) -> String {
    let of_kernel = fields.iter().any(|field| !field.kernel.is_empty());
    let (head, rule) = if of_kernel { (" kernel |", "---|") } else { ("", "") };
    let mut text =
        format!("| byte | bytes | field |{head} type | |\n|---:|---:|---|{rule}---|---|\n");
    for field in fields {
        let Field { offset, bytes, name, kernel, type_name, doc } = field;
        let kernel = if of_kernel { format!(" {kernel} |") } else { String::new() };
        writeln!(text, "| {offset} | {bytes} | {name} |{kernel} `{type_name}` | {doc} |").unwrap();
    }
    text
}

/// The document, with every marked table replaced by the one that the codecs give.
fn with_tables(document: &str, structures: &[Structure]) -> String {
    let mut out = document.to_owned();
    for (name, _, fields) in structures {
        let mark = format!("<!-- table: {name} -->\n");
        let start = out.find(&mark).unwrap_or_else(|| panic!("no mark {mark}")) + mark.len();
        let end = start + out[start..].find("<!-- end -->").expect("an end mark");
        out.replace_range(start..end, &table(fields));
    }
    out
}

#[test]
fn the_documents_show_the_codecs() {
    for (page, structures) in PAGES {
        let path = format!("{}/../../../docs/formats/{page}.md", env!("CARGO_MANIFEST_DIR"));
        let document = std::fs::read_to_string(&path).unwrap();
        let right = with_tables(&document, structures);
        if std::env::var_os("ORDO_BLESS").is_some() {
            std::fs::write(&path, right).unwrap();
        } else {
            assert!(
                document == right,
                "docs/formats/{page}.md is out of date: \
                 ORDO_BLESS=1 cargo test -p ordo-format --test tables"
            );
        }
    }
}

#[test]
fn fields_cover_each_structure_once() {
    for (name, size, fields) in PAGES.into_iter().flat_map(|(_, structures)| structures).copied() {
        let mut end = 0;
        for field in fields {
            assert_eq!(field.offset, end, "{name}.{}", field.name);
            assert!(!field.doc.is_empty());
            end += field.bytes;
        }
        assert_eq!(end, size, "{name}");
    }
}

/// Pages of formats that are Ordo's own.
const OWN_PAGES: [&str; 2] = ["wafs", "dualfs"];
/// Structures, and a field, of Ordo's own on the pages of others.
const OWN_FIELDS: [&str; 4] = ["Seal.magic", "Seal.frags", "Seal.crc", "Dlfs64.grouptabsz"];

/// A search for a field's name in the kernel's sources finds the codec that reads it. Catches a new
/// field that was added without this name, and one name given to two fields.
#[test]
fn each_field_carries_the_kernels_name() {
    for (page, structures) in PAGES {
        for (name, _, fields) in structures {
            let mut seen = std::collections::BTreeSet::new();
            for field in *fields {
                let path = format!("{name}.{}", field.name);
                let own = OWN_PAGES.contains(&page) || OWN_FIELDS.contains(&path.as_str());
                assert_eq!(field.kernel.is_empty(), own, "{page}: {path}");
                // `lrd.log.redopage.type` is a field of a union, beside `lrd.type`.
                let again = path == "JfsLogRecord.part";
                assert!(
                    own || again || seen.insert(field.kernel),
                    "{path}: {} is taken",
                    field.kernel
                );
            }
        }
    }
    let lands_on = |fields: &[Field], kernel| {
        fields.iter().find(|field| field.kernel == kernel).map(|field| field.name)
    };
    assert_eq!(lands_on(xfs::Agf::FIELDS, "agf_freeblks"), Some("free_blocks"));
    assert_eq!(lands_on(ext4::Superblock::FIELDS, "s_inodes_per_group"), Some("inodes_per_group"));
    assert_eq!(lands_on(Dinode::FIELDS, "di_modrev"), Some("modrev"));
}

#[test]
fn errors_name_bytes_that_exist() {
    let error = SuperblockError::Place { value: 3 };
    let field = Field::find(Superblock::FIELDS, error.field().unwrap()).unwrap();
    assert_eq!(field.offset, error.byte());
    assert!(error.to_string().contains("byte 1000: sblockloc is 3"), "{error}");
}
