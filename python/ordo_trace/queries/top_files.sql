-- Which files cause the most traffic?
-- One row for each life of a file, the greatest traffic first: contents at their place, metadata, copies and records in a
-- journal, and reads, in bytes. What belongs to no file, or to no known one, is in a row without an inode.
--
-- Alone: duckdb -c "set variable trace = 'fleet'" -f top_files.sql
-- `trace` is a trace or a folder with traces at any depth; without it, the current folder is looked through.
with
files as (
    select regexp_replace(filename, '/[^/]*$', '') as trace, * exclude (filename)
    from read_parquet(
        coalesce(getvariable('files'), [coalesce(getvariable('trace'), '.') || '/**/files.parquet']),
        filename = true, union_by_name = true, hive_partitioning = false))
select trace, inode, path, data_bytes, metadata_bytes, journal_bytes, read_bytes,
    data_bytes + metadata_bytes + journal_bytes as written_bytes,
    round((data_bytes + metadata_bytes + journal_bytes) / nullif(data_bytes, 0), 2) as written_for_each_byte
from files
order by written_bytes + read_bytes desc, trace, inode, path;
