# shellcheck shell=sh
# In one guest: test programs of tests/proc, with verbs in place of whichever transport a test names. A
# case is a line, with what the device carried, and what TCP did: bootstrap, control and the links.
. "$SOURCE/tests/vm/guest.inc"
export COLL_TRANSPORT=verbs TEST_TRANSPORT=verbs

check "failures" suite proc_test_failures \
  'failures/!(abort|killed_tcp|leaving_after_the_end_is_no_loss|no_descriptor_is_left|rank_that_never_comes)'
check "requests" suite proc_test_requests 'requests/@(everybody_to_everybody|patience)'
check "windows" suite proc_test_window
check "mail" suite proc_test_mail \
  'mail/@(any_source_server*|flood|forms|misfits|killed_in_a_long_message|lengths)'
check "splits" suite proc_test_split 'split/@(random|dups_and_subsets)'
check "splits that fail" suite proc_test_split_failures
check "shrink" suite proc_test_shrink 'shrink/!(coordinator_dies_meanwhile|*member_dies_meanwhile)'
check "shrink among others" suite proc_test_shrink_use \
  'shrink_use/@(several_in_a_row|revoke_wakes_everybody|after_a_split)'
TEST_LINK=$LINK check "device, interface and port taken away" suite proc_test_verbs_lost
exit $failed
