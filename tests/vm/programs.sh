# shellcheck shell=sh
# In one guest: test programs of tests/proc, with verbs instead of the transport that a test names. One
# line per case, with the traffic of the device and of TCP (bootstrap, control and the links).
. "$SOURCE/tests/vm/guest.inc"
export COLL_TRANSPORT=verbs TEST_TRANSPORT=verbs

check "failures" suite proc_test_failures \
  'failures/@(killed_shm|frozen|leaver|early_leaver|destroy_never_hangs)'
check "requests" suite proc_test_requests 'requests/@(everybody_to_everybody|patience|misfits)'
check "windows" suite proc_test_window 'window/@(random_puts_of_processes|signals|deserted|bounds)'
check "p2p" suite proc_test_p2p \
  'p2p/@(any_source_server*|flood|forms|killed_in_a_long_message|lengths)'
check "splits" suite proc_test_split 'split/@(in_any_order|dups_and_subsets)'
check "splits that fail" suite proc_test_split_failures
check "shrink" suite proc_test_shrink \
  'shrink/@(one_killed|two_killed|nobody_lost|frozen_rank_is_left_out)'
check "shrink among others" suite proc_test_shrink_use \
  'shrink_use/@(several_in_a_row|revoke_wakes_everybody|after_a_split)'
TEST_LINK=$LINK check "device, interface and port taken away" suite proc_test_verbs_lost
exit $failed
