# The namespaces change while this host is connected; async events tell it.
check "connects for changes" attach "$PORT_A"
eventually "first namespace is there" disk 1
before=$(bytes_of "$(disk 1)")
equal "the test grows namespace 1" "$(ask resize 1 $((before + 67108864)))" done
eventually "growth is seen" is_bytes "$(disk 1)" $((before + 67108864))
check "new space is usable" fio_verify "$(disk 1)" 2M --offset="$before"
equal "the test shrinks namespace 1" "$(ask resize 1 "$before")" done
eventually "shrinking is seen" is_bytes "$(disk 1)" "$before"

check "no third namespace yet" no_disk 3
equal "the test adds namespace 3" "$(ask add 3)" done
eventually "new namespace is seen" disk 3
check "new namespace works" fio_verify "$(disk 3)" 2M
equal "the test removes namespace 3" "$(ask remove 3)" done
eventually "removal is seen" no_disk 3
check "the others go on" fio_verify "$(disk 1)" 2M
check "disconnects after changes" detach
