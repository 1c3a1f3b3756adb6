//! Tests of the executor, the locks and the driver.

mod calendar;
mod driver;
mod executor;
mod locks;
