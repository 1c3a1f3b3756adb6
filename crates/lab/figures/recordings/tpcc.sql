-- The tables of TPC-C for two warehouses, with the rows of clause 1.2.1 and text as filling.
create table warehouse (w_id int primary key, w_ytd numeric, w_tax numeric, w_name text) with (fillfactor = 90);
create table district (d_w_id int, d_id int, d_ytd numeric, d_tax numeric, d_next_o_id int, d_name text, primary key (d_w_id, d_id));
create table customer (c_w_id int, c_d_id int, c_id int, c_last text, c_balance numeric, c_ytd_payment numeric, c_payment_cnt int,
    c_delivery_cnt int, c_data text, primary key (c_w_id, c_d_id, c_id));
create table history (h_c_id int, h_c_d_id int, h_c_w_id int, h_d_id int, h_w_id int, h_date timestamp, h_amount numeric, h_data text);
create table new_order (no_w_id int, no_d_id int, no_o_id int, primary key (no_w_id, no_d_id, no_o_id));
create table orders (o_w_id int, o_d_id int, o_id int, o_c_id int, o_entry_d timestamp, o_carrier_id int, o_ol_cnt int,
    primary key (o_w_id, o_d_id, o_id));
create table order_line (ol_w_id int, ol_d_id int, ol_o_id int, ol_number int, ol_i_id int, ol_delivery_d timestamp, ol_quantity int,
    ol_amount numeric, ol_dist_info text, primary key (ol_w_id, ol_d_id, ol_o_id, ol_number));
create table stock (s_w_id int, s_i_id int, s_quantity int, s_ytd int, s_order_cnt int, s_data text, primary key (s_w_id, s_i_id));
create table item (i_id int primary key, i_name text, i_price numeric, i_data text);
insert into warehouse select w, 300000, 0.1, 'name' from generate_series(1, 2) w;
insert into district select w, d, 30000, 0.1, 3001, 'name' from generate_series(1, 2) w, generate_series(1, 10) d;
insert into customer select w, d, c, 'LAST' || (c - 1) % 1000, -10, 10, 1, 0, repeat(md5(c::text), 15)
    from generate_series(1, 2) w, generate_series(1, 10) d, generate_series(1, 3000) c;
insert into history select c, d, w, d, w, now(), 10, 'twelve to twenty-four'
    from generate_series(1, 2) w, generate_series(1, 10) d, generate_series(1, 3000) c;
insert into orders select w, d, o, 1 + (o * 7) % 3000, now(), case when o < 2101 then 1 end, 10
    from generate_series(1, 2) w, generate_series(1, 10) d, generate_series(1, 3000) o;
insert into new_order select w, d, o from generate_series(1, 2) w, generate_series(1, 10) d, generate_series(2101, 3000) o;
insert into order_line select w, d, o, l, 1 + (o * 31 + l * 977) % 100000, now(), 5, 0, repeat('x', 24)
    from generate_series(1, 2) w, generate_series(1, 10) d, generate_series(1, 3000) o, generate_series(1, 10) l;
insert into item select i, 'item', 10, repeat('x', 38) from generate_series(1, 100000) i;
insert into stock select w, i, 50, 0, 0, repeat(md5(i::text), 8) from generate_series(1, 2) w, generate_series(1, 100000) i;
create index on customer (c_w_id, c_d_id, c_last);
create index on orders (o_w_id, o_d_id, o_c_id);
vacuum analyze;
checkpoint;
