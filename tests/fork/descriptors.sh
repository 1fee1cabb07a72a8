#!/bin/bash
# Every descriptor of libcoll is made and closed so that a forked child does not keep it: by
# libcoll/base/fork.h, and nowhere else. Files that a call opens and closes again do not
# matter; programs and the simulator neither.
set -euo pipefail
calls='socket|accept4?|socketpair|eventfd|timerfd_create|signalfd|inotify_init1?|epoll_create1?|memfd_create'
calls+='|open|openat|creat|mkos?temp|dup[23]?|pipe2?|pidfd_open|shm_open|lib->open_device|lib->create_comp_channel'

# Prints the lines of a tree that call close(), or make a descriptor without listing it. The functions of
# tables (ops->open()) make none; a recvmsg() that receives
# descriptors holds fork().
find_calls() {
  find "$1/libcoll" "$1/transports" "$1/topology" -name '*.[ch]' \
    ! -path '*/libcoll/tools/*' ! -path '*/transports/sim/*' ! -path '*/libcoll/base/fork.[ch]' ! -path '*/libcoll/base/file.c' -print0 |
    xargs -0 awk -v calls="$calls" '
      FNR == 1 { held = 0 }
      /colli_fork_hold\(\)/ { held = 1 }
      /colli_fork_release\(\)/ { held = 0 }
      /^ *(\/?\*|\/\/)/ { next }
      {
        line = $0
        gsub(/COLLI_FD\([a-z_0-9]+\(/, "", line)
        gsub(/"([^"\\]|\\.)*"/, "", line)
        sub(/\/\*.*/, "", line)
        gsub(/ops->[a-z_]+\(|_transport\.[a-z_]+\(|inner->[a-z_]+\(/, "", line)
        if (line ~ /(^|[^a-z_A-Z0-9])close\(/ || (!held && line ~ ("(MSG_CMSG_CLOEXEC|(^|[^a-z_A-Z0-9])(" calls ")\\()")))
          print FILENAME ":" FNR ": " $0
      }'
}

found=$(find_calls "$SOURCE")
if [ -n "$found" ]; then
  echo "use COLLI_FD() and colli_fd_close() of libcoll/base/fork.h, so that forked children do not keep it:"
  echo "$found"
  exit 1
fi

# The check notices what it is for.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
notices() {
  rm -rf "$dir/libcoll" "$dir/transports"
  cp -r "$SOURCE/libcoll" "$SOURCE/transports" "$dir/"
  mkdir -p "$dir/topology"
  sed -i "$2" "$dir/$1"
  if cmp -s "$dir/$1" "$SOURCE/$1" || [ -z "$(find_calls "$dir")" ]; then
    echo "not noticed: $1 changed by $2"
    exit 1
  fi
}
notices libcoll/net/sockets.c 's/COLLI_FD(\(accept4(.*)\));/\1;/'
notices libcoll/net/sockets.c '0,/colli_fd_close(/s//close(/'
notices libcoll/net/unix_socket.c '/colli_fork_hold()/d'
notices transports/tcp/tcp.c 's/COLLI_FD(\(eventfd(.*)\));/\1;/'
