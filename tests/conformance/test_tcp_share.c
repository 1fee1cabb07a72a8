/* test_tcp_share.c: which rail gets a long message, with a clock of the test's own and rails whose
 * speeds it sets. */
#include <criterion/criterion.h>
#include <string.h>

#include "transports/tcp/tcp_rails.h"

#define BYTES   131072
#define STEP_NS 10000
#define DEEP    16 /* messages on their way at once, on all rails together */

typedef struct network {
  coll_transport_env env;
  tcp_endpoint ep;
  tcp_rails rails;
  tcp_conn conn[4];
  double speed[4]; /* bytes per ns */
  double sent[4];  /* bytes that have left since the rail was last idle */
  uint64_t given[4];
  uint64_t now_ns, hidden_ns;
  int count;
} network;

static void init(network *net, int count) {
  memset(net, 0, sizeof(*net));
  net->count = count;
  net->ep.env = &net->env;
  net->rails.ep = &net->ep;
  net->rails.log.level = COLLI_LOG_NONE;
  TAILQ_INIT(&net->rails.sockets);
  for (int i = 0; i < count; i++) {
    tcp_conn *conn = &net->conn[i];
    conn->ep = &net->ep;
    conn->source.fd = -1;
    conn->state = TCP_ESTABLISHED;
    conn->rail.rails = &net->rails;
    conn->rail.joined = true;
    conn->rail.nic_here = (uint32_t)i + 1;
    TAILQ_INSERT_TAIL(&net->rails.sockets, conn, rail.link);
    net->speed[i] = 1;
  }
  net->now_ns = 1;
}

/* Time passes; the rank sees what has arrived unless it is away. */
static void pass(network *net, bool is_away) {
  net->now_ns += STEP_NS;
  for (int i = 0; i < net->count; i++) {
    const uint64_t load = tcp_rail_load(&net->conn[i].rail);
    net->sent[i] += load > 0 ? net->speed[i] * STEP_NS : 0;
    net->sent[i] = net->sent[i] < (double)load ? net->sent[i] : (double)load;
    if (is_away || load == 0)
      continue;
    tcp_rails_count_arrived(&net->conn[i], (uint64_t)net->sent[i], net->now_ns);
    net->sent[i] -= (double)(uint64_t)net->sent[i];
  }
}

/* Sends so many messages, and counts which rail got them. */
static void send_messages(network *net, int count, int deep) {
  uint64_t load;
  memset(net->given, 0, sizeof(net->given));
  for (int sent = 0; sent < count;) {
    load = 0;
    for (int i = 0; i < net->count; i++)
      load += tcp_rail_load(&net->conn[i].rail);
    if (load + BYTES <= (uint64_t)deep * BYTES) {
      tcp_conn *conn = tcp_rails_choose(&net->rails, BYTES, net->now_ns);
      tcp_rails_count_given(conn, BYTES, net->now_ns);
      net->given[conn - net->conn]++;
      sent++;
    }
    pass(net, false);
    for (int i = 0; net->hidden_ns > 0 && sent % 5 == 0 && i < (int)(net->hidden_ns / STEP_NS); i++)
      pass(net, true);
  }
}

Test(tcp_share, equal_rails_get_equal_shares) {
  network net;
  init(&net, 3);
  for (net.hidden_ns = 0; net.hidden_ns <= 3000000; net.hidden_ns += 1500000) {
    send_messages(&net, 3000, DEEP);
    for (int i = 0; i < 3; i++)
      cr_assert(net.given[i] > 800, "rail %d got %llu of 3000 messages; away for %llu ns", i,
                (unsigned long long)net.given[i], (unsigned long long)net.hidden_ns);
  }
}

Test(tcp_share, unlike_rails_get_shares_by_speed) {
  static const double speeds[] = {0.8, 0.5, 0.34, 0.2};
  for (int i = 0; i < 4; i++)
    for (int rail = 0; rail < 2; rail++) {
      network net;
      init(&net, 2);
      net.speed[rail] = speeds[i];
      net.speed[!rail] = 1;
      for (int j = 0; j < 2; j++) /* the second time that is known */
        send_messages(&net, 1500, 32);
      const double part = 1500 * speeds[i] / (1 + speeds[i]);
      cr_assert((double)net.given[rail] > 0.75 * part && (double)net.given[rail] < 1.25 * part,
                "rail %d of speed %g got %llu of 1500 messages", rail, speeds[i],
                (unsigned long long)net.given[rail]);
    }
}

