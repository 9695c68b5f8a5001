#!/bin/bash
# Linux md's side of the comparison; runs as root in a guest whose kernel has md. See docs/md.md.
#
#   guest.sh JOBS NOISE
#
# JOBS has one job a line, words separated by blanks, paths as the guest sees them; NOISE is a member full of noise.
#
#   judge NAME LEVEL LAYOUT CHUNK_KIB SIZE_KIB OFFSET_KIB EXPECTED DIFFERS MEMBER...
#     Members written by Restripe (`missing` for a vacant slot) are copied to memory disks and made an array of with
#     --assume-clean. It must read as EXPECTED, and a check must find mismatches only if DIFFERS is `differs`.
#   live NAME LEVEL LAYOUT CHUNK_KIB SIZE_KIB OFFSET_KIB FOLDER MEMBERS
#     md leads the life that FOLDER/life tells, one step a line: `lose SLOT`, `rebuild`, `write PLAN IMAGE`,
#     `keep NAME`, which leaves each slot's data in FOLDER/NAME.SLOT.
#
# Prints `ok NAME: WHAT` or `not ok NAME: WHAT` a comparison.
set -u
jobs=$1 noise=$2
md=/dev/md0
sysfs=/sys/block/md0/md
disks=12
log=/tmp/mdadm.log

disk() { echo "/dev/ram$1"; }

verdict() { # STATUS NAME WHAT
	if [ "$1" = 0 ]; then echo "ok $2: $3"; else echo "not ok $2: $3"; fi
}

end_array() {
	mdadm --stop $md >>$log 2>&1
	for _ in $(seq 200); do [ -e $sysfs ] || return 0; sleep 0.02; done
}

wait_idle() {
	[ -e $sysfs/sync_action ] || return 0
	until [ "$(cat $sysfs/sync_action)" = idle ]; do sleep 0.02; done
}

make_array() { # LEVEL LAYOUT CHUNK SIZE OFFSET OPTION... -- DEVICE...
	local level=$1 layout=$2 chunk=$3 size=$4 offset=$5 options=(); shift 5
	while [ "$1" != -- ]; do options+=("$1"); shift; done
	shift
	[ "$layout" = - ] || options+=(--layout="$layout")
	[ "$level" = 1 ] || options+=(--chunk="$chunk")
	# md sets no size on level 0; the array is then longer than ours, and its beginning is compared.
	[ "$level" = 0 ] || options+=(--size="$size" --bitmap=none)
	mdadm --create $md --run --metadata=1.2 --level="$level" --raid-devices=$# \
		--data-offset="${offset}K" "${options[@]}" "$@" >>$log 2>&1 && [ -b $md ]
}

check() { # NAME differs|agrees
	echo check >$sysfs/sync_action
	wait_idle
	local count; count=$(cat $sysfs/mismatch_cnt)
	if [ "$2" = differs ]; then [ "$count" != 0 ]; else [ "$count" = 0 ]; fi
	verdict $? "$1" "md's check finds $count sectors that disagree"
}

fill() { dd if="$1" of="$2" bs=1M oflag=direct 2>>$log; }

judge() {
	local name=$1 level=$2 layout=$3 chunk=$4 size=$5 offset=$6 expected=$7 differs=$8; shift 8
	local devices=() nth=0 member
	for member; do
		if [ "$member" = missing ]; then devices+=(missing); else
			fill "$member" "$(disk $nth)" && devices+=("$(disk $nth)")
		fi
		nth=$((nth + 1))
	done
	if ! make_array "$level" "$layout" "$chunk" "$size" "$offset" --assume-clean -- "${devices[@]}"; then
		verdict 1 "$name" "md makes no array: $(tail -n 1 $log)"
		return
	fi
	local bytes ours; bytes=$(blockdev --getsize64 $md); ours=$(stat -c %s "$expected")
	[ "$level" = 0 ] || [ "$bytes" = "$ours" ]
	verdict $? "$name" "md's array has $bytes bytes, ours $ours"
	# With copies that differ md may read either.
	if [ "$differs" != differs ]; then
		local difference; difference=$(cmp -n "$ours" $md "$expected" 2>&1)
		verdict $? "$name" "md reads what was written${difference:+, but: $difference}"
	fi
	[ "$level" = 0 ] || check "$name" "$differs"
	end_array
}

