-- Which file causes the most journal traffic?
-- own_bytes: copies of the file's own blocks (contents, directory, pointers). shared_bytes: its part of all else that the
-- journal holds of the transactions that it takes part in (inodes, bitmaps, descriptors, commits), by its blocks among
-- theirs. A file takes part where its blocks are copied, or where its contents are written for the first time after the
-- commit before. What no known file takes part in has no path.
--
-- Alone: duckdb -c "set variable trace = 'fleet'" -f journal_by_file.sql
-- `trace` is a trace or a folder with traces at any depth; without it, the current folder is looked through.
with
requests as (
    select regexp_replace(filename, '/[^/]*$', '') as trace, * exclude (filename)
    from read_parquet(
        coalesce(getvariable('requests'), [coalesce(getvariable('trace'), '.') || '/**/requests.parquet']),
        filename = true, union_by_name = true, hive_partitioning = false)),
blocks as (
    select regexp_replace(filename, '/[^/]*$', '') as trace, * exclude (filename)
    from read_parquet(
        coalesce(getvariable('blocks'), [coalesce(getvariable('trace'), '.') || '/**/blocks.parquet']),
        filename = true, union_by_name = true, hive_partitioning = false)),
systems as (
    select regexp_replace(file_name, '/[^/]*$', '') as trace, decode(value) as system
    from parquet_kv_metadata(
        coalesce(getvariable('requests'), [coalesce(getvariable('trace'), '.') || '/**/requests.parquet']))
    where decode(key) = 'ordo.system'),
writes as (
    select b.*, r.issued_ns from blocks b join requests r using (trace, request) where r.op = 'write'),
-- Whose block lies at a place: as the trace says it, once for each place.
owners as (
    select trace, "offset", arg_max(inode, request) as inode, arg_max(path, request) as path
    from blocks where inode is not null group by all),
journal as (
    select w.trace, w.transaction, w.request, w.length, w.kind,
        case when w.home_kind in ('file_data', 'directory', 'indirect') then o.inode end as inode,
        case when w.home_kind in ('file_data', 'directory', 'indirect') then o.path end as path
    from writes w left join owners o on o.trace = w.trace and o."offset" = w.home_offset
    where w.kind like 'journal%' and w.transaction is not null),
commits as (
    select trace, transaction, max(request) as request from journal
    where kind = 'journal_commit' group by all),
-- Contents that go past the journal belong to the transaction that commits next.
contents as (
    select w.trace, c.transaction, w.inode, w.path, w.length
    from (from writes where kind = 'file_data' and completes is null and inode is not null) w
    asof join commits c on c.trace = w.trace and w.request <= c.request),
parts as (
    select trace, transaction, inode, any_value(path) as path, sum(length) as weight, sum(own) as own_bytes
    from (
        select trace, transaction, inode, path, length, length as own from journal where inode is not null
        union all by name
        select trace, transaction, inode, path, length, 0 as own from contents)
    group by all),
transactions as (
    select j.trace, j.transaction, sum(j.length) as bytes,
        coalesce(sum(j.length) filter (where j.inode is null), 0) as shared_bytes
    from journal j group by all),
weights as (select trace, transaction, sum(weight) as all_weight from parts group by all),
shares as (
    select p.trace, p.inode, p.path, t.transaction, p.own_bytes,
        t.shared_bytes * p.weight / w.all_weight as shared_bytes
    from parts p join transactions t using (trace, transaction) join weights w using (trace, transaction)
    union all by name
    select t.trace, null as inode, null as path, t.transaction, 0 as own_bytes, t.shared_bytes
    from transactions t anti join weights w using (trace, transaction))
select trace, system, path, inode, count(distinct transaction) as transactions,
    sum(own_bytes)::bigint as own_bytes, round(sum(shared_bytes))::bigint as shared_bytes,
    round(sum(own_bytes) + sum(shared_bytes))::bigint as bytes
from shares left join systems using (trace)
group by trace, system, path, inode
order by bytes desc, trace, path, inode;
