/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_CUDA_DEVICE_SUITE_H
#define TESTS_CUDA_DEVICE_SUITE_H

/* What holds for each implementation of engine/device/device.h.  A trainer is what the port's
 * caller has besides: memory of devices, and streams.
 */

#include "engine/device/device.h"

#include <check.h>

struct trainer {
	const struct device_ops *ops;
	int (*ndevices)(void);
	bool has_kernels;
	/* After the port has been opened; before or after it is closed.  What is there then can
	 * still be used.
	 */
	void (*begin)(struct device *d);
	void (*end)(void);
	void *(*alloc)(int number, uint64_t size);
	void (*free)(void *memory);
	/* At once, whatever streams do. */
	void (*put)(void *device, const void *host, uint64_t size);
	void (*get)(void *host, const void *device, uint64_t size);
	void *(*stream_new)(int number);
	void (*stream_free)(void *stream);
	/* What is enqueued from here on waits for go, which waits until all is done. */
	void (*hold)(void *stream);
	void (*go)(void *stream);
	void (*fill)(void *stream, void *device, uint8_t value, uint64_t size);
};

extern const struct trainer trainer_host;
#ifdef HAVE_CUDA
extern const struct trainer trainer_cuda;
/* On this library, NULL: the usual one.  NULL, or why it cannot be. */
const char *trainer_cuda_load(const char *library);
extern unsigned trainer_cuda_devices; /* by then */
#endif

/* For main: runs that, and more, up to NULL, where there is more; returns its exit status. */
int device_suite_run(const struct trainer *trainer, TCase *const more[]);

/* ---- for further tests ---- */

struct job {
	struct device_io io;
	struct device_event *unmark; /* when it is over */
	int result;
	bool over;
};

extern const struct trainer *here;
extern struct device *device;
extern struct device_options device_test_options;

void port_open(void); /* uses all devices */
void port_close(void);
void job_start(struct job *j);
int job_wait(struct job *j);
bool job_is_over(struct job *j);
int run_io(struct device_io io);
void random_begin(void); /* by TEST_SEED, or the clock */
uint64_t next_random(uint64_t below);

void device_suite_add_arithmetic(TCase *c);

#endif
