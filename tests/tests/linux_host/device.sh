# The block device: sizes, verified data, zeroes, discards, and commands that only tools send.
check "connects for the device" attach "$PORT_A"
eventually "namespaces are there for the device" disk 2
large=$(disk 1)
small=$(disk 2)

# NVME N8: what file systems align to.
equal "4096: logical block" "$(queue_setting 1 logical_block_size)" 4096
equal "512: logical block" "$(queue_setting 2 logical_block_size)" 512
for nsid in 1 2; do
    equal "namespace $nsid: physical block" "$(queue_setting $nsid physical_block_size)" 4096
    equal "namespace $nsid: smallest good I/O" "$(queue_setting $nsid minimum_io_size)" 4096
    check "namespace $nsid: best I/O size is told" test "$(queue_setting $nsid optimal_io_size)" -ge 4096
done

check "fio verifies, 4096" fio_verify "$large" 8M
check "fio verifies, 512" fio_verify "$small" 8M --bsrange=512-96k
check "fio verifies large transfers" fio_verify "$large" 8M --bsrange=1m-1m --iodepth=4

# NVME N9: zeroing across the largest Write Zeroes, edges kept. 70 MiB holds two limits of 32 MiB. The MiBs at
# the edges and at the limits are written before and looked at after.
MIB=1048576
mib() {
    dd if="$1" of=/tmp/mib bs=1M skip="$2" count=1 iflag=direct 2> /dev/null
}
tr '\0' '\377' < /dev/zero | head -c $MIB > /tmp/ones
for zeroed in "$large" "$small"; do
    block=$(blockdev --getss "$zeroed")
    for at in 0 31 32 63 64 69; do
        dd if=/tmp/ones of="$zeroed" bs=1M seek=$at oflag=direct 2> /dev/null
    done
    check "zeroes a range on $zeroed" blkdiscard -z -o "$block" -l $((70 * MIB - 2 * block)) "$zeroed"
    for at in 31 32 63 64; do
        mib "$zeroed" $at
        check "MiB $at is zero on $zeroed" cmp -n $MIB /tmp/mib /dev/zero
    done
    mib "$zeroed" 0
    check "block before the zeroes is kept on $zeroed" cmp -n "$block" /tmp/mib /tmp/ones
    tail -c $((MIB - block)) /tmp/mib > /tmp/rest
    check "first zeroes are zero on $zeroed" cmp -n $((MIB - block)) /tmp/rest /dev/zero
    mib "$zeroed" 69
    check "last zeroes are zero on $zeroed" cmp -n $((MIB - block)) /tmp/mib /dev/zero
    tail -c "$block" /tmp/mib > /tmp/rest
    check "block after the zeroes is kept on $zeroed" cmp -n "$block" /tmp/rest /tmp/ones
    check "discards on $zeroed" blkdiscard "$zeroed"
done

# NVME N10: at 512 bytes, a discard with ragged edges leaves the neighbours alone.
tr '\0' '\252' < /dev/zero | head -c 65536 > /tmp/pattern
dd if=/tmp/pattern of="$small" bs=64k oflag=direct 2> /dev/null
check "discards with ragged edges" blkdiscard -o 512 -l 32768 "$small"
dd if="$small" of=/tmp/back bs=64k count=1 iflag=direct 2> /dev/null
check "block before the discard is kept" cmp -n 512 /tmp/back /tmp/pattern
tail -c $((65536 - 33280)) /tmp/back > /tmp/after
check "blocks after the discard are kept" cmp -n $((65536 - 33280)) /tmp/after /tmp/pattern

check "flush" nvme flush "$large" --namespace-id=1
head -c 4096 /tmp/pattern > /tmp/block
check "write" nvme write "$large" --start-block=8 --block-count=0 --data-size=4096 --data=/tmp/block
check "write with FUA" nvme write "$large" --start-block=8 --block-count=0 --data-size=4096 --data=/tmp/block \
    --force-unit-access
check "read" nvme read "$large" --start-block=8 --block-count=0 --data-size=4096 --data=/tmp/read
check "read is what was written" cmp /tmp/read /tmp/block
check "compare of equal data" nvme compare "$large" --start-block=8 --block-count=0 --data-size=4096 \
    --data=/tmp/block
refused "compare of unequal data" nvme compare "$large" --start-block=9 --block-count=0 --data-size=4096 \
    --data=/tmp/block
check "verify" nvme verify "$large" --namespace-id=1 --start-block=8 --block-count=7
check "write-zeroes" nvme write-zeroes "$large" --namespace-id=1 --start-block=8 --block-count=0
check "dsm" nvme dsm "$large" --namespace-id=1 --ad --slbs=16 --blocks=8
refused "read beyond the end" nvme read "$large" --start-block=1000000000 --block-count=0 --data-size=4096 \
    --data=/tmp/read
check "reads on after all that" fio_verify "$large" 1M
check "disconnects after the device" detach
