# Serves two namespaces by the kernel's own target, then waits until the test is done with them.
modprobe null_blk nr_devices=0
modprobe -a nvmet nvmet-tcp
mount -t configfs none /sys/kernel/config
# null_block NAME MIB BLOCK_SIZE: a disk in memory.
null_block() {
    null_folder=/sys/kernel/config/nullb/$1
    mkdir "$null_folder"
    echo "$2" > "$null_folder"/size
    echo "$3" > "$null_folder"/blocksize
    echo 1 > "$null_folder"/memory_backed
    echo 1 > "$null_folder"/discard
    echo 1 > "$null_folder"/power
}
null_block nullb0 64 4096
null_block nullb1 64 512
subsystem=/sys/kernel/config/nvmet/subsystems/$NQN
port=/sys/kernel/config/nvmet/ports/1
mkdir "$subsystem"
echo 1 > "$subsystem"/attr_allow_any_host
for nsid in 1 2; do
    mkdir "$subsystem"/namespaces/$nsid
    echo /dev/nullb$((nsid - 1)) > "$subsystem"/namespaces/$nsid/device_path
    echo 1 > "$subsystem"/namespaces/$nsid/enable
done
mkdir $port
echo tcp > $port/addr_trtype
echo ipv4 > $port/addr_adrfam
echo 0.0.0.0 > $port/addr_traddr
echo "$PORT" > $port/addr_trsvcid
ln -s "$subsystem" $port/subsystems/
# What the kernel says while the test runs belongs into the log.
cat /proc/kmsg &
ask ready > /dev/null
check "nothing went wrong in the kernel" sh -c '! dmesg | grep -E "BUG|WARNING|Oops|Call Trace"'
