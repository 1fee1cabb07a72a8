# shellcheck shell=sh
# In the guest: whether its verbs device works at all.
. "$SOURCE/tests/vm/guest.inc"

# Two processes exchange messages over a reliable connection.
ping_pong() {
  timeout 90 ibv_rc_pingpong -d rxe0 -g 1 -n 100 "$@" &
  await 30 listens 18515
  timeout 60 ibv_rc_pingpong -d rxe0 -g 1 -n 100 "$@" "$ADDRESS" && wait $!
}

# The state of the port follows the interface below.
port_follows() {
  ip link set "$LINK" "$1" && await 20 port_is "$2"
}

check "device with an active port" says PORT_ACTIVE ibv_devinfo -d rxe0
check "GID 1 is its IPv4 address" says "GID\[  1\].*$ADDRESS" ibv_devinfo -d rxe0 -v
check "messages" ping_pong
check "much locked memory" ping_pong -s 30000000 -n 1
check "a limit to locked memory" says "register MR" locked_at_most 1024 ibv_rc_pingpong -d rxe0 -g 1 -s 30000000
check "port down" port_follows down DOWN
check "port up" port_follows up ACTIVE
check "messages once more" ping_pong
exit $failed
