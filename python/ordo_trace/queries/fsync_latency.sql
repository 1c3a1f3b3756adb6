-- How long is it from an fsync to its commit?
-- One row for each mark `fsync INODE FIRST BYTES`, which says that an fsync has returned. Its commit is the last one that
-- completed by then, after the call where a mark `fsync-begin INODE` says when that was. called_ns is empty without such a
-- mark. started_ns: the first write of that transaction to the journal. Without a commit, the file system waited for none.
-- Traces without times have no rows.
--
-- Alone: duckdb -c "set variable trace = 'fleet'" -f fsync_latency.sql
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
marks as (
    select trace, request, issued_ns as at_ns, string_split(text, ' ') as words
    from requests where op = 'mark' and issued_ns is not null
        and regexp_matches(text, '^(fsync [0-9]+ [0-9]+ [0-9]+|fsync-begin [0-9]+)$')),
returns as (
    select trace, request, at_ns as returned_ns, words[2]::bigint as inode from marks where words[1] = 'fsync'),
calls as (
    select trace, request, at_ns as called_ns, words[2]::bigint as inode from marks where words[1] = 'fsync-begin'),
fsyncs as (
    select f.*, c.called_ns
    from returns f asof left join calls c on c.trace = f.trace and c.inode = f.inode and f.request >= c.request),
journal as (
    select b.trace, b.transaction, min(r.issued_ns) as started_ns,
        max(r.completed_ns) filter (where b.kind = 'journal_commit') as committed_ns
    from blocks b join requests r using (trace, request)
    where r.op = 'write' and b.kind like 'journal%' and b.transaction is not null group by all),
commits as (from journal where committed_ns is not null),
names as (select trace, inode, arg_max(path, request) as path from blocks where path is not null group by all),
found as (
    select f.trace, f.request, f.inode, f.called_ns, f.returned_ns,
        c.transaction, c.started_ns, c.committed_ns
    from fsyncs f asof left join commits c on c.trace = f.trace and f.returned_ns >= c.committed_ns),
own as (
    select trace, request, inode, called_ns, returned_ns, transaction, started_ns, committed_ns
    from found where called_ns is null or committed_ns >= called_ns)
select f.trace, s.system, n.path, f.inode, f.request, o.transaction, f.called_ns, o.started_ns, o.committed_ns,
    f.returned_ns, o.committed_ns - coalesce(f.called_ns, o.started_ns) as to_commit_ns,
    f.returned_ns - o.committed_ns as to_return_ns
from fsyncs f
    left join own o using (trace, request)
    left join names n on n.trace = f.trace and n.inode = f.inode
    left join systems s on s.trace = f.trace
order by f.trace, f.request;
