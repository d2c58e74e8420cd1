#!/bin/sh
# First process of a test guest: brings up devices and network, runs /test.sh, reports, powers off.
# The kernel logs to the first serial port; everything here speaks to the test over the second.
export PATH=/usr/bin:/bin:/sbin
export HOME=/root
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
exec < /dev/ttyS1 > /dev/ttyS1 2>&1
stty -echo
mkdir -p /dev/shm /tmp /run /mnt /root
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
ln -s /proc/self/fd /dev/fd
modprobe -a virtio_pci virtio_net
ip link set lo up
ip address add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.2.2
echo "@booted $(uname -r)"
sh -eu /test.sh
status=$?
if [ $status = 0 ]; then
    echo "@done"
else
    echo "exit status $status; the kernel's last words:"
    dmesg | tail -n 15
    echo "@failed $status"
fi
sync
poweroff -f
