-- Who waits for whom?
-- A write or flush waited when nothing was under way as it was issued and something had completed shortly before (the
-- variable gap_ns, 1,000,000): it waited for what completed last. Both are called by their first block's kind; `flush` is
-- one by itself. waited_ns: from the issue of
-- what was waited for to its completion. Traces without times have no rows.
--
-- Alone: duckdb -c "set variable trace = 'fleet'" -f waits.sql
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
kinds as (
    select trace, request, arg_min(kind, "offset") as kind from blocks group by all),
named as (
    select r.trace, r.request, r.issued_ns, r.completed_ns, coalesce(k.kind, r.op) as kind
    from requests r left join kinds k using (trace, request)
    where r.op in ('write', 'flush', 'discard', 'write-zeroes') and r.issued_ns is not null),
before as (
    select *, max(completed_ns) over w as idle_ns, arg_max(kind, completed_ns) over w as waits_for,
        arg_max(issued_ns, completed_ns) over w as begun_ns,
        count(*) over w - count(completed_ns) over w as cut_off
    from named
    window w as (partition by trace order by request rows between unbounded preceding and 1 preceding))
select trace, system, kind as waiter, waits_for, count(*) as times,
    sum(idle_ns - begun_ns)::bigint as waited_ns, median(issued_ns - idle_ns)::bigint as median_gap_ns
from before left join systems using (trace)
where idle_ns <= issued_ns and issued_ns - idle_ns <= coalesce(getvariable('gap_ns'), 1000000) and cut_off = 0
group by trace, system, waiter, waits_for
order by waited_ns desc, trace, waiter, waits_for;