/* A rail that lets bursts through at first seems to be the fastest. */
Test(tcp_share, a_slow_rail_that_seemed_fast_is_noticed) {
  network net;
  init(&net, 2);
  net.speed[0] = 1.2;
  net.speed[1] = 0.3;
  send_messages(&net, 300, DEEP);
  cr_assert(net.ep.again_ns > 0, "not measured yet");
  net.speed[0] = 0.03;
  send_messages(&net, 6000, DEEP);
  send_messages(&net, 500, DEEP);
  cr_assert(net.given[0] < 75, "%llu of 500", (unsigned long long)net.given[0]);
}

/* At 1.25 bytes per ns and more, which is FAST in tcp_rails_share.c, messages are not cut. */
Test(tcp_share, messages_are_cut_for_single_ones_and_unlike_shares) {
  static const struct {
    int rails;
    double speed, other;
    unsigned piece;
  } cases[] = {{1, 1, 1, 4},     {2, 1, 1, 2},     {2, 1, 0.5, 1},  {3, 1, 1, 1},
               {2, 2.5, 2.5, 4}, {2, 2.5, 1.5, 4}, {4, 0.1, 0.1, 1}};
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    network net;
    init(&net, cases[i].rails);
    for (int j = 0; j < cases[i].rails; j++)
      net.speed[j] = j ? cases[i].other : cases[i].speed;
    cr_assert_eq(tcp_rails_piece(&net.rails), cases[i].rails > 1 ? 1 : 4, "case %zu at first", i);
    send_messages(&net, 1000, DEEP);
    cr_assert_eq(tcp_rails_piece(&net.rails), cases[i].piece, "case %zu: %u", i,
                 tcp_rails_piece(&net.rails));
  }
}

Test(tcp_share, a_slow_rail_is_left_out_where_it_would_be_late) {
  network net;
  init(&net, 2);
  net.speed[0] = 0.05; /* the first one: a single message goes there if nothing is known */
  send_messages(&net, 1000, DEEP);
  send_messages(&net, 1000, DEEP);
  cr_assert(net.given[0] < 10, "%llu of 1000", (unsigned long long)net.given[0]);
  net.hidden_ns = 2000000;
  send_messages(&net, 1000, DEEP);
  cr_assert(net.given[0] < 10, "%llu of 1000", (unsigned long long)net.given[0]);
}

Test(tcp_share, a_slow_rail_helps_where_much_is_on_its_way) {
  network net;
  init(&net, 2);
  net.speed[1] = 0.2;
  send_messages(&net, 200, 64);
  send_messages(&net, 1000, 64);
  cr_assert(net.given[1] > 100 && net.given[1] < 300, "%llu of 1000",
            (unsigned long long)net.given[1]);
}

Test(tcp_share, single_messages_find_it_out_too) {
  network net;
  init(&net, 2);
  net.speed[0] = 0.1;
  send_messages(&net, 200, 1);
  send_messages(&net, 300, 1);
  cr_assert(net.given[0] < 30, "%llu of 300", (unsigned long long)net.given[0]);
}

Test(tcp_share, a_rail_that_becomes_fast_or_slow_is_noticed) {
  network net;
  init(&net, 2);
  for (int turn = 0; turn < 3; turn++) {
    net.speed[1] = 0.05;
    send_messages(&net, 40000, DEEP); /* it is measured again after a hundred times as long */
    send_messages(&net, 1000, DEEP);
    cr_assert(net.given[1] < 10, "%llu of 1000", (unsigned long long)net.given[1]);
    net.speed[1] = 1;
    send_messages(&net, 40000, DEEP);
    send_messages(&net, 1000, DEEP);
    cr_assert(net.given[1] > 400, "%llu of 1000", (unsigned long long)net.given[1]);
  }
}

