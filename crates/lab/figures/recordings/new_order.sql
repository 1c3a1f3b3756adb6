\set w random(1, 2)
\set d random(1, 10)
\set c random(1, 3000)
\set lines random(5, 15)
begin;
select w_tax from warehouse where w_id = :w;
update district set d_next_o_id = d_next_o_id + 1 where d_w_id = :w and d_id = :d returning d_next_o_id - 1 as o \gset
select c_balance, c_last from customer where c_w_id = :w and c_d_id = :d and c_id = :c;
insert into orders values (:w, :d, :o, :c, now(), null, :lines);
insert into new_order values (:w, :d, :o);
with wanted as (select l, 1 + (floor(random() * 8192)::int | floor(random() * 100000)::int) % 100000 as i from generate_series(1, :lines) l),
    changed as (update stock set s_quantity = s_quantity - 5 + case when s_quantity < 15 then 91 else 0 end, s_ytd = s_ytd + 5,
        s_order_cnt = s_order_cnt + 1 where s_w_id = :w and s_i_id in (select i from wanted))
insert into order_line select :w, :d, :o, l, wanted.i, null, 5, i_price * 5, repeat('x', 24) from wanted join item on i_id = wanted.i;
commit;
