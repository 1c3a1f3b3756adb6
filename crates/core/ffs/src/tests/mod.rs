//! Tests of the layout on small disks.