# One process for all writes: starting one takes long in a guest.
write_plan() { # PLAN IMAGE
	awk -v image="$2" '{ at = $1 * 512; print "pwrite -q -b 1m -i", image, "-s", at, at, $2 * 512 }' "$1" |
		xfs_io -d $md >/tmp/xfs_io.log 2>&1 && [ ! -s /tmp/xfs_io.log ] && return
	tail -n 1 /tmp/xfs_io.log >>$log
	return 1
}

slot_disk() { # SLOT
	local link; link=$(readlink -f "$sysfs/rd$1/block") && [ -n "$link" ] && echo "/dev/${link##*/}"
}

keep() { # FOLDER NAME MEMBERS SIZE OFFSET
	local slot from
	sync
	for slot in $(seq 0 $(($3 - 1))); do
		[ -e "$sysfs/rd$slot" ] || continue
		from=$(slot_disk "$slot") || return 1
		dd if="$from" of="$1/$2.$slot" bs=64K iflag=direct,skip_bytes,count_bytes \
			skip=$(($5 * 1024)) count=$(($4 * 1024)) 2>>$log || return 1
	done
}

lose() { # SLOT
	local from; from=$(slot_disk "$1") || return 1
	mdadm $md --fail "$from" >>$log 2>&1 || return 1
	for _ in $(seq 200); do mdadm $md --remove "$from" >>$log 2>&1 && return 0; sleep 0.02; done
	return 1
}

rebuild() { # NEXT_DISK MEMBERS
	local nth=$1
	while [ "$(cat $sysfs/degraded)" != 0 ]; do
		[ "$nth" -lt "$disks" ] || return 1
		fill "$noise" "$(disk "$nth")" && mdadm $md --add "$(disk "$nth")" >>$log 2>&1 || return 1
		nth=$((nth + 1))
		sleep 0.1
		wait_idle
	done
}

step() { # MEMBERS SIZE OFFSET FOLDER VERB ARGUMENT...
	local members=$1 size=$2 offset=$3 folder=$4; shift 4
	case $1 in
	lose) lose "$2" ;;
	rebuild) rebuild "$members" ;;
	write) write_plan "$folder/$2" "$folder/$3" ;;
	keep) keep "$folder" "$2" "$members" "$size" "$offset" ;;
	esac
}

live() {
	local name=$1 level=$2 layout=$3 chunk=$4 size=$5 offset=$6 folder=$7 members=$8
	local devices=() nth words
	for nth in $(seq 0 $((members - 1))); do
		fill "$noise" "$(disk "$nth")"
		devices+=("$(disk "$nth")")
	done
	if ! make_array "$level" "$layout" "$chunk" "$size" "$offset" -- "${devices[@]}"; then
		verdict 1 "$name" "md makes no array: $(tail -n 1 $log)"
		return
	fi
	wait_idle
	while read -r -a words; do
		step "$members" "$size" "$offset" "$folder" "${words[@]}" || {
			verdict 1 "$name" "md fails at: ${words[*]}: $(tail -n 1 $log)"
			end_array
			return
		}
	done <"$folder/life"
	[ "$level" = 0 ] || check "$name" agrees
	end_array
}

rmmod brd 2>/dev/null
modprobe brd rd_nr=$disks rd_size=$(($(stat -c %s "$noise") / 1024)) || exit 1
echo 1000000 >/proc/sys/dev/raid/speed_limit_min
echo 1000000 >/proc/sys/dev/raid/speed_limit_max
while read -r -a words <&3; do "${words[@]}"; done 3<"$jobs"
echo "end of jobs"
