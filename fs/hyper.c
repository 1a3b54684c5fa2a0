/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/hyper.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct waiting {
	pthread_mutex_t lock;
	pthread_cond_t came;
	bool done;
	int64_t result;
	double value;
};

static void got(struct engine_read *read, const void *data, int64_t result)
{
	struct waiting *w = read->owner;

	pthread_mutex_lock(&w->lock);
	w->result = result;
	if (result == sizeof(w->value))
		memcpy(&w->value, data, sizeof(w->value));
	w->done = true;
	pthread_cond_signal(&w->came);
	pthread_mutex_unlock(&w->lock);
}

int hyper_get(struct engine *e, struct engine_file *file, double *value)
{
	struct waiting w = { .lock = PTHREAD_MUTEX_INITIALIZER,
			     .came = PTHREAD_COND_INITIALIZER };
	struct engine_read read = {
		.file = file, .size = sizeof(*value), .nowait = true, .done = got, .owner = &w
	};

	engine_read(e, &read);
	pthread_mutex_lock(&w.lock);
	while (!w.done)
		pthread_cond_wait(&w.came, &w.lock);
	pthread_mutex_unlock(&w.lock);
	if (w.result != sizeof(*value))
		return w.result < 0 ? (int)w.result : -EIO;
	*value = w.value;
	return 0;
}

int hyper_format(double value, char out[HYPER_TEXT_MAX])
{
	double back;
	int length = 0;

	for (int digits = 1; digits <= 17; digits++) {
		length = snprintf(out, HYPER_TEXT_MAX, "%.*g\n", digits, value);
		if (isnan(value) || (!hyper_parse(out, (size_t)length, &back) && back == value))
			break;
	}
	return length;
}

int hyper_parse(const char *text, size_t length, double *value)
{
	char copy[HYPER_TEXT_MAX + 1], *end;
	double number;

	if (length > HYPER_TEXT_MAX || memchr(text, '\0', length))
		return -EINVAL;
	memcpy(copy, text, length);
	copy[length] = '\0';
	number = strtod(copy, &end);
	if (end == copy || (isinf(number) && isdigit((unsigned char)end[-1]))) /* 1e999 */
		return -EINVAL;
	while (isspace((unsigned char)*end))
		end++;
	if (*end)
		return -EINVAL;
	*value = number;
	return 0;
}
