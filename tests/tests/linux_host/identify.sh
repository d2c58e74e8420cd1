# What administrators and tools ask for, through nvme-cli.
check "connects for identify" attach "$PORT_A"
eventually "namespaces are there for identify" disk 2
control=/dev/nvme0
check "id-ctrl" nvme id-ctrl $control
check "it is an I/O controller" output_says '^cntrltype *: 1$' nvme id-ctrl $control
check "it says its subsystem" says /tmp/output "^subnqn *: $NQN\$"
check "it reports ANA" says /tmp/output '^anagrpmax *: [1-9]'
check "list-ns" output_says '0x1$' nvme list-ns $control
for nsid in 1 2; do
    check "id-ns $nsid" nvme id-ns $control --namespace-id=$nsid
    check "ns-descs $nsid has a UUID" output_says 'uuid *: [0-9a-f]' nvme ns-descs $control --namespace-id=$nsid
    check "ns-descs $nsid has an NGUID" says /tmp/output 'nguid *: [0-9a-f]'
    check "cmdset-ind-id-ns $nsid" nvme cmdset-ind-id-ns $control --namespace-id=$nsid
done
refused "id-ns of a namespace beyond NN" nvme id-ns $control --namespace-id=4000000000
check "the namespace's UUID is in sysfs" test -s /sys/block/"$(basename "$(disk 1)")"/uuid

check "supported-log-pages" nvme supported-log-pages $control
check "error-log" nvme error-log $control
check "smart-log" output_says 'critical_warning' nvme smart-log $control
check "fw-log" nvme fw-log $control
check "changed-ns-list-log" nvme changed-ns-list-log $control
check "effects-log" nvme effects-log $control
check "ana-log" output_says 'optimized' nvme ana-log $control
refused "an unknown log page" nvme get-log $control --log-id=0xdf --log-len=512
refused "a log offset beyond its end" nvme get-log $control --log-id=2 --log-len=512 --lpo=1048576

check "number of queues" nvme get-feature $control --feature-id=7
check "async event configuration" nvme get-feature $control --feature-id=0x0b
check "volatile write cache" nvme get-feature $control --feature-id=6
check "keep-alive timer" nvme get-feature $control --feature-id=0x0f
check "host identifier" nvme get-feature $control --feature-id=0x81 --data-len=16 --cdw11=1
refused "an unknown feature" nvme get-feature $control --feature-id=0xbf
for register in 0 8 0x14 0x1c; do
    check "property $register" nvme get-property $control --offset=$register
done
check "list-subsys" output_says 'live' nvme list-subsys
check "nvme list" output_says "$(disk 1)" nvme list
check "disconnects after identify" detach
