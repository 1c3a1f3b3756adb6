\set w random(1, 2)
begin;
with first as (select no_d_id as d, min(no_o_id) as o from new_order where no_w_id = :w group by no_d_id),
    gone as (delete from new_order using first where no_w_id = :w and no_d_id = d and no_o_id = o),
    carried as (update orders set o_carrier_id = 3 from first where o_w_id = :w and o_d_id = d and o_id = o returning o_d_id, o_c_id),
    lines as (update order_line set ol_delivery_d = now() from first where ol_w_id = :w and ol_d_id = d and ol_o_id = o)
update customer set c_balance = c_balance + 10, c_delivery_cnt = c_delivery_cnt + 1 from carried
    where c_w_id = :w and c_d_id = o_d_id and c_id = o_c_id;
commit;
