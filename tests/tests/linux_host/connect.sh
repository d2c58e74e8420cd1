# Every kind of connection moves data and ends cleanly. Two processors allow two queues of each kind.
connection() {
    connection_name=$1
    connection_queues=$2
    shift 2
    check "connects $connection_name" attach "$PORT_A" "$@"
    eventually "namespace is there $connection_name" disk 1
    equal "queues $connection_name" "$(cat /sys/class/nvme/nvme0/queue_count)" "$connection_queues"
    check "data is right $connection_name" fio_verify "$(disk 1)" 2M
    check "disconnects $connection_name" detach
}
connection "with one queue" 2 --nr-io-queues=1
connection "with two queues" 3 --nr-io-queues=2
connection "with header digests" 3 --hdr-digest
connection "with data digests" 3 --data-digest
connection "with both digests, one queue" 2 --hdr-digest --data-digest --nr-io-queues=1
connection "with queues for reads, writes and polling" 7 --nr-io-queues=2 --nr-write-queues=2 --nr-poll-queues=2
connection "with the shallowest queue" 3 --queue-size=16
connection "with a deeper queue than Linux offers by itself" 3 --queue-size=1024
