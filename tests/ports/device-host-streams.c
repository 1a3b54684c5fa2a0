/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ports/device-host.h"

#include <errno.h>
#include <pthread.h>

struct work {
	STAILQ_ENTRY(work) next;
	void (*work)(void *arg);
	void *arg;
};

struct device_host_stream {
	pthread_mutex_t lock;
	bool held;
	STAILQ_HEAD(, work) works;
};

struct device_host_stream *device_host_stream_new(void)
{
	struct device_host_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	pthread_mutex_init(&s->lock, NULL);
	STAILQ_INIT(&s->works);
	return s;
}

void device_host_stream_free(struct device_host_stream *s)
{
	assert(STAILQ_EMPTY(&s->works));
	pthread_mutex_destroy(&s->lock);
	free(s);
}

void device_host_hold(struct device_host_stream *s)
{
	pthread_mutex_lock(&s->lock);
	s->held = true;
	pthread_mutex_unlock(&s->lock);
}

/* Returns whether it is to wait. */
static bool append_if_held(struct device_host_stream *s, struct work *w)
{
	bool held;

	pthread_mutex_lock(&s->lock);
	held = s->held;
	if (held)
		STAILQ_INSERT_TAIL(&s->works, w, next);
	pthread_mutex_unlock(&s->lock);
	return held;
}

int device_host_enqueue(struct device_host_stream *s, void (*function)(void *arg), void *arg)
{
	struct work *w = malloc(sizeof(*w));

	if (!w)
		return -ENOMEM;
	*w = (struct work){ .work = function, .arg = arg };
	if (s && append_if_held(s, w))
		return 0;
	free(w);
	function(arg);
	return 0;
}

static struct work *take_work(struct device_host_stream *s)
{
	struct work *w;

	pthread_mutex_lock(&s->lock);
	w = STAILQ_TAKE(&s->works, next);
	s->held = w;
	pthread_mutex_unlock(&s->lock);
	return w;
}

void device_host_go(struct device_host_stream *s)
{
	struct work *w;

	while ((w = take_work(s))) {
		w->work(w->arg);
		free(w);
	}
}
