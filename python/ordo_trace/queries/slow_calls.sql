-- Which calls waited longest, and for what?
-- One row for each call's name, file and kind of request that it waited for: calls, requests, and the time that counts for
-- these requests. Each moment of a call counts once, for the request under way that was issued first. The row without a
-- kind has the rest of the calls' time, in which they waited for no request: processor, locks, other tasks. Needs traces
-- recorded with `ordo trace run --calls`; calls without an end in the trace are left out.
--
-- Alone: duckdb -c "set variable trace = 'fleet'" -f slow_calls.sql
-- `trace` is a trace or a folder with traces at any depth; without it, the current folder is looked through.
with
calls as (
    select regexp_replace(filename, '/[^/]*$', '') as trace, * exclude (filename)
    from read_parquet(
        coalesce(getvariable('calls'), [coalesce(getvariable('trace'), '.') || '/**/calls.parquet']),
        filename = true, union_by_name = true, hive_partitioning = false)),
waits as (
    select regexp_replace(filename, '/[^/]*$', '') as trace, * exclude (filename)
    from read_parquet(
        coalesce(getvariable('waits'), [coalesce(getvariable('trace'), '.') || '/**/waits.parquet']),
        filename = true, union_by_name = true, hive_partitioning = false)),
ended as (
    select trace, call_number, name, path, ended_ns - began_ns as took_ns from calls where ended_ns is not null),
waited as (
    select e.trace, e.name, e.path, w.kind, e.call_number, w.waited_ns
    from ended e join waits w using (trace, call_number)),
by_kind as (
    select trace, name, path, kind, count(distinct call_number) as calls, count(*) as requests,
        sum(waited_ns)::bigint as ns, max(waited_ns)::bigint as longest_ns
    from waited group by all),
by_call as (
    select e.trace, e.name, e.path, e.call_number, e.took_ns - coalesce(sum(w.waited_ns), 0) as ns
    from ended e left join waited w using (trace, call_number)
    group by e.trace, e.name, e.path, e.call_number, e.took_ns),
rest as (
    select trace, name, path, null as kind, count(*) as calls, 0 as requests, sum(ns)::bigint as ns,
        max(ns)::bigint as longest_ns
    from by_call group by all)
from by_kind union all from rest
order by ns desc, trace, name, path, kind;
