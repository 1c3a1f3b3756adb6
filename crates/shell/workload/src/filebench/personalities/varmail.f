# A mail server that keeps each message in a file of its own.
#
# Each client removes a message, stores a new one durably, reads one and appends to it durably, and reads another.
# The parameters are those of filebench 1.5's personality of this name; the text is Ordo's.

set $nfiles=1000
set $nthreads=16
set $filesize=cvar(type=cvar-gamma,parameters=mean:16384;gamma:1.5)
set $meandirwidth=1000000
set $iosize=1m
set $meanappendsize=16k
set $runtime=60

define fileset name=messages, size=$filesize, entries=$nfiles, dirwidth=$meandirwidth, prealloc=80

define process name=mailserver
{
  thread name=user, instances=$nthreads
  {
    flowop deletefile     name=remove,      filesetname=messages
    flowop createfile     name=new,         filesetname=messages, fd=1
    flowop appendfilerand name=new-text,    fd=1, iosize=$meanappendsize
    flowop fsync          name=new-sync,    fd=1
    flowop closefile      name=new-close,   fd=1
    flowop openfile       name=reply,       filesetname=messages, fd=1
    flowop readwholefile  name=reply-read,  fd=1, iosize=$iosize
    flowop appendfilerand name=reply-text,  fd=1, iosize=$meanappendsize
    flowop fsync          name=reply-sync,  fd=1
    flowop closefile      name=reply-close, fd=1
    flowop openfile       name=look,        filesetname=messages, fd=1
    flowop readwholefile  name=look-read,   fd=1, iosize=$iosize
    flowop closefile      name=look-close,  fd=1
  }
}

run $runtime
