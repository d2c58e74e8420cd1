# What the scripts of the host's tests say things with. The test sets PORT_A and PORT_B (two portals),
# DISCOVERY_PORT, NQN (the served subsystem) and HIDDEN_NQN (one that this host may not use).
modprobe -a nvme-tcp xfs ext4
HOST_NQN=nqn.2014-08.org.nvmexpress:uuid:a5b1a1d0-0000-4000-8000-000000000001
HOST_ID=a5b1a1d0-0000-4000-8000-000000000001
ADDRESS=10.0.2.2

# attach PORT [OPTIONS...]: connects the served subsystem; the namespaces appear a little later.
attach() {
    attach_port=$1
    shift
    nvme connect -t tcp -a $ADDRESS -s "$attach_port" -n "$NQN" --hostnqn=$HOST_NQN --hostid=$HOST_ID "$@"
}

detach() {
    nvme disconnect -n "$NQN"
}

# disks NSID: the block devices of a namespace. (Those of its paths are hidden behind it.)
disks() {
    for disk_entry in /sys/block/nvme*; do
        disk_name=${disk_entry##*/}
        if [ -b /dev/"$disk_name" ] && [ "$(cat "$disk_entry"/nsid)" = "$1" ]; then
            echo /dev/"$disk_name"
        fi
    done
}

# disk NSID: the block device of a namespace; fails if there is none.
disk() {
    disks "$1" | grep -m 1 .
}

# no_disk NSID
no_disk() {
    ! disk "$1"
}

# queue_setting NSID NAME: a value of the block layer.
queue_setting() {
    queue_disk=$(disk "$1")
    cat /sys/block/"${queue_disk#/dev/}"/queue/"$2"
}

bytes_of() {
    blockdev --getsize64 "$1"
}

is_bytes() {
    [ "$(bytes_of "$1")" = "$2" ]
}

# fio_verify FILE SIZE [OPTIONS...]: random writes of many sizes with checksums, read back and checked.
fio_verify() {
    fio_file=$1
    fio_size=$2
    shift 2
    fio --name=verify --filename="$fio_file" --size="$fio_size" --rw=randwrite --bsrange=4k-128k \
        --verify=crc32c --direct=1 --ioengine=libaio --iodepth=16 --end_fsync=1 "$@"
}

# says COMMAND_OUTPUT_FILE PATTERN
says() {
    grep -E -q -- "$2" "$1" || {
        echo "no '$2' in:"
        cat "$1"
        return 1
    }
}

# output_says PATTERN COMMAND...: the command succeeds and prints the pattern.
output_says() {
    output_pattern=$1
    shift
    "$@" > /tmp/output 2>&1 || {
        output_status=$?
        cat /tmp/output
        return $output_status
    }
    says /tmp/output "$output_pattern"
}
