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
eventually "the kernel's controller is there" test -c /dev/nvme0
eventually "the kernel's namespace is there" test -b /dev/nvme0n1
check "connects to the product" attach "$PORT_A"
eventually "the product's controller is there" test -c /dev/nvme1
eventually "the product's namespace is there" test -b /dev/nvme1n1

# status COMMAND...: the status of an nvme command, with DNR and without More.
status() {
    "$@" > /tmp/status.out 2>&1 && echo success && return
    sed -n 's/.*(0x\([0-9a-f]*\)).*/\1/p' /tmp/status.out | head -n 1 | while read -r code; do
        printf '%x\n' $((0x$code & 0xdfff))
    done
}
# same NAME KIND ARGUMENTS...: an admin or io command to both.
same() {
    same_name=$1
    same_kind=$2
    shift 2
    case $same_kind in
        admin) same_device= ;;
        io) same_device=n1 ;;
    esac
    same_kernel=$(status nvme "$same_kind-passthru" /dev/nvme0$same_device "$@")
    same_product=$(status nvme "$same_kind-passthru" /dev/nvme1$same_device "$@")
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
        admin) answers_device=/dev/nvme1 ;;
        io) answers_device=/dev/nvme1n1 ;;
    esac
    equal "answer: $answers_name" "$(status nvme "$answers_kind-passthru" $answers_device "$@")" "$answers_status"
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
