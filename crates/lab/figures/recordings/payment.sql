\set w random(1, 2)
\set d random(1, 10)
\set c random(1, 3000)
\set name random(0, 999)
begin;
update warehouse set w_ytd = w_ytd + 10 where w_id = :w;
update district set d_ytd = d_ytd + 10 where d_w_id = :w and d_id = :d;
select c_id from customer where c_w_id = :w and c_d_id = :d and c_last = 'LAST' || :name order by c_id;
update customer set c_balance = c_balance - 10, c_ytd_payment = c_ytd_payment + 10, c_payment_cnt = c_payment_cnt + 1
    where c_w_id = :w and c_d_id = :d and c_id = :c;
insert into history values (:c, :d, :w, :d, :w, now(), 10, 'twelve to twenty-four');
commit;
