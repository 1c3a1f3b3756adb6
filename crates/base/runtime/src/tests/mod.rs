//! Tests of the executor, the locks and the driver.

mod driver;
mod executor;
mod locks;