Test(tcp_share, the_loss_of_the_fast_one_is_noticed) {
  network net;
  init(&net, 3);
  net.speed[1] = net.speed[2] = 0.05;
  send_messages(&net, 2000, DEEP);
  cr_assert(net.given[0] > 1500, "%llu of 2000", (unsigned long long)net.given[0]);
  net.conn[0].rail.retired = true;
  tcp_rails_count_lost(&net.conn[0]);
  net.conn[0].rail.arrived = net.conn[0].rail.given;
  send_messages(&net, 1000, DEEP);
  cr_assert_eq(net.given[0], 0);
  for (int i = 1; i < 3; i++)
    cr_assert(net.given[i] > 400, "rail %d got %llu of 1000", i, (unsigned long long)net.given[i]);
}

/* Another connection of the same endpoint, with one rail, sends over the fast interface meanwhile,
 * which is known long before the slow one. */
Test(tcp_share, connections_with_other_rails_do_not_disturb) {
  network net;
  tcp_rails other = {.ep = &net.ep};
  tcp_conn alone;
  init(&net, 2);
  net.speed[0] = 0.02;
  net.speed[1] = 0.001; /* 32 messages take 4 s */
  alone = net.conn[0];
  TAILQ_INIT(&other.sockets);
  TAILQ_INSERT_TAIL(&other.sockets, &alone, rail.link);
  for (int i = 0; i < 1000; i++) {
    send_messages(&net, 1, DEEP);
    cr_assert_eq(tcp_rails_choose(&other, BYTES, net.now_ns), &alone);
    tcp_rails_count_given(&alone, BYTES, net.now_ns);
    tcp_rails_count_arrived(&alone, BYTES, net.now_ns - STEP_NS / 2); /* an older time */
  }
  send_messages(&net, 1000, DEEP);
  cr_assert(net.given[1] < 10, "%llu of 1000", (unsigned long long)net.given[1]);
}

/* Another connection of the same endpoint leads to a host with an only, slow interface. What it
 * sends always is on its way over one interface here. */
Test(tcp_share, rails_that_share_an_interface_say_nothing_of_others) {
  network net;
  tcp_rails other = {.ep = &net.ep, .one_there = true};
  tcp_conn slow;
  init(&net, 2);
  slow = net.conn[0];
  slow.rail.rails = &other;
  tcp_rails_count_given(&slow, BYTES, net.now_ns);
  for (int i = 0; i < 200; i++) {
    send_messages(&net, 4, DEEP);
    tcp_rails_count_arrived(&slow, BYTES / 2, net.now_ns);
    for (int j = 0; j < 500; j++)
      pass(&net, false);
    tcp_rails_count_given(&slow, BYTES, net.now_ns);
    tcp_rails_count_arrived(&slow, BYTES / 2, net.now_ns);
  }
  for (int i = 1; i <= 2; i++) {
    const tcp_nic *nic = &net.ep.nics[i];
    const double speed = (double)nic->bytes / (double)nic->ns;
    cr_assert_eq(nic->nsamples, 32, "interface %d was not measured", i);
    cr_assert(speed > 0.9 && speed < 1.1, "interface %d: %g", i, speed);
  }
  send_messages(&net, 1000, DEEP);
  cr_assert(net.given[0] > 400, "%llu of 1000", (unsigned long long)net.given[0]);
  tcp_rails_count_lost(&slow);
  for (int i = 1; i <= 2; i++)
    cr_assert_eq(net.ep.nics[i].load_apart, 0);
}

Test(tcp_share, interfaces_that_are_not_known_have_a_place_of_their_own) {
  network net;
  init(&net, 3);
  net.conn[0].rail.nic_here = 0;
  tcp_rails_count_given(&net.conn[0], BYTES, net.now_ns);
  for (int i = 1; i < 3; i++)
    tcp_rails_count_given(&net.conn[i], BYTES, net.now_ns);
  for (int i = 0; i < 3; i++)
    cr_assert_eq(net.ep.nics[i].load, BYTES);
  tcp_rails_count_arrived(&net.conn[0], BYTES, net.now_ns + 1);
  cr_assert_eq(net.ep.nics[0].load, 0);
}

Test(tcp_share, short_messages_go_over_the_first) {
  network net;
  init(&net, 2);
  for (int i = 0; i < 100; i++) {
    tcp_conn *conn = tcp_rails_choose(&net.rails, TCP_RAILS_LONG - 1, net.now_ns);
    cr_assert_eq(conn, &net.conn[0]);
    tcp_rails_count_given(conn, TCP_RAILS_LONG - 1, net.now_ns);
  }
}
