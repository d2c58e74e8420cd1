# What every guest script may use. It is put before the test's own text.
failures=0
# Past this many, what follows is the consequence of what was before.
failures_max=8

# not_ok MESSAGE: notes what did not hold and goes on; the script fails at its end.
not_ok() {
    cat /tmp/check.out
    echo "@not-ok $1"
    failures=$((failures + 1))
    [ $failures -lt $failures_max ] || exit 1
}

# check NAME COMMAND...: the command must succeed; its output is shown only if it does not.
check() {
    check_name=$1
    shift
    check_status=0
    "$@" > /tmp/check.out 2>&1 || check_status=$?
    if [ $check_status = 0 ]; then
        echo "@ok $check_name"
    else
        not_ok "$check_name: '$*' ended with $check_status"
    fi
}

# refused NAME COMMAND...: the command must fail.
refused() {
    check_name=$1
    shift
    if "$@" > /tmp/check.out 2>&1; then
        not_ok "$check_name: '$*' succeeded"
    else
        echo "@ok $check_name"
    fi
}

# equal NAME ACTUAL EXPECTED
equal() {
    if [ "$2" = "$3" ]; then
        echo "@ok $1"
    else
        : > /tmp/check.out
        not_ok "$1: is '$2', expected '$3'"
    fi
}

# eventually NAME COMMAND...: repeats the command until it succeeds, for a minute at most. What follows
# builds on it: if it does not come true, the script ends.
eventually() {
    check_name=$1
    shift
    tries=0
    until "$@" > /tmp/check.out 2>&1; do
        tries=$((tries + 1))
        if [ $tries -ge 300 ]; then
            not_ok "$check_name: '$*' did not come true within a minute"
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
