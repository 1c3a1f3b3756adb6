# A database: many clients read pages and compute, some processes write changed pages, and one writes the log.
#
# A writer of pages works when the clients have made 1000 changes since its last time, the writer of the log when they
# have made 3200. A client waits when it is too far ahead of them.
# The parameters are those of filebench 1.5's personality of this name; the text is Ordo's.

set $nfiles=10
set $filesize=10m
set $nlogfiles=1
set $logfilesize=10m
set $iosize=2k
set $nshadows=200
set $ndbwriters=10
set $usermode=200000
set $workingset=0
set $eventrate=0
set $runtime=60

eventgen rate=$eventrate

define fileset name=tables, size=$filesize, entries=$nfiles, dirwidth=1024, prealloc=100
define fileset name=redo, size=$logfilesize, entries=$nlogfiles, dirwidth=1024, prealloc=100

define process name=log-writer
{
  thread name=log
  {
    flowop aiowrite name=write, filesetname=redo, iosize=256k, random, dsync
    flowop aiowait  name=wait
    flowop semblock name=log-turn, value=3200, highwater=1000
  }
}

define process name=page-writer, instances=$ndbwriters
{
  thread name=pages
  {
    flowop aiowrite name=write, filesetname=tables, iosize=$iosize, workingset=$workingset, random,
      iters=100, opennext, dsync
    flowop hog      name=compute, value=10000
    flowop semblock name=page-turn, value=1000, highwater=2000
    flowop aiowait  name=wait
  }
}

define process name=client, instances=$nshadows
{
  thread name=client
  {
    flowop read       name=read, filesetname=tables, iosize=$iosize, workingset=$workingset, random, opennext
    flowop hog        name=compute, value=$usermode
    flowop sempost    name=to-log, value=1, target=log-turn, blocking
    flowop sempost    name=to-pages, value=1, target=page-turn, blocking
    flowop eventlimit name=rate
  }
}

run $runtime
