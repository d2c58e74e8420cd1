# Discovery: on its own port and on the portals', filtered per host.
discover() {
    nvme discover -t tcp -a $ADDRESS -s "$1" --hostnqn="$2" --hostid=$HOST_ID
}
for discover_port in "$DISCOVERY_PORT" "$PORT_A"; do
    check "discovery on $discover_port names the subsystem" \
        output_says "subnqn: +$NQN\$" discover "$discover_port" $HOST_NQN
    check "discovery on $discover_port names portal A" says /tmp/output "trsvcid: +$PORT_A\$"
    check "discovery on $discover_port names portal B" says /tmp/output "trsvcid: +$PORT_B\$"
    refused "discovery on $discover_port hides what this host may not use" says /tmp/output "$HIDDEN_NQN"
done
check "discovery answers a stranger" \
    output_says 'Discovery Log' discover "$DISCOVERY_PORT" nqn.2014-08.org.nvmexpress:stranger
refused "and shows it nothing" says /tmp/output "subnqn: +$NQN\$"

# Access: denied unless the configuration allows it.
refused "a stranger cannot connect" nvme connect -t tcp -a $ADDRESS -s "$PORT_A" -n "$NQN" \
    --hostnqn=nqn.2014-08.org.nvmexpress:stranger --hostid=$HOST_ID
refused "this host cannot connect to what is not for it" nvme connect -t tcp -a $ADDRESS -s "$PORT_A" \
    -n "$HIDDEN_NQN" --hostnqn=$HOST_NQN --hostid=$HOST_ID
