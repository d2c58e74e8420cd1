# The same commands to the kernel's own target and to this product (NVME N15): same status, same DNR. Where the
# kernel's target is known to answer otherwise than the specification says, ours is held to the specification.
modprobe null_blk nr_devices=1 memory_backed=1 gb=1 bs=4096
modprobe -a nvmet nvmet-tcp
mount -t configfs none /sys/kernel/config
kernel=/sys/kernel/config/nvmet
mkdir -p $kernel/subsystems/nqn.kernel/namespaces/1 $kernel/ports/1
echo 1 > $kernel/subsystems/nqn.kernel/attr_allow_any_host
echo /dev/nullb0 > $kernel/subsystems/nqn.kernel/namespaces/1/device_path
echo 1 > $kernel/subsystems/nqn.kernel/namespaces/1/enable
echo tcp > $kernel/ports/1/addr_trtype
echo ipv4 > $kernel/ports/1/addr_adrfam
echo 127.0.0.1 > $kernel/ports/1/addr_traddr
echo 4420 > $kernel/ports/1/addr_trsvcid
ln -s $kernel/subsystems/nqn.kernel $kernel/ports/1/subsystems/
check "connects to the kernel" nvme connect -t tcp -a 127.0.0.1 -s 4420 -n nqn.kernel --hostnqn=$HOST_NQN \
    --hostid=$HOST_ID
check "connects to the product" attach "$PORT_A"
# controller_of NQN, disk_of NQN: the numbers in their names need not agree.
controller_of() {
    controller_entry=$(dirname "$(grep -l "^$1\$" /sys/class/nvme/*/subsysnqn | grep -m 1 .)")
    echo /dev/"${controller_entry##*/}"
}
disk_of() {
    for disk_entry in /sys/block/nvme*; do
        disk_name=${disk_entry##*/}
        if [ -b /dev/"$disk_name" ] && [ "$(cat "$disk_entry"/device/subsysnqn)" = "$1" ] &&
            [ "$(cat "$disk_entry"/nsid)" = 1 ]; then
            echo /dev/"$disk_name"
        fi
    done | grep -m 1 .
}
eventually "the kernel's namespace is there" disk_of nqn.kernel
eventually "the product's namespace is there" disk_of "$NQN"
kernel_admin=$(controller_of nqn.kernel)
kernel_io=$(disk_of nqn.kernel)
product_admin=$(controller_of "$NQN")
product_io=$(disk_of "$NQN")

# status COMMAND...: the status of an nvme command, with DNR and without More. A command that found no connection
# has none: a busy test machine may have made the node late, and then it is sent again.
status() {
    status_tries=0
    while [ $status_tries -lt 300 ]; do
        status_tries=$((status_tries + 1))
        "$@" > /tmp/status.out 2>&1 && echo success && return
        status_code=$(sed -n 's/.*(0x\([0-9a-f]*\)).*/\1/p' /tmp/status.out | head -n 1)
        if [ -n "$status_code" ]; then
            printf '%x\n' $((0x$status_code & 0xdfff))
            return
        fi
        sleep 0.2
    done
}
# same NAME KIND ARGUMENTS...: an admin or io command to both.
same() {
    same_name=$1
    same_kind=$2
    shift 2
    case $same_kind in
        admin) same_devices="$kernel_admin $product_admin" ;;
        io) same_devices="$kernel_io $product_io" ;;
    esac
    same_kernel=$(status nvme "$same_kind-passthru" "${same_devices% *}" "$@")
    same_product=$(status nvme "$same_kind-passthru" "${same_devices#* }" "$@")
    [ -n "$same_kernel" ] || same_kernel="no status"
    equal "same answer: $same_name" "$same_product" "$same_kernel"
}
# answers STATUS NAME KIND ARGUMENTS...: the product answers as the specification has it.
answers() {
    answers_status=$1
    answers_name=$2
    answers_kind=$3
    shift 3
    case $answers_kind in
        admin) answers_device=$product_admin ;;
        io) answers_device=$product_io ;;
    esac
    equal "answer: $answers_name" "$(status nvme "$answers_kind-passthru" "$answers_device" "$@")" "$answers_status"
}
BLOCK="--namespace-id=1 --data-len=4096 --cdw12=0"
ZEROES="--write --input-file=/dev/zero"
same "unknown admin opcode" admin --opcode=0x7e
same "unknown vendor admin opcode" admin --opcode=0xc5
same "identify with an unknown CNS" admin --opcode=6 --cdw10=0xff --data-len=4096 --read
same "get an unknown feature" admin --opcode=0x0a --cdw10=0xbf
same "set an unknown feature" admin --opcode=9 --cdw10=0xbf
same "abort of nothing" admin --opcode=8 --cdw10=0xfff00001
same "keep alive" admin --opcode=0x18
same "create an I/O queue as PCI does" admin --opcode=1
same "unknown I/O opcode" io --opcode=0x7e --namespace-id=1
same "read" io --opcode=2 --cdw10=0 $BLOCK --read
same "write" io --opcode=1 --cdw10=0 $BLOCK $ZEROES
same "flush" io --opcode=0 --namespace-id=1

answers 400b "active list from the last NSID" admin --opcode=6 --cdw10=2 --namespace-id=0xffffffff \
    --data-len=4096 --read
answers 4109 "unknown log page" admin --opcode=2 --cdw10=0x7f00df --data-len=512 --read
answers 400c "set the host identifier" admin --opcode=9 --cdw10=0x81 --cdw11=1 --data-len=16 $ZEROES
answers 4080 "read at the end" io --opcode=2 --cdw10=0x7fffffff $BLOCK --read
answers 4080 "read beyond everything" io --opcode=2 --cdw10=0 --cdw11=0xffffffff $BLOCK --read
answers 4080 "write at the end" io --opcode=1 --cdw10=0x7fffffff $BLOCK $ZEROES
answers 4080 "write zeroes at the end" io --opcode=8 --namespace-id=1 --cdw10=0x7fffffff --cdw12=0
check "disconnects from the product" detach
check "disconnects from the kernel" nvme disconnect -n nqn.kernel
