/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Names of hosts, by a name server that answers when the test lets it. */

#include "engine/api/api.h"
#include "engine/job/join-internal.h"
#include "engine/launch/resolver.h"
#include "engine/live/loop.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { TURNS = 40, TURN_MS = 60 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool answers; /* the name server */
static _Atomic unsigned asked, answered;

int __real_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
		       struct addrinfo **found);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
		       struct addrinfo **found);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
		       struct addrinfo **found)
{
	pthread_mutex_lock(&lock);
	asked++;
	pthread_cond_broadcast(&changed);
	while (!answers)
		pthread_cond_wait(&changed, &lock);
	answered++;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return strcmp(host, "node0") ? EAI_NONAME
				     : __real_getaddrinfo("127.0.0.1", service, hints, found);
}

static void let_answer(void)
{
	pthread_mutex_lock(&lock);
	answers = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void wait_until(const _Atomic unsigned *count)
{
	pthread_mutex_lock(&lock);
	while (!*count)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

/* Bounded by the test's timeout. */
static int ask_until_answered(const char *host, char ip[RESOLVER_IP])
{
	struct resolver *r = NULL;
	int rc;

	while ((rc = resolver_ask(&r, host, ip)) == -EAGAIN)
		sched_yield();
	ck_assert_ptr_null(r);
	return rc;
}

START_TEST(a_name_is_asked_for_and_an_address_is_not)
{
	char ip[RESOLVER_IP] = "";
	struct resolver *r = NULL;

	ck_assert_int_eq(resolver_ask(&r, "10.1.2.3", ip), 0);
	ck_assert_str_eq(ip, "10.1.2.3");
	ck_assert_int_eq(resolver_ask(&r, "node0", ip), -EAGAIN);
	wait_until(&asked);
	ck_assert_int_eq(resolver_ask(&r, "node0", ip), -EAGAIN);
	resolver_forget(r);
	let_answer();
	ck_assert_int_eq(ask_until_answered("node0", ip), 0);
	ck_assert_str_eq(ip, "127.0.0.1");
	ck_assert_int_eq(ask_until_answered("nowhere", ip), -ENOENT);
}
END_TEST

START_TEST(without_memory_or_a_thread_it_is_enomem)
{
	char ip[RESOLVER_IP];
	struct resolver *r = NULL;

	for (unsigned n = 1; n <= 2; n++) {
		scarce_begin(n, 1);
		ck_assert_int_eq(resolver_ask(&r, "node0", ip), -ENOMEM);
		ck_assert_uint_eq(scarce_end(), 1);
		ck_assert_ptr_null(r);
	}
}
END_TEST

static struct frag *open_rank(const char *master, bool thread)
{
	struct launch launch = {
		.rank = 1, .world = 2, .job = "resolver", .host = "here", .plain = true
	};
	struct frag *f;

	snprintf(launch.master_addr, sizeof(launch.master_addr), "%s", master);
	ck_assert_int_eq(
		api_open_over(&f, &launch, &transport_zmq, &transport_host, NULL, thread), 0);
	return f;
}

START_TEST(while_the_master_is_looked_up_nobody_waits)
{
	struct frag *f = open_rank("node0", true);
	uint64_t shape[] = { 4 };
	struct frag_tensor t = { sizeof(t), .name = "w", .dtype = FRAG_F32, .ndim = 1,
				 .shape = shape };

	wait_until(&asked);
	ck_assert_int_eq(frag_param(f, &t), 0);
	ck_assert_int_eq(frag_ready(f), 0); /* takes the engine's lock */
	frag_close(f);
	ck_assert_uint_eq(answered, 0);
	let_answer();
	wait_until(&answered);
}
END_TEST

enum { LINES = 16 };

/* Runs rank 1, each turn of which is late enough for another try, until the name server has
 * been asked so many questions.  Returns how many lines of its log name the master; no two of
 * them are the same.
 */
static unsigned lines_about(const char *master, unsigned questions)
{
	FILE *said = tmpfile();
	struct frag *f = open_rank(master, false);
	unsigned n = 0, before = asked;
	char lines[LINES][400];

	fflush(stderr);
	ck_assert_int_ge(dup2(fileno(said), STDERR_FILENO), 0);
	for (int i = 0; i < TURNS || asked < before + questions; i++) {
		scarce_skip_ms(TURN_MS);
		loop_turn(f->engine, 0);
		sched_yield();
	}
	rewind(said);
	while (n < LINES && fgets(lines[n], sizeof(lines[n]), said)) {
		if (!strstr(lines[n], master))
			continue;
		for (unsigned i = 0; i < n; i++)
			ck_assert_str_ne(lines[i], lines[n]);
		n++;
	}
	frag_close(f);
	fclose(said);
	return n;
}

START_TEST(a_master_that_is_unknown_or_out_of_reach_is_said_once)
{
	let_answer();
	/* what is wrong with the master, and where the rank looks for rank 0 */
	ck_assert_uint_eq(lines_about("nowhere", 3), 2);
	ck_assert_uint_eq(lines_about("255.255.255.255", 0), 2);
}
END_TEST

START_TEST(every_port_of_the_range_is_tried_and_the_first_one_often)
{
	struct frag *f = open_rank("127.0.0.1", false);
	unsigned firsts = 0;
	char seed[64];

	for (int i = 0; i < TURNS && !f->engine->job.join->seeds.list[0]; i++) {
		scarce_skip_ms(TURN_MS);
		loop_turn(f->engine, 0);
	}
	for (int port = 21017; port <= 21117; port++) {
		snprintf(seed, sizeof(seed), "tcp://127.0.0.1:%d", port);
		ck_assert_msg(strstr(f->engine->job.join->seeds.list, seed), "%s", seed);
	}
	for (const char *at = f->engine->job.join->seeds.list; (at = strstr(at, ":21017"));
	     at++)
		firsts++;
	ck_assert_uint_ge(firsts, 6);
	frag_close(f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("resolver");
	TCase *t = tcase_create("resolver");

	tcase_set_timeout(t, 20);
	tcase_add_test(t, a_name_is_asked_for_and_an_address_is_not);
	tcase_add_test(t, without_memory_or_a_thread_it_is_enomem);
	tcase_add_test(t, while_the_master_is_looked_up_nobody_waits);
	tcase_add_test(t, a_master_that_is_unknown_or_out_of_reach_is_said_once);
	tcase_add_test(t, every_port_of_the_range_is_tried_and_the_first_one_often);
	return run_suite(s, t);
}
