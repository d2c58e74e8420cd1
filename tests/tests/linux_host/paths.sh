# Two portals are two paths to one disk; losing one fails nothing. Then the node itself goes and comes back.
live_paths() {
    [ "$(nvme list-subsys | grep -c 'live')" = "$1" ]
}
check "connects the first path" attach "$PORT_A"
check "connects the second path" attach "$PORT_B"
eventually "both paths are live" live_paths 2
eventually "they are one disk" disk 1
equal "one disk for one namespace" "$(disks 1 | wc -l)" 1
fio_verify "$(disk 1)" 4M --time_based --runtime=6 > /tmp/fio.out 2>&1 &
writer=$!
equal "the test cuts path B" "$(ask cut)" done
check "writing goes on over path A" wait $writer
eventually "one path is left" live_paths 1
equal "the test mends path B" "$(ask mend)" done
eventually "both paths are live again" live_paths 2

# The raw backend's namespace keeps its data over a restart of the daemon; the host comes back by itself.
kept=$(disk 4)
check "data for the restart" dd if=/dev/urandom of=/tmp/random bs=1M count=8
check "writes before the restart" dd if=/tmp/random of="$kept" bs=1M oflag=direct conv=fsync
equal "the test restarts the node" "$(ask restart)" done
eventually "paths come back after the restart" live_paths 2
dd if="$kept" of=/tmp/back bs=1M count=8 iflag=direct 2> /dev/null
check "data survived the restart" cmp /tmp/back /tmp/random
check "disconnects both paths" detach

# What discovery says of where to connect is enough to connect.
check "connects all that discovery names" nvme connect-all -t tcp -a $ADDRESS -s "$DISCOVERY_PORT" \
    --hostnqn=$HOST_NQN --hostid=$HOST_ID
eventually "what discovery names leads to the disk" disk 1
check "disconnects what discovery named" detach
