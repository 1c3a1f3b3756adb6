\set w random(1, 2)
\set d random(1, 10)
\set c random(1, 3000)
begin;
select c_balance, c_last from customer where c_w_id = :w and c_d_id = :d and c_id = :c;
with latest as (select o_id from orders where o_w_id = :w and o_d_id = :d and o_c_id = :c order by o_id desc limit 1)
select ol_i_id, ol_quantity, ol_amount from order_line join latest on ol_o_id = o_id where ol_w_id = :w and ol_d_id = :d;
commit;
