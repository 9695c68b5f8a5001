# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_restripe_global_optspecs
    string join \n h/help V/version
end

function __fish_restripe_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_restripe_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_restripe_using_subcommand
    set -l cmd (__fish_restripe_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c restripe -n "__fish_restripe_needs_command" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_needs_command" -s V -l version -d 'Print version'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "plan" -d 'Compare layouts for given disks; writes nothing'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "create" -d 'Create an array on empty members'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "assemble" -d 'Check members, replay their logs, print the status and exit, without serving'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "serve" -d 'Serve arrays over NBD until stopped'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "status" -d 'Show an array\'s state, members, tasks and lost data'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "examine" -d 'Show the metadata of members, read-only'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "fail" -d 'Fail a member: the array stops using it'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "remove" -d 'Remove a failed member or a spare from the array'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "add" -d 'Add a device: a returning member to its slot, or a new spare'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "replace" -d 'Replace a working member by copying it onto another device'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "grow" -d 'Grow an array by further members while it serves; or watch, pause or throttle a running growth'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "rebuild" -d 'Watch, pause or throttle a running rebuild; rebuilds start automatically if there is a spare'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "scrub" -d 'Compare all copies and parity with the data; correct them only with --repair'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "stop" -d 'Flush, mark the array clean, and end its daemon'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "metrics" -d 'Print the counters in the Prometheus text format'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "heat" -d 'Show the read counts of zones; `--order ido` rebuilds the most-read zones first'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "surrogate" -d 'Manage an array\'s surrogate, which takes users\' writes while a member is rebuilt'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "lease" -d 'Manage leases: parts of an array lent to other arrays as space for surrogates'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "sim" -d 'Run arrays in the simulator: one seed, many seeds, or a recorded run'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "sim-disk" -d 'Serve the model of a drive over NBD, at the speed of that drive'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "lab" -d 'Laboratory: experiments from files, reliability of arrays, models of drives'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "replay" -d 'Replay a block trace, or a synthetic workload, on a simulated or a served array'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "trace" -d 'Analyse block traces, and transform them for a replay'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "cache-sim" -d 'Simulate read caches on a trace: how many disk reads they avoid, healthy or degraded'
complete -c restripe -n "__fish_restripe_needs_command" -f -a "demo" -d 'Demonstrate fault tolerance on disk images: a RAID-5 loses two disks and its daemon under load'
complete -c restripe -n "__fish_restripe_using_subcommand plan" -l disks -d 'Number of disks, not counting the spare' -r
complete -c restripe -n "__fish_restripe_using_subcommand plan" -l disk-size -d 'Bytes used of each disk [default: the capacity of the model in --disk]' -r
complete -c restripe -n "__fish_restripe_using_subcommand plan" -l disk -d 'Use the capacity and speed of this drive model; `restripe sim-disk` lists the models' -r
complete -c restripe -n "__fish_restripe_using_subcommand plan" -l speed -d 'Sequential speed of a disk in bytes per second, for reads and writes' -r
complete -c restripe -n "__fish_restripe_using_subcommand plan" -l mttf -d 'Mean time to failure of a disk' -r
complete -c restripe -n "__fish_restripe_using_subcommand plan" -l repair -d 'Mean time to repair a disk, the same for every layout [default: each layout\'s rebuild time]' -r
complete -c restripe -n "__fish_restripe_using_subcommand plan" -l flat -d 'Also show groups without skew (RAID-50, RAID-60)'
complete -c restripe -n "__fish_restripe_using_subcommand plan" -l json -d 'Print JSON'
complete -c restripe -n "__fish_restripe_using_subcommand plan" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand create" -l config -d 'Read the name, level, members and options from this file' -r -F
complete -c restripe -n "__fish_restripe_using_subcommand create" -l level -d 'RAID level; its number suffices. Minimum members, not counting spares: raid0 1; raid1, raid4 and raid5 2; raid6 4; raid10 2, or the number of copies' -r -f -a "raid0\t''
raid1\t''
raid4\t''
raid5\t''
raid6\t''
raid10\t''"
complete -c restripe -n "__fish_restripe_using_subcommand create" -l chunk -d 'Chunk size: consecutive data on one member before the next member (4K to 4M) [default: 64K]' -r
complete -c restripe -n "__fish_restripe_using_subcommand create" -l rotation -d 'Rotation of parity over the members, for raid5 and raid6 [default: left-symmetric]' -r -f -a "left-symmetric\t''
left-asymmetric\t''
right-symmetric\t''
right-asymmetric\t''
parity-first\t''
parity-last\t''"
complete -c restripe -n "__fish_restripe_using_subcommand create" -l copies -d 'Number of copies of each chunk, for raid10 [default: 2]' -r
complete -c restripe -n "__fish_restripe_using_subcommand create" -l groups -d 'Divide the members into N groups and skew rows over them: a row uses one member of each group (S2-RAID; raid5, raid6, raid10). A lost member is rebuilt in several streams. Parity takes 1 (raid6: 2) of N chunks, and more of the other members cause data loss if they fail next (docs/reference/layouts.md)' -r
complete -c restripe -n "__fish_restripe_using_subcommand create" -l partitions -d 'With --groups: partitions of each member, which is the number of rebuild streams; 1 stripes over the groups without skew [default: the most whose streams read from different members]' -r
complete -c restripe -n "__fish_restripe_using_subcommand create" -l spare-partitions -d 'With --groups: space on each member for N partitions of other members. A lost member is rebuilt onto this space at once [default: 0]' -r
complete -c restripe -n "__fish_restripe_using_subcommand create" -l spares -d 'Number of listed members that become spares [default: 0]' -r
complete -c restripe -n "__fish_restripe_using_subcommand create" -l init -d 'Initial contents of the members [default: written]' -r -f -a "written\t'Ready at once; data never written reads as zeros'
sync\t'Ready at once; copies and parity are brought in sync in the background'
zero\t'Zero every member first'
trust\t'Assume that the members are in sync, without a check'"
complete -c restripe -n "__fish_restripe_using_subcommand create" -l write-hole -d 'Protection of copies and parity against a crash during a write [default: ppl for raid4, raid5, raid6; bitmap for raid1, raid10]' -r -f -a "ppl\t'Log partial parity before each write'
bitmap\t'Mark regions that have writes in flight, as md does. A crash while degraded loses the missing member\'s data in these regions'
none\t'No protection: a crash requires a resync of the whole array, and a crash while degraded loses the missing member\'s data'"
complete -c restripe -n "__fish_restripe_using_subcommand create" -l size-per-member -d 'Use at most SIZE of each member for data [default: the smallest member without metadata and slack]' -r
complete -c restripe -n "__fish_restripe_using_subcommand create" -l data-offset -d 'Offset of the data region on each member; metadata is stored before it [default: about 1/16 of the smallest member, at most 4M (1M without ppl), more if the metadata needs it]' -r
complete -c restripe -n "__fish_restripe_using_subcommand create" -l image-size -d 'Create members that do not exist, including the surrogate\'s, as image files of SIZE' -r
complete -c restripe -n "__fish_restripe_using_subcommand create" -l lend -d 'Reserve SIZE at the end of the array for leases to other arrays; users see the array smaller by SIZE' -r
complete -c restripe -n "__fish_restripe_using_subcommand create" -l surrogate -d 'Members of a surrogate, as A,B: a second set that takes users\' writes while a member of the array is rebuilt; or the URI of a lease of another array' -r
complete -c restripe -n "__fish_restripe_using_subcommand create" -l surrogate-level -d 'RAID level of the surrogate; rs3 to rs8 have 3 to 8 parities, for a code cache only [default: raid1 for two members, raid5 for more; a lease has the redundancy of the lending array]' -r -f -a "raid1\t''
raid5\t''
raid6\t''
raid10\t''
rs3\t''
rs4\t''
rs5\t''
rs6\t''
rs7\t''
rs8\t''"
complete -c restripe -n "__fish_restripe_using_subcommand create" -l code-cache-chunk -d 'Chunk size of the code cache (a power of two from 4K; a row is at most 64K). Smaller chunks waste less padding when a flush ends a record early; larger chunks make a read use fewer members [default: the largest that a row allows]' -r
complete -c restripe -n "__fish_restripe_using_subcommand create" -l buffer-file -d 'An NVRAM buffer for the code cache: a file or device in persistent memory, or two as A,B, as a mirror. A flush then writes to the buffer instead of ending a record early. The buffer takes 16 MiB of each, and files that do not exist are created. List them with the members in later commands. On an ordinary disk a flush takes as long as that disk does' -r
complete -c restripe -n "__fish_restripe_using_subcommand create" -l no-slack -d 'Use the members to their ends. Without this option 1/1024 of the smallest member stays unused (at most 128M, none below 64M), so that a slightly smaller disk can replace a member'
complete -c restripe -n "__fish_restripe_using_subcommand create" -l code-cache -d 'Make the surrogate a code cache (RERAID): `serve` packs all writes into clusters and logs them there in whole rows, at all times. Requires three or more members and raid5, raid6, or rs3 to rs8, which tolerate 3 to 8 lost disks [default: raid6 from four members on]'
complete -c restripe -n "__fish_restripe_using_subcommand create" -l log-disk -d 'Use the single surrogate disk as a GRAID log: `serve` writes all data to the log and to the primary copies; secondary copies are updated at destage. Requires raid1 or raid10'
complete -c restripe -n "__fish_restripe_using_subcommand create" -l volatile-members -d 'Accept members that make no write durable: NBD exports without FLUSH and FUA, files and devices that refuse fsync. `serve` needs this option as well'
complete -c restripe -n "__fish_restripe_using_subcommand create" -l force -d 'Overwrite what the members contain; lists what will be lost and asks'
complete -c restripe -n "__fish_restripe_using_subcommand create" -l yes -d 'Do not ask'
complete -c restripe -n "__fish_restripe_using_subcommand create" -l json -d 'Print the result as JSON'
complete -c restripe -n "__fish_restripe_using_subcommand create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c restripe -n "__fish_restripe_using_subcommand assemble" -l config -d 'Read the members from this file' -r -F
complete -c restripe -n "__fish_restripe_using_subcommand assemble" -l degraded -d 'Start although a current member is missing; that member becomes stale and must be rebuilt'
complete -c restripe -n "__fish_restripe_using_subcommand assemble" -l from-minority -d 'Start although fewer than a majority of the members are present; implies --degraded'
complete -c restripe -n "__fish_restripe_using_subcommand assemble" -l accept-loss -d 'Start although data is lost by it; lost ranges are listed and read as errors; implies --degraded'
complete -c restripe -n "__fish_restripe_using_subcommand assemble" -l read-only -d 'Refuse users\' writes and never write to any member. After a crash, logs are not replayed, so data that needs a log to recover reads as an error'
complete -c restripe -n "__fish_restripe_using_subcommand assemble" -l volatile-members -d 'Accept members that make no write durable: NBD exports without FLUSH and FUA, files and devices that refuse fsync. While such a member is current, clients are offered neither FLUSH nor FUA, and a power failure may lose their writes'
complete -c restripe -n "__fish_restripe_using_subcommand assemble" -l force-owner -d 'Take the array over from the daemon that its superblocks record. Use it only if that daemon has ended, or hangs on another host'
complete -c restripe -n "__fish_restripe_using_subcommand assemble" -l json -d 'Print the status as JSON'
complete -c restripe -n "__fish_restripe_using_subcommand assemble" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l config -d 'Read members and options from this file' -r -F
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l unix -d 'Listen on this Unix socket' -r -F
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l tcp -d 'Listen on this TCP address: PORT, on loopback, or HOST:PORT' -r
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l memory -d 'Memory for clients\' requests [default: 256M]' -r
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l cache -d 'Size of the read cache of each array [default: 0]' -r
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l cache-policy -d 'Rule that chooses the block to evict from the read cache [default: vdf-lfu]' -r -f -a "lru\t''
lfu\t''
vdf-lru\t''
vdf-lfu\t''
arc\t''
vdf-arc\t''"
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l io-timeout -d 'Fail a member that completes no operation within TIME, or one operation within four times TIME [default: 30s]' -r
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l probe -d 'Probe an NBD member that has not replied for TIME; fail it if it does not answer within --io-timeout. Members in standby are not probed. The size of local members is read from the kernel every TIME [default: 10s]' -r
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l rate -d 'Limits of background work, as MIN..MAX in bytes per second of one member; MIN or MAX may be left out. 10M..200M runs at 10M or more even under load, and never above 200M [default: 1000K..2000000K]' -r
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l throttle -d 'Throttle of background work: restripe (the default); md-2.6, md-6.1 or md-2025 for the algorithms of Linux md; p99:20ms for the highest speed at which 99 of 100 requests take at most 20 ms (any percentile of 1 to 99, any time); finish:2h to finish two hours after the task started' -r
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l order -d 'Order of rebuilds and resyncs: by address (pr, the default), most read by users since the task started (pro), most read before it (ido), or by address with one row in flight (sor) or as many rows as buffers hold (dor)' -r -f -a "pr\t''
pro\t''
ido\t''
sor\t''
dor\t''"
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l zone -d 'Size of a zone in which reads are counted for --order ido and --redirect ido [default: 12M]' -r
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l epoch -d 'Halve the read counts of zones after every TIME [default: 10m]' -r
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l redirect -d 'Requests that go to a surrogate while a member is rebuilt: nothing (none); all writes, and data that is read again (workout); writes to a missing member\'s data, and all data read (vdf); all writes, and the zones read most (ido). At all times, with secondary copies in standby, all writes go to a code cache (reraid), to a log disk and the primary copies (graid), or to the primary copies only (eraid; a lost disk then loses data) [default: ido; reraid with a code cache, graid with a log disk]' -r -f -a "none\t''
workout\t''
vdf\t''
ido\t''
reraid\t''
graid\t''
eraid\t''"
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l destage-idle -d 'With redirect reraid, graid or eraid: destage after TIME without user requests [default: only when the log is nearly full]' -r
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l destage-every -d 'With redirect reraid, graid or eraid: destage TIME after the previous destage (or the start), even under load [default: off]' -r
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l destage-order -d 'Order in which a code cache is destaged, stripe by stripe: in rounds that fit in memory, oldest clusters first (rounds, the default); or over the whole log by least correlation (mcfd, as RERAID), by age (oldest) or by address (address)' -r -f -a "mcfd\t''
oldest\t''
address\t''
rounds\t''"
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l destage-memory -d 'Memory for the destage of a code cache, 1M to 1G in steps of 64K [default: 16M]' -r
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l sleep -d 'With redirect reraid, graid or eraid: put secondary copies of a raid1 or raid10 in standby after TIME without a request for them [default: never]' -r
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l starts-a-day -d 'At most N spin-downs a day of the secondary copies, within the start-stop rating of the drives [default: 27]' -r
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l power -d 'Command that puts a member in standby or wakes it, for disks that the kernel cannot switch: exec: and the command with its arguments. It runs without a shell; `standby` or `wake` and the member\'s path are appended' -r
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l watts -d 'Power rating of a member, to estimate joules in `status` and `metrics`: a drive\'s name, or watts by state and joules of a start and a stop, as in active=8.4,idle=6.4,standby=0.8,start=135J,stop=4J (the stop is optional). Power is not measured [default: wd1003fbyx, a 3.5" drive with published figures, if secondary copies may enter standby; else none]' -r
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l backend -d 'How operations reach the kernel' -r -f -a "auto\t'io_uring where the kernel allows it, else threads'
uring\t''
threads\t''"
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l record -d 'Record every event in FILE, for `restripe sim --replay`' -r -F
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l stdio -d 'Serve one connection on standard input and output, then exit'
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l degraded -d 'Start although a current member is missing; that member becomes stale and must be rebuilt'
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l from-minority -d 'Start although fewer than a majority of the members are present; implies --degraded'
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l accept-loss -d 'Start although data is lost by it; lost ranges are listed and read as errors; implies --degraded'
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l read-only -d 'Refuse users\' writes and never write to any member. After a crash, logs are not replayed, so data that needs a log to recover reads as an error'
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l volatile-members -d 'Accept members that make no write durable: NBD exports without FLUSH and FUA, files and devices that refuse fsync. While such a member is current, clients are offered neither FLUSH nor FUA, and a power failure may lose their writes'
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l force-owner -d 'Take the array over from the daemon that its superblocks record. Use it only if that daemon has ended, or hangs on another host'
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l on-demand -d 'Rebuild next what users read, whatever the order'
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l no-copy-back -d 'Leave what was rebuilt in spare partitions or on several spares of a skewed array there, distributed evenly'
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l redirect-scrubs -d 'Redirect to a surrogate during scrubs as well'
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l no-clean-log -d 'Always destage a code cache that runs low on space. Without this option its oldest segments are cleaned instead if they hold little live data, so secondary copies stay in standby'
complete -c restripe -n "__fish_restripe_using_subcommand serve" -l buffered -d 'Use the page cache for members instead of direct I/O'
complete -c restripe -n "__fish_restripe_using_subcommand serve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c restripe -n "__fish_restripe_using_subcommand status" -l offline -d 'Read these members directly, without a daemon; changes nothing' -r
complete -c restripe -n "__fish_restripe_using_subcommand status" -l json -d 'Print JSON'
complete -c restripe -n "__fish_restripe_using_subcommand status" -l exit-code -d 'Exit with 0 if all arrays are healthy, 1 if an array is degraded, 2 if an array has failed, 3 if the state is unknown, for example because no array is served'
complete -c restripe -n "__fish_restripe_using_subcommand status" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand examine" -l config -d 'Read the members from this file' -r -F
complete -c restripe -n "__fish_restripe_using_subcommand examine" -l json -d 'Print JSON'
complete -c restripe -n "__fish_restripe_using_subcommand examine" -l export -d 'Print one member\'s identity as KEY=VALUE lines for udev; exit with 1 if it is not a member'
complete -c restripe -n "__fish_restripe_using_subcommand examine" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand fail" -l offline -d 'Work on these members directly, without a daemon' -r
complete -c restripe -n "__fish_restripe_using_subcommand fail" -l degraded -d 'With --offline: start without the current members that are not listed; they must then be rebuilt'
complete -c restripe -n "__fish_restripe_using_subcommand fail" -l volatile-members -d 'With --offline: also accept members that make no write durable; a daemon needs this option at its start'
complete -c restripe -n "__fish_restripe_using_subcommand fail" -l yes -d 'Do not ask, even if the array then has no redundancy left'
complete -c restripe -n "__fish_restripe_using_subcommand fail" -l accept-loss -d 'Fail the member even if it holds the only current copy of some data (possible with `serve --redirect eraid`)'
complete -c restripe -n "__fish_restripe_using_subcommand fail" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand remove" -l offline -d 'Work on these members directly, without a daemon' -r
complete -c restripe -n "__fish_restripe_using_subcommand remove" -l degraded -d 'With --offline: start without the current members that are not listed; they must then be rebuilt'
complete -c restripe -n "__fish_restripe_using_subcommand remove" -l volatile-members -d 'With --offline: also accept members that make no write durable; a daemon needs this option at its start'
complete -c restripe -n "__fish_restripe_using_subcommand remove" -l yes -d 'Do not ask, even if the array then has no redundancy left'
complete -c restripe -n "__fish_restripe_using_subcommand remove" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand add" -l offline -d 'Work on these members directly, without a daemon' -r
complete -c restripe -n "__fish_restripe_using_subcommand add" -l degraded -d 'With --offline: start without the current members that are not listed; they must then be rebuilt'
complete -c restripe -n "__fish_restripe_using_subcommand add" -l volatile-members -d 'With --offline: also accept members that make no write durable; a daemon needs this option at its start'
complete -c restripe -n "__fish_restripe_using_subcommand add" -l to-surrogate -d 'Add to the array\'s surrogate: in place of a missing member, otherwise as a spare. A returning member of the surrogate needs no option'
complete -c restripe -n "__fish_restripe_using_subcommand add" -l to-buffer -d 'Add to the NVRAM buffer of the array\'s code cache: in place of a missing member, otherwise as a spare'
complete -c restripe -n "__fish_restripe_using_subcommand add" -l force -d 'Overwrite what the device contains; lists what will be lost and asks'
complete -c restripe -n "__fish_restripe_using_subcommand add" -l yes -d 'Do not ask'
complete -c restripe -n "__fish_restripe_using_subcommand add" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand replace" -l offline -d 'Work on these members directly, without a daemon' -r
complete -c restripe -n "__fish_restripe_using_subcommand replace" -l degraded -d 'With --offline: start without the current members that are not listed; they must then be rebuilt'
complete -c restripe -n "__fish_restripe_using_subcommand replace" -l volatile-members -d 'With --offline: also accept members that make no write durable; a daemon needs this option at its start'
complete -c restripe -n "__fish_restripe_using_subcommand replace" -l no-wait -d 'Return when the copy has started'
complete -c restripe -n "__fish_restripe_using_subcommand replace" -l force -d 'Overwrite what the device contains; lists what will be lost and asks'
complete -c restripe -n "__fish_restripe_using_subcommand replace" -l yes -d 'Do not ask'
complete -c restripe -n "__fish_restripe_using_subcommand replace" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand grow" -l offline -d 'Work on these members directly, without a daemon' -r
complete -c restripe -n "__fish_restripe_using_subcommand grow" -l add -d 'The devices to add: new ones, or spares of the array' -r
complete -c restripe -n "__fish_restripe_using_subcommand grow" -l rate -d 'Limits of background work until the daemon ends, as MIN..MAX in bytes per second of one member: 10M..200M, 10M.. or ..200M. With --offline they apply to this command' -r
complete -c restripe -n "__fish_restripe_using_subcommand grow" -l throttle -d 'Throttle of background work until the daemon ends: restripe; md-2.6, md-6.1 or md-2025 for the algorithms of Linux md; p99:20ms for the highest speed at which 99 of 100 requests take at most 20 ms; finish:2h to finish two hours after the task started' -r
complete -c restripe -n "__fish_restripe_using_subcommand grow" -l degraded -d 'With --offline: start without the current members that are not listed; they must then be rebuilt'
complete -c restripe -n "__fish_restripe_using_subcommand grow" -l volatile-members -d 'With --offline: also accept members that make no write durable; a daemon needs this option at its start'
complete -c restripe -n "__fish_restripe_using_subcommand grow" -l dry-run -d 'Print what would be moved, how long it takes and what is at risk; change nothing'
complete -c restripe -n "__fish_restripe_using_subcommand grow" -l no-wait -d 'Return when the growth has started'
complete -c restripe -n "__fish_restripe_using_subcommand grow" -l force -d 'Overwrite what the devices contain; lists what will be lost and asks'
complete -c restripe -n "__fish_restripe_using_subcommand grow" -l yes -d 'Do not ask'
complete -c restripe -n "__fish_restripe_using_subcommand grow" -l pause -d 'Pause the running task'
complete -c restripe -n "__fish_restripe_using_subcommand grow" -l resume -d 'Resume the paused task'
complete -c restripe -n "__fish_restripe_using_subcommand grow" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand rebuild" -l offline -d 'Work on these members directly, without a daemon' -r
complete -c restripe -n "__fish_restripe_using_subcommand rebuild" -l order -d 'Order of rebuilds and resyncs: by address (pr), most read by users from now on (pro), most read so far (ido), or by address with one row in flight (sor) or as many rows as buffers hold (dor)' -r -f -a "pr\t''
pro\t''
ido\t''
sor\t''
dor\t''"
complete -c restripe -n "__fish_restripe_using_subcommand rebuild" -l on-demand -d 'Rebuild next what users read, whatever the order; off: follow only the order' -r -f -a "on\t''
off\t''"
complete -c restripe -n "__fish_restripe_using_subcommand rebuild" -l copy-back -d 'Collect what was rebuilt in spare partitions or on several spares onto one spare as soon as possible; off: leave it distributed evenly' -r -f -a "on\t''
off\t''"
complete -c restripe -n "__fish_restripe_using_subcommand rebuild" -l rate -d 'Limits of background work until the daemon ends, as MIN..MAX in bytes per second of one member: 10M..200M, 10M.. or ..200M. With --offline they apply to this command' -r
complete -c restripe -n "__fish_restripe_using_subcommand rebuild" -l throttle -d 'Throttle of background work until the daemon ends: restripe; md-2.6, md-6.1 or md-2025 for the algorithms of Linux md; p99:20ms for the highest speed at which 99 of 100 requests take at most 20 ms; finish:2h to finish two hours after the task started' -r
complete -c restripe -n "__fish_restripe_using_subcommand rebuild" -l degraded -d 'With --offline: start without the current members that are not listed; they must then be rebuilt'
complete -c restripe -n "__fish_restripe_using_subcommand rebuild" -l volatile-members -d 'With --offline: also accept members that make no write durable; a daemon needs this option at its start'
complete -c restripe -n "__fish_restripe_using_subcommand rebuild" -l watch -d 'Watch the running rebuild (the default without other options)'
complete -c restripe -n "__fish_restripe_using_subcommand rebuild" -l pause -d 'Pause the running task'
complete -c restripe -n "__fish_restripe_using_subcommand rebuild" -l resume -d 'Resume the paused task'
complete -c restripe -n "__fish_restripe_using_subcommand rebuild" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand scrub" -l offline -d 'Work on these members directly, without a daemon' -r
complete -c restripe -n "__fish_restripe_using_subcommand scrub" -l rate -d 'Limits of background work until the daemon ends, as MIN..MAX in bytes per second of one member: 10M..200M, 10M.. or ..200M. With --offline they apply to this command' -r
complete -c restripe -n "__fish_restripe_using_subcommand scrub" -l throttle -d 'Throttle of background work until the daemon ends: restripe; md-2.6, md-6.1 or md-2025 for the algorithms of Linux md; p99:20ms for the highest speed at which 99 of 100 requests take at most 20 ms; finish:2h to finish two hours after the task started' -r
complete -c restripe -n "__fish_restripe_using_subcommand scrub" -l degraded -d 'With --offline: start without the current members that are not listed; they must then be rebuilt'
complete -c restripe -n "__fish_restripe_using_subcommand scrub" -l volatile-members -d 'With --offline: also accept members that make no write durable; a daemon needs this option at its start'
complete -c restripe -n "__fish_restripe_using_subcommand scrub" -l repair -d 'Repair what is unreadable, and what a second parity or a majority of copies proves wrong; leave other rows unchanged'
complete -c restripe -n "__fish_restripe_using_subcommand scrub" -l yes -d 'With --repair: also bring rows in sync where no second parity or third copy shows what is wrong; their data may stay wrong'
complete -c restripe -n "__fish_restripe_using_subcommand scrub" -l no-wait -d 'Return when the scrub has started'
complete -c restripe -n "__fish_restripe_using_subcommand scrub" -l watch -d 'Watch the running scrub instead of starting one'
complete -c restripe -n "__fish_restripe_using_subcommand scrub" -l cancel -d 'Cancel the running scrub'
complete -c restripe -n "__fish_restripe_using_subcommand scrub" -l pause -d 'Pause the running task'
complete -c restripe -n "__fish_restripe_using_subcommand scrub" -l resume -d 'Resume the paused task'
complete -c restripe -n "__fish_restripe_using_subcommand scrub" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand stop" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand metrics" -l offline -d 'Read these members directly, without a daemon; changes nothing' -r
complete -c restripe -n "__fish_restripe_using_subcommand metrics" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand heat" -l top -d 'Number of zones to show, hottest first' -r
complete -c restripe -n "__fish_restripe_using_subcommand heat" -l json -d 'Print JSON'
complete -c restripe -n "__fish_restripe_using_subcommand heat" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and not __fish_seen_subcommand_from status add remove destage" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and not __fish_seen_subcommand_from status add remove destage" -f -a "status" -d 'Show the surrogate\'s members, its contents, and its counters'
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and not __fish_seen_subcommand_from status add remove destage" -f -a "add" -d 'Add a surrogate to an array that has none'
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and not __fish_seen_subcommand_from status add remove destage" -f -a "remove" -d 'Remove the surrogate; its log is destaged first if it holds at most 64M'
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and not __fish_seen_subcommand_from status add remove destage" -f -a "destage" -d 'Destage a code cache, a log disk, or writes that are on primary copies only'
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and __fish_seen_subcommand_from status" -l offline -d 'Read these members of the array and of the surrogate directly, without a daemon; changes nothing' -r
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and __fish_seen_subcommand_from status" -l json -d 'Print JSON'
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and __fish_seen_subcommand_from status" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and __fish_seen_subcommand_from add" -l level -d 'RAID level of the surrogate [default: raid1 for two members, raid5 for more]' -r -f -a "raid1\t''
raid5\t''
raid6\t''
raid10\t''"
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and __fish_seen_subcommand_from add" -l offline -d 'Work on these members directly, without a daemon' -r
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and __fish_seen_subcommand_from add" -l degraded -d 'With --offline: start without the current members that are not listed; they must then be rebuilt'
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and __fish_seen_subcommand_from add" -l volatile-members -d 'With --offline: also accept members that make no write durable; a daemon needs this option at its start'
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and __fish_seen_subcommand_from add" -l force -d 'Overwrite what the devices contain; lists what will be lost and asks'
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and __fish_seen_subcommand_from add" -l yes -d 'Do not ask'
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and __fish_seen_subcommand_from remove" -l offline -d 'Work on these members directly, without a daemon' -r
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and __fish_seen_subcommand_from remove" -l degraded -d 'With --offline: start without the current members that are not listed; they must then be rebuilt'
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and __fish_seen_subcommand_from remove" -l volatile-members -d 'With --offline: also accept members that make no write durable; a daemon needs this option at its start'
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and __fish_seen_subcommand_from destage" -l offline -d 'Work on these members directly, without a daemon' -r
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and __fish_seen_subcommand_from destage" -l degraded -d 'With --offline: start without the current members that are not listed; they must then be rebuilt'
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and __fish_seen_subcommand_from destage" -l volatile-members -d 'With --offline: also accept members that make no write durable; a daemon needs this option at its start'
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and __fish_seen_subcommand_from destage" -l wait -d 'Return when everything that was logged at the request is destaged; --offline always waits'
complete -c restripe -n "__fish_restripe_using_subcommand surrogate; and __fish_seen_subcommand_from destage" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand lease; and not __fish_seen_subcommand_from add remove list" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand lease; and not __fish_seen_subcommand_from add remove list" -f -a "add" -d 'Lend a part of the array; it is served as a separate export'
complete -c restripe -n "__fish_restripe_using_subcommand lease; and not __fish_seen_subcommand_from add remove list" -f -a "remove" -d 'Remove a lease and wipe it'
complete -c restripe -n "__fish_restripe_using_subcommand lease; and not __fish_seen_subcommand_from add remove list" -f -a "list" -d 'List the leases, their borrowers, and the free space'
complete -c restripe -n "__fish_restripe_using_subcommand lease; and __fish_seen_subcommand_from add" -l size -d 'Size of the lease, rounded up to whole rows of the array' -r
complete -c restripe -n "__fish_restripe_using_subcommand lease; and __fish_seen_subcommand_from add" -l offline -d 'Work on these members directly, without a daemon' -r
complete -c restripe -n "__fish_restripe_using_subcommand lease; and __fish_seen_subcommand_from add" -l degraded -d 'With --offline: start without the current members that are not listed; they must then be rebuilt'
complete -c restripe -n "__fish_restripe_using_subcommand lease; and __fish_seen_subcommand_from add" -l volatile-members -d 'With --offline: also accept members that make no write durable; a daemon needs this option at its start'
complete -c restripe -n "__fish_restripe_using_subcommand lease; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand lease; and __fish_seen_subcommand_from remove" -l offline -d 'Work on these members directly, without a daemon' -r
complete -c restripe -n "__fish_restripe_using_subcommand lease; and __fish_seen_subcommand_from remove" -l force -d 'Remove it even if another array records it as its surrogate or has it attached; lists what will be lost and asks'
complete -c restripe -n "__fish_restripe_using_subcommand lease; and __fish_seen_subcommand_from remove" -l yes -d 'Do not ask'
complete -c restripe -n "__fish_restripe_using_subcommand lease; and __fish_seen_subcommand_from remove" -l degraded -d 'With --offline: start without the current members that are not listed; they must then be rebuilt'
complete -c restripe -n "__fish_restripe_using_subcommand lease; and __fish_seen_subcommand_from remove" -l volatile-members -d 'With --offline: also accept members that make no write durable; a daemon needs this option at its start'
complete -c restripe -n "__fish_restripe_using_subcommand lease; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand lease; and __fish_seen_subcommand_from list" -l offline -d 'Read these members directly, without a daemon; changes nothing' -r
complete -c restripe -n "__fish_restripe_using_subcommand lease; and __fish_seen_subcommand_from list" -l json -d 'Print JSON'
complete -c restripe -n "__fish_restripe_using_subcommand lease; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand sim" -l seed -d 'The first seed' -r
complete -c restripe -n "__fish_restripe_using_subcommand sim" -l count -d 'Number of seeds to run' -r
complete -c restripe -n "__fish_restripe_using_subcommand sim" -l replay -d 'Replay the events that `serve --record` wrote' -r -F
complete -c restripe -n "__fish_restripe_using_subcommand sim" -l verbose -d 'Print every fact'
complete -c restripe -n "__fish_restripe_using_subcommand sim" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand sim-disk" -l size -d 'Serve only SIZE of the drive [default: all]' -r
complete -c restripe -n "__fish_restripe_using_subcommand sim-disk" -l depth -d 'Number of commands in the drive at a time; further commands wait in front of it' -r
complete -c restripe -n "__fish_restripe_using_subcommand sim-disk" -l schedule -d 'Order of commands within the drive' -r -f -a "fcfs\t'In order of arrival'
look\t'The nearest in the direction in which the arm sweeps'
sptf\t'The one with the shortest positioning time'"
complete -c restripe -n "__fish_restripe_using_subcommand sim-disk" -l write-cache -d 'Whether the drive acknowledges writes from its memory' -r -f -a "on\t''
off\t''"
complete -c restripe -n "__fish_restripe_using_subcommand sim-disk" -l file -d 'Store the data in this file instead of in memory' -r -F
complete -c restripe -n "__fish_restripe_using_subcommand sim-disk" -l unix -d 'Listen on this Unix socket' -r -F
complete -c restripe -n "__fish_restripe_using_subcommand sim-disk" -l tcp -d 'Listen on this TCP address: PORT, on loopback, or HOST:PORT [default: 10809]' -r
complete -c restripe -n "__fish_restripe_using_subcommand sim-disk" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c restripe -n "__fish_restripe_using_subcommand lab; and not __fish_seen_subcommand_from list run compare report fit-disk reliability" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand lab; and not __fish_seen_subcommand_from list run compare report fit-disk reliability" -f -a "list" -d 'List the scenarios'
complete -c restripe -n "__fish_restripe_using_subcommand lab; and not __fish_seen_subcommand_from list run compare report fit-disk reliability" -f -a "run" -d 'Run an experiment, print its results and write its report'
complete -c restripe -n "__fish_restripe_using_subcommand lab; and not __fish_seen_subcommand_from list run compare report fit-disk reliability" -f -a "compare" -d 'Compare two values of a swept parameter, seed by seed'
complete -c restripe -n "__fish_restripe_using_subcommand lab; and not __fish_seen_subcommand_from list run compare report fit-disk reliability" -f -a "report" -d 'Rewrite the report of an experiment; runs without stored results are run first'
complete -c restripe -n "__fish_restripe_using_subcommand lab; and not __fish_seen_subcommand_from list run compare report fit-disk reliability" -f -a "fit-disk" -d 'Fit a drive\'s parameters to traces of it, and score the model on traces that the fit did not use'
complete -c restripe -n "__fish_restripe_using_subcommand lab; and not __fish_seen_subcommand_from list run compare report fit-disk reliability" -f -a "reliability" -d 'Compute the mean time to data loss of an array by a Markov chain, and by simulation of disks'
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from run" -l scale -d 'Scale of the experiment: whole (hours), quick (minutes) or short (seconds) [default: quick if the scenario has it, else whole]' -r -f -a "whole\t''
quick\t''
short\t''"
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from run" -l seeds -d 'Run N seeds instead of the scenario\'s number' -r
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from run" -l set -d 'Set a parameter, as in workload.load=0.5, or sweep it, as in workload.load=0.3,0.5; may be repeated' -r
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from run" -l folder -d 'Folder for runs and reports' -r -F
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from run" -l threads -d 'Number of threads [default: one per core]' -r
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from run" -l short -d 'Same as --scale short'
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from run" -l fresh -d 'Run again even if results are stored'
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from run" -l sensitivity -d 'Sweep each fixed parameter that has a range, one after another'
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from run" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from compare" -l scale -d 'Scale of the experiment: whole (hours), quick (minutes) or short (seconds) [default: quick if the scenario has it, else whole]' -r -f -a "whole\t''
quick\t''
short\t''"
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from compare" -l seeds -d 'Run N seeds instead of the scenario\'s number' -r
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from compare" -l set -d 'Set a parameter, as in workload.load=0.5, or sweep it, as in workload.load=0.3,0.5; may be repeated' -r
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from compare" -l folder -d 'Folder for runs and reports' -r -F
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from compare" -l metric -d 'The metric to compare, such as during.p95_ms or rebuild_s' -r
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from compare" -l vary -d 'The swept parameter whose values are compared' -r
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from compare" -l of -d 'The value whose metric is the dividend' -r
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from compare" -l to -d 'The value whose metric is the divisor' -r
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from compare" -l short -d 'Same as --scale short'
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from compare" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from report" -l scale -d 'Scale of the experiment: whole (hours), quick (minutes) or short (seconds) [default: quick if the scenario has it, else whole]' -r -f -a "whole\t''
quick\t''
short\t''"
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from report" -l seeds -d 'Run N seeds instead of the scenario\'s number' -r
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from report" -l set -d 'Set a parameter, as in workload.load=0.5, or sweep it, as in workload.load=0.3,0.5; may be repeated' -r
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from report" -l folder -d 'Folder for runs and reports' -r -F
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from report" -l short -d 'Same as --scale short'
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from report" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from fit-disk" -l model -d 'The drive\'s DiskSim .model file, with .diskspecs and .seek in the same folder; may be repeated' -r -F
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from fit-disk" -l trace -d 'A validation trace of the drive; once for each --model' -r -F
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from fit-disk" -l verbose -d 'Print the fitted values'
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from fit-disk" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from reliability" -l disks -d 'Total number of disks, including disks in standby and the log disk [default: 8; graid and s2-raid5: 9]' -r
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from reliability" -l mttf -d 'Mean time to failure of a disk' -r
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from reliability" -l mttr -d 'Mean time to repair a disk' -r
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from reliability" -l repair -d 'One repairer for all failed disks, or one for each' -r -f -a "one\t'One repairer, shared by all failed disks'
all\t'Every failed disk at once, at full speed'"
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from reliability" -l spare-delay -d 'Mean time until a spare is available; 0h if spares are in stock' -r
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from reliability" -l sector-loss -d 'Probability that a repair without remaining redundancy meets an unreadable sector and so loses data' -r
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from reliability" -l asleep -d 'Failure rate of a disk in standby, relative to an active disk (reraid, graid, eraid) [default: 1]' -r
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from reliability" -l tolerates -d 'Number of lost disks that the model `code`, or the code cache of reraid and reraid-text, tolerates [default of reraid and reraid-text: 2]' -r
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from reliability" -l row -d 'Disks of a sub-array of s2-raid5 [default: 3]' -r
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from reliability" -l partitions -d 'Partitions of a disk of s2-raid5 and s2-raid10 [default: the most without conflict]' -r
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from reliability" -l mission -d 'Time in service' -r
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from reliability" -l seeds -d 'With --simulate: number of simulated arrays, one per seed' -r
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from reliability" -l seed -d 'With --simulate: the first seed' -r
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from reliability" -l wakes -d 'Use the failure rate of an active disk for a standby disk while it is the source of a rebuild, whatever --asleep is (reraid, graid, eraid)'
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from reliability" -l simulate -d 'Also simulate single disks, and compare with the chain'
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from reliability" -l json -d 'Print JSON'
complete -c restripe -n "__fish_restripe_using_subcommand lab; and __fish_seen_subcommand_from reliability" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l workload -d 'Replay this synthetic workload, such as fin1-high, instead of a trace' -r
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l seed -d 'Seed of the workload and of the simulation' -r
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l requests -d 'Maximum number of requests [default: all of a trace; 100000 of a workload]' -r
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l speed -d 'Open loop: divide the times of the trace by FACTOR' -r
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l depth -d 'Closed loop: hold N requests outstanding and ignore the times of the trace' -r
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l nbd -d 'Replay on a served array, given by its NBD URI, instead of a simulated one' -r
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l level -r
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l members -d 'Number of members of the simulated array' -r
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l groups -d 'Divide the members into N skewed groups, as `create --groups` does (raid5, raid6, raid10)' -r
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l partitions -d 'With --groups: partitions of each member [default: the most that rebuild in parallel]' -r
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l chunk -d 'Chunk size of the simulated array' -r
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l drive -d 'Drive model of the members; `restripe sim-disk` lists the models' -r
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l member-size -d 'Bytes used of each member [default: as needed by the trace]' -r
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l write-hole -d 'Protection against the write hole: none, bitmap, ppl or default' -r
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l schedule -d 'Order of commands within a drive: fcfs, look or sptf' -r
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l cache -d 'Size of a read cache in front of the simulated array [default: 0]' -r
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l cache-policy -d 'Rule that chooses the block to evict from the read cache, as for `serve` [default: vdf-lfu]' -r -f -a "lru\t''
lfu\t''
vdf-lru\t''
vdf-lfu\t''
arc\t''
vdf-arc\t''"
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l fail-after -d 'Fail a member of the simulated array after TIME' -r
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l rebuild-after -d 'Rebuild onto a blank drive, TIME after the failure' -r
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l rebuild-rate -d 'Lowest and highest speed of the rebuild, as MIN..MAX in bytes per second of one member' -r
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l throttle -d 'Throttle of the rebuild: restripe, md-2.6, md-6.1, md-2025, p99:TIME or finish:TIME' -r
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l order -d 'Order of the rebuild: by address (pr), most read since the rebuild started (pro), most read before it (ido), or by address with one row in flight (sor) or as many rows as buffers hold (dor) [default: pr]' -r -f -a "pr\t''
pro\t''
ido\t''
sor\t''
dor\t''"
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l zone -d 'Size of a zone in which reads are counted for --order ido [default: 12M]' -r
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l epoch -d 'Halve the read counts of zones after every TIME [default: 10m]' -r
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l json -d 'Write the log of facts to FILE, as JSON' -r -F
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l report -d 'Write an HTML report to FILE: summary, figures and tables' -r -F
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l figures -d 'Write the figures to FOLDER, as SVG' -r -F
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l reads-only -d 'Skip every request that changes data'
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l overwrite -d 'Allow the replay to overwrite data of the served array'
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l no-write-cache -d 'Switch the drives\' write caches off'
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l repeat -d 'Repeat the trace until the rebuild has ended, and then for the time of --fail-after'
complete -c restripe -n "__fish_restripe_using_subcommand replay" -l on-demand -d 'Rebuild next what users read, whatever the order'
complete -c restripe -n "__fish_restripe_using_subcommand replay" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and not __fish_seen_subcommand_from info convert slice scale remap generate fit formats" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and not __fish_seen_subcommand_from info convert slice scale remap generate fit formats" -f -a "info" -d 'Print sizes, rates, burstiness, footprint, reuse, locality, and a heat map'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and not __fish_seen_subcommand_from info convert slice scale remap generate fit formats" -f -a "convert" -d 'Write a trace in another format'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and not __fish_seen_subcommand_from info convert slice scale remap generate fit formats" -f -a "slice" -d 'Extract a part of a trace, by time, request number or device'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and not __fish_seen_subcommand_from info convert slice scale remap generate fit formats" -f -a "scale" -d 'Make a trace faster or slower'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and not __fish_seen_subcommand_from info convert slice scale remap generate fit formats" -f -a "remap" -d 'Map all devices into one address space, or all addresses into a capacity'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and not __fish_seen_subcommand_from info convert slice scale remap generate fit formats" -f -a "generate" -d 'Generate a synthetic trace from a named workload or from your own parameters'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and not __fish_seen_subcommand_from info convert slice scale remap generate fit formats" -f -a "fit" -d 'Derive a workload\'s parameters from a trace, and show both side by side'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and not __fish_seen_subcommand_from info convert slice scale remap generate fit formats" -f -a "formats" -d 'List the formats'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from info" -l format -d 'Read the trace as this format instead of detecting it' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from info" -l action -d 'Event that is counted as a request, for blktrace and blkparse: Q, I, D or C [default: Q if present, else D]' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from info" -l block-size -d 'Block size of lists of addresses' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from info" -l skip-bad -d 'Skip unreadable records, and count them'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from info" -l sort -d 'Sort requests by time'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from info" -l json -d 'Print JSON'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from info" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from convert" -l format -d 'Read the trace as this format instead of detecting it' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from convert" -l action -d 'Event that is counted as a request, for blktrace and blkparse: Q, I, D or C [default: Q if present, else D]' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from convert" -l block-size -d 'Block size of lists of addresses' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from convert" -l to -d 'The format to write [default: rtrace]' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from convert" -l skip-bad -d 'Skip unreadable records, and count them'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from convert" -l sort -d 'Sort requests by time'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from convert" -l force -d 'Overwrite an existing file'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from convert" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from slice" -l format -d 'Read the trace as this format instead of detecting it' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from slice" -l action -d 'Event that is counted as a request, for blktrace and blkparse: Q, I, D or C [default: Q if present, else D]' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from slice" -l block-size -d 'Block size of lists of addresses' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from slice" -l to -d 'The format to write [default: rtrace]' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from slice" -l from -d 'Start at this time after the first request' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from slice" -l until -d 'End at this time after the first request' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from slice" -l requests -d 'Select a range of the remaining requests by number from 0, as FIRST..END' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from slice" -l device -d 'Select the requests of one device' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from slice" -l skip-bad -d 'Skip unreadable records, and count them'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from slice" -l sort -d 'Sort requests by time'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from slice" -l force -d 'Overwrite an existing file'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from slice" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from scale" -l format -d 'Read the trace as this format instead of detecting it' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from scale" -l action -d 'Event that is counted as a request, for blktrace and blkparse: Q, I, D or C [default: Q if present, else D]' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from scale" -l block-size -d 'Block size of lists of addresses' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from scale" -l to -d 'The format to write [default: rtrace]' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from scale" -l time -d 'Multiply all times: 0.5 makes the trace twice as fast' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from scale" -l rate -d 'Multiply the offered rate: 2 makes the trace twice as fast' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from scale" -l iops -d 'Set the average number of reads and writes per second' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from scale" -l skip-bad -d 'Skip unreadable records, and count them'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from scale" -l sort -d 'Sort requests by time'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from scale" -l force -d 'Overwrite an existing file'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from scale" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from remap" -l format -d 'Read the trace as this format instead of detecting it' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from remap" -l action -d 'Event that is counted as a request, for blktrace and blkparse: Q, I, D or C [default: Q if present, else D]' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from remap" -l block-size -d 'Block size of lists of addresses' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from remap" -l to -d 'The format to write [default: rtrace]' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from remap" -l align -d 'Alignment of the start of each folded device' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from remap" -l capacity -d 'Map every request into this capacity' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from remap" -l fit -d 'How addresses are mapped into the capacity' -r -f -a "wrap\t'Modulo the capacity'
shrink\t'In proportion'"
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from remap" -l skip-bad -d 'Skip unreadable records, and count them'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from remap" -l sort -d 'Sort requests by time'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from remap" -l force -d 'Overwrite an existing file'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from remap" -l fold -d 'Place the devices one after another in one address space'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from remap" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from generate" -l requests -d 'Number of requests' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from generate" -l seed -d 'Seed; the same seed gives the same trace' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from generate" -s o -l output -d 'The file to write' -r -F
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from generate" -l to -d 'The format to write [default: rtrace]' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from generate" -l force -d 'Overwrite an existing file'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from generate" -l parameters -d 'Print the workload\'s parameters and their sources instead of a trace'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from generate" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from fit" -l format -d 'Read the trace as this format instead of detecting it' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from fit" -l action -d 'Event that is counted as a request, for blktrace and blkparse: Q, I, D or C [default: Q if present, else D]' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from fit" -l block-size -d 'Block size of lists of addresses' -r
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from fit" -s o -l output -d 'Write the parameters to this file, for `trace generate`' -r -F
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from fit" -l skip-bad -d 'Skip unreadable records, and count them'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from fit" -l sort -d 'Sort requests by time'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from fit" -l force -d 'Overwrite an existing file'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from fit" -l json -d 'Print the parameters and both summaries as JSON'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from fit" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand trace; and __fish_seen_subcommand_from formats" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l format -d 'Read the trace as this format instead of detecting it' -r
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l action -d 'Event that is counted as a request, for blktrace and blkparse: Q, I, D or C [default: Q if present, else D]' -r
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l block-size -d 'Block size of lists of addresses' -r
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l workload -d 'Simulate this synthetic workload, such as web2-high, instead of a trace' -r
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l seed -d 'Seed of the workload' -r
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l requests -d 'Maximum number of requests [default: all of a trace; 1000000 of a workload]' -r
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l level -d 'RAID level of the array behind the cache' -r
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l disks -d 'Number of disks of the array' -r
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l chunk -d 'Chunk size of the array' -r
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l failed -d 'Failed disks, counted from 0 [default: none]' -r
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l blocks -d 'Cache sizes to simulate, in blocks of 4 KiB' -r
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l policy -d 'Eviction rules to simulate' -r -f -a "lru\t''
lfu\t''
vdf-lru\t''
vdf-lfu\t''
arc\t''
vdf-arc\t''"
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l warm-up -d 'Number of block accesses before counting starts' -r
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l ties -d 'Which of two blocks of equal weight is evicted' -r -f -a "oldest\t''
newest\t''"
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l rebuild -d 'Rebuild the failed disks during this part of the trace, as in 0.2..0.8' -r
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l bandwidth -d 'Bandwidth of the surviving disks in bytes per second, to compute the rebuild time' -r
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l user-rate -d 'Bytes per second that users request from the cache' -r
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l to-read -d 'Bytes that the rebuild reads from the surviving disks: their number × the lost capacity' -r
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l grid -d 'Run a grid of caches, built in or from a file, compared by paired seeds' -r
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l scale -d 'Scale of the grid: whole, quick or short [default: whole]' -r -f -a "whole\t''
quick\t''
short\t''"
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l traces -d 'Folder with the grid\'s traces [default: ../shared/traces]' -r -F
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l csv -d 'With --grid: write one line per run to FILE' -r -F
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l skip-bad -d 'Skip unreadable records, and count them'
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l sort -d 'Sort requests by time'
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l writes -d 'Also access written blocks; by default only read blocks, as in the paper'
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l follow-rebuild -d 'Let the cache track which rows are rebuilt; the cache of the paper does not'
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -l json -d 'Print JSON'
complete -c restripe -n "__fish_restripe_using_subcommand cache-sim" -s h -l help -d 'Print help'
complete -c restripe -n "__fish_restripe_using_subcommand demo" -l member-size -d 'Size of each of the six images' -r
complete -c restripe -n "__fish_restripe_using_subcommand demo" -l rebuild-rate -d 'Maximum speed of the rebuild in bytes per second, low enough to watch it' -r
complete -c restripe -n "__fish_restripe_using_subcommand demo" -l seed -d 'Seed of the load' -r
complete -c restripe -n "__fish_restripe_using_subcommand demo" -l report -d 'Write the report to FILE' -r -F
complete -c restripe -n "__fish_restripe_using_subcommand demo" -l keep -d 'Do not delete the images, and print their path'
complete -c restripe -n "__fish_restripe_using_subcommand demo" -s h -l help -d 'Print help'
