//! The orders of each district, and the rows that they have.

use std::collections::VecDeque;

use super::{CUSTOMERS, DISTRICTS};

/// The lines of an order at the start: their mean.
pub(super) const LINES: u64 = 10;
/// The undelivered orders of a district at the start.
pub(super) const UNDELIVERED: u64 = 900;
/// The orders at which a look at the stock looks.
const RECENT: usize = 20;

/// An order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub customer: u64,
    /// Its row in the orders, and the first row of its lines.
    pub row: u64,
    pub first_line: u64,
    pub lines: u64,
    /// Its row in the undelivered orders.
    pub new_row: u64,
}

/// The orders of a district.
#[derive(Default)]
struct District {
    /// The undelivered orders, the oldest first.
    undelivered: VecDeque<Order>,
    /// The last orders, the newest last.
    recent: VecDeque<Order>,
    /// The last order of each customer.
    last: Vec<Option<Order>>,
}

/// The orders of all districts.
pub(super) struct Orders {
    districts: Vec<District>,
    rows: u64,
    lines: u64,
    /// Rows of delivered orders are used again.
    free: VecDeque<u64>,
    new_rows: u64,
}

impl Orders {
    /// As many orders in each district as there are customers, of which the last are undelivered.
    pub(super) fn new(warehouses: u64) -> Orders {
        let districts = warehouses * DISTRICTS;
        let empty = || District { last: vec![None; CUSTOMERS as usize], ..District::default() };
        let mut orders = Orders {
            districts: (0..districts).map(|_| empty()).collect(),
            rows: 0,
            lines: 0,
            free: VecDeque::new(),
            new_rows: 0,
        };
        for district in 0..districts {
            for customer in 0..CUSTOMERS {
                orders.add(district, customer, LINES);
                if customer < CUSTOMERS - UNDELIVERED {
                    orders.deliver(district);
                }
            }
        }
        orders
    }

    /// Adds an order of so many lines, at the ends of the tables.
    pub(super) fn add(&mut self, district: u64, customer: u64, lines: u64) -> Order {
        let new_row = self.free.pop_front().unwrap_or_else(|| {
            self.new_rows += 1;
            self.new_rows - 1
        });
        let order = Order { customer, row: self.rows, first_line: self.lines, lines, new_row };
        (self.rows, self.lines) = (self.rows + 1, self.lines + lines);
        let of = &mut self.districts[district as usize];
        of.undelivered.push_back(order);
        of.recent.push_back(order);
        if of.recent.len() > RECENT {
            of.recent.pop_front();
        }
        of.last[customer as usize] = Some(order);
        order
    }

    /// Takes the oldest undelivered order of a district.
    pub(super) fn deliver(&mut self, district: u64) -> Option<Order> {
        let order = self.districts[district as usize].undelivered.pop_front()?;
        self.free.push_back(order.new_row);
        Some(order)
    }

    /// The last order of a customer.
    pub(super) fn last_of(&self, district: u64, customer: u64) -> Option<Order> {
        self.districts[district as usize].last[customer as usize]
    }

    /// The last orders of a district.
    pub(super) fn recent(&self, district: u64) -> Vec<Order> {
        self.districts[district as usize].recent.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Would catch orders whose lines overlap, and undelivered orders that share a row.
    #[test]
    fn orders_have_rows_of_their_own() {
        let mut orders = Orders::new(1);
        assert_eq!(
            (orders.rows, orders.lines),
            (DISTRICTS * CUSTOMERS, DISTRICTS * CUSTOMERS * LINES)
        );
        let one = orders.add(3, 17, 5);
        let two = orders.add(3, 18, 15);
        assert_eq!((two.row, two.first_line), (one.row + 1, one.first_line + 5));
        assert_eq!(orders.last_of(3, 17), Some(one));
        assert_eq!(orders.recent(3).last(), Some(&two));
        let mut rows: Vec<u64> =
            (0..UNDELIVERED + 2).map(|_| orders.deliver(3).unwrap().new_row).collect();
        assert_eq!(orders.deliver(3), None);
        rows.sort_unstable();
        rows.dedup();
        assert_eq!(rows.len() as u64, UNDELIVERED + 2);
    }
}
