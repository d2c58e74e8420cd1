# What every guest script may use. It is put before the test's own text.

# check NAME COMMAND...: runs the command; its output is shown only if it fails, which ends the script.
check() {
    check_name=$1
    shift
    if "$@" > /tmp/check.out 2>&1; then
        echo "@ok $check_name"
    else
        check_status=$?
        cat /tmp/check.out
        echo "@not-ok $check_name: '$*' ended with $check_status"
        exit 1
    fi
}

# refused NAME COMMAND...: the command must fail.
refused() {
    check_name=$1
    shift
    if "$@" > /tmp/check.out 2>&1; then
        cat /tmp/check.out
        echo "@not-ok $check_name: '$*' succeeded"
        exit 1
    fi
    echo "@ok $check_name"
}

# equal NAME ACTUAL EXPECTED
equal() {
    if [ "$2" != "$3" ]; then
        echo "@not-ok $1: is '$2', expected '$3'"
        exit 1
    fi
    echo "@ok $1"
}

# eventually NAME COMMAND...: repeats the command until it succeeds, for a minute at most.
eventually() {
    check_name=$1
    shift
    tries=0
    until "$@" > /tmp/check.out 2>&1; do
        tries=$((tries + 1))
        if [ $tries -ge 300 ]; then
            cat /tmp/check.out
            echo "@not-ok $check_name: '$*' did not come true within a minute"
            exit 1
        fi
        sleep 0.2
    done
    echo "@ok $check_name"
}

# ask WORDS...: has the test do something and waits; what the test replies is printed.
ask() {
    echo "@ask $*" > /dev/ttyS1
    read -r answer < /dev/ttyS1
    echo "$answer"
}
