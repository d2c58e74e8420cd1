# A little of everything, for the dissector: both digests, in-capsule and R2T writes, large and small reads.
check "connects for the capture" attach "$PORT_A" --hdr-digest --data-digest --nr-io-queues=1
eventually "namespace is there for the capture" disk 1
captured=$(disk 1)
head -c 1048576 /dev/urandom > /tmp/random
check "small writes" dd if=/tmp/random of="$captured" bs=4k count=16 oflag=direct
check "large write" dd if=/tmp/random of="$captured" bs=1M count=1 oflag=direct
check "small reads" dd if="$captured" of=/dev/null bs=4k count=16 iflag=direct
check "large read" dd if="$captured" of=/tmp/back bs=1M count=1 iflag=direct
check "what was read is what was written" cmp /tmp/back /tmp/random
check "flushes" nvme flush "$captured" --namespace-id=1
check "discards" blkdiscard -l 1048576 "$captured"
check "identifies" nvme id-ctrl /dev/nvme0
check "reads logs" nvme smart-log /dev/nvme0
check "disconnects after the capture" detach
