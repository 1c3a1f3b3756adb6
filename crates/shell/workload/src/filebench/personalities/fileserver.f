# A server of home directories.
#
# Each client stores a new file whole, appends to a file, reads one whole, removes one and looks at one.
# The parameters are those of filebench 1.5's personality of this name; the text is Ordo's.

set $nfiles=10000
set $nthreads=50
set $filesize=cvar(type=cvar-gamma,parameters=mean:131072;gamma:1.5)
set $meandirwidth=20
set $iosize=1m
set $meanappendsize=16k
set $runtime=60

define fileset name=homes, size=$filesize, entries=$nfiles, dirwidth=$meandirwidth, prealloc=80

define process name=fileserver
{
  thread name=user, instances=$nthreads
  {
    flowop createfile     name=store,        filesetname=homes, fd=1
    flowop writewholefile name=store-write,  fd=1, srcfd=1, iosize=$iosize
    flowop closefile      name=store-close,  fd=1
    flowop openfile       name=append,       filesetname=homes, fd=1
    flowop appendfilerand name=append-write, fd=1, iosize=$meanappendsize
    flowop closefile      name=append-close, fd=1
    flowop openfile       name=read,         filesetname=homes, fd=1
    flowop readwholefile  name=read-whole,   fd=1, iosize=$iosize
    flowop closefile      name=read-close,   fd=1
    flowop deletefile     name=remove,       filesetname=homes
    flowop statfile       name=look,         filesetname=homes
  }
}

run $runtime
