/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#ifdef HAVE_CUDA
#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "tests/cuda/device-suite.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* On the CUDA runtime, or what stands for it. */

#define CALLS(X)                                                                               \
	X(Free)                                                                                \
	X(GetDeviceCount)                                                                      \
	X(LaunchHostFunc)                                                                      \
	X(Malloc)                                                                              \
	X(Memcpy)                                                                              \
	X(MemsetAsync)                                                                         \
	X(PeekAtLastError)                                                                     \
	X(SetDevice)                                                                           \
	X(StreamCreateWithFlags)                                                               \
	X(StreamDestroy)

static struct {
#define FIELD(name) __typeof__(&cuda##name) name;
	CALLS(FIELD)
} cuda;

#define OK(call) ck_assert_int_eq(call, cudaSuccess)

static void resolve(void *library, const char *name, void *function)
{
	*(void **)function = dlsym(library, name);
	if (!*(void **)function) {
		fprintf(stderr, "no %s: %s\n", name, dlerror());
		abort();
	}
}

static void resolve_all(const char *library)
{
	void *handle = dlopen(library ? library : "libcudart.so.13", RTLD_NOW);

	if (!handle)
		handle = dlopen("libcudart.so.12", RTLD_NOW);
#define RESOLVE(name) resolve(handle, "cuda" #name, &cuda.name);
	CALLS(RESOLVE)
}

static _Noreturn void look(const char *library, int fd)
{
	struct device_options options = { .library = library };
	char text[1024] = "";
	struct device *d;
	int n = 0;

	if (device_cuda.open(&d, &options)) {
		log_tail(text, sizeof(text));
		text[strcspn(text, "\n")] = '\0';
	} else {
		resolve_all(library);
		cuda.GetDeviceCount(&n);
	}
	_exit(write(fd, text, sizeof(text)) == sizeof(text) ? n : 0);
}

unsigned trainer_cuda_devices;

/* In a child: tests are children too, and a driver that was begun with before a fork is of no
 * use after it.
 */
const char *trainer_cuda_load(const char *library)
{
	static char text[1024];
	int ends[2], status = 0;
	ssize_t n;
	pid_t child;

	if (pipe(ends))
		return "no pipe";
	child = fork();
	if (!child)
		look(library, ends[1]);
	close(ends[1]);
	n = read(ends[0], text, sizeof(text));
	close(ends[0]);
	waitpid(child, &status, 0);
	if (n != sizeof(text))
		return "it crashed";
	if (*text)
		return text;
	trainer_cuda_devices = (unsigned)WEXITSTATUS(status);
	resolve_all(library);
	device_test_options.library = library;
	return NULL;
}

static int ndevices(void)
{
	int n;

	OK(cuda.GetDeviceCount(&n));
	return n;
}

static void begin(struct device *d)
{
}

/* What the port did has left nothing for the trainer to stumble over. */
static void end(void)
{
	OK(cuda.PeekAtLastError());
}

static void *alloc(int number, uint64_t size)
{
	void *memory;

	OK(cuda.SetDevice(number));
	OK(cuda.Malloc(&memory, size));
	OK(cuda.SetDevice(0));
	return memory;
}

static void free_memory(void *memory)
{
	OK(cuda.Free(memory));
}

static void copy(void *to, const void *from, uint64_t size)
{
	OK(cuda.Memcpy(to, from, size, cudaMemcpyDefault));
}

/* ---- streams ---- */

/* One is held at a time. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static bool held, came;

static void *stream_new(int number)
{
	cudaStream_t stream;

	thread_cond_init(&changed);
	OK(cuda.SetDevice(number));
	OK(cuda.StreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	OK(cuda.SetDevice(0));
	return stream;
}

static void stream_free(void *stream)
{
	OK(cuda.StreamDestroy(stream));
}

static bool wait_until(const bool *what, bool value)
{
	struct timespec until = thread_in_ms(60000);
	int rc = 0;

	pthread_mutex_lock(&lock);
	while (*what != value && !rc)
		rc = pthread_cond_timedwait(&changed, &lock, &until);
	pthread_mutex_unlock(&lock);
	return !rc;
}

static void set(bool *what, bool value)
{
	pthread_mutex_lock(&lock);
	*what = value;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

/* In the runtime's thread. */
static void stand(void *arg)
{
	wait_until(&held, false);
}

static void tell(void *arg)
{
	set(&came, true);
}

static void hold(void *stream)
{
	set(&held, true);
	OK(cuda.LaunchHostFunc(stream, stand, NULL));
}

static void go(void *stream)
{
	set(&came, false);
	set(&held, false);
	OK(cuda.LaunchHostFunc(stream, tell, NULL));
	ck_assert(wait_until(&came, true));
}

static void fill(void *stream, void *memory, uint8_t value, uint64_t size)
{
	OK(cuda.MemsetAsync(memory, value, size, stream));
}

const struct trainer trainer_cuda = {
	.ops = &device_cuda,
	.ndevices = ndevices,
#ifdef HAVE_NVCC
	.has_kernels = CUDART_VERSION >= 12080,
#endif
	.begin = begin,
	.end = end,
	.alloc = alloc,
	.free = free_memory,
	.put = copy,
	.get = copy,
	.stream_new = stream_new,
	.stream_free = stream_free,
	.hold = hold,
	.go = go,
	.fill = fill,
};

#endif
