# What a Linux guest does in `make demo`: attaches the namespace that the node on this machine serves, makes a
# file system on it, and finds its data again after a new connection. PORT and NQN are set by ops/demo.
HOST_NQN=nqn.2014-08.org.nvmexpress:uuid:a5b1a1d0-0000-4000-8000-00000000d310
HOST="--hostnqn=$HOST_NQN --hostid=a5b1a1d0-0000-4000-8000-00000000d310"

# Shows a command, then runs it.
run() {
    echo "  linux# $*"
    run_status=0
    "$@" > /tmp/run.out 2>&1 || run_status=$?
    sed 's/^/    /' /tmp/run.out
    return $run_status
}
# The block device of namespace 1.
disk() {
    for entry in /sys/block/nvme*; do
        name=${entry##*/}
        if [ -b /dev/"$name" ] && [ "$(cat "$entry"/nsid)" = 1 ]; then echo /dev/"$name"; fi
    done
}
connect() {
    run nvme connect -t tcp -a 10.0.2.2 -s "$PORT" -n "$NQN" $HOST
    until disk=$(disk) && [ -n "$disk" ]; do sleep 0.1; done
}

echo "  Linux $(uname -r) is up"
modprobe -a nvme-tcp xfs
run nvme discover -t tcp -a 10.0.2.2 -s "$PORT" $HOST
connect
run nvme list
run mkfs.xfs -q -f "$disk"
run mount -t xfs "$disk" /mnt
run dd if=/dev/urandom of=/mnt/data bs=1M count=16 conv=fsync
before=$(md5sum < /mnt/data)
run umount /mnt
run nvme disconnect -n "$NQN"
connect
run mount -t xfs "$disk" /mnt
after=$(md5sum < /mnt/data)
equal "the file is the same after a new connection" "$after" "$before"
echo "  the file is the same after a new connection: $after"
run umount /mnt
run nvme disconnect -n "$NQN"
