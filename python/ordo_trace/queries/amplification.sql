-- How many bytes reach the device for each byte of the application's?
-- application_bytes: contents of files where they belong. Copies of contents in a journal are the file system's. What a
-- guess turned out to be (recounted.parquet) is counted as that; the numbers are those of `ordo analyze`.
--
-- Alone: duckdb -c "set variable trace = 'fleet'" -f amplification.sql
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
recounted as (
    select regexp_replace(filename, '/[^/]*$', '') as trace, * exclude (filename)
    from read_parquet(
        coalesce(getvariable('recounted'), [coalesce(getvariable('trace'), '.') || '/**/recounted.parquet']),
        filename = true, union_by_name = true, hive_partitioning = false)),
systems as (
    select regexp_replace(file_name, '/[^/]*$', '') as trace, decode(value) as system
    from parquet_kv_metadata(
        coalesce(getvariable('requests'), [coalesce(getvariable('trace'), '.') || '/**/requests.parquet']))
    where decode(key) = 'ordo.system'),
written as (
    select b.trace, b.kind, sum(b.length) as bytes
    from blocks b join requests r using (trace, request) where r.op = 'write' group by all),
settled as (
    from written
    union all by name select trace, kind, bytes from recounted
    union all by name select trace, was as kind, -bytes as bytes from recounted)
select trace, system,
    coalesce(sum(bytes) filter (where kind = 'file_data'), 0)::bigint as application_bytes,
    sum(bytes)::bigint as written_bytes,
    coalesce(sum(bytes) filter (where kind like 'journal%'), 0)::bigint as journal_bytes,
    coalesce(sum(bytes) filter (where kind <> 'file_data' and kind not like 'journal%'), 0)::bigint as metadata_bytes,
    round(written_bytes / nullif(application_bytes, 0), 3) as amplification
from settled left join systems using (trace)
group by trace, system
order by amplification desc nulls last, trace;
