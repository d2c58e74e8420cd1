# File systems: made, filled and verified, trimmed, checked, and found again after a new connection.
check "connects for file systems" attach "$PORT_A"
eventually "namespaces are there for file systems" disk 2
file_system() {
    fs_type=$1
    fs_disk=$2
    shift 2
    check "$fs_type: made" mkfs."$fs_type" "$@" "$fs_disk"
    check "$fs_type: mounts" mount -t "$fs_type" "$fs_disk" /mnt
    check "$fs_type: fio verifies" fio_verify /mnt/fio 8M
    check "$fs_type: large file" dd if=/dev/urandom of=/mnt/keep bs=1M count=8
    md5sum < /mnt/keep > /tmp/sum."$fs_type"
    check "$fs_type: file removed" rm /mnt/fio
    check "$fs_type: fstrim" fstrim -v /mnt
    check "$fs_type: unmounts" umount /mnt
}
file_system_again() {
    check "$1: mounts again" mount -t "$1" "$2" /mnt
    equal "$1: data is intact" "$(md5sum < /mnt/keep)" "$(cat /tmp/sum."$1")"
    check "$1: unmounts again" umount /mnt
}
file_system xfs "$(disk 1)" -q -f
file_system ext4 "$(disk 2)" -q -F
check "disconnects after file systems" detach

check "reconnects with digests" attach "$PORT_B" --hdr-digest --data-digest
eventually "namespaces are there again" disk 2
file_system_again xfs "$(disk 1)"
file_system_again ext4 "$(disk 2)"
check "xfs: repair finds nothing" xfs_repair -n "$(disk 1)"
check "ext4: check finds nothing" e2fsck -f -n "$(disk 2)"
check "disconnects at last" detach
