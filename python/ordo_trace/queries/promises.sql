-- Which promises were broken, by file system and version?
-- Counts the states of `ordo crash` results: of `-o FILE` and `merge -o FILE`, and of `task --into FOLDER`. The version is
-- that of the program which explored; results of `-o` do not say it, and have that of a folder `version=...` on their
-- path, if any.
--
-- Alone: duckdb -c "set variable results = ['results/*.json']" -f promises.sql
-- Without `results`, all files `*.json` of the current folder and below it are taken that are such results.
with
files as (
    select filename, json(content) as j
    from read_text(coalesce(getvariable('results'), ['**/*.json']))
    where json_valid(content) and json_type(content) = 'OBJECT'),
campaigns as (
    select filename, regexp_extract(filename, 'version=([^/]+)', 1) as version, unnest(j -> '$.rows[*]') as row
    from files where j ->> '$.format' = 'ordo crash results 1'),
tasks as (
    select j ->> '$.task.system' as system, j ->> '$.task.model' as model,
        j ->> '$.task.geometry.name' as geometry, j ->> '$.task.workload' as workload,
        j ->> '$.task.sweep.program.version' as version, unnest(j -> '$.lives[*]') as life
    from files where j ->> '$.format' = 'ordo crash task result 1'),
counted as (
    select row ->> '$.system' as system, nullif(version, '') as version, row ->> '$.model' as model,
        row ->> '$.geometry.name' as geometry, row ->> '$.workload' as workload,
        (row ->> '$.states')::bigint as states, (row ->> '$.promise_broken')::bigint as broken,
        row ->> '$.first_broken[1]' as example
    from campaigns
    union all by name
    select system, version, model, geometry, workload,
        (life ->> '$.states')::bigint as states, (life ->> '$.promise_broken')::bigint as broken,
        life ->> '$.broken' as example
    from tasks)
select system, version, model, geometry, workload, sum(states)::bigint as states, sum(broken)::bigint as broken,
    min(example) filter (where broken > 0) as example
from counted
group by all
order by broken desc, system, version, model, geometry, workload;
